"""NICv2 orders: Algorithm 3 of the paper to the letter, and orders like the official ones.

`paper_order` is the published pseudocode. It cannot have produced the official orders: if
`max_start` is the last batch in which they introduce a class, it nearly always ends in a state in
which no batch has room. `sampled_order` draws orders with the statistics of the official ones; it
is used if there is no official order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import accumulate

from primavista.errors import InputError
from primavista.streams.dataset import Session

REDRAWS = 200
# Counted from 0: no official order introduces a class in the batch after the first.
EARLIEST = 2

Queues = Mapping[int, Sequence[Session]]
Points = list[tuple[int, int]]  # (insertion point, label), ascending


def paper_order(
    queues: Queues, opening: Sequence[int], batches: int, last: int, draw: random.Random
) -> list[list[Session]]:
    """Algorithm 3 of the paper, one run; comments give its lines (the procedure's head is line 1).

    Its batches count from 1. Lines 11 to 13 sample batches until one is not full, which is the same
    as one draw among the batches that are not full. If there is none, the pseudocode loops for
    ever.

    Args:
        queues: The training sessions of each class.
        opening: The classes of batch 1, one per category.
        batches: `num_batches` of the paper.
        last: `max_start` of the paper, the largest insertion point.
        draw: The random numbers of this run.

    Returns:
        The sessions of each batch. Batches that stay empty are left out. No later session of the
        classes of batch 1 is placed, as in the pseudocode.

    Raises:
        InputError: If `last` is out of range, or the pseudocode would loop for ever.
    """
    if not 1 <= last <= batches:
        raise InputError(
            f"max_start must lie from 1 to {batches}, the number of batches; got {last}"
        )
    room = _sizes(sum(map(len, queues.values())) - len(opening), batches)
    room[0] = 0
    first = [queues[label][0] for label in opening]  # line 6
    order: list[list[Session]] = [first, *([] for _ in range(batches - 1))]
    for label in queues:  # line 7
        if label in opening:
            continue
        insertion_point = draw.randint(1, last)  # line 8
        for session in queues[label]:  # line 9
            not_full = [c for c in range(insertion_point, batches + 1) if room[c - 1]]
            if not not_full:
                raise InputError(
                    f"the published NICv2 pseudocode loops for ever here: class {label} starts at "
                    f"batch {insertion_point}, and no batch from there to {batches} has room for "
                    f"its session {session.number}. Choose another run, a max_start below {last}, "
                    "or method='statistics'"
                )
            c = draw.choice(not_full)  # lines 11 to 13
            order[c - 1].append(session)  # line 14
            room[c - 1] -= 1
    return [batch for batch in order if batch]


def sampled_order(
    queues: Queues,
    opening: Sequence[int],
    batches: int,
    last: int,
    draw: random.Random,
    *,
    exact: bool,
) -> list[list[Session]]:
    """Draw an order with the statistics of the official ones: every session once, all batches full.

    Batches count from 0 here. The insertion point of each new class is drawn uniformly from
    [2, last]. Then, batch by batch, the classes that are due get their first session, and each free
    slot gets the next session of an introduced class, drawn with a probability proportional to the
    number of sessions that the class has left. If some slot would find no session, or some class no
    slot by `last`, the insertion points are drawn again, at most 200 times; after that, the next
    class is introduced earlier to fill such a slot.

    Args:
        queues: The training sessions of each class, in the order in which they are to come.
        opening: The classes of batch 1.
        batches: The number of batches.
        last: The last batch, counted from 0, in which a class may be introduced.
        draw: The random numbers of this run.
        exact: True to keep `last`; otherwise it is raised if the number of classes requires it.

    Returns:
        The sessions of each batch.

    Raises:
        InputError: If no order satisfies `last`.
    """
    sizes = _sizes(sum(map(len, queues.values())) - len(opening), batches)
    new = [label for label in queues if label not in set(opening)]
    kept = sum(len(queues[label]) - 1 for label in opening)
    earliest = EARLIEST if batches > EARLIEST and kept >= sizes[1] else 1
    last = _last_start(sizes, len(new), earliest, last, exact=exact)
    lengths = {label: len(queues[label]) for label in new}
    for _ in range(REDRAWS):
        points = _draw_points(new, earliest, last, draw)
        if _feasible(points, lengths, kept, sizes, last):
            break
    remaining = {label: list(queue) for label, queue in queues.items()}
    return _place(remaining, opening, points, sizes, last, draw)


def _sizes(rest: int, batches: int) -> list[int]:
    """Return the number of slots of each batch; they differ by at most one. The first is 0."""
    later = batches - 1
    return [0] + [rest * (i + 1) // later - rest * i // later for i in range(later)]


def _last_start(sizes: Sequence[int], new: int, earliest: int, last: int, *, exact: bool) -> int:
    """Return the last batch in which a class may start; raise if not all classes find a slot."""
    slots = enumerate(accumulate(sizes[earliest:]), earliest)
    least = next((i for i, total in slots if total >= new), earliest)
    if not exact:
        last = min(max(last, least), len(sizes) - 1)
    if new and not least <= last < len(sizes):
        raise InputError(
            f"max_start must lie from {least} (the first batch by which {new} new classes find a "
            f"slot each) to {len(sizes) - 1} (the last batch, counted from 0); got {last}"
        )
    return last


def _draw_points(new: Sequence[int], earliest: int, last: int, draw: random.Random) -> Points:
    drawn = sorted((draw.randint(earliest, last), draw.random(), label) for label in new)
    return [(point, label) for point, _, label in drawn]


def _feasible(
    points: Points, lengths: Mapping[int, int], kept: int, sizes: Sequence[int], last: int
) -> bool:
    """Return True if every slot finds a session of an introduced class, and every class a slot."""
    due, free = 0, kept  # `free` counts the sessions left of the classes introduced so far
    waiting = 0
    for i in range(1, len(sizes)):
        while due < len(points) and points[due][0] <= i:
            free += lengths[points[due][1]]
            due, waiting = due + 1, waiting + 1
        if sizes[i] > free or (i == last and waiting > sizes[i]):
            return False
        free, waiting = free - sizes[i], max(0, waiting - sizes[i])
    return True


def _place(
    queues: dict[int, list[Session]],
    opening: Sequence[int],
    points: Points,
    sizes: Sequence[int],
    last: int,
    draw: random.Random,
) -> list[list[Session]]:
    """Fill the batches one after the other, given the insertion points of the new classes."""
    order = [[queues[label].pop(0) for label in opening]]
    introduced = {label: len(queues[label]) for label in opening if queues[label]}
    slots_left = sum(sizes[: last + 1])  # slots in which a class may still start
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
        batch.sort(key=lambda session: (session.number, session.label, session.start))
        order.append(batch)
    return order
