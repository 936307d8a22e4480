"""How a learner gets its strategy: from its arguments or from a file, with torch or without."""

from __future__ import annotations

import ctypes.util
import json
import struct
from collections.abc import Mapping
from functools import cache
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

from primavista.backbones.base import FixedRepresentation
from primavista.backbones.onnx import (
    GRAPH_ARRAYS,
    LEAST_SIZE,
    NetworkGraph,
    OnnxRepresentation,
    shipped_graph,
)
from primavista.backbones.spec import Spec, check_seed, check_size
from primavista.backbones.weights import SHIPPED, SOURCES, load_source
from primavista.errors import InputError, MissingExtraError
from primavista.learner.exported import ExportedStrategy
from primavista.learner.head_strategy import HeadStrategy, complete_options, learns_from_features
from primavista.learner.strategy import BACKBONE, Arrays, Settings, TaughtStrategy
from primavista.storage.settings import OptionValue

SHIPPED_NETWORK, SHIPPED_WEIGHTS = SHIPPED.split("/")


def new_strategy(
    name: str,
    options: Mapping[str, OptionValue],
    *,
    backbone: Any,
    weights: str | Path | None,
    size: int,
    width: float | None,
    seed: int,
    device: Any,
    engine: str,
) -> TaughtStrategy:
    """Make the strategy of a new learner; the arguments are those of `Learner`."""
    check_size(size)
    check_seed(seed)
    check_engine(engine)
    check_device(device)
    if not learns_from_features(name, options):
        module = with_torch(f"the strategy {name}")
        strategy: TaughtStrategy = module.new_strategy(
            name, options, backbone, weights, size, width, seed, device, engine
        )
        return strategy
    options = complete_options(name, options)
    network = _new_network(
        backbone, weights, size, width, seed, device, engine, places=name == "prima"
    )
    return HeadStrategy(Settings(name, options, network.spec, seed), network)


def _new_network(
    backbone: Any,
    weights: str | Path | None,
    size: int,
    width: float | None,
    seed: int,
    device: Any,
    engine: str,
    *,
    places: bool,
) -> FixedRepresentation:
    """Return the network in the package through ONNX Runtime, or else any network in torch."""
    shipped = (backbone, weights) == (SHIPPED_NETWORK, SHIPPED_WEIGHTS) and width in (None, 1)
    fits = size >= LEAST_SIZE or not places or not torch_installed()
    if shipped and fits and engine != "torch" and not uses_gpu(device):
        source = SOURCES[SHIPPED]
        spec = Spec(SHIPPED_NETWORK, size, source.mean, source.std, dict(source.options))
        arrays = {f"body.{name}": x for name, x in load_source(source, SHIPPED).items()}
        return OnnxRepresentation(spec, arrays, shipped_graph(size, arrays, places=places))
    made: FixedRepresentation = with_torch(_what(backbone, weights, engine, device)).new_network(
        backbone, weights, size, width, seed, device, engine, places=places
    )
    return made


def restored_strategy(
    settings: Settings,
    arrays: Arrays,
    graph: Arrays,
    *,
    backbone: Any,
    device: Any,
    engine: str,
) -> TaughtStrategy:
    """Make the strategy of a file with its network; it has learned nothing yet.

    Args:
        settings: The settings in the manifest.
        arrays: The arrays of the state, those of the network among them.
        graph: The arrays `GRAPH_ARRAYS`, if the file has them.
        backbone: A module of the user's own, which is not in the file.
        device: The device that the user wants.
        engine: The engine that the user wants, or with which the file was saved.
    """
    check_engine(engine)
    if not learns_from_features(settings.strategy, settings.options):
        if graph and not torch_installed():
            model, facts = (graph[name].tobytes() for name in GRAPH_ARRAYS)
            read = NetworkGraph.from_bytes(model, facts, settings.spec.size)
            return ExportedStrategy(settings, read, graph)
        made: TaughtStrategy = with_torch(f"the strategy {settings.strategy}").restored_strategy(
            settings, arrays, backbone, device, engine
        )
        return made
    network = _restored_network(settings, arrays, graph, backbone, device, engine)
    return HeadStrategy(settings, network)


def _restored_network(
    settings: Settings, arrays: Arrays, graph: Arrays, backbone: Any, device: Any, engine: str
) -> FixedRepresentation:
    places = settings.strategy == "prima"
    spec = settings.spec
    weights = {
        name.removeprefix(BACKBONE): array
        for name, array in arrays.items()
        if name.startswith(BACKBONE)
    }
    runs_here = backbone is None and not uses_gpu(device)
    if engine == "torch" and torch_installed():
        runs_here = False
    if runs_here and graph:
        model, facts = (graph[name].tobytes() for name in GRAPH_ARRAYS)
        return OnnxRepresentation(spec, weights, NetworkGraph.from_bytes(model, facts, spec.size))
    fits = spec.size >= LEAST_SIZE or not places or not torch_installed()
    if runs_here and fits and _is_shipped_network(spec, weights):
        return OnnxRepresentation(spec, weights, shipped_graph(spec.size, weights, places=places))
    made: FixedRepresentation = with_torch(f"the network {spec.name}").restored_network(
        spec, weights, backbone, device, engine, places=places
    )
    return made


def _is_shipped_network(spec: Spec, weights: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    """Return True if the graph in the package computes this network, whatever its weights."""
    if spec.name != SHIPPED_NETWORK or spec.options != dict(SOURCES[SHIPPED].options):
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
    """Return the shapes in the header of the weights file of the package."""
    data = SOURCES[SHIPPED].read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {f"body.{name}": tuple(one["shape"]) for name, one in header.items()}


def check_engine(engine: str) -> None:
    """Reject an engine that does not exist."""
    if engine not in ("auto", "torch", "onnx"):
        raise InputError(f"engine must be auto, torch or onnx; got {engine!r}")


def check_device(device: Any) -> None:
    """Reject a device that is not here; `InputError` names those to choose from."""
    if str(device) not in ("auto", "cpu"):
        with_torch(f"device={str(device)!r}").choose_device(device)


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


def with_torch(what: str, module: str = "with_torch") -> Any:
    """Import a part of the learner that needs torch, or say what needs it and how to install it.

    Args:
        what: What needs torch, for the message.
        module: The name of the module in `primavista.learner`.
    """
    if not torch_installed():
        raise MissingExtraError(f'{what} needs torch: pip install "primavista[train]"')
    return import_module(f"primavista.learner.{module}")


def _what(backbone: Any, weights: object, engine: str, device: object) -> str:
    """Say which argument it is that needs torch."""
    if engine == "torch":
        return "engine='torch'"
    if str(device) not in ("auto", "cpu"):
        return f"device={str(device)!r}"
    if (backbone, weights) == (SHIPPED_NETWORK, SHIPPED_WEIGHTS):
        return "another width"
    return f"the network {backbone if isinstance(backbone, str) else 'of your own'} ({weights})"
