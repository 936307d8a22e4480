"""Progress reports, the one form in which long calls say how far they are; steps of training."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Protocol, Self


class Progress(Protocol):
    """A function that long calls (`learn`, `evaluate`, `pack`, ...) inform of how far they are.

    Any callable with two positional arguments is one. It runs in the thread that does the work, so
    it should return quickly; an exception that it raises stops the work.

    >>> def show(done: int, total: int | None) -> None:
    ...     print(f"{done} of {total}")
    >>> report: Progress = show
    >>> report(3, 10)
    3 of 10
    """

    def __call__(self, done: int, total: int | None, /) -> None:
        """Report progress.

        Args:
            done: How many units (frames, batches, bytes) are done so far; never decreases.
            total: How many there are in all, or None if that is unknown.
        """


class LateBar:
    """A `Progress` that shows a bar and the time left, on a terminal or in a notebook.

    What takes less than a second shows nothing. Leaving the `with` block removes the bar.

    Args:
        what: What is done, for example "learning".
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._began = self._shown = time.monotonic()
        self._width = 0
        self._seen = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")

    def __enter__(self) -> Self:
        """Return the function to be called."""
        return self

    def __call__(self, done: int, total: int | None, /) -> None:
        """Show how far it is, from the second second on; see `Progress`."""
        now = time.monotonic()
        if self._seen and done and total and now - self._began > 1 and now - self._shown > 0.2:
            share = done / total
            left = (now - self._began) * (1 / share - 1)
            line = f"{self.what} {'█' * round(20 * share):░<20} {share:.0%}, {left:.0f} s left"
            print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width, self._shown = len(line), now

    def __exit__(self, *_: object) -> None:
        """Remove the bar."""
        if self._width:
            print(f"\r{'':{self._width}}", end="\r", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class TrainingStep:
    """One step of gradient descent, for logs and plots; see `Strategy.on_step`.

    Args:
        batch: The number of the batch, as `Batch.i` counts; 1 also for a training from scratch.
        epoch: The number of the epoch in the batch, from 0.
        step: The number of the step in the batch, from 0.
        loss: The mean loss of the minibatch before the step.
        lr: The learning rate of the representation, or of the head if the head alone learns.
        patterns: The number of patterns in the minibatch.
    """

    batch: int
    epoch: int
    step: int
    loss: float
    lr: float
    patterns: int


class OnStep(Protocol):
    """A function that is told of every step of gradient descent.

    It is the attribute `on_step` of a strategy. It runs in the thread that learns, and an exception
    that it raises stops the lesson. On a GPU, each reported step waits for the GPU. It is not
    part of the state: copies and files do not have it.

    >>> from primavista.strategies.conformance import tiny_backbone, toy_batch
    >>> from primavista.strategies.naive import Naive
    >>> strategy, steps = Naive(tiny_backbone(), epochs_1=2), []
    >>> strategy.on_step = steps.append
    >>> report = strategy.learn(*toy_batch([0, 1, 2]))
    >>> [(step.batch, step.epoch, step.step, step.lr) for step in steps]
    [(1, 0, 0, 0.001), (1, 1, 1, 0.001)]
    """

    def __call__(self, step: TrainingStep, /) -> None:
        """Take note of a step.

        Args:
            step: What was done.
        """
