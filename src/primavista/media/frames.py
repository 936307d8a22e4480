"""Frames: what callers pass becomes uint8, N x H x W x 3, RGB, at the size that the model takes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

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


@runtime_checkable
class Frames(Protocol):
    """A sequence of frames: `len(frames)`, and `frames[indices]` as uint8, N x H x W x 3, RGB.

    Tensors satisfy this protocol, and so do packed stores and videos that decode frames on demand,
    so that memory stays bounded.

    >>> isinstance(torch.zeros(2, 8, 8, 3, dtype=torch.uint8), Frames)
    True
    """

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Tensor, /) -> Tensor: ...


# One image of any size: H x W x 3 (RGB), H x W or H x W x 1 (grey), or H x W x 4 (RGBA).
ImageLike: TypeAlias = Image.Image | ImageArray | Tensor
# Several images of any size: N x H x W x C arrays, sequences of images, or anything lazy.
FramesLike: TypeAlias = Frames | ImageArray | Tensor | Sequence[ImageLike]
# All that a learner takes: images, or the path of a picture, a video or a folder of pictures.
LearnerInput: TypeAlias = FramesLike | ImageLike | str | Path
# One integer per frame.
LabelsLike: TypeAlias = Tensor | NDArray[np.integer[Any]] | Sequence[int]
IDENTIFYING_FRAMES = 8


class Selection:
    """Some frames of a larger source, chosen by index. No frame is copied until it is read.

    Args:
        source: The frames to choose from.
        indices: The index in `source` of each chosen frame, int64.

    >>> source = torch.arange(5, dtype=torch.uint8).reshape(5, 1, 1, 1).expand(5, 1, 1, 3)
    >>> Selection(source, torch.tensor([4, 1]))[torch.tensor([0])][0, 0, 0].tolist()
    [4, 4, 4]
    """

    def __init__(self, source: Frames, indices: Tensor) -> None:
        self.source, self.indices = source, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, indices: Tensor) -> Tensor:
        # both may be on a GPU or not, each by itself
        return self.source[self.indices[indices.to(self.indices.device)]]

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

    def __getitem__(self, indices: Tensor) -> Tensor:
        return torch.stack([torch.from_numpy(self._read(int(i))) for i in indices.tolist()])


class SwappedChannels:
    """Frames with red and blue exchanged as they are read.

    Args:
        frames: The frames, with their colours in the order blue, green, red.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, indices: Tensor) -> Tensor:
        return self._frames[indices].flip(-1)


def check_frames(images: object) -> Frames:
    """Check that the argument is a sequence of frames.

    Args:
        images: A uint8 array or tensor, N x H x W x 3, or any object that satisfies `Frames`.

    Returns:
        The same frames; a numpy array becomes a tensor that shares its memory if it can.

    Raises:
        InputError: If they are not frames. The message shows the wrong call and the right one.
    """
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
        indices = indices.to(images.device)
    # Indexing a tensor copies it in several threads. For a single frame, waiting for those
    # threads on busy cores would take longer than the copy, so the tensor itself is used.
    whole = isinstance(images, Tensor) and len(images) == len(indices) == 1
    chunk = images if isinstance(images, Tensor) and whole else images[indices]
    if not _is_frame_tensor(chunk):
        shape = tuple(getattr(chunk, "shape", ()))
        kind = type(chunk).__name__
        raise InputError(
            f"frames[indices] must give uint8, N x H x W x 3; got {kind} of shape {shape}"
        )
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


def crop_and_resize(image: ImageLike, size: int) -> ImageArray:
    """Cut out the centre square of an image and resize it, see `centre_square`.

    Args:
        image: An image of any size, which may also be a tensor.
        size: The side of the result in pixels.

    Returns:
        uint8, size x size x 3. It never shares memory with `image`.

    Raises:
        InputError: If the image is empty, too large, or not an image.

    >>> crop_and_resize(torch.zeros(4, 6, dtype=torch.uint8), 2).shape
    (2, 2, 3)
    """
    return centre_square(image.cpu().numpy() if isinstance(image, Tensor) else image, size)


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
    if isinstance(image, np.ndarray | Tensor) and image.ndim == 4:
        raise InputError(
            f"locate takes one frame; got {len(image)}: call it once per frame\n"
            "  right: [learner.locate(frame) for frame in frames]"
        )
    _check_image(image)
    picture = rgb_picture(image.cpu().numpy() if isinstance(image, Tensor) else image)
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
    return frames.flip(-1) if isinstance(frames, Tensor) else SwappedChannels(frames), single


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
    for index in torch.linspace(0, count - 1, min(IDENTIFYING_FRAMES, count)).long().unique():
        frame = read_frames(images, index[None], torch.device("cpu"))
        sha.update(frame.numpy().tobytes())
    return sha.hexdigest()[:32]


def _at_model_size(images: ImageLike | FramesLike, size: int) -> tuple[Frames, bool]:
    if isinstance(images, Image.Image):
        return _single_frame(images, size), True
    if isinstance(images, list | tuple):
        return _sequence_frames(images, size), False
    if isinstance(images, np.ndarray | Tensor):
        if _is_one_image(tuple(images.shape)):
            _check_image(images)
            return _single_frame(images, size), True
        return _array_frames(images, size), False
    if not isinstance(images, Frames) or isinstance(images, str | PurePath | bytes | dict):
        raise _no_images(images)
    return _resized_frames(check_frames(images), size), False


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


def _is_frame_tensor(chunk: object) -> bool:
    if not isinstance(chunk, Tensor) or chunk.dtype != torch.uint8:
        return False
    return chunk.ndim == 4 and chunk.shape[-1] == 3


def _is_one_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3, 4))


def _single_frame(image: ImageLike, size: int) -> Tensor:
    return torch.from_numpy(crop_and_resize(image, size))[None]


def _sequence_frames(images: Sequence[ImageLike], size: int) -> Frames:
    if not images:
        raise InputError("there are no frames: give at least one")
    for image in images:
        _check_image(image)
    return LazyFrames(lambda i: crop_and_resize(images[i], size), len(images))


def _array_frames(images: ImageArray | Tensor, size: int) -> Frames:
    """Convert an array of images; one that is not N x H x W x C is refused."""
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4):
        raise wrong_layout(tuple(images.shape), isinstance(images, Tensor))
    if not len(images):
        raise InputError("there are no frames: give at least one")
    _check_image(images[0], "frames")
    if tuple(images.shape[1:]) == (size, size, 3):
        return check_frames(images)
    return LazyFrames(lambda i: crop_and_resize(images[i], size), len(images))


def _resized_frames(frames: Frames, size: int) -> Frames:
    first = read_frames(frames, torch.tensor([0]), torch.device("cpu"))
    if tuple(first.shape[1:3]) == (size, size):
        return frames
    return LazyFrames(lambda i: crop_and_resize(frames[torch.tensor([i])][0], size), len(frames))


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


def _check_array(shape: tuple[int, ...], dtype: str) -> None:
    if dtype != "uint8":
        raise InputError(
            f"frames must be uint8 with values 0 to 255; got {dtype}.\n"
            "  wrong: strategy.learn(images / 255, labels)\n"
            "  right: strategy.learn((images * 255).round().astype('uint8'), labels)"
            "   # floats in [0, 1], no NaN"
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


def _check_image(image: object, name: str = "frame") -> None:
    if isinstance(image, Image.Image):
        return
    if not isinstance(image, np.ndarray | Tensor):
        raise InputError(
            f"a frame is a PIL image or a uint8 array, H x W x 3; got {type(image).__name__}.\n"
            '  wrong: learner.learn(["mug.jpg"], "mug")\n'
            '  right: learner.learn(primavista.open_frames("mug.jpg"), "mug")'
        )
    array = image.cpu().numpy() if isinstance(image, Tensor) else image
    if array.dtype != np.uint8:
        raise wrong_type(array, name, isinstance(image, Tensor))
    to_picture(array)
