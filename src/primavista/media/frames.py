"""Frames: what callers pass becomes uint8, N x H x W x 3, RGB, at the size that the model takes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from primavista.arrays import as_numpy, chosen_rows, is_torch_array, like_indices
from primavista.errors import InputError
from primavista.media.images import (
    MIN_SIDE,
    ImageArray,
    centre_square,
    decode_image,
    rgb_picture,
    to_picture,
    wrong_layout,
    wrong_type,
)

if TYPE_CHECKING:
    from torch import Tensor

# The positions of frames, int64; and several frames, uint8, N x H x W x 3, RGB.
Indices: TypeAlias = NDArray[np.int64]
FrameArray: TypeAlias = NDArray[np.uint8]


@runtime_checkable
class Frames(Protocol):
    """A sequence of frames: `len(frames)`, and `frames[indices]` as uint8, N x H x W x 3, RGB.

    The package asks with a numpy array of int64; the result is a numpy array or a torch tensor.
    Arrays satisfy this protocol, and so do packed stores and videos that decode frames on demand,
    so that memory stays bounded.

    >>> isinstance(np.zeros((2, 8, 8, 3), np.uint8), Frames)
    True
    """

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Any, /) -> Any: ...


# One image of any size: H x W x 3 (RGB), H x W or H x W x 1 (grey), or H x W x 4 (RGBA).
ImageLike: TypeAlias = "Image.Image | ImageArray | Tensor"
# Several images of any size: N x H x W x C arrays, sequences of images, or anything lazy.
FramesLike: TypeAlias = "Frames | ImageArray | Tensor | Sequence[ImageLike]"
# All that a learner takes: images, or the path of a picture, a video or a folder of pictures, or
# several paths.
LearnerInput: TypeAlias = "FramesLike | ImageLike | str | Path | Sequence[str | Path]"
IDENTIFYING_FRAMES = 8
NO_FRAMES = "there are no frames: give at least one"


class Selection:
    """Some frames of a larger source, chosen by index. No frame is copied until it is read.

    Args:
        source: The frames to choose from.
        indices: The index in `source` of each chosen frame.

    >>> source = np.arange(5, dtype=np.uint8).repeat(3).reshape(5, 1, 1, 3)
    >>> Selection(source, [4, 1])[np.array([0])][0, 0, 0].tolist()
    [4, 4, 4]
    """

    def __init__(self, source: Frames, indices: Sequence[int] | Indices | Tensor) -> None:
        self.source = source
        self.indices = np.asarray(indices, np.int64)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, indices: Any) -> Any:
        rows = chosen_rows(indices, len(self))
        return like_indices(self.source[self.indices[rows]], indices)

    def __repr__(self) -> str:
        return f"Selection({len(self)} of {len(self.source)} frames)"


class LazyFrames:
    """Frames that are made one at a time, each time they are read.

    Args:
        read: Function that returns frame i as uint8, H x W x 3.
        count: The number of frames.
    """

    def __init__(self, read: Callable[[int], ImageArray], count: int) -> None:
        self._read, self._count = read, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, indices: Any) -> Any:
        rows = chosen_rows(indices, len(self))
        return like_indices(np.stack([self._read(int(i)) for i in rows]), indices)


def checked_frames(images: object) -> Frames:
    """Check that the argument is a sequence of frames.

    Args:
        images: A uint8 array or tensor, N x H x W x 3, or any object that satisfies `Frames`.

    Returns:
        The same frames; a tensor becomes a numpy array.

    Raises:
        InputError: If they are not frames. The message shows the wrong call and the right one.
    """
    images = as_numpy(images)
    if isinstance(images, np.ndarray):
        check_frame_array(images.shape, str(images.dtype))
        return images
    if not isinstance(images, Frames) or isinstance(images, str | bytes | list | tuple | dict):
        raise InputError(
            f"learn and scores take frames as uint8, N x H x W x 3; got {type(images).__name__}.\n"
            "  wrong: strategy.learn([image, image], labels)\n"
            "  right: strategy.learn(np.stack(images), labels)"
        )
    if len(images) < 1:
        raise InputError(NO_FRAMES)
    return images


def frames_at(images: Frames, indices: Indices) -> FrameArray:
    """Read the frames at some indices and check their type and shape.

    Args:
        images: The frames; third-party implementations of `Frames` are not trusted.
        indices: The indices of the frames to read.

    Raises:
        InputError: If `images[indices]` gives something else.
    """
    chunk = as_numpy(images[indices])
    valid = isinstance(chunk, np.ndarray) and chunk.dtype == np.uint8 and chunk.ndim == 4
    if not valid or chunk.shape[-1] != 3:
        raise wrong_chunk(chunk)
    return chunk  # type: ignore[no-any-return]


def frame_at(images: Frames, index: int) -> ImageArray:
    """Read one frame and check its type and shape.

    Args:
        images: The frames.
        index: The index of the frame.

    Raises:
        InputError: If `images[indices]` does not give frames.
    """
    frame: ImageArray = frames_at(images, np.array([index]))[0]
    return frame


def wrong_chunk(chunk: object) -> InputError:
    """Return the error for `frames[indices]` that is not an array of frames."""
    shape = tuple(getattr(chunk, "shape", ()))
    kind = type(chunk).__name__
    return InputError(
        f"frames[indices] must give uint8, N x H x W x 3; got {kind} of shape {shape}"
    )


def chunks(count: int, size: int) -> Iterator[Indices]:
    """Split the indices 0 .. count - 1 into chunks of nearly equal size.

    Args:
        count: The number of indices, at least 1.
        size: The largest number of indices in a chunk.
    """
    return iter(np.array_split(np.arange(count), -(-count // size)))


def whole_picture(image: ImageLike | str | Path, bgr: bool = False) -> Image.Image:
    """Convert one image of any size to an RGB picture, uncropped.

    Args:
        image: A PIL image, a uint8 array or tensor H x W x 3, H x W or H x W x 4, or the path of a
            picture.
        bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

    Raises:
        InputError: If it is not one image, if it is too large, or if it is known to be RGB and
            `bgr` is set. The message shows the right call.
        FileError: If the path cannot be read.
    """
    if bgr:
        refuse_if_rgb(image)
    if isinstance(image, str | Path):
        return Image.fromarray(decode_image(Path(image), image, None, whole=True))
    if not isinstance(image, Image.Image) and getattr(image, "ndim", 0) == 4:
        raise InputError(
            f"locate takes one frame; got {len(image)}: call it once per frame\n"
            "  right: [learner.locate(frame) for frame in frames]"
        )
    _check_image(image)
    picture = rgb_picture(as_numpy(image))
    return Image.merge("RGB", picture.split()[::-1]) if bgr else picture


def model_frames(
    images: ImageLike | FramesLike, size: int, bgr: bool = False
) -> tuple[Frames, bool]:
    """Convert one image or several, of any size, to frames at model size, in RGB.

    Args:
        images: One image, a sequence of images, an array of them, or frames that are read on
            demand. Those that do not have the model's size are cropped and resized when read.
        size: The side of the frames that the model takes, in pixels.
        bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

    Returns:
        The frames, and whether `images` was one single image.

    Raises:
        InputError: If `images` are not images, or if they are known to be RGB and `bgr` is set. The
            message shows the right call.
    """
    if not bgr:
        return _at_model_size(images, size)
    refuse_if_rgb(images)
    frames, single = _at_model_size(images, size)
    # after resizing, which treats every channel alike; alpha is gone by then
    if isinstance(frames, np.ndarray):
        return frames[..., ::-1], single
    return LazyFrames(lambda i: frame_at(frames, i)[..., ::-1], len(frames)), single


def are_paths(images: object) -> TypeGuard[Sequence[str | Path]]:
    """Return True if an argument is a list of paths.

    Args:
        images: What the caller passed.
    """
    if not isinstance(images, list | tuple) or not images:
        return False
    return all(isinstance(one, str | Path) for one in images)


def refuse_if_rgb(images: LearnerInput) -> None:
    """Refuse the argument `bgr` for images whose colours are known to be in the order RGB.

    Args:
        images: The images. Frames other than arrays say with an attribute `is_rgb` that they are.

    Raises:
        InputError: If they are files, PIL images, or say so.
    """
    first = images[0] if isinstance(images, list | tuple) and images else images
    if isinstance(first, str | Path | Image.Image) or getattr(first, "is_rgb", False):
        raise InputError(
            "files, PIL images and what open_frames and open_lesson return are RGB: leave out bgr"
        )


def lesson_id(images: Frames) -> str:
    """Identify a lesson by what was shown: SHA-256 of the number of frames and of eight of them.

    Args:
        images: The frames at model size. The eight frames are evenly spread over them.

    Returns:
        32 hexadecimal digits, the same on every machine.
    """
    count = len(images)
    sha = hashlib.sha256(repr(count).encode())
    for index in identifying_frames(count):
        sha.update(np.ascontiguousarray(frame_at(images, index)).tobytes())
    return sha.hexdigest()[:32]


def identifying_frames(count: int) -> list[int]:
    """Return the frames by which a lesson is identified, evenly spread.

    >>> identifying_frames(3), identifying_frames(30)
    ([0, 1, 2], [0, 4, 8, 12, 16, 20, 24, 29])
    """
    steps = min(IDENTIFYING_FRAMES, count)
    return sorted({k * (count - 1) // max(steps - 1, 1) for k in range(steps)})


def _at_model_size(images: ImageLike | FramesLike, size: int) -> tuple[Frames, bool]:
    if isinstance(images, Image.Image):
        return centre_square(images, size)[None], True
    is_tensor, images = is_torch_array(images), as_numpy(images)
    if isinstance(images, np.ndarray):
        if images.ndim == 2 or (images.ndim == 3 and images.shape[-1] in (1, 3, 4)):
            _check_image(images, torch_syntax=is_tensor)
            return centre_square(images, size)[None], True
        return _array_frames(images, size, is_tensor), False
    if isinstance(images, list | tuple):
        for image in images:
            _check_image(image)
    elif not isinstance(images, Frames) or isinstance(images, str | PurePath | bytes | dict):
        raise _no_images(images)
    if not len(images):
        raise InputError(NO_FRAMES)
    if isinstance(images, list | tuple):
        return LazyFrames(lambda i: centre_square(images[i], size), len(images)), False
    if frame_at(images, 0).shape[:2] == (size, size):
        return images, False
    return LazyFrames(lambda i: centre_square(frame_at(images, i), size), len(images)), False


def _array_frames(images: ImageArray, size: int, is_tensor: bool) -> Frames:
    """Convert an array of images; one that is not N x H x W x C is refused."""
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4):
        raise wrong_layout(images.shape, is_tensor)
    if not len(images):
        raise InputError(NO_FRAMES)
    _check_image(images[0], "frames", is_tensor)
    if images.shape[1:] == (size, size, 3):
        return images
    return LazyFrames(lambda i: centre_square(images[i], size), len(images))


def _no_images(images: object) -> InputError:
    """Return the error for something that is not images at all."""
    told = "None" if images is None else type(images).__name__
    advice = '\n  right: learner.learn(primavista.open_frames("mug.mp4"), "mug")'
    if images is None:
        advice = "\n  A camera that has no frame gives None: check what it returned before the call"
    elif isinstance(images, Iterator):
        advice = "\n  wrong: learner.predict(frames)   # frames that can be read only once"
        advice += "\n  right: learner.predict(list(frames))"
    return InputError(
        "frames are a PIL image, a uint8 array, H x W x 3 or N x H x W x 3, or a list of images; "
        f"got {told}.{advice}"
    )


def check_frame_array(shape: tuple[int, ...], dtype: str) -> None:
    """Reject an array whose type or shape is not that of frames."""
    if dtype != "uint8" or len(shape) != 4 or shape[-1] != 3:
        raise InputError(
            "frames must be uint8 with values from 0 to 255, N x H x W x 3 (RGB, channels last); "
            f"got {dtype} of shape {shape}.\n"
            "  right: strategy.learn((images * 255).round().astype('uint8'), labels)"
            "   # floats in [0, 1], no NaN\n"
            "  right: strategy.learn(images_nchw.permute(0, 2, 3, 1), labels)"
        )
    if shape[0] < 1:
        raise InputError(NO_FRAMES)
    if min(shape[1:3]) < MIN_SIDE:
        raise InputError(f"frames of {shape[1]} x {shape[2]} pixels hold nothing to see")


def _check_image(image: object, name: str = "frame", torch_syntax: bool = False) -> None:
    if isinstance(image, Image.Image):
        return
    array = as_numpy(image)
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"a frame is a PIL image or a uint8 array, H x W x 3; got {type(image).__name__}.\n"
            '  wrong: learner.learn([image, "mug.jpg"], "mug")\n'
            '  right: learner.learn(["mug.jpg", "mug.mp4"], "mug")'
        )
    if array.dtype != np.uint8:
        raise wrong_type(array, name, torch_syntax or is_torch_array(image))
    to_picture(array)
