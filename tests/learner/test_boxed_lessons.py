"""Lessons from boxes, drawn or found by motion."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from primavista import InputError, Learner
from primavista.learner.boxed import boxed_frames, boxed_squares, cut_square, moving_boxes
from primavista.media.boxes import Box


def learner() -> Learner:
    return Learner("ncm", width=0.25, weights="random", size=32, device="cpu")


def video(count: int = 8) -> tuple[np.ndarray, list[Box]]:
    """A bright square of 24 pixels that moves over a background with grain."""
    random = np.random.default_rng(0)
    room = random.integers(40, 120, (96, 128, 3))
    frames, boxes = [], []
    for k in range(count):
        frame = room + random.integers(-3, 4, room.shape)
        left, top = 8 + 11 * k, 20 + 5 * k
        frame[top : top + 24, left : left + 24] = 230
        frames.append(frame)
        boxes.append(Box(left, top, left + 24, top + 24))
    return np.stack(frames).astype(np.uint8), boxes


def test_a_square_around_the_box_by_hand():
    picture = Image.new("RGB", (100, 80))
    # 1.5 times 20 around (40, 40): from 25 to 55 in both directions
    assert cut_square(picture, Box(30, 35, 50, 45)).size == (30, 30)
    # moved inside at the edge, and no larger than the picture
    assert cut_square(picture, Box(90, 0, 100, 10)).size == (15, 15)
    assert cut_square(picture, Box(0, 0, 100, 10)).size == (100, 80)


def test_a_boxed_lesson_is_that_of_the_squares():
    frames, boxes = video(4)
    boxed, cut = learner(), learner()
    boxed.learn(frames, "square", box=boxes)
    squares = [
        np.asarray(cut_square(Image.fromarray(f), b)) for f, b in zip(frames, boxes, strict=True)
    ]
    cut.learn(squares, "square")
    assert boxed.lessons == cut.lessons
    assert boxed.to_bytes() == cut.to_bytes()
    one = learner()
    one.learn(frames, "square", box=(8, 20, 32, 44))
    other = learner()
    other.learn(frames, "square", box=[(8, 20, 32, 44)] * 4)
    assert one.lessons == other.lessons != boxed.lessons


def test_bgr_frames_with_a_box_are_turned():
    frames, boxes = video(3)
    ours, theirs = learner(), learner()
    ours.learn(frames, "square", box=boxes)
    theirs.learn(frames[..., ::-1], "square", box=boxes, bgr=True)
    assert ours.lessons == theirs.lessons


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ((10, 10, 10, 40), "is empty"),
        ((40, 10, 10, 40), "is empty"),
        ((float("nan"), 0, 10, 10), "is empty"),
        ((-1, 0, 10, 10), "128 x 96"),
        ((0, 0, 129, 10), "reaches out of frame 0"),
        ((0, 0, 10, 97), "reaches out of frame 0"),
        ([(0, 0, 9, 9), (0, 0, 9, 9)], "4 frames, but 2 boxes"),
        ([(0, 0, 9, 9)] * 3 + [(0, 0, 999, 9)], "frame 3"),
        ([(0, 0, 9, 9)] * 3 + [(0, 0, 9)], "left, top, right and bottom"),
        ("hand", "motion"),
    ],
)
def test_a_wrong_box_is_refused_and_nothing_is_learned(box, words):
    frames, _ = video(4)
    one = learner()
    before = one.to_bytes()
    with pytest.raises(InputError, match=words):
        one.learn(frames, "square", box=box)
    assert one.to_bytes() == before
    assert not one.can_undo


def test_a_box_needs_whole_frames():
    one = learner()
    with pytest.raises(InputError, match="--region"):
        one.learn("mug.mp4", "mug", box=(0, 0, 9, 9))
    with pytest.raises(InputError, match="--region"):
        one.learn(one.open_lesson(), "mug", box=(0, 0, 9, 9))


def test_a_box_in_shares_is_of_the_width_and_of_the_height():
    frames, _ = video(2)
    found = boxed_squares(list(frames), "0.25,0.5,0.5,0.75", 32)
    expected = boxed_frames(list(frames), Box(32, 48, 64, 72), 32)
    assert np.array_equal(found, expected)


def test_motion_finds_what_moves():
    frames, boxes = video()
    for found, right in zip(moving_boxes(list(frames)), boxes, strict=True):
        assert found.iou(right) > 0.6


def test_a_frame_without_motion_has_the_box_before_it():
    frames, _ = video()
    still = frames.copy()
    still[5] = np.median(frames, axis=0)
    found = moving_boxes(list(still))
    assert found[5] == found[4]


def test_a_lesson_by_motion_is_that_of_its_boxes():
    frames, _ = video()
    ours, theirs = learner(), learner()
    ours.learn(frames, "square", box="motion")
    theirs.learn(frames, "square", box=moving_boxes(list(frames)))
    assert ours.lessons == theirs.lessons


def test_without_motion_nothing_is_learned():
    frames, _ = video(1)
    one = learner()
    with pytest.raises(InputError, match="nothing moves"):
        one.learn(np.repeat(frames, 5, axis=0), "square", box="motion")
    with pytest.raises(InputError, match="three frames"):
        one.learn(frames, "square", box="motion")
    assert not one.labels
