"""What images are to everybody else: uint8, N x H x W x 3, RGB, at model size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from primavista.errors import InputError

MIN_SIDE = 1
MAX_PIXELS = (
    64_000_000  # of one image: above it, decoding is more likely an attack than a photograph
)


@runtime_checkable
class Frames(Protocol):
    """`len(frames)`, and `frames[indices]`: uint8, N x H x W x 3, RGB, at model size.

    Tensors satisfy it, and so do packed stores and videos that decode on demand: memory stays bounded.

    >>> isinstance(torch.zeros(2, 8, 8, 3, dtype=torch.uint8), Frames)
    True
    """

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Tensor, /) -> Tensor: ...


class Selection:
    """Some frames of a larger source, named by index: nothing is copied until it is asked for.

    >>> source = torch.arange(5, dtype=torch.uint8).reshape(5, 1, 1, 1).expand(5, 1, 1, 3)
    >>> Selection(source, torch.tensor([4, 1]))[torch.tensor([0])][0, 0, 0].tolist()
    [4, 4, 4]
    """

    def __init__(self, source: Frames, indices: Tensor) -> None:
        self.source, self.indices = source, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, indices: Tensor) -> Tensor:
        return self.source[self.indices[indices]]


class Lazy:
    """Frames made one by one, when they are asked for: `read(i)` gives uint8, H x W x 3."""

    def __init__(self, read: Callable[[int], np.ndarray[Any, Any]], count: int) -> None:
        self._read, self._count = read, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, indices: Tensor) -> Tensor:
        return torch.stack([torch.from_numpy(self._read(int(i))) for i in indices.tolist()])


def check_frames(images: Any) -> Frames:
    """The argument as `Frames`, or an error that shows the wrong call and the right one."""
    if isinstance(images, np.ndarray):
        _check_array(images.shape, str(images.dtype))
        return torch.from_numpy(np.ascontiguousarray(images))
    if isinstance(images, Tensor):
        _check_array(tuple(images.shape), str(images.dtype).removeprefix("torch."))
        return images
    if not isinstance(images, Frames) or isinstance(images, str | bytes | list | tuple | dict):
        raise InputError(
            f"learn and scores take frames as uint8, N x H x W x 3; got {type(images).__name__}.\n"
            "  wrong: strategy.learn([image, image], labels)\n"
            "  right: strategy.learn(torch.stack(images), labels)"
        )
    if len(images) < 1:
        raise InputError("there are no frames: give at least one")
    return images


def take(images: Frames, indices: Tensor, device: torch.device) -> Tensor:
    """The frames at `indices` on `device`, checked: a store may be anybody's."""
    if isinstance(images, Tensor):
        indices = indices.to(images.device)
    # a copy would be made by several threads, for which one frame is not worth waiting on busy cores
    chunk = (
        images
        if isinstance(images, Tensor) and len(images) == len(indices) == 1
        else images[indices]
    )
    if (
        not isinstance(chunk, Tensor)
        or chunk.dtype != torch.uint8
        or chunk.ndim != 4
        or chunk.shape[-1] != 3
    ):
        shape = tuple(getattr(chunk, "shape", ()))
        raise InputError(
            f"frames[indices] must give uint8, N x H x W x 3; got {type(chunk).__name__} of shape {shape}"
        )
    return chunk.to(device, non_blocking=True)


def chunks(count: int, size: int) -> Iterator[Tensor]:
    """Indices 0 .. count - 1 in pieces of nearly equal size, none above `size`."""
    return iter(torch.arange(count).tensor_split(-(-count // size)))


def fit(image: Any, size: int) -> np.ndarray[Any, Any]:
    """The centre square of one image, resized to `size` x `size`: the one crop and resize used everywhere.

    Takes a PIL image or a uint8 array: H x W x 3 (RGB), H x W or H x W x 1 (grey, repeated), H x W x 4 (alpha dropped).
    The filter is Pillow's antialiased bilinear one.

    >>> fit(np.zeros((4, 6), np.uint8), 2).shape
    (2, 2, 3)
    """
    if isinstance(image, Tensor):
        image = image.cpu().numpy()
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape == (size, size, 3):
        return image.copy()
    picture = image if isinstance(image, Image.Image) else _picture(np.asarray(image))
    if picture.width * picture.height > MAX_PIXELS:
        raise InputError(
            f"an image of {picture.width} x {picture.height} pixels is over the limit of {MAX_PIXELS}"
        )
    side = min(picture.size)
    if side < MIN_SIDE:
        raise InputError(
            f"an image of {picture.width} x {picture.height} pixels holds nothing to see"
        )
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # palette transparency: the alpha is dropped anyway
        picture = picture.convert("RGB")
    picture = picture.crop(
        (left, top, left + side, top + side)
    )  # first: of an oblong image Pillow's versions choose other ways
    return np.array(picture.resize((size, size), Image.Resampling.BILINEAR))


def model_frames(images: Any, size: int) -> tuple[Frames, bool]:
    """Whatever people call images as `Frames` at model size, and whether it was one single image."""
    if isinstance(images, str | PurePath):
        raise InputError(
            f"this is the name of a file, not its frames.\n  wrong: learner.learn({str(images)!r:.60}, ...)\n"
            f"  right: learner.learn(primavista.open_frames({str(images)!r:.60}), ...)"
        )
    if isinstance(images, Image.Image):
        return torch.from_numpy(fit(images, size))[None], True
    if isinstance(images, list | tuple):
        if not images:
            raise InputError("there are no frames: give at least one")
        for image in images:
            _check_one(image)
        return Lazy(lambda i: fit(images[i], size), len(images)), False
    if isinstance(images, np.ndarray | Tensor):
        if images.ndim == 2 or (images.ndim == 3 and images.shape[-1] in (1, 3, 4)):
            return torch.from_numpy(fit(images, size))[None], True
        if images.ndim == 4 and images.shape[-1] in (1, 3, 4) and len(images):
            _check_one(images[0])
            if tuple(images.shape[1:]) == (size, size, 3):
                return check_frames(images), False
            return Lazy(lambda i: fit(images[i], size), len(images)), False
        _check_array(tuple(images.shape), str(images.dtype).removeprefix("torch."))
    frames = check_frames(images)
    first = take(frames, torch.tensor([0]), torch.device("cpu"))
    if tuple(first.shape[1:3]) == (size, size):
        return frames, False
    return Lazy(lambda i: fit(frames[torch.tensor([i])][0], size), len(frames)), False


def check_labels(labels: Any, count: int, what: str = "labels") -> Tensor:
    """`count` integers >= 0 as a CPU int64 tensor, or an error that shows the wrong call and the right one."""
    try:
        values = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{what} must be integers, one a frame; got {type(labels).__name__}"
        ) from error
    if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
        raise InputError(f"{what} must be integers (torch.int64); got {values.dtype}")
    if values.ndim != 1 or len(values) != count:
        raise InputError(
            f"{what} must be one integer a frame: {count} frames but {what} of shape {tuple(values.shape)}.\n"
            f"  wrong: strategy.learn(frames, 3)\n"
            f"  right: strategy.learn(frames, torch.full((len(frames),), 3))"
        )
    if len(values) and int(values.min()) < 0:
        raise InputError(f"{what} must be 0 or more; got {int(values.min())}")
    return values.to("cpu", torch.int64)


def _check_array(shape: tuple[int, ...], dtype: str) -> None:
    if dtype != "uint8":
        raise InputError(
            f"frames must be uint8 with values 0 to 255; got {dtype}.\n"
            "  wrong: strategy.learn(images / 255, labels)\n"
            "  right: strategy.learn((images * 255).round().astype('uint8'), labels)   # floats in [0, 1], no NaN"
        )
    if len(shape) != 4 or shape[-1] != 3:
        raise InputError(
            f"frames must be N x H x W x 3 (RGB, channels last); got shape {shape}.\n"
            "  wrong: strategy.learn(images_nchw, labels)\n"
            "  right: strategy.learn(images_nchw.permute(0, 2, 3, 1), labels)"
        )
    if shape[0] < 1:
        raise InputError("there are no frames: give at least one")
    if min(shape[1:3]) < MIN_SIDE:
        raise InputError(f"frames of {shape[1]} x {shape[2]} pixels hold nothing to see")


def _check_one(image: Any) -> None:
    if isinstance(image, Image.Image):
        return
    if not isinstance(image, np.ndarray | Tensor):
        raise InputError(
            f"a frame is a PIL image or a uint8 array, H x W x 3; got {type(image).__name__}.\n"
            '  wrong: learner.learn(["mug.jpg"], "mug")\n'
            '  right: learner.learn(primavista.open_frames("mug.jpg"), "mug")'
        )
    _picture(image.cpu().numpy() if isinstance(image, Tensor) else image)


def _picture(array: np.ndarray[Any, Any]) -> Image.Image:
    if array.dtype != np.uint8:
        raise InputError(
            f"a frame must be uint8 with values 0 to 255; got {array.dtype}.\n"
            "  wrong: learner.predict(image / 255)\n"
            "  right: learner.predict((image * 255).round().astype('uint8'))   # floats in [0, 1], no NaN"
        )
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (3, 4)):
        raise InputError(
            f"a frame must be H x W x 3 (RGB), H x W (grey) or H x W x 4 (RGBA); got shape {array.shape}.\n"
            "  wrong: learner.predict(image_chw)\n"
            "  right: learner.predict(image_chw.transpose(1, 2, 0))"
        )
    if 0 in array.shape:
        raise InputError(f"a frame of shape {array.shape} holds nothing to see")
    return Image.fromarray(np.ascontiguousarray(array))
