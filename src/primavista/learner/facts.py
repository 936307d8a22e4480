"""The facts about a learner: what it knows and how it was made, and how it shows itself."""

from __future__ import annotations

from threading import Lock
from typing import NoReturn, Self

from primavista.engine.representation import Engine
from primavista.errors import InputError
from primavista.learner.state import History, LearnerSettings, LearnerState
from primavista.notebook import html_table
from primavista.storage.settings import OptionValue
from primavista.strategies.base import Strategy

NAMES_SHOWN = 8


class LearnerFacts:
    """What can be asked of a learner without giving it a frame; nothing here teaches it anything.

    The state and the one before it are replaced whole by every change, so that readers in other
    threads never see half of one. `Learner` is the class to use.
    """

    def _set_up(
        self, settings: LearnerSettings, threshold: float, history: History, origin: object
    ) -> None:
        self._settings = settings
        self.threshold = threshold
        self._history = history
        self._writing = Lock()
        # the same object in all copies: features in a `LessonBuffer` hold for these alone
        self._origin = origin

    @classmethod
    def _assembled(
        cls, settings: LearnerSettings, threshold: float, history: History, origin: object
    ) -> Self:
        """Return a learner made of its parts, without building a backbone."""
        learner = cls.__new__(cls)
        learner._set_up(settings, threshold, history, origin)
        return learner

    @property
    def _state(self) -> LearnerState:
        return self._history[0]

    def _change_to(self, state: LearnerState) -> None:
        """Replace the state; the present one becomes the one to which `undo` returns."""
        self._history = (state, self._state)

    @property
    def labels(self) -> list[str]:
        """The known names, in the order in which they were first taught."""
        return list(self._state.names.values())

    @property
    def counts(self) -> dict[str, int]:
        """The number of frames that each name was taught with."""
        return {name: self._state.counts[i] for i, name in self._state.names.items()}

    @property
    def lessons(self) -> tuple[str, ...]:
        """The id of each lesson, in order; equal frames have equal ids on every machine."""
        return self._state.lessons

    @property
    def strategy_name(self) -> str:
        """The name that `create` knows the strategy by, such as "prima"."""
        return self._settings.strategy

    @property
    def options(self) -> dict[str, OptionValue]:
        """All options of the strategy, with their defaults."""
        return dict(self._settings.options)

    @property
    def strategy(self) -> Strategy:
        """The strategy in its present state: to look at, not to change."""
        return self._state.strategy

    @property
    def columns(self) -> list[str | None]:
        """The name of each column of the strategy's scores.

        It is None for a class that was not taught yet: with `compat="caffe"` all columns exist from
        the start.
        """
        return [self._state.names.get(i) for i in self._state.strategy.classes.tolist()]

    @property
    def threshold(self) -> float:
        """The familiarity (or, without one, the confidence) from which on a frame counts as known.

        It can be set to any number from 0 to 1, and is saved with the learner.
        """
        return self._threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        """Set the threshold; `InputError` if it is not a number from 0 to 1."""
        self._threshold = checked_threshold(value)

    @property
    def engine(self) -> Engine:
        """The engine that computes the features if they are frozen: "torch" or "onnx"."""
        return self._state.strategy.representation.engine

    @property
    def size(self) -> int:
        """The side of the images that the backbone sees, in pixels."""
        return self._settings.spec.size

    @property
    def can_undo(self) -> bool:
        """True if there is a change that `undo` can take back."""
        return self._history[1] is not None

    def __repr__(self) -> str:
        spec, counts = self._settings.spec, list(self.counts.items())
        objects = ", ".join(f"{name!r}: {count}" for name, count in counts[:NAMES_SHOWN])
        more = f", ... ({len(counts)} in all)" if len(counts) > NAMES_SHOWN else ""
        return (
            f"Learner({self.strategy_name!r}, backbone={spec.name!r}, size={spec.size}, "
            f"objects={{{objects}{more}}})"
        )

    def _repr_html_(self) -> str:
        spec = self._settings.spec
        facts = [
            ("strategy", self.strategy_name),
            ("backbone", f"{spec.name}, {spec.size} x {spec.size} pixels"),
            ("device", f"{self.strategy.device}, features by {self.engine}"),
            ("threshold", self.threshold),
            ("lessons", len(self.lessons)),
        ]
        objects = html_table(list(self.counts.items()), header=("object", "frames"))
        return html_table(facts, caption="Learner") + objects

    def copy(self) -> Self:
        """Return a learner that knows the same and is independent from here on.

        It costs neither time nor memory: states are shared and never modified.
        """
        return self._assembled(self._settings, self.threshold, self._history, self._origin)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InputError(
            "a learner is not pickled: whoever loads a pickle runs the code in it.\n"
            "  right: data = learner.to_bytes(); learner = Learner.from_bytes(data)\n"
            '  right: learner.save("kitchen.pv"); learner = Learner.load("kitchen.pv")'
        )


def checked_threshold(value: float) -> float:
    """Return a threshold; `InputError` if it is not a number from 0 to 1.

    Args:
        value: The threshold of a learner, or of one call.
    """
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"threshold must be from 0 to 1; got {value!r}")
    return value
