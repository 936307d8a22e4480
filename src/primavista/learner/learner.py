"""Learner: a strategy with class names, preprocessing, undo and files; a lesson that fails changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import nn

from primavista.backbones.base import CUSTOM, Backbone, Spec
from primavista.backbones.registry import build, rebuild
from primavista.engine.onnx_runtime import Engine, EngineChoice
from primavista.errors import FileError, InputError
from primavista.frames import Frames, model_frames
from primavista.learner.lesson import Lesson
from primavista.learner.state import State, arrays_of, check_sizes, lesson_id, records, restored
from primavista.storage import learner_file as files
from primavista.storage.manifest import (
    FORMAT,
    BackboneRecord,
    Manifest,
    StrategyRecord,
    UndoRecord,
    parse_manifest,
)
from primavista.storage.names import checked_name, checked_names
from primavista.storage.tensors import same_bits
from primavista.strategies.base import LearnReport, Strategy
from primavista.strategies.embedding import EmbeddingStrategy
from primavista.strategies.merging import merge
from primavista.strategies.open_set import OpenSet, judge
from primavista.strategies.registry import STRATEGIES, create

CAPACITY = 64
OPEN_SET = ("cwr+", "cwr*", "dslda")  # strategies that can tell what was never taught, if asked to
THRESHOLD = 0.1  # of confidence, where a strategy cannot tell what was never taught
UNDO = "undo/"


@dataclass(frozen=True)
class Prediction:
    """What one frame shows: the likeliest name, how sure that is among the known ones, and the share of each."""

    label: str | None
    confidence: float
    known: bool
    scores: dict[str, float] = field(default_factory=dict)
    familiarity: float | None = (
        None  # near 1: like the mean of what was taught of it; towards 0: like nothing that was taught
    )


_History = tuple[State, State | None]  # now, and before the last change; replaced in one step


class Learner:
    """Show it a few seconds of an object, say its name, and it is recognised from then on. No frame is kept.

    >>> frames = np.zeros((4, 32, 32, 3), np.uint8)
    >>> learner = Learner("cwr*", weights="random", size=32, width=0.25)
    >>> _ = learner.learn(frames, "dark"); _ = learner.learn(frames + 255, "bright")
    >>> learner.labels
    ['dark', 'bright']
    >>> learner.rename("bright", "lamp"); learner.undo(); learner.labels
    ['dark', 'bright']

    `strategy` is a name of `primavista.strategies.names()`, `backbone` a name or a module of yours; `options` are the
    strategy's (and `width`, of MobileNet v1). The first lesson is learned as the paper learns batch 2 (small learning rate,
    moments inherited); `first_batch=True` asks for the paper's batch 1. A frame counts as known where its familiarity
    (`parts/familiar.py`) is at least `threshold`, 0.3 with `prima` and 0.25 with the others unless you say otherwise; for
    strategies without one, where its confidence p has gone `threshold`, 0.1, of the way from an even share to certainty,
    (p - 1/K) / (1 - 1/K) of K names.
    `engine` is what computes frozen features: "torch", "onnx" (ONNX Runtime), or "auto", the faster one that is installed.
    Predictions may be asked for while another thread teaches; lessons that come at once are learned one after the other.
    """

    def __init__(
        self,
        strategy: str = "prima",
        *,
        backbone: str | nn.Module = "mobilenet_v1",
        weights: str | Path | None = "imagenet",
        size: int = 128,
        seed: int = 0,
        device: str | torch.device = "auto",
        engine: EngineChoice = "auto",
        threshold: float | None = None,
        first_batch: bool = False,
        **options: Any,
    ) -> None:
        width = {"width": options.pop("width")} if "width" in options else {}
        if strategy in STRATEGIES and STRATEGIES[strategy].training_options:
            options = {"capacity": CAPACITY, "first_batch": first_batch, **options}
            if strategy in OPEN_SET:
                options = {"open_set": True, **options}
        features = (
            backbone
            if isinstance(backbone, Backbone)
            else build(backbone, weights, size=size, seed=seed, **width)
        )
        made = create(strategy, features, seed=seed, **options).to(choose_device(device))
        made.representation.use_engine(engine)
        self._name, self._options = strategy, _options(made, options)
        self._spec = features.spec
        if threshold is None:
            threshold = (
                made.known_from if isinstance(made, OpenSet) and made.open_set else THRESHOLD
            )
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise InputError(f"threshold must lie from 0 to 1; got {threshold!r}")
        self.threshold = threshold
        self._history: _History = (State(made), None)
        self._writing = Lock()
        self._origin = object()

    @property
    def _state(self) -> State:
        return self._history[0]

    @property
    def labels(self) -> list[str]:
        """The known names, in the order in which they were first taught."""
        return list(self._state.names.values())

    @property
    def counts(self) -> dict[str, int]:
        """How many frames each name was taught with."""
        return {name: self._state.counts[i] for i, name in self._state.names.items()}

    @property
    def lessons(self) -> tuple[str, ...]:
        """What `lesson_id` gave for each lesson, in order."""
        return self._state.lessons

    @property
    def strategy_name(self) -> str:
        """The name that `create` knows the strategy by."""
        return self._name

    @property
    def options(self) -> dict[str, Any]:
        """All options of the strategy."""
        return dict(self._options)

    @property
    def strategy(self) -> Strategy:
        """The strategy as it stands: to look at, not to change."""
        return self._state.strategy

    @property
    def columns(self) -> list[str | None]:
        """The name of each column of the strategy's scores; None for one that was not taught yet (`compat="caffe"`)."""
        return [self._state.names.get(i) for i in self._state.strategy.classes.tolist()]

    @property
    def preprocessing(self) -> dict[str, Any]:
        """How an image becomes what the backbone sees."""
        spec = self._spec
        text = (
            "centre square, antialiased bilinear to size x size, RGB; then (x / 255 - mean) / std"
        )
        return {"size": spec.size, "mean": list(spec.mean), "std": list(spec.std), "how": text}

    @property
    def engine(self) -> Engine:
        """What computes the features where they are frozen."""
        return self._state.strategy.representation.engine

    @property
    def size(self) -> int:
        """The side of the images that the backbone sees."""
        return self._spec.size

    def copy(self) -> Learner:
        """One that knows the same and goes its own way from here. It costs nothing: states are shared, never changed."""
        other = copy.copy(self)
        other._writing = Lock()
        return other

    def settled(self) -> Learner:
        """A copy with nothing to undo: its file is half as large, and holds nothing of what was forgotten."""
        other = self.copy()
        other._history = (self._state, None)
        return other

    def open_lesson(self) -> Lesson:
        """A lesson to be filled frame by frame and then given to `learn`, of this learner or a copy of it."""
        return Lesson(self.strategy, self.size, self._origin)

    def learn(self, frames: Any, label: str | Sequence[str]) -> LearnReport:
        """One lesson: frames of one object and its name (or a name a frame). A lesson that fails changes nothing.

        `frames` are images of any size: an array N x H x W x 3 (uint8, RGB), a list of images, `open_frames("mug.mp4")`.
        """
        images, _ = model_frames(frames, self.size)
        given = checked_names(label, len(images), self.labels)
        with self._writing:  # lessons that come at once are learned one after the other
            return self._learn(images, given)

    def _learn(self, images: Frames, given: list[str]) -> LearnReport:
        state = self._state
        ids = {name: i for i, name in state.names.items()}
        for name in given:
            ids.setdefault(name, state.next_id + sum(i >= state.next_id for i in ids.values()))
        numbers = torch.tensor([ids[name] for name in given])
        lesson = lesson_id(images)
        strategy = state.strategy.draft()  # predictions go on from the old one meanwhile
        z = images.features_for(strategy, self._origin) if isinstance(images, Lesson) else None
        if z is not None and isinstance(strategy, EmbeddingStrategy):
            report = strategy.learn_embedded(z, numbers)
        else:
            report = strategy.learn(images, numbers)
        counts = dict(state.counts)
        for i in numbers.tolist():
            counts[i] = counts.get(i, 0) + 1
        names = dict(sorted(((i, name) for name, i in ids.items())))
        self._become(
            State(
                strategy,
                names,
                counts,
                max(state.next_id, max(names) + 1),
                (*state.lessons, lesson),
            )
        )
        return report

    def predict(self, frames: Any) -> Any:
        """A `Prediction` of one image, or a list of them of several (an array N x H x W x 3, a list, a video)."""
        images, single = model_frames(frames, self.size)
        state = self._state
        known = state.strategy.classes.tolist()
        columns = [
            j for j, i in enumerate(known) if i in state.names
        ]  # compat="caffe" has columns for classes not taught yet
        names = [state.names[known[j]] for j in columns]
        if not names:
            unknown = Prediction(None, 0.0, False)
            return unknown if single else [unknown] * len(images)
        judged = judge(state.strategy, images)
        scores = judged.scores if len(columns) == len(known) else judged.scores[:, columns]
        shares = (scores / judged.temperature).float().softmax(1).tolist()
        familiar = (
            [None] * len(shares) if judged.familiarity is None else judged.familiarity.tolist()
        )
        predictions = [
            Prediction(
                names[row.index(p := max(row))],
                p,
                self._is_known(p, len(names), f),
                dict(zip(names, row, strict=True)),
                f,
            )
            for row, f in zip(shares, familiar, strict=True)
        ]
        return predictions[0] if single else predictions

    def score(self, frames: Any, label: str | Sequence[str]) -> float:
        """The share of frames whose likeliest name is the right one."""
        images, _ = model_frames(frames, self.size)
        given = checked_names(label, len(images), self.labels)
        predicted = self.predict(images)
        right = sum(1 for p, name in zip(predicted, given, strict=True) if p.label == name)
        return right / len(given)

    def rename(self, old: str, new: str) -> None:
        """Give a known object another name; its id stays."""
        with self._writing:
            i, new = self._id(old), checked_name(new)
            if new in self.labels:
                raise InputError(
                    f"there is a {new!r} already: forget it first, or choose another name"
                )
            self._become(replace(self._state, names={**self._state.names, i: new}))

    def forget(self, label: str) -> None:
        """Take an object out; what it left in the representation, if that goes on learning, stays."""
        with self._writing:
            i = self._id(label)
            strategy = self._state.strategy.draft()
            strategy.forget(i)
            names = {k: name for k, name in self._state.names.items() if k != i}
            counts = {k: n for k, n in self._state.counts.items() if k != i}
            self._become(replace(self._state, strategy=strategy, names=names, counts=counts))

    def merge(self, other: Learner | str | Path) -> None:
        """Learn all that another learner, or the file of one, was taught, as if its lessons had been ours too.

        Objects are joined by name. Both must have the same order-invariant strategy (`prima`, `ridge`, `lda`, `ncm`) with the
        same options and seed, the same backbone with the same weights, and the same image size; a lesson that both have had
        is refused, since it would count twice. Merging that fails changes nothing; `undo` takes one back.
        """
        if not isinstance(other, Learner):
            own = self._state.strategy.backbone if self._spec.name == CUSTOM else None
            other = Learner.load(other, backbone=own, device=self._state.strategy.device)
        if self._name != other._name:
            raise InputError(
                f"this learner's strategy is {self._name}, the other's is {other._name}: only equal ones can be merged"
            )
        theirs = other._state
        with self._writing:
            state = self._state
            if twice := sorted(set(state.lessons) & set(theirs.lessons)):
                raise InputError(
                    f"{len(twice)} of the other's {len(theirs.lessons)} lessons are among ours: they would count twice.\n"
                    "  right: teach learner.untaught() what is new, and merge that (docs/guides/merging.md)"
                )
            ids = {name: i for i, name in state.names.items()}
            new = [name for name in theirs.names.values() if name not in ids]
            ids |= {name: state.next_id + k for k, name in enumerate(new)}
            strategy = state.strategy.draft()
            merge(strategy, theirs.strategy, {i: ids[name] for i, name in theirs.names.items()})
            counts = dict(state.counts)
            for i, name in theirs.names.items():
                counts[ids[name]] = counts.get(ids[name], 0) + theirs.counts[i]
            names = {i: name for name, i in ids.items()}
            lessons = (*state.lessons, *theirs.lessons)
            self._become(State(strategy, names, counts, state.next_id + len(new), lessons))

    def untaught(self) -> Learner:
        """A learner with the same strategy, options and backbone that was taught nothing: to be taught elsewhere and merged."""
        strategy, fresh = self._state.strategy, copy.copy(self)
        made = create(self._name, strategy.backbone, seed=int(strategy.seed), **self._options).to(
            strategy.device
        )
        made.representation.use_engine(strategy.representation.engine)
        fresh._history, fresh._writing = (State(made), None), Lock()
        return fresh

    def undo(self) -> None:
        """Take the last lesson, merge, renaming or forgetting back; one level, and it survives saving and loading."""
        with self._writing:
            previous = self._history[1]
            if previous is None:
                raise InputError("there is nothing to undo: only the last change can be taken back")
            self._history = (previous, None)

    def rest(self) -> None:
        """Let go of what the state before the last change had solved; that is solved again if it is asked for."""
        if self._history[1] is not None:
            self._history[1].strategy.derived.clear()

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to take back."""
        return self._history[1] is not None

    def save(self, path: str | Path) -> None:
        """Write everything into one file, whole or not at all; equal learners give equal bytes."""
        files.write(path, *self.content())

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes | memoryview]:
        """The same, one piece after the other; they lie in the learner's own memory."""
        return files.encoded(*self.content())

    def content(self) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
        """The arrays and the manifest of its file."""
        state, previous = self._history  # read once: a lesson may end meanwhile
        arrays = arrays_of(state.strategy)
        undo = None
        if previous is not None:
            before = arrays_of(previous.strategy)
            arrays |= {
                UNDO + name: a for name, a in before.items() if not same_bits(a, arrays.get(name))
            }
            undo = UndoRecord(tensors=sorted(before), **records(previous))
        manifest = Manifest(
            format=FORMAT,
            strategy=StrategyRecord(
                name=self._name, seed=int(state.strategy.seed), options=self._options
            ),
            backbone=BackboneRecord(**asdict(self._spec)),
            threshold=self.threshold,
            undo=undo,
            engine=self.engine,
            **records(state),
        )
        return arrays, manifest.to_json()

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        backbone: nn.Module | None = None,
        device: str | torch.device = "auto",
        engine: EngineChoice | None = None,
    ) -> Learner:
        """The learner of a file, exactly as it was saved. A module of your own must be given again as `backbone`.

        The `engine` is the one that it was saved with, where it is installed; or the one given.
        """
        try:
            found = files.read(path)
        except FileError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise FileError(
                    f"{error}. A first lesson makes it: primavista learn {path} --label mug mug.mp4"
                ) from error
            raise
        return cls._checked(*found, str(path), backbone, device, engine)

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        name: str = "the file",
        *,
        backbone: nn.Module | None = None,
        device: str | torch.device = "auto",
        engine: EngineChoice | None = None,
    ) -> Learner:
        """The learner of the bytes of a file, as `load`; `name` is for the messages."""
        return cls._checked(*files.decode(data, name), name, backbone, device, engine)

    @classmethod
    def _checked(
        cls,
        arrays: dict[str, Any],
        raw: dict[str, Any],
        name: str,
        backbone: nn.Module | None,
        device: str | torch.device,
        engine: EngineChoice | None,
    ) -> Learner:
        manifest = parse_manifest(raw, name)
        place = choose_device(device)
        try:
            self = cls._restored(arrays, manifest, backbone, place)
        except (
            Exception
        ) as error:  # whatever a strange file makes torch say, it is the file's fault
            raise FileError(f"{name} cannot be loaded: {error}") from error
        self._use_engine(engine or ("torch" if manifest.engine == "torch" else "auto"))
        return self

    @classmethod
    def _restored(
        cls,
        arrays: dict[str, Any],
        manifest: Manifest,
        backbone: nn.Module | None,
        device: torch.device,
    ) -> Learner:
        self = cls.__new__(cls)
        self._name, self._options = manifest.strategy.name, dict(manifest.strategy.options)
        self._spec = Spec(**manifest.backbone.model_dump())
        self.threshold = manifest.threshold
        self._writing = Lock()
        self._origin = object()
        current = {
            name: a
            for name, a in arrays.items()
            if not name.startswith(UNDO) and name != files.GRAPH
        }
        check_sizes(current, manifest, self._spec)
        own = backbone.body if isinstance(backbone, Backbone) else backbone
        features = rebuild(self._spec) if own is None else Backbone(copy.deepcopy(own), self._spec)
        options: dict[str, Any] = dict(self._options)
        made = create(self._name, features, seed=manifest.strategy.seed, **options)
        state = restored(copy.deepcopy(made), current, manifest, device)
        previous = None
        if manifest.undo is not None:
            before = {
                name: arrays.get(UNDO + name, current.get(name)) for name in manifest.undo.tensors
            }
            previous = restored(made, before, manifest.undo, device)
        self._history = (state, previous)
        return self

    def _use_engine(self, engine: EngineChoice) -> None:
        for state in self._history:
            if state is not None:
                state.strategy.representation.use_engine(engine)

    def _is_known(self, p: float, k: int, familiarity: float | None) -> bool:
        if familiarity is not None:
            return familiarity >= self.threshold
        return k == 1 or (p - 1 / k) / (1 - 1 / k) >= self.threshold

    def _id(self, label: str) -> int:
        label = checked_name(label, self.labels)
        for i, name in self._state.names.items():
            if name == label:
                return i
        raise InputError(f"there is no {label!r}; known are {', '.join(self.labels) or 'none yet'}")

    def _become(self, state: State) -> None:
        self._history = (state, self._state)


def choose_device(device: str | torch.device, here: bool = True) -> torch.device:
    """The device of that name, which must be `here`, on this machine; "auto" is the GPU where there is one."""
    gpu = torch.cuda.is_available()
    if str(device) == "auto":
        return torch.device("cuda" if gpu else "cpu")
    try:
        made = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"there is no device {device!r}: choose auto, cpu or cuda") from error
    if here and made.type == "cuda" and not gpu:
        raise InputError("there is no GPU here that torch can use: choose auto or cpu")
    return made


def _options(strategy: Strategy, given: dict[str, Any]) -> dict[str, Any]:
    """What `create` needs to make it again: all of its options where it names them, else those that were given."""
    options = getattr(strategy, "options", None)
    return (
        asdict(options) if is_dataclass(options) and not isinstance(options, type) else dict(given)
    )
