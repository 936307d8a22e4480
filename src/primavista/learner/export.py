"""Export: an ONNX model for any runtime, and a file with which `primavista-edge` learns on."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from primavista.backbones.spec import Spec
from primavista.engine.onnx_trace import CannotTraceError, trace
from primavista.engine.representation import make_session, maps_graph
from primavista.errors import InputError, file_errors, require_extra
from primavista.learner.learner import Learner
from primavista.learner.state import BACKBONE, Array, Arrays
from primavista.networks.maps import MapBackbone
from primavista.storage import learner_file
from primavista.storage.disk import write_atomically
from primavista.strategies.base import Strategy
from primavista.strategies.open_set import judge, tells_strangers

Format = Literal["onnx", "edge"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "edge": ".edge.pv"}
METADATA_FORMAT = 1
TOLERANCE = 1e-4  # of the largest score
OUTPUTS = ("z", "scores")
PREPROCESSING = (
    "centre square, antialiased bilinear to size x size, RGB; then (x / 255 - mean) / std"
)


def export(learner: Learner, path: str | Path, kind: Format = "onnx") -> Path:
    """Write a learner for machines without torch, whole or not at all.

    Before anything is written, the model is run by ONNX Runtime and compared with torch.

    Args:
        learner: A learner that knows at least one object.
        path: The file to create or replace.
        kind: "onnx" writes `onnx_model(learner)`; "edge" writes the learner's own file with that
            model inside, for `primavista-edge`, which `Learner.load` reads too.

    Returns:
        The path of the file.

    Raises:
        InputError: If nothing was taught yet, if the backbone cannot be written as ONNX, or if ONNX
            Runtime gives other numbers than torch.
        FileError: If the file cannot be written.
    """
    if kind not in get_args(Format):
        raise InputError(f"the format is {' or '.join(get_args(Format))}; got {kind!r}")
    model, target = onnx_model(learner), Path(path)
    if kind == "edge":
        arrays, manifest = learner.content()
        graphs = {**graph_arrays(model, arrays), **_maps_arrays(learner, arrays)}
        learner_file.write(target, {**arrays, **graphs}, manifest)
        return target
    with file_errors("write", target):
        write_atomically(target, model)
    return target


def onnx_model(learner: Learner) -> bytes:
    """Return an ONNX model from frames to features and scores.

    The input `frames` is uint8, N x size x size x 3, RGB, for any N; normalisation is inside. The
    output `z` is N x D, `scores` has one column per known name. The metadata key `primavista` is a
    JSON object: `classes` names the columns, softmax(scores / `temperature`) are the probabilities
    of `Learner.predict`, and `preprocessing` says how an image becomes a frame.

    Args:
        learner: A learner that knows at least one object.

    Raises:
        InputError: If nothing was taught yet, if the backbone cannot be written as ONNX, or if ONNX
            Runtime gives other numbers than torch.
    """
    if not learner.labels:
        raise InputError("there is nothing to export: teach it an object first")
    strategy = learner.strategy
    if strategy.device.type != "cpu":
        strategy = copy.deepcopy(strategy).to("cpu")
    strategy.backbone.eval()
    names = learner.columns
    function = _features_and_scores(strategy, names)
    probe = _probe_frames(2, learner.size)
    # what a strategy solves when it is first asked is solved before the graph is traced
    temperature = judge(strategy, probe).temperature
    about = {
        "format": METADATA_FORMAT,
        "strategy": learner.strategy_name,
        "classes": [name for name in names if name is not None],
        "temperature": temperature,
        "threshold": learner.threshold,
        "threshold_of": "familiarity" if tells_strangers(strategy) else "confidence",
        "preprocessing": _preprocessing(strategy.backbone.spec),
        "blocks": list(getattr(strategy.backbone, "sizes", [strategy.backbone.dim])),  # parts of z
        "priors": list(getattr(strategy.backbone, "priors", [1.0])),  # what each part is worth
    }
    metadata = {"primavista": json.dumps(about, sort_keys=True, ensure_ascii=False)}
    try:
        model, expected = trace(function, probe, outputs=OUTPUTS, metadata=metadata)
    except CannotTraceError as error:
        raise InputError(f"this backbone cannot be written as ONNX: {error}") from error
    _compare(make_session(model, 1), probe, expected)
    return model


def _maps_arrays(learner: Learner, arrays: Mapping[str, Array]) -> Arrays:
    """Return the arrays by which the edge locates objects; none if the network has no maps."""
    backbone = learner.strategy.backbone
    if learner.strategy.device.type != "cpu":
        backbone = copy.deepcopy(backbone).to("cpu")
    try:
        model = maps_graph(MapBackbone(backbone))
    except (InputError, CannotTraceError):
        return {}
    return graph_arrays(model, arrays, (learner_file.MAPS, learner_file.MAPS_WEIGHTS))


def graph_arrays(
    model: bytes,
    arrays: Mapping[str, Array],
    names: tuple[str, str] = (learner_file.GRAPH, learner_file.GRAPH_WEIGHTS),
) -> Arrays:
    """Return the arrays that a file for the edge has besides those of the learner.

    `GRAPH` is the model without the constants that the file has anyway, and `GRAPH_WEIGHTS` says
    which arrays they are, so the file holds the network once.

    Args:
        model: The serialised model.
        arrays: The arrays of the learner's file; those of the network may be float16.
        names: What the two arrays are called.
    """
    onnx = require_extra("onnx", "onnx")
    network = {
        (array.shape, array.astype(np.float32).tobytes()): name
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
            constant.external_data.add(key="location", value=names[1])
    return {
        names[0]: np.frombuffer(graph.SerializeToString(deterministic=True), np.uint8),
        names[1]: np.frombuffer(json.dumps(weights, sort_keys=True).encode(), np.uint8),
    }


def _features_and_scores(
    strategy: Strategy, names: list[str | None]
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return the function to trace; columns of classes that were not taught are left out."""
    columns = [j for j, name in enumerate(names) if name is not None]

    def function(frames: Tensor) -> tuple[Tensor, Tensor]:
        z = strategy.backbone(frames)
        scores = strategy.score_features(z)[:, : len(names)]
        if len(columns) == len(names):
            return z, scores
        return z, torch.cat([scores[:, j : j + 1] for j in columns], 1)

    return function


def _preprocessing(spec: Spec) -> dict[str, object]:
    return {
        "size": spec.size,
        "mean": list(spec.mean),
        "std": list(spec.std),
        "how": PREPROCESSING,
    }


def _compare(session: Any, frames: Tensor, expected: tuple[Tensor, ...]) -> None:
    found = session.run(None, {"frames": frames.numpy()})
    for name, ours, right in zip(OUTPUTS, found, expected, strict=True):
        largest = max(1.0, float(right.abs().max()))
        difference = float(np.abs(ours - right.numpy()).max(initial=0)) / largest
        if not difference <= TOLERANCE:
            raise InputError(
                f"ONNX Runtime and torch differ in {name} by {difference:.1e}: nothing was written"
            )


def _probe_frames(count: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (count, size, size, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
