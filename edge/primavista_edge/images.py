"""Images as the network sees them: the centre square, resized by antialiased bilinear filtering.

The result equals that of primavista, which uses Pillow, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from .errors import InputError

Frame: TypeAlias = np.ndarray[tuple[int, int] | tuple[int, int, int], np.dtype[np.uint8]]
Clip: TypeAlias = np.ndarray[tuple[int, int, int, int], np.dtype[np.uint8]] | Sequence[Frame]
Pixels: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
Numbers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

BITS = 22  # of the fixed-point weights
MAX_PIXELS = 64_000_000
CHUNK_PIXELS = 2**17  # of the frames computed at a time, so that their maps stay in the caches


def crop_and_resize(image: Frame | Pixels, size: int) -> Pixels:
    """Cut the centre square out of an image and resize it.

    Args:
        image: uint8; H x W or H x W x 1 (grey), H x W x 3 (RGB) or H x W x 4 (alpha is dropped).
        size: The side of the result.

    Returns:
        size x size x 3.

    Raises:
        InputError: If it is not such an image.

    >>> crop_and_resize(np.zeros((4, 6), np.uint8), 2).shape
    (2, 2, 3)
    """
    rgb = _rgb(image)
    height, width = rgb.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = rgb[top : top + side, left : left + side]
    if side == size:
        return square.copy()
    weights = _weights(side, size)
    wide = _rounded(np.tensordot(weights, square, (1, 1)))  # new columns x rows x 3
    return np.ascontiguousarray(_rounded(np.tensordot(weights, wide, (1, 1))))


def whole_picture(image: Frame | Pixels, bgr: bool = False) -> Pixels:
    """Check one image, and return all of it.

    Args:
        image: uint8; H x W or H x W x 1 (grey), H x W x 3 (RGB) or H x W x 4 (alpha is dropped).
        bgr: Whether the colours are in the order blue, green, red.

    Returns:
        H x W x 3, RGB.

    Raises:
        InputError: If it is not one image.
    """
    rgb = _rgb(image)
    return rgb[..., ::-1] if bgr else rgb


def resize(image: Pixels, width: int, height: int) -> Pixels:
    """Resize a whole image by antialiased bilinear filtering, as Pillow does.

    Args:
        image: H x W x 3.
        width: The width of the result.
        height: Its height.

    Returns:
        height x width x 3.
    """
    columns = _resized_rows(np.swapaxes(image, 0, 1), width)
    return np.ascontiguousarray(_resized_rows(np.swapaxes(columns, 0, 1), height))


def _resized_rows(image: Pixels, size: int) -> Pixels:
    """Resize the first axis; of each new row only the weights that are not 0 are used."""
    if len(image) == size:
        return image
    weights = _weights(len(image), size)
    taps = int((weights > 0).sum(1).max())
    first = np.minimum((weights > 0).argmax(1), len(image) - taps)
    total: Numbers = np.zeros((size, *image.shape[1:]))
    for k in range(taps):
        total += weights[np.arange(size), first + k][:, None, None] * image[first + k]
    return _rounded(total)


def model_frames(
    images: Frame | Clip | Pixels, size: int, bgr: bool = False
) -> tuple[Pixels, bool]:
    """Bring images into the form that the network takes.

    Args:
        images: One image, or several as an array N x H x W x 3 or a list.
        size: The side of the frames of the network.
        bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

    Returns:
        N x size x size x 3, and whether it was a single image.

    Raises:
        InputError: If these are not images, or there are none.
    """
    if isinstance(images, np.ndarray) and _is_single(images):
        frames, single = crop_and_resize(images, size)[None], True
    else:
        frames, single = _several(images, size), False
    return (np.ascontiguousarray(frames[..., ::-1]) if bgr else frames), single


def _several(images: object, size: int) -> Pixels:
    many = isinstance(images, list | tuple) or (isinstance(images, np.ndarray) and images.ndim == 4)
    if not many or not len(images):  # type: ignore[arg-type]
        raise InputError(_advice(images))
    if isinstance(images, np.ndarray) and images.shape[-1] not in (1, 3, 4):
        raise InputError(_advice(images))
    if isinstance(images, np.ndarray) and _is_ready(images, size):
        return np.ascontiguousarray(images)
    return np.stack([crop_and_resize(image, size) for image in images])  # type: ignore[attr-defined]


def _advice(images: object) -> str:
    """Return a message: what frames are, what came instead, and the right call."""
    told = f"shape {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
    message = (
        "frames are a uint8 array, N x H x W x 3 or H x W x 3 (RGB), or a list of such images, not "
        f"empty; got {told}"
    )
    if isinstance(images, Iterator):
        return f"{message}\n  right: learner.predict(list(frames))"
    if isinstance(images, np.ndarray) and images.ndim == 3 and images.shape[0] in (1, 3, 4):
        return f"{message}\n  right: learner.predict(frame.transpose(1, 2, 0))"
    if isinstance(images, np.ndarray) and images.ndim == 4 and images.shape[1] in (1, 3, 4):
        return f"{message}\n  right: learner.predict(frames.transpose(0, 2, 3, 1))"
    return message


def chunks(frames: Pixels) -> Iterator[Pixels]:
    """Split frames into parts that are computed one after the other.

    Args:
        frames: N x H x W x 3.

    Yields:
        The parts, in order.
    """
    size = max(4, CHUNK_PIXELS // (frames.shape[1] * frames.shape[2]))
    yield from np.array_split(frames, -(-len(frames) // size))


def _is_single(images: Pixels) -> bool:
    return images.ndim == 2 or (images.ndim == 3 and images.shape[-1] in (1, 3, 4))


def _is_ready(images: Pixels, size: int) -> bool:
    return images.dtype == np.uint8 and images.shape[1:] == (size, size, 3)


def _rgb(image: object) -> Pixels:
    if not isinstance(image, np.ndarray) or image.ndim not in (2, 3) or 0 in image.shape:
        raise InputError(_advice(image))
    if image.dtype != np.uint8:
        right = 'frame.astype("uint8")   # if all values lie from 0 to 255'
        if image.dtype.kind == "f" and np.nanmax(np.abs(image)) <= 1:
            right = '(frame * 255).round().astype("uint8")   # no NaN'
        raise InputError(
            f"pixels must be uint8, with values from 0 to 255; got {image.dtype}.\n  right: {right}"
        )
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[-1] not in (1, 3, 4) or image.shape[0] * image.shape[1] > MAX_PIXELS:
        raise InputError(
            f"an image of shape {image.shape} is not one of at most {MAX_PIXELS} RGB pixels"
        )
    rgb: Pixels = image.repeat(3, -1) if image.shape[-1] == 1 else image[..., :3]
    return rgb


@lru_cache(maxsize=16)
def _weights(side: int, size: int) -> Numbers:
    """size x side: a triangle around the centre of each new pixel, in fixed point.

    It is as wide as what the pixel covers, at least two old pixels.
    """
    scale = side / size
    width = max(scale, 1.0)
    weights = np.zeros((size, side))
    for k in range(size):
        centre = (k + 0.5) * scale
        first, last = max(int(centre - width + 0.5), 0), min(int(centre + width + 0.5), side)
        triangle = np.maximum(1 - np.abs((np.arange(first, last) - centre + 0.5) * (1 / width)), 0)
        weights[k, first:last] = np.floor(triangle / triangle.sum() * 2**BITS + 0.5)
    return weights


def _rounded(sums: Numbers) -> Pixels:
    values: Pixels = np.clip(np.floor((sums + 2 ** (BITS - 1)) / 2**BITS), 0, 255).astype(np.uint8)
    return values
