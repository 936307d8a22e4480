"""An image as the network sees it, to the last bit as primavista makes it with Pillow: centre square, antialiased bilinear."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from .errors import InputError

Image = np.ndarray[Any, Any]
BITS = 22  # of the fixed-point weights
MAX_PIXELS = 64_000_000


def fit(image: Image, size: int) -> Image:
    """The centre square of a uint8 image (H x W, H x W x 1, 3 or 4; alpha is dropped), resized to size x size x 3.

    >>> fit(np.zeros((4, 6), np.uint8), 2).shape
    (2, 2, 3)
    """
    image = _rgb(image)
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = image[top : top + side, left : left + side]
    if side == size:
        return square.copy()
    weights = _weights(side, size)
    wide = _rounded(np.tensordot(weights, square, (1, 1)))  # new columns x rows x 3
    return np.ascontiguousarray(_rounded(np.tensordot(weights, wide, (1, 1))))


def model_frames(images: Any, size: int) -> tuple[Image, bool]:
    """Whatever people call images as uint8, N x size x size x 3, and whether it was one single image."""
    if isinstance(images, np.ndarray) and (
        images.ndim == 2 or (images.ndim == 3 and images.shape[-1] in (1, 3, 4))
    ):
        return fit(images, size)[None], True
    many = isinstance(images, list | tuple) or (isinstance(images, np.ndarray) and images.ndim == 4)
    if not many or not len(images):
        raise InputError(
            "frames are a uint8 array, N x H x W x 3 or H x W x 3 (RGB), or a list of such images, not empty"
        )
    if (
        isinstance(images, np.ndarray)
        and images.dtype == np.uint8
        and images.shape[1:] == (size, size, 3)
    ):
        return np.ascontiguousarray(images), False
    return np.stack([fit(image, size) for image in images]), False


def chunks(frames: Image, pixels: int = 2**17) -> Iterator[Image]:
    """Pieces whose maps stay in the caches."""
    size = max(4, pixels // (frames.shape[1] * frames.shape[2]))
    return iter(np.array_split(frames, -(-len(frames) // size)))


def _rgb(image: Any) -> Image:
    if (
        not isinstance(image, np.ndarray)
        or image.dtype != np.uint8
        or image.ndim not in (2, 3)
        or 0 in image.shape
    ):
        raise InputError(
            "an image is a uint8 array, H x W x 3 (RGB), H x W (grey) or H x W x 4 (RGBA), values 0 to 255"
        )
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[-1] not in (1, 3, 4) or image.shape[0] * image.shape[1] > MAX_PIXELS:
        raise InputError(
            f"an image of shape {image.shape} is not one of at most {MAX_PIXELS} RGB pixels"
        )
    rgb: Image = image.repeat(3, -1) if image.shape[-1] == 1 else image[..., :3]
    return rgb


@lru_cache(maxsize=16)
def _weights(side: int, size: int) -> Image:
    """size x side: a triangle around the centre of each pixel, as wide as what it covers, in fixed point."""
    scale = side / size
    width = max(scale, 1.0)
    weights = np.zeros((size, side))
    for k in range(size):
        centre = (k + 0.5) * scale
        first, last = max(int(centre - width + 0.5), 0), min(int(centre + width + 0.5), side)
        triangle = np.maximum(1 - np.abs((np.arange(first, last) - centre + 0.5) * (1 / width)), 0)
        weights[k, first:last] = np.floor(triangle / triangle.sum() * 2**BITS + 0.5)
    return weights


def _rounded(sums: Image) -> Image:
    values: Image = np.clip(np.floor((sums + 2 ** (BITS - 1)) / 2**BITS), 0, 255).astype(np.uint8)
    return values
