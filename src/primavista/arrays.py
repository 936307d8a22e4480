"""Arrays of numpy and of torch, without importing torch.

numpy is array-API conformant, and torch has an array-API form.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any  # a numpy array or a torch tensor


def array_namespace(array: Array) -> Any:
    """Return the functions for an array, by their names in the array API.

    The form of torch is imported when the first tensor comes.

    Args:
        array: A numpy array or a torch tensor.
    """
    if isinstance(array, np.ndarray | np.generic):
        return np
    from array_api_compat import array_namespace as compatible

    return compatible(array)


def is_torch_array(array: object) -> bool:
    """Return True for a tensor; torch is not imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def to_device(array: Array, device: Any) -> Array:
    """Return an array on a device; a numpy array stays on the CPU."""
    return array.to(device) if is_torch_array(array) else array


def float64(array: Array) -> Array:
    """Convert an array to float64, without a copy if it has this type already."""
    return array.double() if is_torch_array(array) else array.astype(np.float64, copy=False)


def float32(array: Array) -> Array:
    """Round an array to float32, without a copy if it has this type already."""
    return array.float() if is_torch_array(array) else array.astype(np.float32, copy=False)


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Convert an array to numpy; if it is on the CPU, the result shares its memory."""
    return np.asarray(to_device(array, "cpu"))


def as_numpy(image: Any) -> Any:
    """Return a tensor as a numpy array without its gradient, and anything else unchanged."""
    return image.detach().cpu().numpy() if is_torch_array(image) else image


def to_library_of(array: np.ndarray[Any, Any], like: Array) -> Array:
    """Convert a numpy array to the library and the device of another array."""
    return array_namespace(like).asarray(array, device=like.device)


def zeros_like(shape: tuple[int, ...], array: Array) -> Array:
    """Make an array of 0 with the library, type and device of another array."""
    return array_namespace(array).zeros(shape, dtype=array.dtype, device=array.device)


def identity(dim: int, like: Array) -> Array:
    """Make the identity matrix in float64, with the library and device of another array."""
    xp = array_namespace(like)
    return xp.eye(dim, dtype=xp.float64, device=like.device)


def chosen_rows(indices: Any, count: int) -> NDArray[np.int64]:
    """Return the numbers of the rows that indices choose among `count`.

    Args:
        indices: Indices, negative ones too, a mask or a slice; numpy or torch.
        count: The number of rows.

    >>> chosen_rows(np.array([-1, 0]), 5)
    array([4, 0])
    """
    if is_torch_array(indices):
        indices = indices.cpu().numpy()
    rows: NDArray[np.int64] = np.arange(count, dtype=np.int64)[indices]
    return rows


def like_indices(frames: Any, indices: Any) -> Any:
    """Return frames as tensors if the indices are a tensor, else as they are.

    Args:
        frames: The frames that the indices chose.
        indices: The indices.
    """
    if is_torch_array(indices) and not is_torch_array(frames):
        return sys.modules["torch"].from_numpy(frames)
    return frames


def softmax(x: Array) -> Array:
    """p_k = exp(x_k) / sum_j exp(x_j) over the last dimension.

    Args:
        x: Scores, ... x K.

    Returns:
        Probabilities of the same shape.
    """
    xp = array_namespace(x)
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)
