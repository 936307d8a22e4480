"""How a learner gets its strategy: from its arguments or from a file, with torch or without."""

from __future__ import annotations

import ctypes.util
from collections.abc import Mapping
from functools import cache
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

from primavista.backbones.base import FixedRepresentation
from primavista.backbones.onnx import (
    BODY,
    GRAPH_ARRAYS,
    LEAST_SIZE,
    NetworkGraph,
    OnnxRepresentation,
    shipped_graph,
)
from primavista.backbones.spec import Spec, check_seed, check_size
from primavista.backbones.weights import SHIPPED, SHIPPED_NETWORK, SOURCES, load_source
from primavista.errors import InputError, MissingExtraError
from primavista.learner.head_strategy import HeadStrategy, complete_options, learns_from_features
from primavista.learner.strategy import BACKBONE, Arrays, NetworkChoice, Settings, TaughtStrategy
from primavista.storage.settings import OptionValue


def weights_of_new(backbone: object, weights: str | Path | None) -> str | Path | None:
    """Return the weights that a new learner takes; "auto" stands for those made for objects."""
    if weights != "auto":
        return weights
    return "objects" if backbone == SHIPPED_NETWORK else "imagenet"


def new_strategy(
    name: str, options: Mapping[str, OptionValue], asked: NetworkChoice
) -> TaughtStrategy:
    """Make the strategy of a new learner."""
    check_size(asked.size)
    check_seed(asked.seed)
    check_engine(asked.engine)
    check_device(asked.device)
    if not learns_from_features(name, options):
        module = import_with_torch(f"the strategy {name}")
        strategy: TaughtStrategy = module.new_strategy(name, options, asked)
        return strategy
    options = complete_options(name, options)
    network = _new_network(asked, places=name == "prima")
    return HeadStrategy(Settings(name, options, network.spec, asked.seed), network)


def _new_network(asked: NetworkChoice, *, places: bool) -> FixedRepresentation:
    """Return the network in the package through ONNX Runtime, or else any network in torch."""
    name = f"{asked.backbone}/{asked.weights}"
    shipped = name in SHIPPED and asked.width in (None, 1) and asked.engine != "torch"
    if shipped and _runs_onnx(asked.size, places) and not uses_gpu(asked.device):
        source = SOURCES[name]
        spec = Spec(SHIPPED_NETWORK, asked.size, source.mean, source.std, dict(source.options))
        arrays = {BODY + name: x for name, x in load_source(source, name).items()}
        return OnnxRepresentation(spec, arrays, shipped_graph(asked.size, arrays, places=places))
    what = f"every network but {SHIPPED_NETWORK} in ONNX Runtime, of full width with its weights,"
    made: FixedRepresentation = import_with_torch(what).new_network(asked, places=places)
    return made


def _runs_onnx(size: int, places: bool) -> bool:
    """Return True if the graph in the package fits frames of this size, or if nothing else does."""
    return size >= LEAST_SIZE or not places or not torch_installed()


def restored_strategy(
    settings: Settings, arrays: Arrays, graph: Arrays, asked: NetworkChoice
) -> TaughtStrategy:
    """Make the strategy of a file with its network; it has learned nothing yet.

    Args:
        settings: The settings in the manifest.
        arrays: The arrays of the state, those of the network among them.
        graph: The arrays `GRAPH_ARRAYS`, if the file has them.
        asked: What the user wants.
    """
    check_engine(asked.engine)
    if not learns_from_features(settings.strategy, settings.options):
        module = import_with_torch(f"the strategy {settings.strategy}")
        made: TaughtStrategy = module.restored_strategy(settings, arrays, asked)
        return made
    return HeadStrategy(settings, _restored_network(settings, arrays, graph, asked))


def _restored_network(
    settings: Settings, arrays: Arrays, graph: Arrays, asked: NetworkChoice
) -> FixedRepresentation:
    places = settings.strategy == "prima"
    spec = settings.spec
    weights = {n.removeprefix(BACKBONE): x for n, x in arrays.items() if n.startswith(BACKBONE)}
    in_torch = asked.engine == "torch" and torch_installed()
    if asked.backbone is None and not uses_gpu(asked.device) and not in_torch:
        if graph:
            model, facts = (graph[name].tobytes() for name in GRAPH_ARRAYS)
            found = NetworkGraph.from_bytes(model, facts, spec.size)
            return OnnxRepresentation(spec, weights, found)
        if _runs_onnx(spec.size, places) and _is_shipped_network(spec, weights):
            known = shipped_graph(spec.size, weights, places=places)
            return OnnxRepresentation(spec, weights, known)
    made: FixedRepresentation = import_with_torch(f"the network {spec.name}").restored_network(
        spec, weights, asked, places=places
    )
    return made


def _is_shipped_network(spec: Spec, weights: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    """Return True if the graph in the package computes this network, whatever its weights."""
    if spec.name != SHIPPED_NETWORK or spec.options != dict(SOURCES[SHIPPED[0]].options):
        return False
    check_size(spec.size)
    shapes = {name: array.shape for name, array in weights.items()}
    expected = _shipped_shapes()
    for name in expected.keys() | shapes.keys():
        if expected.get(name) != shapes.get(name):
            raise InputError(f"its backbone needs {name} of shape {expected.get(name)}")
    return True


@cache
def _shipped_shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights in the package."""
    arrays = load_source(SOURCES[SHIPPED[0]], SHIPPED[0])
    return {BODY + name: array.shape for name, array in arrays.items()}


def check_engine(engine: str) -> None:
    """Reject an engine that does not exist."""
    if engine not in ("auto", "torch", "onnx"):
        raise InputError(f"engine must be auto, torch or onnx; got {engine!r}")


def check_device(device: Any) -> None:
    """Reject a device that is not here; `InputError` names those to choose from."""
    if str(device) not in ("auto", "cpu"):
        import_with_torch(f"device={str(device)!r}").choose_device(device)


def torch_installed() -> bool:
    """Return True if torch can be imported; it is not imported."""
    return util.find_spec("torch") is not None


def uses_gpu(device: Any) -> bool:
    """Return True if a device is anything but the CPU; "auto" is the GPU if there is one.

    torch is imported only where the machine has the driver of a GPU.
    """
    if str(device) != "auto":
        return str(device) != "cpu"
    if not torch_installed() or not _has_driver():
        return False
    return bool(import_module("torch").cuda.is_available())


@cache
def _has_driver() -> bool:
    return any(ctypes.util.find_library(name) for name in ("cuda", "nvcuda"))


def import_with_torch(what: str, module: str = "with_torch") -> Any:
    """Import a part of the learner that needs torch, or say what needs it and how to install it.

    Args:
        what: What needs torch, for the message.
        module: The name of the module in `primavista.learner`.
    """
    if not torch_installed():
        raise MissingExtraError(f'{what} needs torch: pip install "primavista[train]"')
    return import_module(f"primavista.learner.{module}")
