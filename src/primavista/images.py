"""Images of any size: the centre square at model size. This module does not need torch."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from primavista.errors import InputError

# Pixels, the side of the frames of a new learner. The benchmark keeps the 128 of the paper.
LEARNER_SIZE = 192
MIN_SIDE = 1
# Per image. Decoding a larger one is more likely an attack than a photograph.
MAX_PIXELS = 64_000_000
ImageArray: TypeAlias = NDArray[np.uint8]
# The left, top, right and bottom of a part of a picture, in shares of its sides, from 0 to 1.
Region: TypeAlias = tuple[float, float, float, float]


def centre_square(image: Image.Image | ImageArray, size: int) -> ImageArray:
    """Cut out the centre square of an image and resize it to `size` x `size`.

    The whole package uses this function, with Pillow's antialiased bilinear filter, so that a frame
    looks the same to the model however it was read.

    Args:
        image: A PIL image or a uint8 array: H x W x 3 (RGB), H x W or H x W x 1 (grey, repeated
            three times), or H x W x 4 (alpha is dropped).
        size: The side of the result in pixels.

    Returns:
        uint8, size x size x 3. It never shares memory with `image`.

    Raises:
        InputError: If the image is empty, too large, or not an image.

    >>> centre_square(np.zeros((4, 6), np.uint8), 2).shape
    (2, 2, 3)
    """
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape == (size, size, 3):
        return image.copy()
    picture = rgb_picture(image)
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    # Crop first: versions of Pillow differ in how they resize a box of an oblong image.
    picture = picture.crop((left, top, left + side, top + side))
    return np.array(picture.resize((size, size), Image.Resampling.BILINEAR))


def rgb_picture(image: Image.Image | ImageArray) -> Image.Image:
    """Convert an image to an RGB picture of the same size.

    Args:
        image: A PIL image or a uint8 array, as for `centre_square`.

    Raises:
        InputError: If the image is empty, too large, or not an image.
    """
    picture = image if isinstance(image, Image.Image) else to_picture(np.asarray(image))
    shape = f"{picture.width} x {picture.height}"
    if picture.width * picture.height > MAX_PIXELS:
        raise InputError(f"an image of {shape} pixels is over the limit of {MAX_PIXELS}")
    if min(picture.size) < MIN_SIDE:
        raise InputError(f"an image of {shape} pixels holds nothing to see")
    with warnings.catch_warnings():
        # Pillow warns about palettes with transparency; the alpha channel is dropped anyway.
        warnings.simplefilter("ignore", UserWarning)
        return picture.convert("RGB")


def read_region(text: str) -> Region:
    """Read a region of interest: left, top, right and bottom in shares of the picture's sides.

    Args:
        text: Four numbers from 0 to 1, with commas between them.

    Raises:
        InputError: If these are not four such numbers, or if nothing lies between them.

    >>> read_region("0.25, 0, 0.75, 1")
    (0.25, 0.0, 0.75, 1.0)
    """
    try:
        left, top, right, bottom = (float(part) for part in text.split(","))
    except ValueError:
        left, top, right, bottom = 0, 0, 0, 0
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise InputError(
            f"the region {text!r:.60} is not a part of the picture: write left,top,right,bottom as "
            "shares from 0 to 1, e.g. 0.25,0,0.75,1 for the middle half"
        )
    return left, top, right, bottom


def cut_region(picture: Image.Image, region: Region) -> Image.Image:
    """Cut a region of interest out of a picture; at least one pixel of it remains.

    Args:
        picture: The picture.
        region: The region, as `read_region` returns it.

    >>> cut_region(Image.new("RGB", (40, 20)), (0.5, 0.0, 1.0, 0.5)).size
    (20, 10)
    """
    left, right = (round(share * picture.width) for share in region[::2])
    top, bottom = (round(share * picture.height) for share in region[1::2])
    left, top = min(left, picture.width - 1), min(top, picture.height - 1)
    return picture.crop((left, top, max(right, left + 1), max(bottom, top + 1)))


def fit_within(image: Image.Image | ImageArray, side: int) -> ImageArray:
    """Shrink a whole image, uncropped, so that neither side is longer than `side`.

    Args:
        image: A PIL image or a uint8 array, as for `centre_square`.
        side: The longest side of the result in pixels; a smaller image keeps its size.

    Returns:
        uint8, H x W x 3.
    """
    picture = rgb_picture(image)
    scale = side / max(picture.size)
    if scale < 1:
        size = tuple(max(MIN_SIDE, round(length * scale)) for length in picture.size)
        picture = picture.resize((size[0], size[1]), Image.Resampling.BILINEAR)
    return np.array(picture)


def to_picture(array: NDArray[Any]) -> Image.Image:
    """Convert an array to a PIL image.

    Args:
        array: uint8, H x W x 3 (RGB), H x W or H x W x 1 (grey), or H x W x 4 (RGBA).

    Raises:
        InputError: If it is not an image. The message shows the wrong call and the right one.
    """
    if array.dtype != np.uint8:
        raise wrong_type(array)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (3, 4)):
        raise wrong_layout(array.shape)
    if 0 in array.shape:
        raise InputError(f"a frame of shape {array.shape} holds nothing to see")
    return Image.fromarray(np.ascontiguousarray(array))


def wrong_type(array: NDArray[Any], name: str = "frame", torch_syntax: bool = False) -> InputError:
    """Return the refusal of an array that is not uint8, with the conversion that fits its values.

    Args:
        array: The array, or a part of it; its values decide whether they lie from 0 to 1.
        name: What the message calls it: "frame" or "frames".
        torch_syntax: Whether the right call is for a tensor instead of an array.

    >>> print(wrong_type(np.array([0.0, 0.5])))
    pixels must be uint8, with values from 0 to 255; got float64.
      wrong: learner.predict(frame)
      right: learner.predict((frame * 255).round().astype("uint8"))   # no NaN
    """
    cast = ".to(torch.uint8)" if torch_syntax else '.astype("uint8")'
    if array.dtype == np.bool_:
        right, note = f"{name}{cast} * 255", ""
    elif array.dtype.kind in "iu":
        right, note = f"{name}{cast}", "   # if all values lie from 0 to 255"
    elif (np.abs(array) > 1).any():  # False for NaN
        right, note = f"{name}.round(){cast}", "   # if all values lie from 0 to 255, no NaN"
    else:
        right, note = f"({name} * 255).round(){cast}", "   # no NaN"
    return InputError(
        f"pixels must be uint8, with values from 0 to 255; got {array.dtype}.\n"
        f"  wrong: learner.predict({name})\n"
        f"  right: learner.predict({right}){note}"
    )


def wrong_layout(shape: tuple[int, ...], torch_syntax: bool = False) -> InputError:
    """Return the refusal of an array whose shape is not that of images, with the way to turn it.

    Args:
        shape: Its shape.
        torch_syntax: Whether the right call is for a tensor instead of an array.

    >>> print(wrong_layout((3, 480, 640)))
    a frame is H x W x 3 (RGB), H x W (grey) or H x W x 4 (RGBA), several are N x H x W x 3; got
    shape (3, 480, 640).
      wrong: learner.predict(frame)   # 3 x H x W
      right: learner.predict(frame.transpose(1, 2, 0))
    """
    turn = "permute" if torch_syntax else "transpose"
    message = (
        "a frame is H x W x 3 (RGB), H x W (grey) or H x W x 4 (RGBA), several are "
        f"N x H x W x 3; got shape {tuple(shape)}."
    )
    if len(shape) == 3 and shape[0] in (1, 3, 4):
        message += f"\n  wrong: learner.predict(frame)   # {shape[0]} x H x W"
        message += f"\n  right: learner.predict(frame.{turn}(1, 2, 0))"
    elif len(shape) == 4 and shape[1] in (1, 3, 4):
        message += f"\n  wrong: learner.predict(frames)   # N x {shape[1]} x H x W"
        message += f"\n  right: learner.predict(frames.{turn}(0, 2, 3, 1))"
    elif len(shape) == 3:
        message += "\n  right: learner.predict(frames[..., None])   # if they are N grey frames"
    return InputError(message)
