"""The report on one lesson, by the names of the objects.

`primavista-edge` has a copy of this file: it imports the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class LessonReport:
    """The outcome of one lesson, as `Learner.learn` returns it.

    Args:
        id: The id of the lesson, the last of `learner.lessons`; equal frames have equal ids.
        frames: How many frames of each object were learned.
        new: The names that were taught for the first time.
        losses: The mean loss of each epoch; empty for strategies without gradient descent.
        stored_bytes: The size of all frames or activations that the learner keeps; 0 if it is
            rehearsal-free.
    """

    id: str
    frames: dict[str, int]
    new: tuple[str, ...] = ()
    losses: tuple[float, ...] = ()
    stored_bytes: int = 0

    @property
    def total(self) -> int:
        """The number of frames of the lesson, of all its objects together."""
        return sum(self.frames.values())

    def __repr__(self) -> str:
        facts = [f"frames={self.frames!r}", f"new={self.new!r}"]
        if self.losses:
            facts.append(f"losses=({', '.join(f'{loss:.3g}' for loss in self.losses)})")
        if self.stored_bytes:
            facts.append(f"stored_bytes={self.stored_bytes}")
        return f"LessonReport({', '.join(facts)})"
