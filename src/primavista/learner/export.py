"""What leaves torch: an ONNX model for any runtime, and the file with which `primavista-edge` goes on learning."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from primavista.engine.onnx_runtime import make_session
from primavista.engine.onnx_trace import CannotTraceError, trace
from primavista.errors import InputError, file_errors
from primavista.learner.learner import Learner
from primavista.storage import learner_file as files
from primavista.storage.atomic import write_atomically
from primavista.strategies.open_set import judge, tells_strangers

Format = Literal["onnx", "edge"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "edge": ".edge.pv"}
FORMAT = 1  # of what the metadata says
TOLERANCE = 1e-4  # of the largest score


def export(learner: Learner, path: str | Path, kind: Format = "onnx") -> Path:
    """Write a learner as `kind`, whole or not at all, compared with torch before.

    "onnx": `onnx_model` of it. "edge": the learner's own file with that model inside, for `primavista-edge`; `Learner.load`
    reads it too.
    """
    if kind not in get_args(Format):
        raise InputError(f"the format is {' or '.join(get_args(Format))}; got {kind!r}")
    model, target = onnx_model(learner), Path(path)
    if kind == "edge":
        arrays, manifest = learner.content()
        files.write(target, {**arrays, files.GRAPH: np.frombuffer(model, np.uint8)}, manifest)
        return target
    with file_errors("write", target):
        write_atomically(target, model)
    return target


def onnx_model(learner: Learner) -> bytes:
    """frames (uint8, N x size x size x 3, RGB) to z (the features) and scores (a column a known class), for any N.

    The normalisation is inside. The metadata key `primavista` is a JSON object: `classes` names the columns of the scores,
    softmax(scores / `temperature`) are the shares of `Learner.predict`, `preprocessing` says how an image becomes a frame.
    """
    if not learner.labels:
        raise InputError("there is nothing to export: teach it an object first")
    strategy = (
        learner.strategy
        if learner.strategy.device.type == "cpu"
        else copy.deepcopy(learner.strategy).to("cpu")
    )
    strategy.backbone.eval()
    names = learner.columns
    columns = [j for j, name in enumerate(names) if name is not None]

    def both(frames: Tensor) -> tuple[Tensor, Tensor]:
        z = strategy.backbone(frames)
        scores = strategy.score_features(z)[:, : len(names)]
        return z, scores if len(columns) == len(names) else torch.cat(
            [scores[:, j : j + 1] for j in columns], 1
        )

    probe = _frames(3, learner.size)
    with torch.no_grad():
        expected = both(
            probe
        )  # whatever waits to be solved is solved before the graph is written down
    about = {
        "format": FORMAT,
        "strategy": learner.strategy_name,
        "classes": [name for name in names if name is not None],
        "temperature": judge(strategy, probe).temperature,
        "threshold": learner.threshold,
        "threshold_of": "familiarity" if tells_strangers(strategy) else "confidence",
        "preprocessing": learner.preprocessing,
        "blocks": list(
            getattr(strategy.backbone, "sizes", [strategy.backbone.dim])
        ),  # the parts of z
    }
    try:
        model = trace(
            both,
            (learner.size, learner.size, 3),
            outputs=("z", "scores"),
            metadata={"primavista": json.dumps(about, sort_keys=True, ensure_ascii=False)},
        )
    except CannotTraceError as error:
        raise InputError(f"this backbone cannot be written as ONNX: {error}") from error
    _compare(make_session(model, 1), probe, expected)
    return model


def _compare(session: Any, frames: Tensor, expected: tuple[Tensor, ...]) -> None:
    for name, found, right in zip(
        ("z", "scores"), session.run(None, {"frames": frames.numpy()}), expected, strict=True
    ):
        apart = float(np.abs(found - right.numpy()).max(initial=0)) / max(
            1.0, float(right.abs().max())
        )
        if not apart <= TOLERANCE:
            raise InputError(
                f"ONNX Runtime gives other {name} than torch, by {apart:.1e}: nothing was written"
            )


def _frames(count: int, size: int) -> Tensor:
    return torch.randint(
        0,
        256,
        (count, size, size, 3),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(0),
    )
