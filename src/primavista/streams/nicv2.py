"""The two ways to draw a NICv2 order: by the statistics of the official orders, and by the published pseudocode."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from primavista.errors import InputError
from primavista.streams.dataset import Session

REDRAWS = 200
EARLIEST = (
    2  # batches counted from 0: no official order introduces a class in the batch after the first
)

Queues = Mapping[int, Sequence[Session]]
Points = list[tuple[int, int]]  # (insertion point, label), ascending


def draw_order(
    queues: Queues,
    opening: Sequence[int],
    batches: int,
    last: int,
    draw: random.Random,
    *,
    exact: bool,
) -> list[list[Session]]:
    """An order with the statistics of the official ones: every session once, every batch full.

    Each new class' insertion point is drawn uniformly in [2, last]. Then, batch by batch, the classes due get their first
    session, and each free slot the next session of an introduced class, drawn in proportion to the sessions it has left.
    Points under which some slot would find no session, or some class no slot by `last`, are drawn anew, at most 200 times;
    after that such slots bring the next class forward. An error is left only for what no order satisfies. Unless `exact`,
    `last` is raised as far as the number of classes needs.
    """
    sizes = _sizes(sum(map(len, queues.values())) - len(opening), batches)
    new = [label for label in queues if label not in set(opening)]
    kept = sum(len(queues[label]) - 1 for label in opening)
    earliest = EARLIEST if batches > EARLIEST and kept >= sizes[1] else 1
    least = _least_last(sizes, len(new), earliest)
    last = last if exact else min(max(last, least), batches - 1)
    if new and not least <= last < batches:
        raise InputError(
            f"max_start must lie from {least} (the first batch by which {len(new)} new classes find a slot each) to "
            f"{batches - 1} (the last batch, counted from 0); got {last}"
        )
    lengths = {label: len(queues[label]) for label in new}
    for _ in range(REDRAWS):
        points = _points(new, earliest, last, draw)
        if _feasible(points, lengths, kept, sizes, last):
            break
    return _walk(
        {label: list(queue) for label, queue in queues.items()}, opening, points, sizes, last, draw
    )


def paper_order(
    queues: Queues, opening: Sequence[int], batches: int, last: int, draw: random.Random
) -> list[list[Session]]:
    """The published pseudocode, line by line; its batches count from 1.

    Sampling batches until one is not full is one draw among those that are not full; where there is none it would never end.
    """
    if not 1 <= last <= batches:
        raise InputError(
            f"max_start must lie from 1 to {batches}, the number of batches; got {last}"
        )
    room = _sizes(sum(map(len, queues.values())) - len(opening), batches)
    room[0] = 0
    order: list[list[Session]] = [
        [queues[label][0] for label in opening],
        *([] for _ in range(batches - 1)),
    ]
    for label in queues:
        if label in opening:
            continue
        insertion_point = draw.randint(1, last)
        for session in queues[label]:
            not_full = [c for c in range(insertion_point, batches + 1) if room[c - 1]]
            if not not_full:
                raise InputError(
                    f"the published NICv2 pseudocode loops for ever here: class {label} starts at batch {insertion_point}, "
                    f"and no batch from there to {batches} has room for its session {session.number}. Choose another run, a "
                    f"max_start below {last}, or method='statistics'"
                )
            c = draw.choice(not_full)
            order[c - 1].append(session)
            room[c - 1] -= 1
    return [batch for batch in order if batch]


def _sizes(rest: int, batches: int) -> list[int]:
    """The slots of each batch after the first (whose entry is 0); they differ by at most one, spread evenly."""
    return [0] + [
        rest * (i + 1) // (batches - 1) - rest * i // (batches - 1) for i in range(batches - 1)
    ]


def _least_last(sizes: Sequence[int], new: int, earliest: int) -> int:
    slots = 0
    for i in range(earliest, len(sizes)):
        slots += sizes[i]
        if slots >= new:
            return i
    return earliest


def _points(new: Sequence[int], earliest: int, last: int, draw: random.Random) -> Points:
    drawn = sorted((draw.randint(earliest, last), draw.random(), label) for label in new)
    return [(point, label) for point, _, label in drawn]


def _feasible(
    points: Points, lengths: Mapping[int, int], kept: int, sizes: Sequence[int], last: int
) -> bool:
    """Whether every slot finds a session of a class due by then, and every class a slot by `last`."""
    due, free = 0, kept  # sessions not placed, of the classes introduced so far
    waiting = 0
    for i in range(1, len(sizes)):
        while due < len(points) and points[due][0] <= i:
            free += lengths[points[due][1]]
            due, waiting = due + 1, waiting + 1
        if sizes[i] > free or (i == last and waiting > sizes[i]):
            return False
        free, waiting = free - sizes[i], max(0, waiting - sizes[i])
    return True


def _walk(
    queues: dict[int, list[Session]],
    opening: Sequence[int],
    points: Points,
    sizes: Sequence[int],
    last: int,
    draw: random.Random,
) -> list[list[Session]]:
    order = [[queues[label].pop(0) for label in opening]]
    introduced = {label: len(queues[label]) for label in opening if queues[label]}
    slots_left = sum(sizes[: last + 1])  # in which a class may still start
    due = 0
    for i in range(1, len(sizes)):
        batch: list[Session] = []
        for _ in range(sizes[i]):
            hurry = not introduced or len(points) - due >= slots_left
            if due < len(points) and (points[due][0] <= i or hurry):
                label = points[due][1]
                due += 1
                introduced[label] = len(queues[label])
            else:
                label = draw.choices(list(introduced), list(introduced.values()))[0]
            slots_left -= i <= last
            batch.append(queues[label].pop(0))
            introduced[label] -= 1
            if not introduced[label]:
                del introduced[label]
        order.append(
            sorted(batch, key=lambda session: (session.number, session.label, session.start))
        )
    return order
