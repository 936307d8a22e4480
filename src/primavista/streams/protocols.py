"""Protocols order the training sessions into batches; each order is a function of the data set and the run number alone.

`ni`, `nc` and `nic` are those of CORe50 (2017); `nicv2` is the paper's (section 3). Batches are counted from 0 here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from primavista.errors import InputError
from primavista.streams.dataset import DataSet, Session, Stream
from primavista.streams.nicv2 import draw_order, paper_order

MAX_START = {
    79: 68,
    196: 165,
    391: 340,
}  # the last batch in which the official orders introduce a class
MAX_START_SHARE = 0.86  # of the batches, where there are no official orders
Queues = dict[int, list[Session]]


def generated_stream(name: str, data: DataSet, run: int = 0) -> Stream:
    """The stream of a protocol by name: "ni", "nc", "nic", "nicv2-79", "nicv2-196", "nicv2-391" or "nicv2-<batches>"."""
    simple = {"ni": ni, "nc": nc, "nic": nic}
    key = name.lower().replace("_", "-")
    if key in simple:
        return simple[key](data, run)
    if key == "nicv2":
        return nicv2(data, run=run)
    if match := re.fullmatch(r"nicv2-(\d{1,9})", key):
        return nicv2(data, int(match[1]), run)
    raise InputError(
        f"no protocol '{name}': there are ni, nc, nic and nicv2-<batches>, for example nicv2-391"
    )


def ni(data: DataSet, run: int = 0) -> Stream:
    """New instances: a batch holds all classes of one training session number; the run permutes the numbers."""
    by_number: dict[int, list[Session]] = {}
    for session in _sorted(data):
        by_number.setdefault(session.number, []).append(session)
    numbers = sorted(by_number)
    random.Random(f"ni/{run}").shuffle(numbers)
    return Stream(data, [by_number[number] for number in numbers], "ni", run)


def nc(data: DataSet, run: int = 0, *, first: int | None = None, each: int | None = None) -> Stream:
    """New classes: all sessions of a class come at once; `first` classes in batch 1, then `each` a batch (10 and 5).

    Without them, `first` is the number of categories, or a fifth of the classes where no category has two, and `each` half of
    it. Batch 1 has as many categories as it can. The last batch takes what remains.
    """
    queues = _queues(data)
    opening = len(_opening(data, queues)) if first is None else first
    step = max(1, opening // 2) if each is None else each
    if not 1 <= opening <= len(queues):
        raise InputError(
            f"first must lie from 1 to {len(queues)}, the number of classes; got {opening}"
        )
    if step < 1:
        raise InputError(f"each must be 1 or more; got {step}")
    labels = list(queues)
    draw = random.Random(f"nc/{run}")
    draw.shuffle(labels)
    head = _spread(labels, data.categories)[:opening]
    tail = [label for label in labels if label not in set(head)]
    groups = [head] + [tail[i : i + step] for i in range(0, len(tail), step)]
    return Stream(
        data, [[s for label in sorted(group) for s in queues[label]] for group in groups], "nc", run
    )


def nic(data: DataSet, run: int = 0, *, classes: int | None = None) -> Stream:
    """New instances and classes (2017): batch 1 as in NICv2, then the other sessions shuffled, `classes` of them a batch (5).

    Without it, `classes` is half the number of classes of batch 1. No batch has two sessions of one class. Where the sessions
    do not divide evenly, batches differ by one, larger ones first.
    """
    queues = _queues(data)
    order = [[queues[label].pop(0) for label in _opening(data, queues)]]
    classes = max(1, len(order[0]) // 2) if classes is None else classes
    draw = random.Random(f"nic/{run}")
    for queue in queues.values():
        draw.shuffle(queue)
    rest, longest = sum(map(len, queues.values())), max(map(len, queues.values()))
    if classes < 1:
        raise InputError(f"classes must be 1 or more; got {classes}")
    left = -(-rest // classes)
    if longest > left:
        raise InputError(
            f"a class has {longest} sessions after batch 1, more than the {left} batches of {classes} classes: "
            f"choose classes from 1 to {(rest - 1) // (longest - 1) if longest > 1 else rest}"
        )
    for batches in range(left, 0, -1):
        size = -(-sum(map(len, queues.values())) // batches)
        order.append(
            sorted(
                (queues[label].pop() for label in _distinct(queues, size, batches, draw)), key=_key
            )
        )
    return Stream(data, order, "nic", run)


def nicv2(
    data: DataSet,
    batches: int | None = None,
    run: int = 0,
    *,
    first: Sequence[int] | None = None,
    max_start: int | None = None,
    method: Literal["statistics", "paper"] = "statistics",
) -> Stream:
    """NICv2 (paper, section 3): batch 1 has one session of a class of each category, the others few sessions each.

    `first` are the labels of batch 1 (default: the first class of each category; where no category has two classes, the
    first fifth of the classes). Without `batches`, each holds one session after batch 1; where the sessions do not divide
    evenly, batches differ by one session, spread evenly. No class is introduced after batch `max_start`, counted from 0.

    `method="statistics"` reproduces the official orders' statistics (see `draw_order`). `method="paper"` is the published
    pseudocode to the letter, which places no later session of batch 1's classes and, with the published values, nearly
    always ends where no batch has room: that is an error here instead of an endless loop; batches left empty are dropped.
    """
    queues = _queues(data)
    opening = _opening(data, queues) if first is None else _checked(first, queues)
    rest = sum(map(len, queues.values())) - len(opening)
    if not rest:
        raise InputError(
            f"no session remains after batch 1 in the data set '{data.name}': NICv2 needs more sessions"
        )
    count = rest + 1 if batches is None else batches
    if not 2 <= count <= rest + 1:
        raise InputError(
            f"batches must lie from 2 to {rest + 1}: {rest} sessions remain after batch 1; got {count}"
        )
    last = (
        max_start if max_start is not None else MAX_START.get(count, round(MAX_START_SHARE * count))
    )
    draw = random.Random(f"nicv2/{count}/{run}")
    if method == "paper":
        order = paper_order(queues, opening, count, last, draw)
    elif method == "statistics":
        order = draw_order(queues, opening, count, last, draw, exact=max_start is not None)
    else:
        raise InputError(f"method must be 'statistics' or 'paper'; got {method!r}")
    return Stream(data, order, f"nicv2-{count}", run)


def _distinct(
    queues: Mapping[int, list[Session]], size: int, batches: int, draw: random.Random
) -> list[int]:
    """`size` different classes at random, those among them that need every batch that is left."""
    forced = [label for label, queue in queues.items() if len(queue) == batches]
    free = [label for label, queue in queues.items() if 0 < len(queue) < batches]
    while len(forced) < size:
        label = draw.choices(free, [len(queues[label]) for label in free])[0]
        free.remove(label)
        forced.append(label)
    return forced


def _spread(labels: Sequence[int], categories: Sequence[int]) -> list[int]:
    """The labels reordered so that each category comes once before any comes twice."""
    rank: dict[int, int] = {}
    turns: list[tuple[int, int]] = []
    for place, label in enumerate(labels):
        rank[categories[label]] = rank.get(categories[label], 0) + 1
        turns.append((rank[categories[label]], place))
    return [labels[place] for _, place in sorted(turns)]


def _key(session: Session) -> tuple[int, int, int]:
    return session.number, session.label, session.start


def _sorted(data: DataSet) -> list[Session]:
    if not data.train:
        raise InputError(
            f"the data set '{data.name}' has no training sessions: a protocol needs at least one"
        )
    return sorted(data.train, key=_key)


def _queues(data: DataSet) -> Queues:
    """The training sessions of each class in ascending order, classes in ascending order."""
    queues: Queues = {}
    for session in _sorted(data):
        queues.setdefault(session.label, []).append(session)
    return dict(sorted(queues.items()))


def _opening(data: DataSet, queues: Queues) -> list[int]:
    """The first class of each category, or the first fifth of the classes where no category has two."""
    firsts: dict[int, int] = {}
    for label in queues:
        firsts.setdefault(data.categories[label], label)
    if len(firsts) == len(queues):
        return list(queues)[: max(2, len(queues) // 5)]
    return list(firsts.values())


def _checked(first: Sequence[int], queues: Queues) -> list[int]:
    labels = [int(label) for label in first]
    if not labels or len(set(labels)) < len(labels):
        raise InputError(f"first must name at least one class, and each once; got {labels}")
    if missing := [label for label in labels if label not in queues]:
        raise InputError(
            f"first names classes {missing}, which have no training sessions; there are {list(queues)}"
        )
    return labels
