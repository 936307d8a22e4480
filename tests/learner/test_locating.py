"""Boxes, windows over maps, and what a learner finds with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from primavista import InputError, Learner
from primavista.backbones.places import Place, WindowReader, interval_weights
from primavista.backbones.reference import generic_frames
from primavista.learner.locating import (
    BOX_PRIOR,
    CORE,
    LINES,
    OFFSETS,
    PLACE_SPREAD,
    REACH,
    SIZE_SPREAD,
    BestWindow,
    Level,
    Window,
    best_box,
    best_window,
    estimate,
    evidence,
    extents,
    find,
    level_sizes,
    levels_of,
)
from primavista.media.boxes import Box, non_maximum_suppression
from primavista.networks.base import build
from primavista.networks.places import MapBackbone, MiddleBackbone
from primavista.streams.rendered.backgrounds import paint_background
from primavista.streams.rendered.renderer import Scene, render

SIDE = 64


def test_overlap_by_hand():
    a, b = Box(0, 0, 4, 2), Box(2, 1, 6, 5)
    assert a.overlap(b) == 2
    assert a.iou(b) == pytest.approx(2 / (8 + 16 - 2))
    assert a.iou(a) == 1
    assert a.iou(Box(4, 0, 5, 2)) == 0  # they only touch
    assert Box(3, 3, 3, 9).iou(Box(3, 3, 3, 9)) == 0  # nothing inside


def test_the_best_of_boxes_that_overlap_by_hand():
    boxes = [Box(0, 0, 10, 10), Box(1, 0, 11, 10), Box(5, 0, 15, 10), Box(20, 0, 30, 10)]
    # the second overlaps with the first by 90 / 110, the third with the first by 50 / 150
    assert non_maximum_suppression(boxes, [0.5, 0.9, 0.8, 0.1], 0.5) == [1, 2, 3]
    assert non_maximum_suppression(boxes, [0.5, 0.9, 0.8, 0.1], 0.3) == [1, 3]
    assert non_maximum_suppression(boxes, [0.9, 0.5, 0.8, 0.1], 0.3) == [0, 3]
    assert non_maximum_suppression([], [], 0.5) == []


def test_means_over_intervals_count_ends_in_part_and_nothing_outside():
    weights = interval_weights(np.array([0.5, 6.0]), 1.5, 4, 8.0)
    # 0.5 - 1.5 is outside: from 0 to 2 pixels, one cell; from 4.5 to 7.5 pixels, cells 2.25 to 3.75
    np.testing.assert_allclose(weights, [[1, 0, 0, 0], [0, 0, 0.5, 0.5]], atol=1e-6)
    weights = interval_weights(np.array([3.0]), 2.0, 4, 8.0)
    np.testing.assert_allclose(weights, [[0.25, 0.5, 0.25, 0]], atol=1e-6)


def slow_mean(x: np.ndarray, left: float, top: float, right: float, bottom: float) -> np.ndarray:
    """The mean of a map over a part of it, in cells: by pixels of a 32nd of a cell."""
    fine = 32
    large = x.repeat(fine, 1).repeat(fine, 2)
    rows, columns = (
        slice(round(top * fine), round(bottom * fine)),
        slice(round(left * fine), round(right * fine)),
    )
    return large[:, rows, columns].mean((1, 2))


def test_pooled_windows_equal_slow_crops_of_the_maps():
    random = np.random.default_rng(0)
    maps = [random.normal(size=(3, 6, 8)).astype(np.float32), random.normal(size=(2, 12, 16))]
    reader = WindowReader((Place(0, 1.0), Place(1, 0.5)), root=False, size=SIDE)
    xs, ys = np.array([64.0, 100.0]), np.array([72.0, 96.0, 40.0])
    z = reader.features(maps, (256, 192), xs, ys, 64.0)
    assert z.shape == (6, 5)
    for k, (y, x) in enumerate((y, x) for y in ys for x in xs):
        whole = slow_mean(maps[0], (x - 32) / 32, (y - 32) / 32, (x + 32) / 32, (y + 32) / 32)
        middle = slow_mean(maps[1], (x - 16) / 16, (y - 16) / 16, (x + 16) / 16, (y + 16) / 16)
        np.testing.assert_allclose(z[k], [*whole, *middle], rtol=1e-4, atol=1e-5)


def test_quarters_of_windows_equal_slow_crops_of_the_maps():
    random = np.random.default_rng(0)
    maps = [random.normal(size=(6, 12, 16)).astype(np.float32)]
    reader = WindowReader((Place(0, 0.5, quarters=True),), root=False, size=SIDE)
    xs, ys = np.array([64.0, 100.0]), np.array([72.0, 96.0, 40.0])
    z = reader.features(maps, (256, 192), xs, ys, 64.0)
    for k, (y, x) in enumerate((y, x) for y in ys for x in xs):
        a, b, c, d = (  # upper left, upper right, lower left, lower right
            slow_mean(maps[0], (x + i) / 16, (y + j) / 16, (x + i + 16) / 16, (y + j + 16) / 16)
            for j in (-16, 0)
            for i in (-16, 0)
        )
        patterns = np.stack([a + b + c + d, b + d - a - c, c + d - a - b, a + d - b - c]) / 4
        expected = [patterns[channel % 4, channel] for channel in range(6)]
        np.testing.assert_allclose(z[k], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("middle", [False, True])
def test_the_window_that_is_the_picture_has_the_features_of_the_picture(middle):
    backbone = build("mobilenet_v1", "random", width=0.25, size=SIDE)
    if middle:
        backbone = MiddleBackbone(backbone)
    reader = MapBackbone(backbone)
    frame = torch.randint(0, 256, (1, SIDE, SIDE, 3), dtype=torch.uint8)
    with torch.no_grad():
        maps = [x[0].numpy() for x in reader(frame)]
        expected = backbone.eval()(frame)
    centre = np.array([SIDE / 2])
    z = reader.reader.features(maps, (SIDE, SIDE), centre, centre, SIDE)
    np.testing.assert_allclose(z, expected, rtol=1e-3, atol=1e-4)


def test_levels_have_two_areas_and_sides_that_the_network_can_halve():
    assert level_sizes(640, 480, 192) == [(384, 288), (256, 192)]
    for width, height in ((1920, 1080), (480, 640), (100, 900)):
        for w, h in level_sizes(width, height, 192):
            assert w % 32 == h % 32 == 0
            assert w * h < 1.35 * 384 * 288
    assert level_sizes(3, 4000, 192)[0][0] == 32


def test_a_bright_square_is_found_where_it_is():
    """One map with one channel, and a head that knows bright from dark."""
    size = 192
    brightness = np.zeros((1, 24, 32), np.float32)
    brightness[0, 8:16, 18:26] = 1  # columns 288 to 416, rows 128 to 256 of 512 x 384
    level = Level([brightness], (512, 384), (2.0, 2.0))
    reader = WindowReader((Place(0, 0.5),), root=False, size=size)

    def judge(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.hstack([z, 1 - z]), z[:, 0]

    found = find([level], reader, judge, lambda share, familiarity: familiarity >= 0.9)
    assert [window.column for window, _ in found] == [0]
    assert found[0][1].iou(Box(576, 256, 832, 512)) > 0.7


@pytest.mark.parametrize(
    ("familiarity", "column", "count"),
    [
        (0.9, 0, 2),  # odds of 9 beside 19 of the best: less than three times worse
        (0.8, 0, 1),  # odds of 4
        (0.8, 1, 2),  # another name
    ],
)
def test_a_second_object_of_a_name_is_nearly_as_sure_as_the_first(familiarity, column, count):
    maps = np.zeros((2, 24, 32), np.float32)
    maps[0, 8:16, 4:12] = 0.95
    maps[column, 8:16, 20:28] = familiarity
    level = Level([maps], (512, 384), (1.0, 1.0))
    reader = WindowReader((Place(0, 1 / 3),), root=False, size=192)

    def judge(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return z / z.sum(1, keepdims=True).clip(1e-6), z.max(1)

    found = find([level], reader, judge, lambda share, familiarity: familiarity > 0.7)
    assert len(found) == count
    best = found[0][1]
    assert best.iou(Box(64, 128, 192, 256)) > 0.6


def window_at(level: Level, x: float, y: float, side: float) -> Window:
    return Window(level, x, y, side, 0, 1.0, 1.0, 1.0)


def test_evidence_tells_the_middle_of_a_window_from_the_rest_of_the_frame():
    random = np.random.default_rng(0)
    f, m = random.normal(size=(2, 8))
    cells = np.repeat(m, 24 * 32).reshape(8, 24, 32)
    cells[:, 8:16, 10:18] = f[:, None, None]
    across = random.normal(size=8)
    across -= (f - m) * (across @ (f - m)) / ((f - m) @ (f - m))
    cells[:, 2, 3] = 0.75 * f + 0.25 * m + across  # what lies across the line does not count
    level = Level([cells], (512, 384), (1.0, 1.0))
    xs, ys = (np.arange(n) * 16 + 8.0 for n in (32, 24))  # the centres of cells
    told = evidence(cells, window_at(level, 224, 192, 160), xs, ys)
    np.testing.assert_allclose(told[8:16, 10:18], 0.5, atol=1e-9)
    np.testing.assert_allclose(told[20:, :], -0.5, atol=0.005)  # the odd cell hardly counts
    assert told[2, 3] == pytest.approx(0.25, abs=0.02)
    outside = evidence(cells, window_at(level, 8, 8, 120), np.array([-8.0, 8.0]), np.array([8.0]))
    assert outside[0, 0] == -0.5


@pytest.mark.parametrize(
    ("box", "centre"),
    [
        (Box(192, 160, 288, 240), (232, 208)),  # as large as usual, not quite in the middle
        (Box(208, 128, 256, 272), (232, 200)),  # tall
        (Box(160, 176, 320, 224), (232, 200)),  # wide
        (Box(0, 160, 80, 256), (48, 208)),  # at the edge of the picture
    ],
)
def test_the_extent_of_an_object_of_another_shape_is_found(box, centre):
    random = np.random.default_rng(1)
    f, m = random.normal(size=(2, 32))
    cells = m[:, None, None] + random.normal(size=(32, 24, 32)) * 0.5
    rows, columns = (
        slice(int(a) // 16, int(b) // 16) for a, b in ((box.top, box.bottom), (box.left, box.right))
    )
    cells[:, rows, columns] += (f - m)[:, None, None]
    coarse = cells[:, ::2, ::2]  # is not looked at, since it is coarser
    level = Level([np.zeros_like(coarse), cells], (512, 384), (2.0, 2.0))
    (found,) = extents([window_at(level, *centre, 163.0)])
    twice = Box(*(2 * end for end in (box.left, box.top, box.right, box.bottom)))
    assert found.iou(twice) > 0.65


def test_the_search_for_a_box_finds_one_that_is_as_good_as_the_best_of_all():
    """Against every box, with evidence that is one blob, as objects are."""
    random = np.random.default_rng(2)
    level = Level([np.zeros((1, 24, 32))], (512, 384), (1.0, 1.0))
    window = window_at(level, 256, 192, 160.0)
    lines = (np.arange(LINES + 1) / LINES * 2 - 1) * REACH
    area = ((lines[1] - lines[0]) / CORE) ** 2

    def cost(a: int, b: int) -> float:
        low, high = lines[a], lines[b]
        size = np.log((high - low) / CORE) / SIZE_SPREAD
        return 0.5 * BOX_PRIOR * (size**2 + ((low + high) / 2 / PLACE_SPREAD) ** 2)

    spans = [(a, b) for a in range(LINES) for b in range(a + 3, LINES + 1)]
    costs = np.array([cost(*span) for span in spans])
    lows, highs = np.array(spans).T
    for _ in range(10):
        x, y, wide, high = random.uniform((-0.2, -0.2, 0.2, 0.2), (0.2, 0.2, 0.5, 0.5))
        told = 1.2 * np.exp(-(((np.array(OFFSETS) - x) / wide) ** 2))[None]
        told = told * np.exp(-(((np.array(OFFSETS) - y) / high) ** 2))[:, None] - 0.5
        sums = np.pad(told.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        best = -np.inf
        for k, (top, bottom) in enumerate(spans):
            strip = sums[bottom] - sums[top]
            values = (strip[highs] - strip[lows]) * area - costs - costs[k]
            best = max(best, values.max())
        box = best_box(window, told)
        left, right = (
            int(np.abs(256 + 160 * lines - end).argmin()) for end in (box.left, box.right)
        )
        top, bottom = (
            int(np.abs(192 + 160 * lines - end).argmin()) for end in (box.top, box.bottom)
        )
        inside = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
        assert inside * area - cost(left, right) - cost(top, bottom) > 0.95 * best


FLAT = {"red": (200, 60, 60), "green": (60, 190, 60), "blue": (60, 60, 210)}


def pattern(name: str, seed: int, side: int = SIDE) -> np.ndarray:
    """Coloured cells."""
    cells = np.random.default_rng(seed).integers(-40, 40, (8, 8, 1))
    return (np.kron(cells, np.ones((side // 8, side // 8, 1))) + FLAT[name]).astype(np.uint8)


def taught(strategy: str, **options) -> Learner:
    network = {"width": 0.25, "weights": "random"}
    learner = Learner(strategy, size=SIDE, device="cpu", **network | options)
    for name in FLAT:
        learner.learn(np.stack([pattern(name, k) for k in range(6)]), name)
    return learner


@pytest.mark.parametrize("strategy", ["prima", "dslda", "ncm", "lda", "ridge"])
def test_every_analytic_strategy_locates(strategy):
    learner = taught(strategy)
    frame = np.full((96, 128, 3), 128, np.uint8)
    frame[16:80, 32:96] = pattern("green", 99)
    found = learner.locate(frame, threshold=0)
    assert found
    assert {one.label for one in found} <= set(FLAT)
    assert [one.confidence for one in found] == [
        one.confidence for one in learner.locate(frame, threshold=0)
    ]
    for one in found:
        assert 0 <= one.box.left < one.box.right <= 128
        assert 0 <= one.box.top < one.box.bottom <= 96


def test_the_empty_background_is_not_located():
    learner = taught("ncm")
    frame = np.full((96, 128, 3), 128, np.uint8)
    frame[16:80, 32:96] = pattern("green", 99)
    before = learner.locate(frame, threshold=0)
    background = before[0].label
    learner.rename(background, "nothing")
    found = learner.locate(frame, threshold=0)
    assert found == [one for one in before if one.label != background]


@pytest.mark.parametrize("strategy", ["prima", "dslda", "ncm", "lda", "ridge", "cwr*"])
def test_windows_are_judged_as_frames_are(strategy):
    strategy = taught(strategy)._state.strategy
    z = strategy.features(np.stack([pattern(name, 7) for name in FLAT]))
    slow, fast = strategy.judge_features(z), strategy.judge_windows(z)
    np.testing.assert_allclose(fast.scores, slow.scores, rtol=1e-3, atol=1e-3)
    assert fast.temperature == slow.temperature
    assert (fast.familiarity is None) == (slow.familiarity is None)
    if slow.familiarity is not None:
        np.testing.assert_allclose(fast.familiarity, slow.familiarity, rtol=1e-3, atol=1e-3)


def test_onnx_and_torch_find_the_same():
    pytest.importorskip("onnxruntime")
    learner = taught("prima", engine="torch")
    other = Learner.from_bytes(learner.to_bytes(), device="cpu", engine="onnx")
    frame = np.random.default_rng(0).integers(0, 256, (120, 160, 3)).astype(np.uint8)
    frame[20:84, 40:104] = pattern("blue", 5)
    ours, theirs = learner.locate(frame, threshold=0), other.locate(frame, threshold=0)
    assert [one.label for one in ours] == [one.label for one in theirs]
    for one, same in zip(ours, theirs, strict=True):
        assert one.box.iou(same.box) > 0.99
        assert one.confidence == pytest.approx(same.confidence, abs=1e-3)


def test_images_of_any_kind_and_bgr_give_the_same():
    learner = taught("prima")
    frame = np.full((96, 128, 3), 90, np.uint8)
    frame[16:80, 32:96] = pattern("red", 9)
    expected = learner.locate(frame, threshold=0)
    assert learner.locate(Image.fromarray(frame), threshold=0) == expected
    assert learner.locate(torch.from_numpy(frame), threshold=0) == expected
    assert learner.locate(frame[..., ::-1], bgr=True, threshold=0) == expected


def test_bad_input_is_refused_and_nothing_taught_finds_nothing(tmp_path):
    learner = taught("prima")
    for bad, words in (
        (np.zeros((2, 64, 64, 3), np.uint8), "one frame"),
        (np.zeros((64, 64, 3), np.float32), "uint8"),
        (np.zeros((0, 64, 3), np.uint8), "nothing to see"),
        (7, "PIL image"),
    ):
        with pytest.raises(InputError, match=words):
            learner.locate(bad)
    with pytest.raises(InputError, match="from 0 to 1"):
        learner.locate(np.zeros((64, 64, 3), np.uint8), threshold=2)
    empty = Learner("prima", width=0.25, weights="random", size=SIDE, device="cpu")
    assert empty.locate(np.zeros((64, 64, 3), np.uint8)) == []


def test_strategies_and_networks_that_cannot_locate_say_so():
    naive = Learner("naive", width=0.25, weights="random", size=32, device="cpu", epochs=1)
    naive.learn(np.zeros((2, 32, 32, 3), np.uint8), "dark")
    with pytest.raises(InputError, match="frozen network"):
        naive.locate(np.zeros((64, 64, 3), np.uint8))

    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)[:, :50]

    flat = Learner("ncm", backbone=Flat(), size=32, device="cpu")
    flat.learn(np.zeros((2, 32, 32, 3), np.uint8), "dark")
    with pytest.raises(InputError, match="convolutional network"):
        flat.locate(np.zeros((64, 64, 3), np.uint8))


def test_locating_does_not_change_what_is_recognised():
    learner = taught("prima")
    frame = pattern("blue", 42)
    before = learner.predict(frame)
    learner.locate(frame)
    learner.learn(np.stack([pattern("red", k) for k in range(20, 24)]), "red")
    learner.undo()
    learner.locate(frame)
    assert learner.predict(frame) == before


def test_the_share_of_pictures_below_a_familiarity_by_hand():
    best = BestWindow(mean=1.0, spread=0.5)
    # the distribution function of the normal distribution is 0.5 at 0, 0.8413 at 1, 0.9772 at 2
    assert best.share_below(0.8413) == pytest.approx(0.5, abs=1e-3)
    assert best.share_below(0.9772) == pytest.approx(0.9772, abs=1e-3)
    assert best.share_below(0.0) == pytest.approx(0, abs=1e-9)
    assert best.share_below(1.0) == pytest.approx(1, abs=1e-9)


def test_the_prior_of_the_best_window_counts_as_two_frames():
    # scores of 0 and 2: mean 1, standard deviation sqrt 2; the prior has mean 3 and deviation 1
    best = estimate([0.5, 0.97725])
    assert best.mean == pytest.approx((2 * 1 + 2 * 3) / 4, abs=1e-3)
    assert best.spread == pytest.approx((2 * 2**0.5 + 2 * 1) / 4, abs=1e-3)


def test_the_best_window_is_that_of_generic_frames_and_follows_what_was_taught():
    learner = taught("prima", width=1.0, weights="imagenet")
    strategy = learner._state.strategy
    network = strategy.network
    reader = network.window_reader()
    slow = []
    for frame in generic_frames(SIDE)[::3]:
        levels = levels_of(Image.fromarray(frame), network, reader)
        top = 0.0
        for level in levels:
            for y in np.arange(SIDE / 12, level.size[1], SIDE / 3):
                for x in np.arange(SIDE / 12, level.size[0], SIDE / 3):
                    at = np.array([x]), np.array([y])
                    z = reader.features(level.maps, level.size, *at, 0.85 * SIDE)
                    top = max(top, float(strategy.judge_windows(z).familiarity[0]))
        slow.append(top)
    expected = estimate(slow)
    before = best_window(strategy)
    assert (before.mean, before.spread) == pytest.approx((expected.mean, expected.spread), abs=0.02)
    learner.learn(np.stack([pattern("red", k) for k in range(20, 24)]), "another red")
    assert best_window(learner._state.strategy) != before
    learner.undo()
    assert best_window(learner._state.strategy) == before
    assert best_window(taught("ncm")._state.strategy) is None


def three_objects() -> tuple[Scene, Learner]:
    """Rendered objects, one short lesson each, each in a room of its own."""
    scene = Scene(categories=10, objects=1, sessions=11, frames=40, size=192, seed=2)
    learner = Learner("prima", device="cpu")
    for room, (thing, name) in enumerate(((9, "cup"), (6, "glasses"), (3, "scissors")), 1):
        learner.learn(render(scene, thing, room, range(0, 40, 4)).numpy(), name, coach=False)
    return scene, learner


def test_beside_a_cup_there_are_no_glasses():
    scene, learner = three_objects()
    cups = [frame for room in (5, 6, 7) for frame in render(scene, 9, room, (3, 17, 31)).numpy()]
    found = [{one.label for one in learner.locate(frame)} for frame in cups]
    assert set.union(*found) == {"cup"}
    assert sum(map(len, found)) >= 3


@pytest.mark.slow
def test_few_pictures_without_a_taught_object_get_a_box():
    scene, learner = three_objects()
    strangers = [
        frame
        for thing in (1, 2, 4, 5, 7, 8, 10)
        for room in (5, 6, 7)
        for frame in render(scene, thing, room, (9, 29)).numpy()
    ]
    rooms = [
        (paint_background(scene.seed, room, 100 + number, 480, 0.8, torch.device("cpu")) * 255)
        .to(torch.uint8)
        .permute(1, 2, 0)
        .numpy()
        for room in (5, 6, 7, 8, 9)
        for number in range(4)
    ]
    for pictures in (strangers, rooms):
        boxes = [len(learner.locate(picture)) for picture in pictures]
        assert np.mean([count > 0 for count in boxes]) <= 0.1
        assert np.mean(boxes) <= 0.1
