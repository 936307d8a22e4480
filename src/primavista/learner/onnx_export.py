"""A learner as an ONNX model, and its network as a graph: torch traces both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from primavista.backbones.base import FixedRepresentation
from primavista.backbones.onnx import GRAPH_ARRAYS, NetworkGraph, OnnxRepresentation, make_session
from primavista.engine.onnx_trace import CannotTraceError, trace
from primavista.engine.representation import maps_graph
from primavista.errors import InputError, require_extra
from primavista.learner.head_strategy import HeadStrategy
from primavista.learner.learner import Learner
from primavista.learner.strategy import BACKBONE, Arrays
from primavista.learner.with_torch import TorchRepresentation, equal_strategy
from primavista.networks.base import Backbone
from primavista.networks.places import MapBackbone
from primavista.strategies.base import Strategy
from primavista.strategies.open_set import judge, tells_strangers

METADATA_FORMAT = 1
TOLERANCE = 1e-4  # of the largest score
OUTPUTS = ("z", "scores")
PREPROCESSING = (
    "centre square, antialiased bilinear to size x size, RGB; then (x / 255 - mean) / std"
)


def onnx_model(learner: Learner) -> bytes:
    """Return an ONNX model from frames to features and scores.

    The input `frames` is uint8, N x size x size x 3, RGB, for any N; normalisation is inside. The
    output `z` is N x D, `scores` has one column per known name. The metadata key `primavista` is a
    JSON object: `classes` names the columns, softmax(scores / `temperature`) are the probabilities
    of `Learner.predict`, and `preprocessing` says how an image becomes a frame.

    Args:
        learner: A learner that knows at least one object.

    Raises:
        InputError: If the network cannot be written as ONNX, or if ONNX Runtime gives other numbers
            than torch.
    """
    strategy = equal_strategy(learner.strategy)
    names, spec = learner.columns, strategy.backbone.spec
    probe = _probe_frames(learner.size)
    # what a strategy solves when it is first asked is solved before the graph is traced
    temperature = judge(strategy, probe).temperature
    about = {
        "format": METADATA_FORMAT,
        "strategy": learner.strategy_name,
        "classes": [name for name in names if name is not None],
        "temperature": temperature,
        "threshold": learner.threshold,
        "threshold_of": "familiarity" if tells_strangers(strategy) else "confidence",
        "preprocessing": {
            "size": spec.size,
            "mean": list(spec.mean),
            "std": list(spec.std),
            "how": PREPROCESSING,
        },
    }
    metadata = {"primavista": json.dumps(about, sort_keys=True, ensure_ascii=False)}
    columns = [j for j, name in enumerate(names) if name is not None]
    return _traced(_features_and_scores(strategy, columns), probe, OUTPUTS, metadata)


def _traced(
    function: Callable[[Tensor], tuple[Tensor, ...]],
    probe: Tensor,
    outputs: tuple[str, ...],
    metadata: Mapping[str, str],
) -> bytes:
    """Translate a function of frames, and compare it with torch on trial frames."""
    try:
        model, expected = trace(function, probe, outputs=outputs, metadata=metadata)
    except CannotTraceError as error:
        raise InputError(f"this network cannot be written as ONNX: {error}") from error
    found = make_session(model, 1).run(None, {"frames": probe.numpy()})
    for name, ours, right in zip(outputs, found, expected, strict=True):
        largest = max(1.0, float(right.abs().max()))
        difference = float(np.abs(ours - right.numpy()).max(initial=0)) / largest
        if not difference <= TOLERANCE:
            raise InputError(
                f"ONNX Runtime and torch differ in {name} by {difference:.1e}: nothing was written"
            )
    return model


def graph_arrays(learner: Learner, arrays: Arrays) -> Arrays:
    """Return the arrays of the graph of a learner's network; none if the package has it.

    Args:
        learner: A learner whose strategy learns from the features of a fixed network.
        arrays: The arrays of its file.

    Raises:
        InputError: If the strategy trains its network, or if that cannot be written as ONNX.
    """
    taught = learner.strategy
    if not isinstance(taught, HeadStrategy):
        raise InputError(
            f"{learner.strategy_name} trains its network, which needs torch: export it as onnx"
        )
    if isinstance(taught.network, OnnxRepresentation):
        return taught.graphs()
    graph = _network_graph(taught.network, arrays)
    parts = (graph.model, graph.facts())
    return {n: np.frombuffer(x, np.uint8) for n, x in zip(GRAPH_ARRAYS, parts, strict=True)}


def _network_graph(network: FixedRepresentation, arrays: Arrays) -> NetworkGraph:
    """Return the graph from frames to the maps that are read, or else to the features."""
    assert isinstance(network, TorchRepresentation)
    backbone: Backbone = network.backbone.cpu()
    try:
        maps = MapBackbone(backbone)
        model, reader = maps_graph(maps), maps.reader
    except (InputError, CannotTraceError):
        probe = _probe_frames(network.spec.size)
        model, reader = _traced(lambda frames: (backbone(frames),), probe, ("z",), {}), None
    model, weights = _without_weights(model, arrays)
    return NetworkGraph(model, weights, reader, network.sizes, network.priors)


def _without_weights(model: bytes, arrays: Arrays) -> tuple[bytes, dict[str, str]]:
    """Return a model without the constants that the file has anyway, so that it holds them once.

    Args:
        model: The serialised model.
        arrays: The arrays of the learner's file; those of the network may be float16.

    Returns:
        The model, and the name of the array in the file of each constant that was left out.
    """
    onnx = require_extra("onnx", "onnx")
    network = {
        (array.shape, array.astype(np.float32).tobytes()): name.removeprefix(BACKBONE)
        for name, array in arrays.items()
        if name.startswith(BACKBONE) and array.dtype in (np.float16, np.float32)
    }
    graph, weights = onnx.load_from_string(model), {}
    for constant in graph.graph.initializer:
        numbers = onnx.numpy_helper.to_array(constant)
        name = network.get((numbers.shape, numbers.tobytes()))
        if numbers.dtype == np.float32 and name is not None:
            weights[constant.name] = name
            constant.ClearField("raw_data")
            constant.data_location = onnx.TensorProto.EXTERNAL
            constant.external_data.add(key="location", value="weights")
    return graph.SerializeToString(deterministic=True), weights


def _features_and_scores(
    strategy: Strategy, columns: list[int]
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return the function to trace, with some columns of the scores."""
    strategy.backbone.eval()
    known = len(strategy.classes)

    def function(frames: Tensor) -> tuple[Tensor, Tensor]:
        z = strategy.backbone(frames)
        scores = strategy.score_features(z)[:, :known]
        if len(columns) == known:
            return z, scores
        return z, torch.cat([scores[:, j : j + 1] for j in columns], 1)

    return function


def _probe_frames(size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (2, size, size, 3), dtype=torch.uint8, generator=generator)
