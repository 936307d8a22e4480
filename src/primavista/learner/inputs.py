"""What people give to a learner: paths, images in RGB or BGR, frames of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from PIL import Image
from torch import Tensor

from primavista.errors import InputError
from primavista.frames import Frames, FramesLike, ImageLike, model_frames, whole_picture
from primavista.learner.lesson import LessonBuffer
from primavista.streams.decode import decode_image
from primavista.streams.video import Clip, open_frames

# The path of a picture, a video or a folder of pictures; or the images themselves.
LearnerInput: TypeAlias = FramesLike | ImageLike | str | Path


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


def learner_frames(frames: LearnerInput, size: int, bgr: bool = False) -> tuple[Frames, bool]:
    """Convert what a learner was given to frames at model size, in RGB.

    Args:
        frames: A path, one image, or several images.
        size: The side of the frames that the learner takes, in pixels.
        bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

    Returns:
        The frames, and whether there is one answer to give: for one image, and for a path.

    Raises:
        InputError: If these are not images, or if they are known to be RGB and `bgr` is set.
        FileError: If the path cannot be read.
    """
    if bgr:
        _check_order_is_open(frames)
    if isinstance(frames, str | Path):
        return open_frames(frames, size=size), True
    images, single = model_frames(frames, size)
    if bgr:
        # after resizing, which treats every channel alike; alpha is gone by then
        images = images.flip(-1) if isinstance(images, Tensor) else SwappedChannels(images)
    return images, single


def learner_picture(frame: ImageLike | str | Path, bgr: bool = False) -> Image.Image:
    """Convert one image to a whole picture, uncropped, in RGB.

    Args:
        frame: One image, or the path of a picture.
        bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

    Returns:
        The picture.

    Raises:
        InputError: If it is not one image, or if it is known to be RGB and `bgr` is set.
        FileError: If the path cannot be read.
    """
    if bgr:
        _check_order_is_open(frame)
    if isinstance(frame, str | Path):
        return Image.fromarray(decode_image(Path(frame), frame, None, whole=True))
    picture = whole_picture(frame)
    return Image.merge("RGB", picture.split()[::-1]) if bgr else picture


def _check_order_is_open(frames: LearnerInput) -> None:
    """Refuse `bgr` for what is RGB wherever it comes from."""
    first = frames[0] if isinstance(frames, list | tuple) and frames else frames
    if isinstance(first, str | Path | Image.Image | Clip | LessonBuffer):
        raise InputError(
            "files, PIL images and what open_frames and open_lesson return are RGB: leave out bgr"
        )


def check_order_of_arguments(frames: object, label: object) -> None:
    """Refuse `learn("mug", frames)`, whose arguments are in the wrong order.

    Args:
        frames: The first argument, which would be taken for the path of a file.
        label: The second one.

    Raises:
        InputError: If the first is a text and the second one is neither a text nor several.
    """
    texts = isinstance(label, str) or (
        isinstance(label, list | tuple) and all(isinstance(one, str) for one in label)
    )
    is_names = getattr(getattr(label, "dtype", None), "kind", "") in "UO"
    if isinstance(frames, str) and not texts and not is_names:
        raise InputError(
            "the frames come first, then the name.\n"
            f'  wrong: learner.learn("{frames:.60}", frames)\n'
            f'  right: learner.learn(frames, "{frames:.60}")'
        )
