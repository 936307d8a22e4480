"""Protocols order sessions into batches; each is a deterministic function of the run number."""

from __future__ import annotations

import random
from collections.abc import Sequence

from primavista.errors import InputError
from primavista.streams.base import DataSet, Session, Stream

REDRAWS = 2000
MAX_START = 0.87  # of the batches: the official orders introduce no class after 68 of 79, 165 of 196, 340 of 391


def nicv2(
    data: DataSet, batches: int | None = None, run: int = 0, *, first: Sequence[int] | None = None, max_start: int | None = None
) -> Stream:
    """NICv2 (paper, section 3): batch 1 has one session of a class of each category, the others few sessions each.

    The published pseudocode dead-ends with the published values; this reproduces the statistics of the official orders: each
    new class' insertion point is drawn uniformly in [2, max_start] (batches counted from 0); then, walking the batches, the
    classes due get their first session, and free slots the next session of a random introduced class. An order in which a slot
    finds no session, or a class starts after `max_start`, is drawn anew. Without `batches`, each holds one session.
    """
    queues = _queues(data)
    opening = _opening(data, queues) if first is None else list(first)
    rest = sum(map(len, queues.values())) - len(opening)
    if batches is None:
        batches = rest + 1
    if batches < 2 or rest % (batches - 1):
        raise InputError(
            f"{rest} sessions after batch 1 cannot fill {batches - 1} batches evenly: choose a divisor of {rest}, plus 1"
        )
    capacity = rest // (batches - 1)
    last = round(MAX_START * batches) if max_start is None else max_start
    if not 2 <= last < batches:
        raise InputError(f"max_start must lie from 2 to {batches - 1} (the last batch, from 0); got {last}")
    draw = random.Random(f"nicv2/{batches}/{run}")
    for _ in range(REDRAWS):
        order = _walk({label: list(queue) for label, queue in queues.items()}, opening, batches, capacity, last, draw)
        if order is not None:
            return Stream(data, order, f"nicv2-{batches}", run)
    raise InputError(
        f"no order found in {REDRAWS} draws: with max_start {last} of {batches} batches of {capacity} sessions the classes "
        "come too late for their sessions to fill the batches before them. Choose a smaller max_start"
    )


def _walk(
    queues: dict[int, list[Session]], opening: list[int], batches: int, capacity: int, last: int, draw: random.Random
) -> list[list[Session]] | None:
    order = [[queues[label].pop(0) for label in opening]]
    due = sorted((draw.randint(2, last), draw.random(), label) for label in queues if label not in opening)
    waiting = [(point, label) for point, _, label in due]
    open_labels = [label for label in opening if queues[label]]
    for i in range(1, batches):
        batch: list[Session] = []
        while len(batch) < capacity:
            if waiting and waiting[0][0] <= i:
                label = waiting.pop(0)[1]
                open_labels.append(label)
                if i > last:
                    return None
            elif open_labels:
                label = draw.choice(open_labels)
            else:
                return None
            batch.append(queues[label].pop(0))
            if not queues[label]:
                open_labels.remove(label)
        order.append(batch)
    return order


def _queues(data: DataSet) -> dict[int, list[Session]]:
    queues: dict[int, list[Session]] = {}
    for session in sorted(data.train, key=lambda s: (s.label, s.number)):
        queues.setdefault(session.label, []).append(session)
    return queues


def _opening(data: DataSet, queues: dict[int, list[Session]]) -> list[int]:
    """The first class of each category."""
    firsts: dict[int, int] = {}
    for label in queues:
        firsts.setdefault(data.categories[label], label)
    return list(firsts.values())
