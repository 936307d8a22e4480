"""What a learner knows, and the state before its last change, to which `undo` returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

from primavista.errors import InputError
from primavista.learner.coach import HeldOutTests, with_ids, with_tests
from primavista.learner.strategy import Arrays, TaughtStrategy
from primavista.storage.validate import MAX_COUNT


@dataclass(frozen=True)
class LearnerState:
    """Everything that a lesson may change. A change replaces the state and never modifies it.

    Args:
        strategy: The strategy with all that it has learned.
        names: The name of each class id, in the order in which they were first taught.
        counts: How many frames of each class id were learned.
        next_id: The id of the next new name; ids of forgotten names are not used again.
        lessons: The id of each lesson, in order.
        held_out: How the last lessons of each class id were answered before they were learned.
        stored: Of a loaded undo state: its arrays as the file holds them, as differences from the
            later state. They are valid only with that state.
    """

    strategy: TaughtStrategy
    names: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    next_id: int = 0
    lessons: tuple[str, ...] = ()
    held_out: HeldOutTests = field(default_factory=dict)
    stored: Arrays | None = None

    def ids(self, names: Iterable[str]) -> dict[str, int]:
        """Return the class id of every known name and of `names`; new ones get ids in their order.

        Args:
            names: Names that are about to be taught, known or new.
        """
        ids = {name: i for i, name in self.names.items()}
        new = [name for name in dict.fromkeys(names) if name not in ids]
        return ids | {name: self.next_id + k for k, name in enumerate(new)}

    def id(self, label: str) -> int:
        """Return the class id of a known name; `InputError` if there is none."""
        for i, name in self.names.items():
            if name == label:
                return i
        known = ", ".join(self.names.values()) or "none yet"
        raise InputError(f"there is no {label!r}; known are {known}")

    @property
    def columns(self) -> list[str | None]:
        """The name of each column of the scores; None for a class that was not taught yet."""
        return [self.names.get(i) for i in self.strategy.classes]

    def taught(
        self,
        strategy: TaughtStrategy,
        ids: Mapping[str, int],
        frames: Mapping[int, int],
        lessons: Iterable[str],
        held_out: HeldOutTests,
    ) -> LearnerState:
        """Return the state after some lessons.

        Args:
            strategy: The strategy that has learned them.
            ids: The class id of every name, as `ids` gives.
            frames: How many frames of each class id were learned.
            lessons: The ids of the lessons.
            held_out: How they were answered before they were learned.
        """
        counts = dict(self.counts)
        for i, count in frames.items():
            counts[i] = counts.get(i, 0) + count
        names = dict(sorted((i, name) for name, i in ids.items()))
        next_id = max(self.next_id, max(names, default=-1) + 1)
        if max(next_id, *counts.values(), 0) >= MAX_COUNT:
            raise InputError("there are more frames or objects than a file can count")
        tests = with_tests(self.held_out, held_out)
        return LearnerState(strategy, names, counts, next_id, (*self.lessons, *lessons), tests)

    def without(self, i: int) -> LearnerState:
        """Return the state after a class was forgotten."""
        strategy = self.strategy.draft()
        strategy.forget(i)
        names = {k: name for k, name in self.names.items() if k != i}
        counts = {k: n for k, n in self.counts.items() if k != i}
        held_out = with_ids(self.held_out, {k: k for k in names})
        return replace(self, strategy=strategy, names=names, counts=counts, held_out=held_out)


class History:
    """The present state and the one before the last change, replaced in one step.

    Readers in other threads never see half a change. Changes wait for each other: `changing` is
    held from reading the state to replacing it.

    Args:
        now: The present state.
        before: The state before it; None if there is nothing to undo.
    """

    def __init__(self, now: LearnerState, before: LearnerState | None = None) -> None:
        # both are replaced at once, so that a reader gets the two of the same moment
        self.states: tuple[LearnerState, LearnerState | None] = (now, before)
        self.changing = Lock()

    @property
    def now(self) -> LearnerState:
        """The present state."""
        return self.states[0]

    def change_to(self, state: LearnerState) -> None:
        """Replace the state; the present one becomes the one to which `undo` returns."""
        self.states = (state, self.now)

    def undo(self) -> None:
        """Return to the state before the last change; `InputError` if there is none."""
        before = self.states[1]
        if before is None:
            raise InputError("there is nothing to undo: only the last change can be taken back")
        self.states = (replace(before, stored=None), None)

    def copy(self) -> History:
        """Return a history with the same states, which later changes do not affect."""
        return History(*self.states)

    def free_undo_cache(self) -> None:
        """Free what the state before the last change has computed.

        It is computed again if `undo` brings that state back. After a renaming both states have
        the same strategy, and nothing is freed.
        """
        now, before = self.states
        if before is not None and before.strategy is not now.strategy:
            before.strategy.free_cache()
