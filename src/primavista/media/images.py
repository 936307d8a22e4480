"""Images of any size, from files and arrays: the centre square at model size.

Each error names the file and what to do. This module does not need torch. Files of this machine may
have any of the formats; those that come over the network only four, to keep the code small that
strangers can reach.
"""

from __future__ import annotations

import logging
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from primavista.arrays import as_numpy
from primavista.errors import (
    FileError,
    InputError,
    MissingExtraError,
    PrimavistaError,
    require_extra,
)

if TYPE_CHECKING:
    from torch import Tensor

# Pixels, the side of the frames of a new learner. The benchmark keeps the 128 of the paper.
LEARNER_SIZE = 192
MIN_SIDE = 1
# Per image. Decoding a larger one is more likely an attack than a photograph.
MAX_PIXELS = 64_000_000
# Of Pillow: no others, whatever the file's name says.
NETWORK_FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
FORMATS = (*NETWORK_FORMATS, "GIF", "TIFF", "AVIF")
HEIF = "HEIF"  # of pillow-heif, the extra `heic`
INSTALL_HEIC = 'pip install "primavista[heic]"'
# The suffixes of image files.
HEIC_SUFFIXES = (".heic", ".heif", ".hif")
IMAGES = (
    *(".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif"),
    *HEIC_SUFFIXES,
)
# The formats of animations. The further pictures in a file of another format are the pages of a
# document, thumbnails or maps of brightness.
ANIMATED = ("GIF", "WEBP", "PNG", "AVIF")
MAX_SCANS = 100  # of a progressive JPEG; a photograph has about ten, and each costs a whole pass
FREE_SCANS = 20  # with more, a JPEG may have fewer pixels, so that it takes no longer
SKIP = "skip bad files (--skip-bad, skip_bad=True)"

ImageArray: TypeAlias = NDArray[np.uint8]
# The left, top, right and bottom of a part of a picture, in shares of its sides, from 0 to 1.
Region: TypeAlias = tuple[float, float, float, float]
log = logging.getLogger("primavista")


def without_skip(error: FileError) -> str:
    """Return the message of an error without the advice to skip bad files.

    It is for callers that skip bad files already, or cannot skip them.

    Args:
        error: An error about a picture or a video.

    >>> without_skip(FileError(f"mug.mp4 was cut off. Restore it, or {SKIP} to use these"))
    'mug.mp4 was cut off. Restore it'
    """
    return str(error).replace(f", or {SKIP} to use these", "").replace(f", or {SKIP}", "")


class TooLargeError(FileError):
    """Raised if an image or video has more pixels than are safe to decode."""


def read_image(path: str | Path, size: int | None, region: Region | None = None) -> ImageArray:
    """Read an image file, turned upright as its EXIF data says.

    Args:
        path: The file.
        size: The side of the result in pixels; None takes the shorter side of the image.
        region: The part of the picture to look at; None for all of it.

    Returns:
        uint8, size x size x 3.

    Raises:
        FileError: If the file is missing, empty, damaged, too large or not an image.
    """
    return decode_image(Path(path), path, size, region=region)


def decode_image(
    file: Path | BinaryIO,
    name: str | Path,
    size: int | None,
    max_pixels: int | None = None,
    region: Region | None = None,
    whole: bool = False,
) -> ImageArray:
    """Decode an image from a path or an open file, turned upright as its EXIF data says.

    Args:
        file: The path or the open file.
        name: Its name, for messages.
        size: The side of the result in pixels; None takes the shorter side of the image.
        max_pixels: The largest number of pixels to decode.
        region: The part of the picture to look at; None for all of it.
        whole: Whether to return the whole picture, with `size` as its longest side at most, and not
            its centre square.

    Returns:
        uint8, size x size x 3, or H x W x 3 if it is whole.

    Raises:
        TooLargeError: If the image has too many pixels.
        FileError: If it is damaged or not an image.
    """
    with opened_picture(file, name) as picture:
        upright = loaded_upright(picture, name, max_pixels or MAX_PIXELS)
        if isinstance(file, Path) and is_animated(picture):
            _tell_of_animation(name)
        return as_frame(upright, size, region, whole=whole)


@contextmanager
def opened_picture(file: Path | BinaryIO, name: str | Path) -> Iterator[ImageFile.ImageFile]:
    """Open an image; whatever fails in the block is a `FileError` about it.

    Args:
        file: The path, or an open file, which came over the network.
        name: Its name, for messages.

    Yields:
        The picture, of which only the header was read.
    """
    if isinstance(file, Path):
        check_file(file)
    try:
        with warnings.catch_warnings():
            # Pillow warns about sizes and metadata; sizes are checked here.
            warnings.simplefilter("ignore")
            with _open(file, name) as picture:
                yield picture
    except PrimavistaError:
        raise
    except Image.DecompressionBombError as error:
        raise _too_large(name, str(error)) from error
    except MemoryError as error:
        what, limit = "it takes more memory than there is", "that of the process"
        raise _too_large(name, what, limit) from error
    except PermissionError as error:
        raise FileError(f"cannot read {name}: {error.strerror}. Check its permissions") from error
    except Exception as error:  # a decoder may fail in any way on foreign bytes
        raise FileError(
            f"{name} is damaged or not an image ({error or type(error).__name__}): "
            f"remove it, or {SKIP}"
        ) from error


def _open(file: Path | BinaryIO, name: str | Path) -> ImageFile.ImageFile:
    if not isinstance(file, Path):
        return Image.open(file, formats=NETWORK_FORMATS)
    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:  # perhaps HEIC, whatever its suffix
        missing = missing_for(HEIC_SUFFIXES[0])
        if missing and file.suffix.lower() in HEIC_SUFFIXES:
            raise FileError(f"{name} is a HEIC picture, which needs an extra: {missing}") from None
        if missing:
            raise
    options = {"thumbnails": False, "depth_images": False, "aux_images": False}
    require_extra("pillow_heif", "heic").register_heif_opener(**options)
    return Image.open(file, formats=[HEIF])


def missing_for(suffix: str) -> str:
    """Return the command that installs what reads the images of a suffix; empty if it is there.

    Args:
        suffix: One of `IMAGES`.

    >>> missing_for(".png")
    ''
    """
    if suffix not in HEIC_SUFFIXES:
        return ""
    try:
        require_extra("pillow_heif", "heic")
    except MissingExtraError:
        return INSTALL_HEIC
    return ""


def is_animated(picture: Image.Image) -> bool:
    """Return True if a picture is an animation, which is a short video.

    Args:
        picture: An opened picture.
    """
    return picture.format in ANIMATED and bool(getattr(picture, "is_animated", False))


@cache
def _tell_of_animation(name: str | Path) -> None:
    """Say once of a file that only a part of it counts."""
    log.warning("%s is animated: only its first frame is used here", name)


def loaded_upright(picture: ImageFile.ImageFile, name: str | Path, max_pixels: int) -> Image.Image:
    """Load an opened picture, after checking that this is cheap enough, and turn it upright.

    Args:
        picture: The picture, as `opened_picture` yields it.
        name: Its name, for messages.
        max_pixels: The largest number of pixels to decode.

    Raises:
        TooLargeError: If it has more, or takes too long.
    """
    check_pixels(name, picture.width, picture.height, max_pixels)
    # MPO is a JPEG with further pictures behind the first, as many phones write them
    if picture.format in ("JPEG", "MPO"):
        _check_scans(name, picture, max_pixels)
    return _eight_bits(ImageOps.exif_transpose(picture))


def as_frame(
    picture: Image.Image, size: int | None, region: Region | None = None, *, whole: bool = False
) -> ImageArray:
    """Convert an upright picture to a frame.

    Args:
        picture: The picture.
        size: The side of the centre square, or the longest side of a whole picture; by default the
            picture is not resized.
        region: The part of the picture to look at; None for all of it.
        whole: Whether to return the whole picture, not its centre square.

    Returns:
        uint8, H x W x 3.
    """
    if region is not None:
        picture = cut_region(picture, region)
    if whole:
        return fit_within(picture, size or max(picture.size))
    return centre_square(picture, size or min(picture.size))


def centre_square(image: Image.Image | ImageArray | Tensor, size: int) -> ImageArray:
    """Cut out the centre square of an image and resize it to `size` x `size`.

    The whole package uses this function, with Pillow's antialiased bilinear filter, so that a frame
    looks the same to the model however it was read.

    Args:
        image: A PIL image or a uint8 array or tensor: H x W x 3 (RGB), H x W or H x W x 1 (grey,
            repeated three times), or H x W x 4 (alpha is dropped).
        size: The side of the result in pixels.

    Returns:
        uint8, size x size x 3. It never shares memory with `image`.

    Raises:
        InputError: If the image is empty, too large, or not an image.

    >>> centre_square(np.zeros((4, 6), np.uint8), 2).shape
    (2, 2, 3)
    """
    pixels: Any = as_numpy(image)
    is_frame = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8
    if is_frame and pixels.shape == (size, size, 3):
        return pixels.copy()  # type: ignore[no-any-return]
    picture = rgb_picture(pixels)
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
    """Return the error for an array that is not uint8, with the conversion that fits its values.

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
    """Return the error for an array that does not have the shape of images, with advice.

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


def check_file(path: Path) -> None:
    """Check for a regular file with something in it: reading a pipe would wait for ever.

    Args:
        path: The file of a picture or a video.

    Raises:
        FileError: If it is not such a file.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise FileError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}. Check the path"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise FileError(f"{path} is not a regular file")
    if found.st_size == 0:
        raise FileError(f"{path} is empty (0 bytes): remove it, or {SKIP}")


def check_pixels(name: str | Path, width: int, height: int, limit: int) -> None:
    """Check that a picture, or a frame of a video, is not too large to be decoded safely.

    Args:
        name: The file, for messages.
        width: The width of the picture in pixels.
        height: Its height.
        limit: The largest number of pixels to decode.

    Raises:
        TooLargeError: If it has more.
    """
    if width * height > limit:
        raise _too_large(name, f"{width} x {height} pixels", f"{limit} pixels")


def _all_bytes(picture: ImageFile.ImageFile) -> bytes:
    """Return the whole file of a picture that is not loaded, without changing the position."""
    file = picture.fp
    assert file is not None
    position = file.tell()
    file.seek(0)
    data = file.read()
    file.seek(position)
    return data


def _check_scans(name: str | Path, picture: ImageFile.ImageFile, max_pixels: int) -> None:
    """Refuse a JPEG of many scans: a small file could take minutes to decode."""
    scans = _all_bytes(picture).count(b"\xff\xda")
    most = min(MAX_SCANS, FREE_SCANS * max_pixels // max(1, picture.width * picture.height))
    if scans > most:
        raise _too_large(name, f"a JPEG of {scans} scans", f"{most} scans at this size")


def _too_large(name: str | Path, what: str, limit: str = "") -> TooLargeError:
    limited = f"{what}; the limit is {limit or f'{MAX_PIXELS} pixels'}"
    return TooLargeError(
        f"{name} is too large to be decoded safely ({limited}): make it smaller first"
    )


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Keep the upper eight of 16 bits per pixel; Pillow would cut the numbers off at 255."""
    if not picture.mode.startswith("I"):
        return picture
    high = np.asarray(picture).astype(np.int64) >> 8
    return Image.fromarray(high.clip(0, 255).astype(np.uint8))
