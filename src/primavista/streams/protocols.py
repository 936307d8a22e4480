"""Protocols order the training sessions of a data set into batches.

An order depends on the data set and the number of the run alone. `ni`, `nc` and `nic` are those of
CORe50 (2017); `nicv2` is the paper's (section 3). Batches are counted from 0 in this module.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from primavista.errors import InputError
from primavista.streams.dataset import DataSet, Session, Stream
from primavista.streams.nicv2 import paper_order, sampled_order

# The last batch in which the official orders introduce a class, by the number of batches.
MAX_START = {79: 68, 196: 165, 391: 340}
MAX_START_SHARE = 0.86  # of the batches, for other numbers of them
Queues = dict[int, list[Session]]


def generated_stream(name: str, data: DataSet, run: int = 0) -> Stream:
    """Generate the stream of a protocol by name.

    Args:
        name: "ni", "nc", "nic", "nicv2" or "nicv2-<batches>", such as "nicv2-391".
        data: Any data set.
        run: The number of the random order.

    Returns:
        The stream; equal arguments give equal orders.

    Raises:
        InputError: If there is no such protocol, or the data set has too few sessions for it.
    """
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
    """New instances (NI): each batch holds all classes of one session number.

    Args:
        data: Any data set.
        run: The number of the random order; it permutes the session numbers.

    Returns:
        A stream with as many batches as there are session numbers.
    """
    by_number: dict[int, list[Session]] = {}
    for session in _sorted(data):
        by_number.setdefault(session.number, []).append(session)
    numbers = sorted(by_number)
    random.Random(f"ni/{run}").shuffle(numbers)
    return Stream(data, [by_number[number] for number in numbers], "ni", run)


def nc(data: DataSet, run: int = 0, *, first: int | None = None, each: int | None = None) -> Stream:
    """New classes (NC): all sessions of a class come at once.

    Batch 1 has as many categories as it can. The last batch takes what remains.

    Args:
        data: Any data set.
        run: The number of the random order.
        first: The number of classes in batch 1. By default it is the number of categories (10 for
            CORe50), or a fifth of the classes if no category has two.
        each: The number of classes in each later batch; half of `first` by default (5).

    Returns:
        The stream.

    Raises:
        InputError: If `first` or `each` is out of range.
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
    batches = [[s for label in sorted(group) for s in queues[label]] for group in groups]
    return Stream(data, batches, "nc", run)


def nic(data: DataSet, run: int = 0, *, classes: int | None = None) -> Stream:
    """New instances and classes (NIC, 2017): batch 1 as in NICv2, then the other sessions shuffled.

    No batch has two sessions of one class. If the sessions do not divide evenly, batches differ by
    one session, larger ones first.

    Args:
        data: Any data set.
        run: The number of the random order.
        classes: The number of classes in each later batch; by default half of those in batch 1 (5).

    Returns:
        The stream.

    Raises:
        InputError: If `classes` is out of range.
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
        most = (rest - 1) // (longest - 1) if longest > 1 else rest
        raise InputError(
            f"a class has {longest} sessions after batch 1, more than the {left} batches of "
            f"{classes} classes: choose classes from 1 to {most}"
        )
    for batches in range(left, 0, -1):
        size = -(-sum(map(len, queues.values())) // batches)
        chosen = _distinct(queues, size, batches, draw)
        order.append(sorted((queues[label].pop() for label in chosen), key=_key))
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
    """NICv2 (paper, section 3): batch 1 has one class of each category, the others few sessions.

    If the sessions do not divide evenly, batches differ by one session, spread evenly.

    Args:
        data: Any data set.
        batches: The number of batches. By default each later batch has one session.
        run: The number of the random order.
        first: The labels of batch 1. By default it is the first class of each category, or the
            first fifth of the classes if no category has two.
        max_start: The last batch, counted from 0, in which a class may be introduced.
        method: "statistics" reproduces the statistics of the official orders (`sampled_order`).
            "paper" is Algorithm 3 to the letter (`paper_order`), which places no later session of
            the classes of batch 1 and, with the published values, nearly always ends in a state in
            which no batch has room. That is an error here instead of an endless loop.

    Returns:
        The stream. With `method="paper"`, batches that stay empty are left out.

    Raises:
        InputError: If an argument is out of range, or the data set has too few sessions.
    """
    queues = _queues(data)
    opening = _opening(data, queues) if first is None else _check_first(first, queues)
    count = _batch_count(batches, queues, opening, data.name)
    last = MAX_START.get(count, round(MAX_START_SHARE * count))
    if max_start is not None:
        last = max_start
    draw = random.Random(f"nicv2/{count}/{run}")
    if method == "paper":
        order = paper_order(queues, opening, count, last, draw)
    elif method == "statistics":
        order = sampled_order(queues, opening, count, last, draw, exact=max_start is not None)
    else:
        raise InputError(f"method must be 'statistics' or 'paper'; got {method!r}")
    return Stream(data, order, f"nicv2-{count}", run)


def _batch_count(batches: int | None, queues: Queues, opening: Sequence[int], name: str) -> int:
    """The number of batches of NICv2, checked; by default one session per later batch."""
    rest = sum(map(len, queues.values())) - len(opening)
    if not rest:
        raise InputError(
            f"no session remains after batch 1 in the data set '{name}': NICv2 needs more sessions"
        )
    count = rest + 1 if batches is None else batches
    if not 2 <= count <= rest + 1:
        raise InputError(
            f"batches must lie from 2 to {rest + 1}: {rest} sessions remain after batch 1; "
            f"got {count}"
        )
    return count


def _distinct(
    queues: Mapping[int, list[Session]], size: int, batches: int, draw: random.Random
) -> list[int]:
    """Draw `size` different classes; those that need every batch that is left are among them."""
    forced = [label for label, queue in queues.items() if len(queue) == batches]
    free = [label for label, queue in queues.items() if 0 < len(queue) < batches]
    while len(forced) < size:
        label = draw.choices(free, [len(queues[label]) for label in free])[0]
        free.remove(label)
        forced.append(label)
    return forced


def _spread(labels: Sequence[int], categories: Sequence[int]) -> list[int]:
    """Reorder labels so that each category comes once before any comes twice."""
    rank: dict[int, int] = {}
    turns: list[tuple[int, int]] = []
    for position, label in enumerate(labels):
        rank[categories[label]] = rank.get(categories[label], 0) + 1
        turns.append((rank[categories[label]], position))
    return [labels[position] for _, position in sorted(turns)]


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
    """The first class of each category, or a fifth of the classes if no category has two."""
    firsts: dict[int, int] = {}
    for label in queues:
        firsts.setdefault(data.categories[label], label)
    if len(firsts) == len(queues):
        return list(queues)[: max(2, len(queues) // 5)]
    return list(firsts.values())


def _check_first(first: Sequence[int], queues: Queues) -> list[int]:
    labels = [int(label) for label in first]
    if not labels or len(set(labels)) < len(labels):
        raise InputError(f"first must name at least one class, and each once; got {labels}")
    if missing := [label for label in labels if label not in queues]:
        raise InputError(
            f"first names classes {missing}, which have no training sessions; "
            f"there are {list(queues)}"
        )
    return labels
