"""The contract of a strategy: learn a batch, score frames, forget a class; all of its state in `state_dict()`."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor

from primavista.backbones.registry import Backbone, check_seed
from primavista.engine.cuda_graph import Kept, Replay
from primavista.engine.onnx_runtime import Engine, EngineChoice, OnnxFeatures, installed
from primavista.errors import InputError, require_extra
from primavista.frames import Frames, check_frames, check_labels, read_frames, split_indices
from primavista.heads.open_set import KNOWN, Familiarity
from primavista.nn.class_rows import AnySize, drop_all, grow_all
from primavista.nn.derived import Derived

COUNTERS = (
    "batches",
    "seed",
    "embedding_version",
)  # stay on the CPU: to read one on a GPU is to wait until it is idle
CHUNK = 128  # frames a forward pass without gradients
CHUNK_CUDA = 1024
CHUNK_PIXELS = 2**17  # of them on a CPU: 8 frames of 128 x 128, whose maps stay in the caches


@dataclass(frozen=True)
class Batch:
    """One training batch B_i: any classes, any count. Either frames or, for a frozen representation, their features."""

    i: int  # from 1
    images: Frames | None
    features: Tensor | None
    columns: Tensor  # of each pattern, on the CPU
    present: Tensor  # the columns of the classes in it, on the CPU
    cur: Tensor  # how many patterns each of them has, on the CPU
    new: tuple[int, ...]  # labels never seen before
    sessions: Tensor | None

    @property
    def count(self) -> int:
        """How many patterns it has."""
        return len(self.columns)


@dataclass(frozen=True)
class LearnReport:
    """What learning one batch came to."""

    batch: int
    patterns: int
    new_classes: tuple[int, ...]
    losses: tuple[float, ...] = ()  # the mean of each epoch
    saturated: float | None = None  # share of guarded weights at F = max_F
    stored_bytes: int = 0  # frames kept: 0 for everything rehearsal-free


@dataclass(frozen=True)
class Judgement:
    """N x K scores, whose softmax(scores / temperature) are shares, and the familiarity of each frame, if it can be told."""

    scores: Tensor
    temperature: float
    familiarity: Tensor | None


class Strategy(AnySize, ABC):
    """Learns a stream, one batch at a time.

    A strategy of your own has `learn_batch(batch)` and `score_features(z)`; see docs/your-own-strategy.md. It owns a copy
    of the backbone that it is given. Every tensor that it must remember is a parameter or a buffer, so `state_dict()` is
    complete; random numbers come from generators seeded by (seed, batch, epoch), so there is no random state.
    """

    rehearsal_free: ClassVar[bool] = True
    known_from: ClassVar[float] = (
        KNOWN  # the familiarity from which on a frame counts as known, unless said otherwise
    )
    order_invariant: ClassVar[bool] = (
        False  # any order and split of the frames gives the same: such strategies can be merged
    )
    classes: Tensor
    batches: Tensor
    seed: Tensor
    embedding_version: Tensor

    def __init__(self, backbone: Backbone, *, seed: int = 0, first_batch: bool = True) -> None:
        super().__init__()
        check_seed(seed)
        self.backbone = copy.deepcopy(backbone)
        self.first_batch = first_batch
        self._shapes_seen = {
            torch.Size((1, backbone.spec.size, backbone.spec.size, 3))
        }  # the backbone has tried that one
        self.engine: Engine = "torch"
        self._onnx: OnnxFeatures | None = None
        self._evaluated = Kept()
        self.derived = Derived()  # cleared here, whenever the state changes, and nowhere else
        self.register_buffer("classes", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))
        self.register_buffer("embedding_version", torch.zeros((), dtype=torch.int64))
        self._any_size.append("classes")

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.classes.device

    @property
    def _chunk(self) -> int:
        if self.device.type == "cuda":
            return CHUNK_CUDA
        return min(CHUNK, max(4, CHUNK_PIXELS // self.backbone.spec.size**2))

    @property
    def i(self) -> int:
        """The number of the next batch B_i, from 1; from 2 where the paper's B_1 is left out (`first_batch=False`)."""
        return int(self.batches) + (1 if self.first_batch else 2)

    def use_engine(self, engine: EngineChoice) -> Engine:
        """Let `engine` compute the features from now on, wherever they are frozen; returns which one it is.

        "auto" is ONNX Runtime where it is installed, can compute this backbone, and the device is the CPU. A representation
        that goes on learning is always torch's: its graph would have to be made again after each batch.
        """
        if engine not in ("auto", "torch", "onnx"):
            raise InputError(f"engine is auto, torch or onnx; got {engine!r}")
        if engine == "onnx" and self.device.type != "cpu":
            raise InputError(
                "the engine onnx is for the CPU: choose device='cpu', or engine='torch'"
            )
        if engine == "onnx" and self.freezes and not installed():
            require_extra("onnxruntime", "onnx")
            require_extra("onnx", "onnx")
        able = (
            self.freezes
            and self.device.type == "cpu"
            and (engine == "onnx" or (engine == "auto" and installed()))
        )
        self.engine, self._onnx = "torch", None
        if able:
            features = OnnxFeatures(int(self.embedding_version))
            side = self.backbone.spec.size
            if (
                features.session(self.backbone, torch.zeros(2, side, side, 3, dtype=torch.uint8))
                is not None
            ):
                self.engine, self._onnx = "onnx", features
            elif engine == "onnx":
                raise InputError(
                    "this backbone cannot be computed by ONNX Runtime: choose engine='torch' or 'auto'"
                )
        return self.engine

    @final
    def draft(self) -> Self:
        """A copy to learn into. A representation that stays as it is is shared, and so is what computes it."""
        return copy.deepcopy(self, {id(self.backbone): self.backbone} if self.embeds else {})

    def rest(self) -> None:
        """Let go of what can be computed again from the state."""

    @final
    def learn(self, images: Frames, labels: Tensor, sessions: Tensor | None = None) -> LearnReport:
        """Learn one batch: frames (uint8, N x H x W x 3), one label >= 0 a frame, and what session each is of, if known."""
        frames = check_frames(images)
        return self._learn_checked(frames, None, len(frames), labels, sessions)

    @final
    @torch.no_grad()
    def scores(self, images: Frames) -> Tensor:
        """N x len(classes), a column a known class in the order of `classes`: the higher, the likelier."""
        frames = check_frames(images)
        return torch.cat(
            [
                self.score_features(self._forward(frames, i))[:, : len(self.classes)]
                for i in split_indices(len(frames), self._chunk)
            ]
        )

    @final
    @torch.no_grad()
    def judge(self, images: Frames) -> Judgement:
        """The scores of frames and how familiar they are, from one pass."""
        frames = check_frames(images)
        familiar = self.familiar() if len(self.classes) else None
        scores, found = [], []
        for i in split_indices(len(frames), self._chunk):
            z = self._forward(frames, i)
            scores.append(self.score_features(z)[:, : len(self.classes)])
            if familiar is not None:
                found.append(familiar(self.phi(z).double(), scores[-1].argmax(1)))
        return Judgement(
            _joined(scores),
            temperature=1.0 if familiar is None else familiar.temperature,
            familiarity=_joined(found) if found else None,
        )

    @property
    def open_set(self) -> bool:
        """Whether it can tell what was never taught: whether it has a `familiar`."""
        return False

    def familiar(self) -> Familiarity | None:
        """What tells how familiar a frame is, from the statistics of at least one class; None where there are none."""
        return None

    def phi(self, z: Tensor) -> Tensor:
        """The features that the statistics are of, from those of the backbone."""
        return z

    @final
    def forget(self, label: int) -> None:
        """Take a class out; it may be learned again later as if it were new."""
        column = (self.classes == label).nonzero()
        if not len(column):
            raise InputError(
                f"class {label} is not known; the known ones are {self.classes.tolist()}"
            )
        self._check_forget(label)
        j = int(column[0, 0])
        drop_all(self, j)
        self.classes = torch.cat([self.classes[:j], self.classes[j + 1 :]])
        self.derived.clear()
        self._forgot(label)

    @final
    def merge(self, other: Strategy, labels: Mapping[int, int] | None = None) -> None:
        """Become what learning the batches of both would have given; `labels` are our labels for its, where they differ."""
        theirs = other.classes.tolist()
        ours = [label if labels is None else labels[label] for label in theirs]
        if len(set(ours)) < len(ours):
            raise InputError(
                f"two classes of the other would become one: {dict(zip(theirs, ours, strict=True))}"
            )
        self._check_merge(other)
        self._merge(other, torch.tensor(self._columns(ours), device=self.device, dtype=torch.int64))
        self.batches += other.batches
        self.derived.clear()

    @property
    def embeds(self) -> bool:
        """Whether the representation stays as it is from the next batch on, so that features may be kept by who measures."""
        return False

    @property
    def freezes(self) -> bool:
        """Whether there are batches from which on it `embeds`."""
        return type(self).embeds is not Strategy.embeds

    @final
    def embed(self, images: Frames) -> Tensor:
        """N x D: the features in evaluation mode; they hold as long as `embedding_version` does not change."""
        frames = check_frames(images)
        return _joined([self._forward(frames, i) for i in split_indices(len(frames), self._chunk)])

    @final
    def learn_embedded(
        self, z: Tensor, labels: Tensor, sessions: Tensor | None = None
    ) -> LearnReport:
        """`learn` from the features that `embed` gives, where `embeds`."""
        if not self.embeds:
            raise InputError(
                "this batch trains the representation, so it needs the frames: call learn(images, labels)"
            )
        return self._learn_checked(None, self._checked_features(z), len(z), labels, sessions)

    @final
    @torch.no_grad()
    def scores_embedded(self, z: Tensor) -> Tensor:
        """`scores` from the features that `embed` gives."""
        return self.score_features(self._checked_features(z))[:, : len(self.classes)]

    @abstractmethod
    def learn_batch(self, batch: Batch) -> LearnReport:
        """Learn one batch, already checked; its new classes have their columns."""

    @abstractmethod
    def score_features(self, z: Tensor) -> Tensor:
        """Features to scores, with at least a column a known class."""

    def system(self) -> tuple[Tensor, Tensor] | None:
        """A (D x D, positive definite) and B (K x D) of the equations w A = B that scores wait for; None: there are none."""
        return None

    def solved(self, w: Tensor) -> None:
        """The solution of `system`, by whoever solved it."""

    def features(self, batch: Batch) -> Tensor:
        """The features of a whole batch in evaluation mode, computed once."""
        if batch.features is not None:
            given = len(batch.features)
            return (
                batch.features
                if given == batch.count
                else batch.features[torch.arange(batch.count) % given]
            )
        assert batch.images is not None
        frames = batch.images
        return torch.cat(
            [
                self._forward(frames, i % len(frames))
                for i in split_indices(batch.count, self._chunk)
            ]
        )

    def _forgot(self, label: int) -> None:
        """A class has been taken out of everything that has a row a class."""

    def _check_batch(self, frames: Frames) -> None:
        """Refuse frames that cannot be learned, before anything changes."""
        first = read_frames(frames, torch.tensor([0]), self.device)
        if first.shape not in self._shapes_seen:
            try:
                with torch.no_grad():
                    self.backbone.eval()(first)
            except RuntimeError as error:
                side = self.backbone.spec.size
                shape = " x ".join(map(str, first.shape[1:3]))
                raise InputError(
                    f"the backbone cannot take frames of {shape} pixels ({error}): resize them to {side} x {side}"
                ) from error
            self._shapes_seen.add(first.shape)

    def _check_forget(self, label: int) -> None:
        """Refuse what cannot be forgotten, before anything changes."""

    def _check_merge(self, other: Strategy) -> None:
        """Refuse what cannot be merged, before anything changes."""
        if not (self.order_invariant and other.order_invariant):
            from primavista.strategies.registry import STRATEGIES

            able = ", ".join(name for name, preset in STRATEGIES.items() if preset.analytic)
            which = type(other if self.order_invariant else self).__name__
            raise InputError(
                f"{which} depends on the order of its batches, so it cannot be merged; those that can are {able}"
            )
        if type(self) is not type(other):
            raise InputError(
                f"a {type(self).__name__} cannot be merged with a {type(other).__name__}"
            )
        mine, its = (
            {**_facts(getattr(s, "options", None)), "seed": int(s.seed)} for s in (self, other)
        )
        if mine != its:
            raise InputError(
                f"their options differ: {_apart(mine, its)}. Merge learners that were made with the same ones"
            )
        if self.backbone.spec != other.backbone.spec:
            apart = _apart(_facts(self.backbone.spec), _facts(other.backbone.spec))
            raise InputError(
                f"their backbones are fed differently: {apart}. Merge learners that were made alike"
            )
        numbers: list[dict[str, Any]] = [
            {"precision": s.backbone.precision, "engine": s.engine} for s in (self, other)
        ]
        if numbers[0] != numbers[1]:
            advice = (
                f'\n  right: merge(Learner.load(file, engine="{self.engine}"))'
                if self.engine != other.engine
                else ""
            )
            raise InputError(
                f"their features are not the same numbers: {_apart(*numbers)}.{advice}"
            )
        theirs = other.backbone.state_dict()
        for name, tensor in self.backbone.state_dict().items():
            if name not in theirs or not tensor.cpu().equal(theirs[name].cpu()):
                raise InputError(
                    f"their backbones have different weights ({name}), so their features cannot be added"
                )

    def _merge(self, other: Self, columns: Tensor) -> None:
        """Learn all that `other`, checked, has learned; `columns` are ours for its classes."""
        raise NotImplementedError(
            f"{type(self).__name__} says that it is order-invariant, but has no _merge"
        )

    def _rows_for(self, classes: int) -> int:
        """How many rows the tensors with a row a class should have."""
        return classes

    @torch.no_grad()
    def _forward(self, frames: Frames, indices: Tensor) -> Tensor:
        images = read_frames(frames, indices, self.device)
        if self.engine == "onnx" and self.embeds and images.device.type == "cpu":
            version = int(self.embedding_version)
            if self._onnx is None or self._onnx.version != version:
                self._onnx = OnnxFeatures(version)
            return self._onnx(self.backbone, images)
        self.backbone.eval()
        key = self.backbone.precision
        if key not in self._evaluated:
            self._evaluated[key] = Replay(self.backbone)
        return self._evaluated[key](images)  # type: ignore[no-any-return]

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.derived.clear()
        self._evaluated.clear()  # recordings belong to the place where the weights were
        counters = {name: self._buffers[name] for name in COUNTERS}
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._buffers.update(counters)
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._onnx = None
        self.derived.clear()

    def _checked_features(self, z: Tensor) -> Tensor:
        dim = self.backbone.dim
        if (
            not isinstance(z, Tensor)
            or z.ndim != 2
            or z.shape[1] != dim
            or len(z) < 1
            or not z.is_floating_point()
        ):
            shape = tuple(getattr(z, "shape", ()))
            raise InputError(
                f"features are float, N x {dim}, N at least 1, as embed() gives; got {shape}"
            )
        if not math.isfinite(float(z.sum())) and not bool(
            z.isfinite().all()
        ):  # a sum of finite ones may overflow
            raise InputError("the features hold NaN or infinity")
        return z.to(self.device, torch.float32)

    def _finite_features(self, frames: Frames) -> Tensor:
        """Refuse what would spoil every sum, before anything changes."""
        z = self.embed(frames)
        if not math.isfinite(float(z.sum())) and len(bad := (~z.isfinite().all(1)).nonzero()):
            frame = int(bad[0, 0])
            raise InputError(
                f"the backbone gives NaN or infinity for frame {frame}: leave it out, or mend the backbone"
            )
        return z

    def _learn_checked(
        self, frames: Frames | None, features: Tensor | None, count: int, labels: Any, sessions: Any
    ) -> LearnReport:
        values = check_labels(labels, count)
        checked = None if sessions is None else check_labels(sessions, count, "sessions")
        if frames is not None:
            self._check_batch(frames)
            features = self._finite_features(frames) if self.embeds else None
        batch = self._enter(frames, features, values, checked)
        report = self.learn_batch(batch)
        self.batches += 1
        self.derived.clear()
        if frames is not None:
            self.backbone.eval()
        return report

    def _enter(
        self,
        frames: Frames | None,
        features: Tensor | None,
        labels: Tensor,
        sessions: Tensor | None,
    ) -> Batch:
        """Algorithm 1, line 6: expand the output layer with neurons for the classes never seen before."""
        present, inverse, cur = labels.unique(return_inverse=True, return_counts=True)
        known, there = len(self.classes), present.tolist()
        columns = torch.tensor(self._columns(there))
        new = tuple(
            label for label, column in zip(there, columns.tolist(), strict=True) if column >= known
        )
        return Batch(
            i=self.i,
            images=frames,
            features=features,
            columns=columns[inverse],
            present=columns,
            cur=cur.float(),
            new=new,
            sessions=sessions,
        )

    def _columns(self, labels: list[int]) -> list[int]:
        """The columns of these labels; those never seen before get new ones."""
        known = {label: column for column, label in enumerate(self.classes.tolist())}
        if new := [label for label in labels if label not in known]:
            known |= {label: len(known) + k for k, label in enumerate(new)}
            self.classes = torch.tensor(list(known), device=self.device)
            grow_all(self, self._rows_for(len(known)))
        return [known[label] for label in labels]


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _facts(made: Any) -> dict[str, Any]:
    """The fields of a dataclass, and those of its field `options` among them."""
    facts = asdict(made) if is_dataclass(made) and not isinstance(made, type) else {}
    inner = facts.pop("options", {})
    return {**facts, **inner}


def _apart(mine: dict[str, Any], its: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {mine.get(name)} here and {its.get(name)} there"
        for name in {**mine, **its}
        if mine.get(name) != its.get(name)
    )
