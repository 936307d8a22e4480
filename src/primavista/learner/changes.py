"""Changes of a learner that need no frames: rename, forget, merge, undo."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from primavista.errors import InputError
from primavista.learner.coach import with_ids
from primavista.learner.loading import LearnerLoading
from primavista.learner.state import LearnerState
from primavista.networks.base import NETWORKS
from primavista.storage.manifest import checked_name
from primavista.strategies.merging import merge


class LearnerChanges(LearnerLoading):
    """The part of a learner that changes what it knows without frames; each change can be undone.

    `Learner` is the class to use.
    """

    def rename(self, old: str, new: str) -> None:
        """Give a known object another name.

        Args:
            old: Its present name.
            new: Its name from now on, which no other object may have.

        Raises:
            InputError: If `old` is not known, or if `new` is taken or not a valid name.
        """
        with self._writing:
            i, new = self._id(old), checked_name(new)
            if new in self.labels:
                raise InputError(
                    f"there is a {new!r} already: forget it first, or choose another name"
                )
            self._change_to(replace(self._state, names={**self._state.names, i: new}))

    def forget(self, label: str) -> None:
        """Remove an object. What it left in a representation that goes on learning stays there.

        Args:
            label: Its name.

        Raises:
            InputError: If it is not known, or if the strategy cannot forget it.
        """
        with self._writing:
            i = self._id(label)
            strategy = self._state.strategy.draft()
            strategy.forget(i)
            names = {k: name for k, name in self._state.names.items() if k != i}
            counts = {k: n for k, n in self._state.counts.items() if k != i}
            held_out = with_ids(self._state.held_out, {k: k for k in names})
            self._change_to(
                replace(
                    self._state, strategy=strategy, names=names, counts=counts, held_out=held_out
                )
            )

    def merge(self, other: LearnerChanges | str | Path) -> None:
        """Learn everything that another learner was taught, as if its lessons had been ours too.

        Objects are joined by name. A merge that fails changes nothing; `undo` takes one back.

        Args:
            other: A learner, or the file of one. It must have the same order-invariant strategy
                (`prima`, `ridge`, `lda`, `ncm`) with the same options and seed, and the same
                backbone, weights and image size.

        Raises:
            InputError: If they cannot be merged, or if both have had the same lesson, which would
                count twice.
            FileError: If the file cannot be loaded.
        """
        if not isinstance(other, LearnerChanges):
            own = None if self._settings.spec.name in NETWORKS else self.strategy.backbone
            other = self.load(other, backbone=own, device=self.strategy.device)
        if self.strategy_name != other.strategy_name:
            raise InputError(
                f"this learner's strategy is {self.strategy_name}, the other's is "
                f"{other.strategy_name}: only equal ones can be merged"
            )
        theirs = other._state
        with self._writing:
            state = self._state
            _check_no_lesson_twice(state, theirs)
            ids = state.ids(theirs.names.values())
            strategy = state.strategy.draft()
            ours = {i: ids[name] for i, name in theirs.names.items()}
            merge(strategy, theirs.strategy, ours)
            frames = {ours[i]: theirs.counts[i] for i in theirs.names}
            held_out = with_ids(theirs.held_out, ours)
            self._change_to(state.taught(strategy, ids, frames, theirs.lessons, held_out))

    def undo(self) -> None:
        """Take back the last lesson, merge, renaming or forgetting.

        There is one level of undo; it survives saving and loading.

        Raises:
            InputError: If there is nothing to undo.
        """
        with self._writing:
            previous = self._history[1]
            if previous is None:
                raise InputError("there is nothing to undo: only the last change can be taken back")
            self._history = (replace(previous, stored=None), None)

    def rest(self) -> None:
        """Free what the state before the last change has computed.

        It is computed again if `undo` brings that state back. After a renaming both states have the
        same strategy, and nothing is freed.
        """
        state, previous = self._history
        if previous is not None and previous.strategy is not state.strategy:
            previous.strategy.derived.clear()

    def _id(self, label: str) -> int:
        label = checked_name(label, self.labels)
        for i, name in self._state.names.items():
            if name == label:
                return i
        raise InputError(f"there is no {label!r}; known are {', '.join(self.labels) or 'none yet'}")


def _check_no_lesson_twice(ours: LearnerState, theirs: LearnerState) -> None:
    twice = set(ours.lessons) & set(theirs.lessons)
    if twice:
        raise InputError(
            f"{len(twice)} of the other's {len(theirs.lessons)} lessons are among ours: they would "
            "count twice.\n"
            "  right: teach learner.untaught() what is new, and merge that (docs/guides/merging.md)"
        )
