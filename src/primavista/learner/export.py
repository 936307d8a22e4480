"""Export: a learner for machines without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from primavista.errors import InputError, file_errors
from primavista.learner.learner import Learner
from primavista.learner.making import import_with_torch
from primavista.storage import learner_file
from primavista.storage.disk import write_atomically

Format = Literal["onnx", "portable"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "portable": ".portable.pv"}


def export(learner: Learner, path: str | Path, kind: Format = "onnx") -> Path:
    """Write a learner for machines without torch, whole or not at all.

    Before anything is written, the model is run by ONNX Runtime and compared with torch.

    Args:
        learner: A learner that knows at least one object.
        path: The file to create or replace.
        kind: "onnx" writes an ONNX model from frames to features and scores (`onnx_model`).
            "portable" writes the learner's own file with its network as a graph inside, so that
            `Learner.load` needs no torch; it is for strategies that do not train the network. The
            files of learners with the network of the package are portable anyway.

    Returns:
        The path of the file.

    Raises:
        InputError: If nothing was taught yet, if the network cannot be written as ONNX, if ONNX
            Runtime gives other numbers than torch, or if a strategy that trains its network is to
            be portable.
        MissingExtraError: If torch or onnx is not installed.
        FileError: If the file cannot be written.
    """
    if kind not in get_args(Format):
        raise InputError(f"the format is {' or '.join(get_args(Format))}; got {kind!r}")
    if not learner.labels:
        raise InputError("there is nothing to export: teach it an object first")
    target = Path(path)
    tracing = import_with_torch("export", "onnx_export")
    if kind == "onnx":
        model = tracing.onnx_model(learner)
        with file_errors("write", target):
            write_atomically(target, model)
        return target
    arrays, manifest = learner.content()
    learner_file.write(target, {**arrays, **tracing.graph_arrays(learner, arrays)}, manifest)
    return target
