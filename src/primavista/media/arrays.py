"""Choosing frames by numpy or torch indices, without importing torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


def chosen_rows(indices: Any, count: int) -> NDArray[np.int64]:
    """Return the numbers of the rows that indices choose among `count`.

    Args:
        indices: Indices, negative ones too, a mask or a slice; numpy or torch.
        count: The number of rows.

    >>> chosen_rows(np.array([-1, 0]), 5)
    array([4, 0])
    """
    if _is_tensor(indices):
        indices = indices.cpu().numpy()
    rows: NDArray[np.int64] = np.arange(count, dtype=np.int64)[indices]
    return rows


def like_indices(frames: Any, indices: Any) -> Any:
    """Return frames as tensors if the indices are a tensor, else as they are.

    Args:
        frames: The frames that the indices chose.
        indices: The indices.
    """
    if _is_tensor(indices) and not _is_tensor(frames):
        return sys.modules["torch"].from_numpy(frames)
    return frames


def _is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)
