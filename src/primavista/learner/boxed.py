"""Lessons from boxes: the part of each frame that shows the object, drawn by hand or by motion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from primavista.errors import InputError
from primavista.media.boxes import Box
from primavista.media.frames import ImageLike, LearnerInput, whole_picture
from primavista.media.images import ImageArray, centre_square, fit_within, read_region

BoxLike: TypeAlias = Box | Sequence[float]
BoxesLike: TypeAlias = BoxLike | Sequence[BoxLike] | Literal["motion"]

MOTION: Final = "motion"  # in place of a box: what moves
# The square that is cut out around a box, in longer sides of the box: what is held in the hand in
# front of a camera takes about as much of the frame.
MARGIN = 1.5
MOTION_SIDE = 96  # pixels: frames are compared at this size
MOTION_LEVEL = 4.0  # how many times the usual difference is motion, and
LEAST_MOTION = 10.0  # the least difference that is, in levels of brightness
LEAST_AREA = 0.002  # of the frame that moves


def boxed_frames(
    frames: LearnerInput, box: BoxesLike, size: int, bgr: bool = False
) -> list[ImageArray]:
    """Cut a square around the object out of every frame.

    Args:
        frames: One image or several; not a path and not the result of `open_lesson`.
        box: One box for all frames, one per frame, or "motion" (`moving_boxes`). A box is a `Box`
            or left, top, right and bottom in pixels of the frame.
        size: The side of the results in pixels.
        bgr: Whether the colours are in the order blue, green, red.

    Returns:
        The squares, uint8, size x size x 3.

    Raises:
        InputError: If a box is empty or reaches out of its frame, or if nothing moves.
    """
    pictures = _pictures(frames, bgr)
    boxes: Sequence[Box]
    if isinstance(box, str):
        if box != MOTION:
            raise InputError(
                f'box is "motion", a box, or one box per frame; got {box!r}.\n'
                '  right: learner.learn(frames, "mug", box=(120, 40, 360, 300))'
            )
        boxes = moving_boxes(pictures)
    else:
        boxes = _boxes(box, len(pictures))
    squares = []
    for number, (picture, one) in enumerate(zip(pictures, boxes, strict=True)):
        check_box(one, picture.width, picture.height, f"frame {number}")
        squares.append(centre_square(cut_square(picture, one), size))
    return squares


def boxed_squares(frames: list[ImageArray], box: str, size: int) -> list[ImageArray]:
    """Cut a square around the object out of every frame, from a box that is given as text.

    Args:
        frames: The frames.
        box: "motion", or left, top, right and bottom as shares of the sides, with commas.
        size: The side of the results in pixels.

    Returns:
        The squares, uint8, size x size x 3.

    Raises:
        InputError: If the text is neither, or if nothing moves.
    """
    if box == MOTION:
        return boxed_frames(frames, MOTION, size)
    left, top, right, bottom = read_region(box)
    boxes = []
    for frame in frames:
        height, width = frame.shape[:2]
        boxes.append(Box(left * width, top * height, right * width, bottom * height))
    return boxed_frames(frames, boxes, size)


def _pictures(frames: LearnerInput, bgr: bool) -> list[Image.Image]:
    if isinstance(frames, Image.Image) or getattr(frames, "ndim", None) in (2, 3):
        return [whole_picture(frames, bgr)]  # type: ignore[arg-type]
    if isinstance(frames, np.ndarray | list | tuple) and len(frames):
        return [whole_picture(frame, bgr) for frame in frames]
    raise InputError(
        "a box is in pixels of whole frames, so the frames themselves are needed.\n"
        '  right: learner.learn(images, "mug", box=(120, 40, 360, 300))   # a list or an array\n'
        "  right: primavista learn kitchen.pv --label mug mug.mp4 --region 0.2,0.1,0.6,0.7"
    )


def _boxes(box: BoxLike | Sequence[BoxLike], count: int) -> list[Box]:
    """Return one box per frame; a single box is used for all frames."""
    boxes: Sequence[Any] = box  # type: ignore[assignment]
    if isinstance(box, Box) or (len(box) == 4 and all(isinstance(x, int | float) for x in box)):
        boxes = [box] * count
    if len(boxes) != count:
        raise InputError(f"there are {count} frames, but {len(boxes)} boxes: give one, or one each")
    return [one if isinstance(one, Box) else _box_of(one) for one in boxes]


def _box_of(ends: Sequence[float]) -> Box:
    try:
        left, top, right, bottom = (float(x) for x in ends)
    except (TypeError, ValueError) as error:
        raise InputError(f"a box is left, top, right and bottom in pixels; got {ends!r}") from error
    return Box(left, top, right, bottom)


def check_box(box: Box, width: int, height: int, name: str = "the frame") -> None:
    """Refuse a box that is empty or reaches out of its frame.

    Args:
        box: The box.
        width: The width of the frame in pixels.
        height: Its height.
        name: What the message calls the frame.

    Raises:
        InputError: If it is; the message says how large the frame is.
    """
    ends = (box.left, box.top, box.right, box.bottom)
    said = ", ".join(f"{end:g}" for end in ends)
    if not all(np.isfinite(ends)) or box.width < 1 or box.height < 1:
        raise InputError(
            f"the box ({said}) of {name} is empty: give left, top, right and bottom in pixels, "
            "with left < right and top < bottom"
        )
    if box.left < 0 or box.top < 0 or box.right > width or box.bottom > height:
        raise InputError(
            f"the box ({said}) reaches out of {name}, which has {width} x {height} pixels: "
            "clip it, or check the order left, top, right, bottom"
        )


def cut_square(picture: Image.Image, box: Box) -> Image.Image:
    """Cut the square around a box out of a picture, `MARGIN` times its longer side.

    Args:
        picture: The picture.
        box: A box inside it.

    Returns:
        The square, moved so that it is inside the picture; the whole height or width if there is
        not more.
    """
    side = MARGIN * max(box.width, box.height)
    wide, high = min(side, picture.width), min(side, picture.height)
    left = min(max((box.left + box.right - wide) / 2, 0), picture.width - wide)
    top = min(max((box.top + box.bottom - high) / 2, 0), picture.height - high)
    return picture.crop((round(left), round(top), round(left + wide), round(top + high)))


def moving_boxes(frames: Sequence[ImageLike]) -> list[Box]:
    """Find what moves in front of a camera that stands still: one box per frame.

    Each frame is compared with the median of all of them, which shows the background if the object
    does not stay in one place. The box encloses the largest connected part that differs. A
    frame in which nothing differs has the box of the frame before.

    Args:
        frames: The frames of a lesson in their order, three at least, all of one size.

    Returns:
        The boxes, in pixels of the frames.

    Raises:
        InputError: If there are too few frames, if their sizes differ, or if nothing moves.
    """
    pictures = [whole_picture(frame) for frame in frames]
    sizes = {picture.size for picture in pictures}
    if len(pictures) < 3 or len(sizes) > 1:
        raise InputError(
            "motion is found in three frames or more of one size: give more frames, or a box"
        )
    small = np.stack([fit_within(picture, MOTION_SIDE) for picture in pictures]).astype(np.float32)
    difference = np.abs(small - np.median(small, axis=0)).max(3)
    level = max(LEAST_MOTION, MOTION_LEVEL * float(np.median(difference)))
    width, height = pictures[0].size
    scale = width / small.shape[2], height / small.shape[1]
    found: list[Box | None] = [_largest_part(_smooth(one) > level, scale) for one in difference]
    known = [box for box in found if box is not None]
    if not known:
        raise InputError(
            "nothing moves in these frames: move the object in front of a camera that stands "
            "still, or give a box"
        )
    boxes, last = [], known[0]
    for box in found:
        last = last if box is None else box
        boxes.append(last)
    return boxes


def _smooth(x: np.ndarray) -> np.ndarray:
    """The mean over 3 x 3 pixels."""
    wide = np.pad(x, 1, mode="edge")
    rows, columns = x.shape
    shifts = [wide[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    mean: np.ndarray = np.mean(shifts, axis=0)
    return mean


def _largest_part(mask: np.ndarray, scale: tuple[float, float]) -> Box | None:
    """The box of the largest connected part of a mask, in pixels of the frame; None if small."""
    left, best = mask.copy(), None
    while left.any():
        row, column = divmod(int(left.argmax()), mask.shape[1])
        part = connected(left, (row, column))
        left &= ~part
        if best is None or part.sum() > best.sum():
            best = part
    if best is None or best.sum() < LEAST_AREA * mask.size:
        return None
    rows, columns = np.nonzero(best)
    wide, high = scale
    return Box(
        float(columns.min() * wide),
        float(rows.min() * high),
        float((columns.max() + 1) * wide),
        float((rows.max() + 1) * high),
    )


def connected(mask: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    """Return the part of a mask that is connected with a place, by its four neighbours.

    Args:
        mask: H x W.
        start: The row and the column of a place in the mask.

    Returns:
        A mask of the same shape.
    """
    image = Image.fromarray(mask.astype(np.uint8)).copy()  # which can be written to
    ImageDraw.floodfill(image, start[::-1], 2)
    part: np.ndarray = np.asarray(image) == 2
    return part
