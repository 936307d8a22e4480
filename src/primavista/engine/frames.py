"""Frames as tensors, for the strategies and the benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from primavista.errors import InputError
from primavista.media.frames import Frames, check_frame_array, checked_frames, wrong_chunk

# One integer per frame.
LabelsLike: TypeAlias = Tensor | NDArray[np.integer[Any]] | Sequence[int]


def check_frames(images: object) -> Frames:
    """Check that the argument is a sequence of frames; see `checked_frames`.

    Returns:
        The same frames; a numpy array becomes a tensor that shares its memory if it can.
    """
    if isinstance(images, Tensor):
        check_frame_array(tuple(images.shape), str(images.dtype).removeprefix("torch."))
        return images
    frames = checked_frames(images)
    if isinstance(frames, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(frames))
    return frames


def are_features(inputs: object) -> TypeGuard[Tensor]:
    """Return True for activations of the network (float), which are no longer frames (uint8).

    Args:
        inputs: The inputs of a batch.
    """
    return isinstance(inputs, Tensor) and inputs.is_floating_point()


def read_frames(images: Frames, indices: Tensor, device: torch.device) -> Tensor:
    """Read the frames at `indices` and check their type and shape.

    Args:
        images: The frames; third-party implementations of `Frames` are not trusted.
        indices: The indices of the frames to read, int64.
        device: Where to put the result.

    Returns:
        The frames on `device`, uint8, N x H x W x 3.

    Raises:
        InputError: If `images[indices]` gives something else.
    """
    if isinstance(images, Tensor):
        # Indexing a tensor copies it in several threads. For a single frame, waiting for those
        # threads on busy cores would take longer than the copy, so the tensor itself is used.
        whole = len(images) == len(indices) == 1
        chunk: Any = images if whole else images[indices.to(images.device)]
    else:
        chunk = images[indices.cpu().numpy()]
    if isinstance(chunk, np.ndarray):
        chunk = torch.from_numpy(np.ascontiguousarray(chunk))
    if not isinstance(chunk, Tensor) or chunk.dtype != torch.uint8 or chunk.ndim != 4:
        raise wrong_chunk(chunk)
    if chunk.shape[-1] != 3:
        raise wrong_chunk(chunk)
    return chunk.to(device, non_blocking=True)


def split_indices(count: int, size: int) -> Iterator[Tensor]:
    """Split the indices 0 .. count - 1 into chunks of nearly equal size.

    Args:
        count: The number of indices, at least 1.
        size: The largest number of indices in a chunk.

    Returns:
        An iterator over int64 tensors.
    """
    return iter(torch.arange(count).tensor_split(-(-count // size)))


def check_labels(labels: LabelsLike, count: int, what: str = "labels") -> Tensor:
    """Check that there is one label, an integer >= 0, per frame.

    Args:
        labels: The labels.
        count: The number of frames.
        what: The name of the argument, for messages.

    Returns:
        The labels as an int64 tensor on the CPU.

    Raises:
        InputError: If they are not. The message shows the wrong call and the right one.
    """
    try:
        values = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(labels).__name__
        raise InputError(f"{what} must be integers, one per frame; got {kind}") from error
    if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
        raise InputError(f"{what} must be integers (torch.int64); got {values.dtype}")
    if values.ndim != 1 or len(values) != count:
        shape = tuple(values.shape)
        raise InputError(
            f"{what} must be one integer per frame: {count} frames but {what} of shape {shape}.\n"
            f"  wrong: strategy.learn(frames, 3)\n"
            f"  right: strategy.learn(frames, torch.full((len(frames),), 3))"
        )
    if len(values) and int(values.min()) < 0:
        raise InputError(f"{what} must be 0 or more; got {int(values.min())}")
    return values.to("cpu", torch.int64)
