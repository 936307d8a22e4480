"""The state of a strategy as named arrays, for the files of learners and of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primavista.engine.frames import check_labels
from primavista.errors import InputError
from primavista.heads.base import ClassArrays, own_arrays
from primavista.networks.base import BATCH_COUNTER
from primavista.nn.class_rows import ArrayBuffers, Rows
from primavista.nn.memory import memories
from primavista.storage.learner_file import exact_halves
from primavista.storage.validate import ArrayChecks
from primavista.strategies.base import Strategy

Arrays = dict[str, np.ndarray[Any, Any]]
BACKBONE = "backbone."  # prefix of the arrays of the network


def groups_of(strategy: Strategy) -> dict[str, ClassArrays]:
    """Return the groups of arrays of a strategy's head by the names of their modules."""
    parts = strategy.named_modules()
    return {name: part.group for name, part in parts if isinstance(part, ArrayBuffers)}


def strategy_arrays(strategy: Strategy, *, network: bool = True) -> Arrays:
    """Return the tensors of a strategy as they go into a file, by their names in `state_dict()`.

    Args:
        strategy: The strategy to be saved. Arrays of one on the CPU share its memory, apart from
            those that a file has in fewer bytes per number.
        network: Whether to return the tensors of the backbone too.
    """
    found = {
        name: tensor.detach().cpu().contiguous().numpy()
        for name, tensor in strategy.state_dict().items()
        if (network or not name.startswith(BACKBONE)) and not name.endswith(BATCH_COUNTER)
    }
    for group, own, prefix in own_arrays(groups_of(strategy), found):
        found |= {prefix + name: array for name, array in group.to_file(own).items()}
    return found | exact_halves({n: a for n, a in found.items() if n.startswith(BACKBONE)})


def load_arrays(strategy: Strategy, arrays: Mapping[str, Any]) -> None:
    """Load the arrays of a file into a strategy, after checking that they fit it.

    Args:
        strategy: A strategy that has learned nothing. It is changed.
        arrays: The arrays of the file.

    Raises:
        InputError: If the arrays do not fit the strategy; the message names the array.
    """
    own, numbers = strategy.state_dict(), dict(arrays)
    for group, saved, prefix in own_arrays(groups_of(strategy), numbers):
        found = group.from_file(prefix, saved)
        numbers |= {prefix + name: array for name, array in found.items()}
    tensors = {name: x for name, x in own.items() if name.endswith(BATCH_COUNTER)}
    for name, array in numbers.items():
        tensors[name] = _tensor(name, array, own.get(name))
    strategy.load_state_dict(tensors)


def _tensor(name: str, array: Any, own: Tensor | None) -> Tensor:
    tensor = torch.from_numpy(np.array(array))
    expected = tensor.dtype if own is None else own.dtype
    if tensor.dtype == torch.float16 and name.startswith(BACKBONE):
        tensor = tensor.to(expected)  # exactly: see `exact_halves`
    if tensor.dtype != expected:
        raise InputError(f"{name} is {tensor.dtype}, expected {expected}")
    return tensor


def check_loaded(strategy: Strategy, arrays: Mapping[str, Any], frames: Mapping[int, int]) -> None:
    """Reject a loaded state that cannot result from any frames.

    Args:
        strategy: The strategy, after `load_arrays`.
        arrays: The arrays that were loaded.
        frames: The number of frames of each label that has a name.

    Raises:
        InputError: If an array is not valid; the message names it.
    """
    classes = check_labels(strategy.classes, len(strategy.classes), "classes").tolist()
    taught = {column: frames[i] for column, i in enumerate(classes) if i in frames}
    for name, part in strategy.named_modules():
        if isinstance(part, ArrayBuffers):
            part.group.check(f"{name}.", len(classes), list(taught))
            part.group.check_frames(f"{name}.", taught)
        if isinstance(part, Rows) and part.has_rows and part.rows < len(classes):
            raise InputError(f"{name} has {part.rows} rows for {len(classes)} classes")
    if "head.past" in arrays:
        ArrayChecks(arrays).past("head.past")
    for memory in memories(strategy):
        memory.check_labels(strategy.classes)
