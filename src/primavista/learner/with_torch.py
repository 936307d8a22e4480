"""The part of a learner that needs torch: strategies that train the network, and other networks.

The floor imports this module by name when it is needed, see `making.import_with_torch`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from primavista.arrays import Array
from primavista.backbones.base import FixedRepresentation
from primavista.backbones.onnx import BODY
from primavista.backbones.places import Floats, WindowReader
from primavista.backbones.reference import shipped_reference
from primavista.backbones.spec import Spec
from primavista.engine.representation import Representation, choose_device
from primavista.errors import InputError
from primavista.heads.base import ClassArrays, Judgement
from primavista.learner.prediction import CONFIDENCE_THRESHOLD
from primavista.learner.strategy import (
    BACKBONE,
    Arrays,
    Losses,
    NetworkChoice,
    Settings,
    TaughtStrategy,
    check_ids,
)
from primavista.media.frames import FrameArray, Frames
from primavista.networks.base import Backbone, build, named_weights, rebuild
from primavista.networks.places import MiddleBackbone
from primavista.progress import OnStep, Progress
from primavista.storage.settings import OptionValue
from primavista.strategies.base import EmbeddingStrategy, LearnReport, Strategy
from primavista.strategies.creation import create
from primavista.strategies.open_set import OpenSet, judge, judge_features
from primavista.strategies.state import check_loaded, groups_of, load_arrays, strategy_arrays


def new_strategy(
    name: str, options: Mapping[str, OptionValue], asked: NetworkChoice
) -> TorchStrategy:
    """Make the strategy of a new learner."""
    network = _new_backbone(asked)
    given: dict[str, Any] = dict(options)
    made = create(name, network, seed=asked.seed, **given).to(choose_device(asked.device))
    made.representation.use_engine(asked.engine)
    settings = Settings(name, _all_options(made, options), network.spec, asked.seed)
    return TorchStrategy(settings, made)


def restored_strategy(settings: Settings, arrays: Arrays, asked: NetworkChoice) -> TorchStrategy:
    """Make the strategy of a file with the weights of its network."""
    network = _backbone_of_file(settings.spec, _network_shapes(arrays), asked.backbone)
    options: dict[str, Any] = dict(settings.options)
    made = create(settings.strategy, network, seed=settings.seed, **options)
    return TorchStrategy(settings, made.to(choose_device(asked.device)), asked.engine)


def new_network(asked: NetworkChoice, *, places: bool) -> TorchRepresentation:
    """Make the network of a new learner whose strategy learns from features."""
    network = _new_backbone(asked)
    read = MiddleBackbone(network) if places else copy.deepcopy(network)
    return TorchRepresentation(read, choose_device(asked.device), asked.engine)


def restored_network(
    spec: Spec, weights: Arrays, asked: NetworkChoice, *, places: bool
) -> TorchRepresentation:
    """Make the network of a file, with its weights."""
    shapes = {name.removeprefix(BODY): x.shape for name, x in weights.items()}
    network = _backbone_of_file(spec, shapes, asked.backbone)
    read = MiddleBackbone(network) if places else network
    state = {name: torch.from_numpy(np.array(x)) for name, x in weights.items()}
    floats = {n: x.float() if x.dtype == torch.float16 else x for n, x in state.items()}
    read.load_state_dict({**read.state_dict(), **floats})
    return TorchRepresentation(read, choose_device(asked.device), asked.engine)


def _new_backbone(asked: NetworkChoice) -> Backbone:
    """Return a `Backbone` as it is, or build one from a name or a module."""
    if isinstance(asked.backbone, nn.Module) and asked.width is not None:
        raise InputError("width is for backbones by name: leave it out, or leave out the module")
    if isinstance(asked.backbone, Backbone):
        return asked.backbone
    options: dict[str, Any] = {} if asked.width is None else {"width": asked.width}
    return build(asked.backbone, asked.weights, size=asked.size, seed=asked.seed, **options)


def _backbone_of_file(
    spec: Spec, shapes: Mapping[str, tuple[int, ...]], backbone: nn.Module | None
) -> Backbone:
    """Return the network of a file, without its weights, or a copy of the user's own."""
    if backbone is not None:
        body = backbone.body if isinstance(backbone, Backbone) else backbone
        return Backbone(copy.deepcopy(body), spec)
    return rebuild(spec, shapes)


def _network_shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    prefix = BACKBONE + BODY
    return {n.removeprefix(prefix): a.shape for n, a in arrays.items() if n.startswith(prefix)}


def _all_options(strategy: Strategy, given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return all options of a strategy if it names them, else those that were given."""
    options = getattr(strategy, "options", None)
    if is_dataclass(options) and not isinstance(options, type):
        return asdict(options)
    return dict(given)


class TorchRepresentation(FixedRepresentation):
    """Features by torch, or by ONNX Runtime from a graph that is traced in torch.

    On a CPU the features are numpy arrays; on a GPU they are tensors there.

    Args:
        backbone: The network, which becomes part of the representation.
        device: Where it computes.
        engine: "torch", "onnx" or "auto".
    """

    def __init__(self, backbone: Backbone, device: torch.device, engine: Any) -> None:
        sizes = getattr(backbone, "sizes", (backbone.dim,))
        super().__init__(backbone.spec, sizes, getattr(backbone, "priors", (1.0,)))
        self.backbone = backbone.to(device).eval().requires_grad_(False)
        self.device = str(device)
        self._on_gpu = device.type != "cpu"
        self._inner = Representation(self.backbone, freezes=True)
        self.engine = self._inner.use_engine(engine)

    @property
    def chunk(self) -> int:
        """The number of frames that go through the network at once."""
        return self._inner.chunk

    def compute(self, frames: FrameArray) -> Array:
        """Compute the features of a few frames in one pass, N x `dim`."""
        images = torch.from_numpy(np.ascontiguousarray(frames))
        z = self._inner.some_features(images, torch.arange(len(images)), frozen=True)
        return z if self._on_gpu else z.numpy()

    def weights(self) -> Arrays:
        """Return the arrays of the network by their names in files."""
        return named_weights(self.backbone)

    def window_reader(self) -> WindowReader:
        """Return what is read of a window; `InputError` if the features are not means of maps."""
        return self._inner.window_reader()

    def maps(self, picture: FrameArray) -> Sequence[Floats]:
        """Compute the maps of one picture, C x h x w each."""
        return self._inner.maps(picture)

    def reference(self) -> tuple[Array, Array] | None:
        """Return the shipped centre and spread of generic frames, or None if there are none."""
        return shipped_reference(self.spec, self.sizes, self.weights())

    def to_library(self, array: Array, *, on_cpu: bool = False) -> Array:
        """Convert an array to a tensor on the GPU, if the features are there."""
        if not self._on_gpu:
            return array
        return torch.as_tensor(array).to("cpu" if on_cpu else self.device)


class TorchStrategy(TaughtStrategy):
    """A strategy of the benchmark as a learner uses it.

    Args:
        settings: Its name, options, backbone and seed.
        strategy: The strategy, on its device.
        engine: The engine to use after `restore`; None if that is chosen already.
    """

    def __init__(self, settings: Settings, strategy: Strategy, engine: Any = None) -> None:
        self.settings = settings
        self.strategy = strategy
        self.module = strategy.backbone
        self.rehearsal_free = strategy.rehearsal_free
        self.engine, self.device = strategy.representation.engine, str(strategy.device)
        self._engine_to_use = engine
        self.threshold = CONFIDENCE_THRESHOLD
        if isinstance(strategy, OpenSet) and strategy.open_set:
            self.threshold = strategy.known_from

    @property
    def on_step(self) -> OnStep | None:
        """Called after every step of gradient descent, unless None."""
        return self.strategy.on_step

    @on_step.setter
    def on_step(self, value: OnStep | None) -> None:
        """Set what is called after every step."""
        self.strategy.on_step = value

    @property
    def classes(self) -> list[int]:
        """The class ids, in the order of the columns of the scores."""
        return [int(i) for i in self.strategy.classes.tolist()]

    @property
    def features_from(self) -> object:
        """The representation and its version, or None while lessons train it."""
        strategy = self.strategy
        if not (isinstance(strategy, EmbeddingStrategy) and strategy.embeds):
            return None
        return strategy.representation, int(strategy.embedding_version)

    @property
    def groups(self) -> Mapping[str, ClassArrays]:
        """The groups of arrays of the head by name."""
        return groups_of(self.strategy)

    def draft(self) -> Self:
        """Return a copy that can learn on its own; a frozen representation is shared."""
        return type(self)(self.settings, self.strategy.draft())

    def features(self, frames: Frames, progress: Progress | None = None) -> Tensor:
        """Compute the features of frames; `InputError` if one is not finite."""
        return self.strategy.representation.finite_features(frames, progress)

    def learn(self, frames: Frames, ids: Sequence[int], progress: Progress | None) -> Losses:
        """Learn one lesson from its frames, with one class id per frame."""
        return self._losses(self.strategy.learn(frames, torch.tensor(ids), progress=progress))

    def learn_features(self, z: Tensor, ids: Sequence[int]) -> Losses:
        """Learn one lesson from the result of `features`, with one class id per frame."""
        assert isinstance(self.strategy, EmbeddingStrategy)
        return self._losses(self.strategy.learn_embedded(z, torch.tensor(ids)))

    def _losses(self, report: LearnReport) -> Losses:
        self.stored_bytes = report.stored_bytes
        return report.losses

    def judge(self, frames: Frames) -> Judgement:
        """Compute the scores and the familiarity of frames."""
        return judge(self.strategy, frames).in_numpy()

    def judge_features(self, z: Tensor) -> Judgement:
        """Compute the scores and the familiarity from the result of `features`."""
        return judge_features(self.strategy, z).in_numpy()

    def judge_windows(self, z: Floats) -> Judgement:
        """Compute the same for the features of windows."""
        return self.judge_features(torch.from_numpy(z).to(self.strategy.device))

    def representation_with_maps(self) -> Representation:
        """Return the representation; `InputError` if lessons train it."""
        if self.features_from is None:
            raise InputError(
                "this strategy trains its network with every lesson, so it cannot locate: "
                "use prima, or another strategy with a frozen network"
            )
        return self.strategy.representation

    def forget(self, i: int) -> None:
        """Forget a class that is known."""
        self.strategy.forget(i)

    def arrays(self, *, network: bool = True) -> Arrays:
        """Return the arrays of the state as they go into a file."""
        return strategy_arrays(self.strategy, network=network)

    def restore(self, arrays: Mapping[str, Any], frames: Mapping[int, int]) -> None:
        """Take over the arrays of an untrusted file; see `TaughtStrategy.restore`."""
        load_arrays(self.strategy, arrays)
        check_ids(self.classes, frames)
        check_loaded(self.strategy, arrays, frames)
        if self._engine_to_use is not None:
            self.engine = self.strategy.representation.use_engine(self._engine_to_use)
            self._engine_to_use = None

    def free_cache(self) -> None:
        """Free what was computed from the state; it is computed again when it is needed."""
        self.strategy.derived.clear()


def equal_strategy(taught: TaughtStrategy) -> Strategy:
    """Return a strategy of the benchmark on the CPU in the same state as that of a learner.

    Args:
        taught: The strategy of a learner.
    """
    if isinstance(taught, TorchStrategy):
        return copy.deepcopy(taught.strategy).to("cpu")
    settings, arrays = taught.settings, taught.arrays()
    # names of arrays are those of the published network; in evaluation mode the norms are equal
    options: dict[str, Any] = dict(settings.options)
    if "norm" in options:
        options["norm"] = "bn"
    network = _backbone_of_file(settings.spec, _network_shapes(arrays), taught.own_module())
    made = create(settings.strategy, network, seed=settings.seed, **options)
    batches = {"seed": np.asarray(settings.seed), "embedding_version": np.asarray(0)}
    load_arrays(made, {**arrays, **batches})
    return made
