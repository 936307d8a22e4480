"""Several runs in one process, batch by batch side by side, so that what they wait for is computed at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from primavista.bench.features import now
from primavista.strategies import Strategy
from primavista.strategies.together import solve_together

Item = TypeVar("Item")


@dataclass
class Pause:
    """A run that may wait here: scores will be asked of its strategy next."""

    strategy: Strategy
    seconds: float | None = None  # its share of the time that solving for them took; None: it has to solve by itself


def together(runs: Sequence[Iterator[Pause | Item]]) -> Iterator[tuple[int, Item]]:
    """What each of the runs gives between its pauses, with its number; at a pause it waits for the others."""
    at_work = dict(enumerate(runs))
    while at_work:
        paused: list[Pause] = []
        for number, run in list(at_work.items()):
            for item in run:
                if isinstance(item, Pause):
                    paused.append(item)
                    break
                yield number, item
            else:
                del at_work[number]
        if len(paused) > 1:
            began = now(paused[0].strategy)
            solve_together([pause.strategy for pause in paused])
            seconds = now(paused[0].strategy) - began
            for pause in paused:
                pause.seconds = seconds / len(paused)
