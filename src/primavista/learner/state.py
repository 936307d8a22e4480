"""What a learner knows at one moment, and how it goes into the arrays and the manifest of a file and comes back, checked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primavista.backbones.base import Spec
from primavista.backbones.registry import convolution_shapes
from primavista.errors import InputError
from primavista.frames import Frames, check_labels, read_frames
from primavista.heads.buffers import ArrayBuffers
from primavista.heads.packed import packed_size
from primavista.nn.class_rows import Rows
from primavista.storage.manifest import ClassRecord, Manifest, UndoRecord
from primavista.storage.validate import check_finite, check_past
from primavista.strategies import Strategy


@dataclass(frozen=True)
class State:
    """Everything that a lesson may change. It is replaced whole, never changed in place."""

    strategy: Strategy
    names: dict[int, str] = field(
        default_factory=dict
    )  # by id, in the order in which they were first taught
    counts: dict[int, int] = field(default_factory=dict)  # frames learned, by id
    next_id: int = 0
    lessons: tuple[str, ...] = ()


def lesson_id(images: Frames) -> str:
    """Names a lesson by what was shown: the same video gives the same id on every machine."""
    sha = hashlib.sha256(repr(len(images)).encode())
    for index in torch.linspace(0, len(images) - 1, min(8, len(images))).long().unique():
        sha.update(read_frames(images, index[None], torch.device("cpu")).numpy().tobytes())
    return sha.hexdigest()[:32]


def records(state: State) -> dict[str, Any]:
    """Its part of the manifest."""
    classes = [
        ClassRecord(id=i, name=name, frames=state.counts[i]) for i, name in state.names.items()
    ]
    return {"classes": classes, "next_id": state.next_id, "lessons": list(state.lessons)}


def arrays_of(strategy: Strategy) -> dict[str, np.ndarray[Any, Any]]:
    """Its tensors as they go into a file."""
    return {
        name: tensor.detach().cpu().contiguous().numpy()
        for name, tensor in strategy.state_dict().items()
    }


def restored(
    strategy: Strategy, arrays: dict[str, Any], record: Manifest | UndoRecord, device: torch.device
) -> State:
    """`strategy` with the tensors of a file, and the names of its `record`; an error where they do not fit."""
    tensors: dict[str, Tensor] = {}
    own = strategy.state_dict()
    for name, array in arrays.items():
        if array is None:
            raise InputError(f"it lacks {name}")
        tensors[name] = torch.from_numpy(np.array(array))
        if name in own and own[name].dtype != tensors[name].dtype:
            raise InputError(f"{name} is {tensors[name].dtype}, expected {own[name].dtype}")
    check_finite(arrays)
    strategy.load_state_dict(tensors)
    names = {c.id: c.name for c in record.classes}
    classes = check_labels(strategy.classes, len(strategy.classes), "classes").tolist()
    if (
        len(set(classes)) < len(classes)
        or len(set(names.values())) < len(record.classes)
        or not set(names) <= set(classes)
    ):
        raise InputError("its names do not belong to its classes")
    _check_statistics(strategy, arrays, [column for column, i in enumerate(classes) if i in names])
    for name, part in strategy.named_modules():
        if isinstance(part, Rows) and part.has_rows and part.rows < len(classes):
            raise InputError(f"{name} has {part.rows} rows for {len(classes)} classes")
    if record.next_id <= max(names, default=-1):
        raise InputError(f"its next id is {record.next_id}, but that was given already")
    counts = {c.id: c.frames for c in record.classes}
    return State(strategy.to(device), names, counts, record.next_id, tuple(record.lessons))


def _check_statistics(strategy: Strategy, arrays: dict[str, Any], taught: list[int]) -> None:
    """Counts and sums that make sense; `taught` are the columns of the classes that have names."""
    known = len(strategy.classes)
    for name, part in strategy.named_modules():
        if isinstance(part, ArrayBuffers):
            part.group.check(f"{name}.", known, taught)
    if "head.past" in arrays:
        check_past("head.past", arrays["head.past"])


def check_sizes(arrays: dict[str, Any], manifest: Manifest, spec: Spec) -> None:
    """What the manifest asks to be built must be as large as what the file holds: a small file takes little memory."""
    for name, shape in convolution_shapes(spec).items():
        array = arrays.get(f"backbone.body.{name}")
        if array is None or tuple(array.shape) != shape:
            raise InputError(
                f"its backbone asks for {name} of shape {shape}, which it does not hold"
            )
    capacity = manifest.strategy.options.get("capacity")
    rows = [len(array) for name, array in arrays.items() if name.startswith("head.") and array.ndim]
    if rows and isinstance(capacity, int) and capacity > max(rows):
        raise InputError(f"it asks for a capacity of {capacity}, but holds {max(rows)} rows")
    expand = manifest.strategy.options.get("expand")
    gram = arrays.get("moments.gram")
    if isinstance(expand, int) and (gram is None or gram.shape != (packed_size(expand),)):
        raise InputError(
            f"it asks for {expand} random features, but does not hold their statistics"
        )
