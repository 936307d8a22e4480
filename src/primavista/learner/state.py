"""The state of a learner: what it knows, what can be asked of it, and what its file holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from primavista.backbones.spec import Spec
from primavista.engine.representation import Engine
from primavista.errors import InputError
from primavista.heads.base import ClassArrays, own_arrays, stored_beside
from primavista.learner.coach import HeldOutTests, to_records, with_tests
from primavista.networks.base import Backbone
from primavista.nn.class_rows import ArrayBuffers
from primavista.notebook import html_table
from primavista.storage import learner_file
from primavista.storage.learner_file import exact_halves, same_bits
from primavista.storage.manifest import FORMAT, MAX_COUNT, parse_manifest
from primavista.storage.settings import OptionValue
from primavista.strategies.base import Strategy
from primavista.strategies.creation import create

NAMES_SHOWN = 8
BACKBONE = "backbone."  # prefix of the arrays of the network
UNDO = "undo/"  # prefix of the arrays of the state before the last change
Array: TypeAlias = NDArray[np.generic]
Arrays: TypeAlias = dict[str, Array]


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

    strategy: Strategy
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

    def taught(
        self,
        strategy: Strategy,
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


@dataclass(frozen=True)
class LearnerSettings:
    """The settings that a learner keeps for life.

    Args:
        strategy: The name that `create` knows the strategy by.
        options: What `create` needs to make it again.
        spec: What is needed to build the backbone again, except its weights.
    """

    strategy: str
    options: dict[str, OptionValue]
    spec: Spec


# The state now, and the one before the last change; the pair is replaced in one step.
History: TypeAlias = tuple[LearnerState, LearnerState | None]


def make_strategy(settings: LearnerSettings, backbone: Backbone, seed: int) -> Strategy:
    """Create the strategy of a learner, which has learned nothing yet.

    Args:
        settings: Its name and options.
        backbone: The network, which is copied.
        seed: The seed of every random choice.
    """
    options: dict[str, Any] = dict(settings.options)
    return create(settings.strategy, backbone, seed=seed, **options)


class StatefulLearner:
    """The facts of a learner, which need no frame, and how it is saved.

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
        """The least familiarity (or, without one, confidence) with which a frame counts as known.

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
        """Return a learner that knows the same; later changes of one do not affect the other.

        It costs neither time nor memory: states are shared and never modified.
        """
        return self._assembled(self._settings, self.threshold, self._history, self._origin)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    def save(self, path: str | Path) -> None:
        """Write everything into one file, whole or not at all; equal learners give equal bytes.

        Args:
            path: The file, by convention with the suffix .pv. Its folder must exist. Of a symbolic
                link, the file that it leads to is written, and keeps its permissions.

        Raises:
            FileError: If the file cannot be written; what was there before is untouched.
        """
        learner_file.write(os.path.realpath(path), *self.content())

    def to_bytes(self) -> bytes:
        """Return the bytes of the file that `save` writes."""
        return b"".join(self.to_buffers())

    def to_buffers(self) -> list[bytes | memoryview]:
        """Return the bytes of the file as consecutive buffers, which share the learner's memory."""
        return learner_file.encoded(*self.content())

    def content(self) -> tuple[dict[str, Array], dict[str, object]]:
        """Return the arrays and the manifest of the file that `save` writes."""
        return file_content(self._settings, self.threshold, self.engine, self._history)

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


def file_content(
    settings: LearnerSettings, threshold: float, engine: Engine, history: History
) -> tuple[dict[str, Array], dict[str, object]]:
    """Return the arrays and the manifest of the file of a learner.

    Args:
        settings: Its strategy, options and backbone.
        threshold: Its threshold.
        engine: What computes its frozen features.
        history: Its states.
    """
    state, previous = history
    arrays = strategy_arrays(state.strategy)
    undo = None
    if previous is not None:
        tensors = sorted(previous.strategy.state_dict())
        undo = {**state_records(previous), "tensors": tensors}
        before = undo_arrays(state, previous, arrays)
        arrays |= {UNDO + name: array for name, array in before.items()}
    seed = int(state.strategy.seed)
    manifest: dict[str, object] = {
        "format": FORMAT,
        "strategy": {"name": settings.strategy, "seed": seed, "options": settings.options},
        "backbone": _spec_record(settings.spec),
        "threshold": float(threshold),
        "undo": undo,
        **state_records(state),
    }
    if engine != "torch":  # so that files keep the bytes that they had before there was another one
        manifest["engine"] = engine
    parse_manifest(manifest, "the learner")  # what is saved can be loaded
    return arrays, manifest


def _spec_record(spec: Spec) -> dict[str, object]:
    """Return the record of a backbone, with floats as after loading, for equal bytes."""
    floats = {"mean": [float(x) for x in spec.mean], "std": [float(x) for x in spec.std]}
    return {**asdict(spec), **floats}


def state_records(state: LearnerState) -> dict[str, Any]:
    """Return the fields of a manifest that describe a state, as JSON.

    Args:
        state: The state to be saved.
    """
    classes = []
    for i, name in state.names.items():
        record: dict[str, Any] = {"id": i, "name": name, "frames": state.counts[i]}
        if state.held_out.get(i):
            record["held_out"] = to_records(state.held_out[i])
        classes.append(record)
    return {"classes": classes, "next_id": state.next_id, "lessons": list(state.lessons)}


def strategy_arrays(strategy: Strategy, *, network: bool = True) -> Arrays:
    """Return the tensors of a strategy as they go into a file, by their names in `state_dict()`.

    Args:
        strategy: The strategy to be saved. Arrays of one on the CPU share its memory, apart from
            those that a file has in fewer bytes per number.
        network: Whether to return the tensors of the backbone too.
    """
    found = {
        name: tensor.detach().cpu().contiguous().numpy()
        for name, tensor in strategy.state_dict().items()
        if network or not name.startswith(BACKBONE)
    }
    for group, own, prefix in own_arrays(groups_of(strategy), found):
        found |= {prefix + name: array for name, array in group.to_file(own).items()}
    return found | exact_halves({n: a for n, a in found.items() if n.startswith(BACKBONE)})


def undo_arrays(state: LearnerState, before: LearnerState, arrays: Mapping[str, Array]) -> Arrays:
    """Return the arrays that a file needs, besides the present state, to restore the one before.

    Args:
        state: The present state.
        before: The state before it.
        arrays: The arrays of the present state, as `strategy_arrays` gives them.
    """
    if before.stored is not None:
        return before.stored
    same_network = before.strategy.backbone is state.strategy.backbone
    whole = strategy_arrays(before.strategy, network=not same_network)
    different = {name: a for name, a in whole.items() if not same_bits(a, arrays.get(name))}
    return stored_beside(groups_of(before.strategy), groups_of(state.strategy), different)


def groups_of(strategy: Strategy) -> dict[str, ClassArrays]:
    """Return the groups of arrays of a strategy's head by the names of their modules.

    Args:
        strategy: Any strategy; one whose head has no such groups gives none.
    """
    parts = strategy.named_modules()
    return {name: part.group for name, part in parts if isinstance(part, ArrayBuffers)}
