"""A head on the features of a network that does not train: all that the floor learns with.

The benchmark joins the same heads to a network in torch, in `strategies/prima.py` and the like.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np

from primavista.arrays import Array, array_namespace, float32, float64, to_numpy
from primavista.backbones.base import FixedRepresentation
from primavista.backbones.places import Floats
from primavista.backbones.reference import generic_frames
from primavista.errors import InputError
from primavista.heads.acil import ACILOptions
from primavista.heads.base import ClassArrays, Head, Judgement, own_arrays
from primavista.heads.fecam import FeCAMOptions
from primavista.heads.klda import KLDAOptions
from primavista.heads.lda import LDAOptions
from primavista.heads.ncm import NCMOptions
from primavista.heads.open_set import KNOWN_THRESHOLD, LESSON_THRESHOLD
from primavista.heads.options import make_options
from primavista.heads.prima import LessonHead, PrimaOptions
from primavista.heads.ranpac import RanPACOptions
from primavista.heads.ridge import RidgeOptions
from primavista.heads.statistics import AnalyticHead
from primavista.heads.strangers import LessonFamiliarity
from primavista.learner.prediction import CONFIDENCE_THRESHOLD
from primavista.learner.strategy import (
    BACKBONE,
    Arrays,
    Losses,
    Settings,
    TaughtStrategy,
    check_ids,
)
from primavista.media.frames import Frames
from primavista.progress import Progress
from primavista.storage.learner_file import exact_halves
from primavista.storage.settings import OptionValue
from primavista.storage.validate import ArrayChecks
from primavista.strategies.options import CWROptions, DSLDAOptions
from primavista.strategies.registry import strategy_info

# The options of each strategy that learns from features alone.
OPTIONS: dict[str, Any] = {
    "prima": PrimaOptions,
    "lda": LDAOptions,
    "ridge": RidgeOptions,
    "ncm": NCMOptions,
    "ranpac": RanPACOptions,
    "fecam": FeCAMOptions,
    "klda": KLDAOptions,
    "acil": ACILOptions,
    "dslda": DSLDAOptions,
    "cwr*": CWROptions,
    "cwr+": CWROptions,
}


def learns_from_features(name: str, options: Mapping[str, OptionValue]) -> bool:
    """Return True if a strategy with these options never trains its network.

    CWR trains it in the paper's batch 1 and its moments unless `features="fixed"`, DSLDA trains it
    with `tune`, and the release's rules need torch.
    """
    trains = options.get("tune") or options.get("compat") is not None
    if name in ("cwr*", "cwr+"):
        trains = trains or options.get("first_batch", True) or options.get("head") == "linear"
        trains = trains or options.get("features") != "fixed"
    return name in OPTIONS and not trains


def complete_options(name: str, given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return all options of a strategy of `OPTIONS`; `InputError` if one is unknown or invalid."""
    return asdict(make_options(OPTIONS[name], None, {**strategy_info(name).options, **given}))


class HeadStrategy(TaughtStrategy):
    """Joins a head to a fixed representation; the head's arrays are where the features are.

    Args:
        settings: The name of a strategy of `OPTIONS`, all its options, the backbone and the seed.
        network: Computes the features.
    """

    def __init__(self, settings: Settings, network: FixedRepresentation) -> None:
        self.settings = settings
        self.network = network
        self.engine, self.device = network.engine, network.device
        self.module = getattr(network, "backbone", None)
        self.options = make_options(OPTIONS[settings.strategy], None, dict(settings.options))
        self.head: Head = self.options.make_head(network.sizes, network.priors, settings.seed)
        self._classes: list[int] = []
        self._batches = 0
        self._move(self.head)

    def _move(self, head: Head) -> None:
        """Put the arrays of a head into the library and onto the device of the features."""
        for group in head.groups.values():
            for name, array in list(group.arrays.items()):
                on_cpu = name in group.ON_CPU
                group.arrays[name] = self.network.to_library(array, on_cpu=on_cpu)

    @property
    def threshold(self) -> float:  # type: ignore[override]
        """The default threshold of a learner."""
        if isinstance(self.head, LessonHead):
            return LESSON_THRESHOLD
        tells = isinstance(self.head, AnalyticHead) or getattr(self.options, "open_set", False)
        return KNOWN_THRESHOLD if tells else CONFIDENCE_THRESHOLD

    @property
    def ranks_strangers(self) -> bool:  # type: ignore[override]
        """True if familiarity is a rank among strangers."""
        return isinstance(self.head, LessonHead)

    @property
    def frame_correlation(self) -> float:  # type: ignore[override]
        """The correlation of the familiarity of two frames of one clip of a stranger."""
        familiar = self.head.familiarity(len(self._classes)) if self._classes else None
        return familiar.correlation if isinstance(familiar, LessonFamiliarity) else 1.0

    @property
    def classes(self) -> list[int]:
        """The class ids, in the order of the columns of the scores."""
        return list(self._classes)

    @property
    def features_from(self) -> object:
        """The representation, which does not change."""
        return self.network

    @property
    def groups(self) -> Mapping[str, ClassArrays]:
        """The groups of arrays of the head by name."""
        return self.head.groups

    def draft(self) -> Self:
        """Return a copy that can learn on its own; the representation is shared."""
        made = copy.copy(self)
        made.head = copy.deepcopy(self.head)
        made._classes = list(self._classes)
        return made

    def untaught(self) -> Self:
        """Return an equal strategy that has learned nothing; it shares the representation."""
        made = type(self)(self.settings, self.network)
        if isinstance(made.head, LessonHead) and isinstance(self.head, LessonHead):
            made.head.sample.take_reference(self.head.sample)
        return made

    def features(self, frames: Frames, progress: Progress | None = None) -> Array:
        """Compute the features of frames; `InputError` if one is not finite."""
        return self.network.finite_features(frames, progress)

    def learn_features(self, z: Array, ids: Sequence[int]) -> Losses:
        """Learn one lesson from the result of `features`, with one class id per frame."""
        if isinstance(self.head, LessonHead) and not self.head.has_reference:
            self._set_reference(self.head)
        self._expand(ids)
        columns = np.asarray([self._classes.index(i) for i in ids], np.int64)
        where = self.network.to_library(columns, on_cpu=self.head.COLUMNS_ON_CPU)
        first = 1 if getattr(self.options, "first_batch", True) else 2
        losses = self.head.learn(z, where, self._batches + first)
        self._batches += 1
        return losses

    def _expand(self, ids: Sequence[int]) -> None:
        """Give each new class id a column, in the order of the ids."""
        self._classes += sorted(set(ids) - set(self._classes))
        self.head.expand(len(self._classes))

    def _set_reference(self, head: LessonHead) -> None:
        """Set the reference of familiarity: the shipped one, or else computed from 48 frames."""
        found = self.network.reference()
        if found is None:
            head.set_reference(self.network.features(generic_frames(self.settings.spec.size)))
        else:
            head.sample.restore_reference(*map(self.network.to_library, found))

    def judge(self, frames: Frames) -> Judgement:
        """Compute the scores and the familiarity of frames."""
        return self.judge_features(self.network.features(frames))

    def judge_features(self, z: Array) -> Judgement:
        """Compute the scores and the familiarity from the result of `features`."""
        classes = len(self._classes)
        scores = self.head.scores(z, classes)
        familiar = self.head.familiarity(classes) if classes else None
        if familiar is None:
            return Judgement(scores).in_numpy()
        best = array_namespace(scores).argmax(scores, axis=1)
        found = familiar(float64(self.head.features(z)), best)
        return Judgement(scores, familiar.temperature, found).in_numpy()

    def judge_windows(self, z: Floats) -> Judgement:
        """Compute the same in float32 if the head is linear.

        A frame has hundreds of windows, and the precision of float64 does not change which of them
        is the best.
        """
        head, x = self.head, self.network.to_library(z)
        if not isinstance(head, AnalyticHead):
            return self.judge_features(x)
        xp = array_namespace(x)
        x = float32(head.features(x))
        w, b = head.solution(len(self._classes))
        w, b = float32(w), float32(b)
        scores = (w @ x.T).T + b  # ten times as fast as x w^T for few classes
        familiar = head.familiarity(len(self._classes))
        found = familiar.single()(x, xp.argmax(scores, axis=1))
        return Judgement(scores, familiar.temperature, found).in_numpy()

    def representation_with_maps(self) -> FixedRepresentation:
        """Return the network."""
        return self.network

    def forget(self, i: int) -> None:
        """Forget a class that is known."""
        self.head.forget(self._classes.index(i))
        self._classes.remove(i)

    def merge(self, other: TaughtStrategy, ids: Mapping[int, int]) -> None:
        """Become the strategy that would have learned the lessons of both."""
        if not isinstance(self.head, AnalyticHead):
            return super().merge(other, ids)
        assert isinstance(other, HeadStrategy)
        assert isinstance(other.head, AnalyticHead)
        _check_equal_settings(self, other)
        ours = [ids[i] for i in other._classes]
        if len(set(ours)) < len(ours):
            raise InputError(f"two classes of the other would become one: {dict(ids)}")
        self._expand(ours)
        columns = np.asarray([self._classes.index(i) for i in ours], np.int64)
        self.head.merge(other.head, self.network.to_library(columns))
        self._batches += other._batches

    def arrays(self, *, network: bool = True) -> Arrays:
        """Return the arrays of the state as they go into a file."""
        found: Arrays = {
            "classes": np.asarray(self._classes, np.int64),
            "batches": np.asarray(self._batches, np.int64),
        }
        for name, group in self.head.groups.items():
            own = {key: to_numpy(array) for key, array in group.arrays.items()}
            found |= {f"{name}.{key}": array for key, array in group.to_file(own).items()}
        if network:
            weights = {BACKBONE + name: x for name, x in self.network.weights().items()}
            found |= exact_halves(weights)
        return found

    def restore(self, arrays: Mapping[str, Any], frames: Mapping[int, int]) -> None:
        """Take over the arrays of an untrusted file; see `TaughtStrategy.restore`."""
        numbers = {k: np.array(x) for k, x in arrays.items() if not k.startswith(BACKBONE)}
        checks = ArrayChecks(numbers)
        self._classes = checks.array("classes", (None,), np.int64).tolist()
        self._batches = int(checks.array("batches", (), np.int64))
        del numbers["classes"], numbers["batches"]
        check_ids(self._classes, frames)
        for group, saved, prefix in own_arrays(self.head.groups, numbers):
            found = group.from_file(prefix, saved)
            if set(found) != set(group.arrays):
                odd = ", ".join(sorted(set(found) ^ set(group.arrays)))
                raise InputError(f"{prefix[:-1]} lacks or has besides: {odd}")
            checks = ArrayChecks(found, prefix)
            for name, empty in list(group.arrays.items()):
                own = to_numpy(empty)
                first = (None,) if name in group.row_names else own.shape[:1]
                group.arrays[name] = checks.array(name, (*first, *own.shape[1:]), own.dtype)
            if group.rows < len(self._classes):
                rows = f"{group.rows} rows for {len(self._classes)} classes"
                raise InputError(f"{prefix[:-1]} has {rows}")
        if numbers:
            raise InputError(f"there is no place for {', '.join(sorted(numbers))}")
        taught = {column: frames[i] for column, i in enumerate(self._classes) if i in frames}
        self.head.check(len(self._classes), list(taught))
        for name, group in self.head.groups.items():
            group.check_frames(f"{name}.", taught)
        self.head.derived.clear()
        self._move(self.head)

    def free_cache(self) -> None:
        """Free what was computed from the state; it is computed again when it is needed."""
        self.head.derived.clear()

    def graphs(self) -> Arrays:
        """Return the arrays of the graph that the network came with in a file, if it did."""
        return self.network.graph_arrays()


def _check_equal_settings(one: HeadStrategy, other: HeadStrategy) -> None:
    """Reject strategies whose statistics cannot be added; the message names the difference."""
    ours, theirs = (_facts(strategy.settings) for strategy in (one, other))
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if names:
        differ = (f"{name} {ours.get(name)} here and {theirs.get(name)} there" for name in names)
        raise InputError(
            f"their settings differ: {', '.join(differ)}. Merge learners with equal settings"
        )
    if one.engine != other.engine:
        raise InputError(
            f"their features are not the same numbers: engine {one.engine} here and "
            f"{other.engine} there.\n"
            f'  right: merge(Learner.load(file, engine="{one.engine}"))'
        )
    weights = other.network.weights()
    for name, array in one.network.weights().items():
        if name not in weights or not np.array_equal(array, weights[name]):
            raise InputError(
                f"their backbones have different weights ({name}), so their statistics "
                "cannot be added"
            )


def _facts(settings: Settings) -> dict[str, Any]:
    """Return everything that must be equal for statistics to be added."""
    spec = asdict(settings.spec)
    return {**settings.options, "seed": settings.seed, **spec.pop("options"), **spec}
