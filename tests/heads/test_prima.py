"""The head that weighs places by lessons that they have not seen, in numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from primavista.errors import InputError
from primavista.heads.place_fit import LEVEL
from primavista.heads.place_weights import (
    LOGIT_SCALE,
    SCALE_SPREAD,
    USUAL_ALIKENESS,
    WEIGHT_SPREAD,
    place_weights,
)
from primavista.heads.prima import (
    LESSONS_KEPT,
    LessonHead,
    LessonSample,
    LessonStatistics,
    feature_keys,
)
from primavista.nn.class_rows import ArrayBuffers

BLOCKS = (4, 3)
DIM = sum(BLOCKS)
Lesson = tuple[np.ndarray, int]


def head(priors: tuple[float, ...] = (1.0, 1.0)) -> LessonHead:
    return LessonHead(
        LessonStatistics.empty(DIM, blocks=BLOCKS), LessonSample.empty(BLOCKS), priors
    )


def torch_head() -> LessonHead:
    made = head()
    made.modules = [ArrayBuffers(group) for group in made.groups.values()]  # type: ignore[attr-defined]
    return made


def lessons(classes: int, each: int, seed: int = 0) -> list[Lesson]:
    """Lessons of classes that differ in the second place alone, each in a room of its own."""
    random = np.random.default_rng(seed)
    centres = 3 * random.normal(size=(classes, DIM)) * np.repeat([0, 1], BLOCKS)
    found = []
    for k in range(classes * each):
        room = random.normal(size=DIM)
        frames = random.normal(size=(random.integers(2, 9), DIM)) * 0.3
        found.append(((centres[k % classes] + room + frames).astype(np.float32), k % classes))
    return found


def teach(made: LessonHead, taught: list[Lesson], make=np.asarray) -> LessonHead:
    for i, (z, column) in enumerate(taught, 1):
        made.expand(column + 1)
        made.learn(make(z), make(np.full(len(z), column)), i)
    return made


def slow_left_out(
    taught: list[Lesson], features: slice, left: int, frame: np.ndarray, g: np.ndarray | None
) -> np.ndarray:
    """Scores of a frame by the regression on all other lessons, from their frames.

    The scatter within the lesson that is left out stays, and so do t, rho and the weight of the
    generic frames: that of one lesson of each class.
    """
    z = [frames[:, features].astype(np.float64) for frames, _ in taught]
    classes = 1 + max(c for _, c in taught)

    def sums(some: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The scatter of lesson means, the means of the classes, and the mean of these."""
        lessons = [[z[k].mean(0) for k in some if taught[k][1] == c] for c in range(classes)]
        mu = np.stack([np.mean(own, 0) for own in lessons])
        inside = np.concatenate([np.stack(own) - mu[c] for c, own in enumerate(lessons)])
        return inside.T @ inside, mu, mu.mean(0)

    within = sum(np.cov(x.T, bias=True) for x in z)
    count = len(taught)

    def c_of(some: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        between_lessons, mu, m = sums(some)
        offset = mu - m
        return (within + between_lessons) / count + offset.T @ offset / classes, mu, m

    everything = list(range(count))
    rho = LEVEL * np.trace(c_of(everything)[0]) / count
    c, mu, m = c_of([k for k in everything if k != left])
    w = np.linalg.solve(c + rho * np.eye(len(c)), (mu - m).T).T / classes
    return w @ (frame[features] - slow_origin(m, g, features, count, classes))


def slow_origin(
    m: np.ndarray, g: np.ndarray | None, features: slice, count: int, classes: int
) -> np.ndarray:
    """Where all classes score 0: the mean of `count` lessons and of g, `classes` times."""
    if g is None:
        return m
    return np.mean([m] * count + [g[features]] * classes, axis=0)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("extra", [0, 5])
def test_left_out_scores_are_those_of_a_regression_without_the_lesson(extra, known):
    """Whether all classes have as many lessons, or the first one more than the others; with and
    without generic frames.
    """
    taught = lessons(4, 3) + [(z, 0) for z, c in lessons(4, 5, seed=1) if c == 0][:extra]
    made = teach(head(), taught)
    g = generic().mean(0) if known else None
    if known:
        made.set_reference(generic())
    columns, means, frames = made.sample.lessons(4)
    assert len(columns) == 12 + min(extra, LESSONS_KEPT - 3)
    for place, features in enumerate((slice(0, 4), slice(4, 7))):
        found = made.fits(4)[place].left_out
        for k, (mean, frame) in enumerate(zip(means, frames, strict=True)):
            same = [np.allclose(z.astype(np.float64).mean(0), mean, atol=1e-5) for z, _ in taught]
            left = same.index(True)
            assert (taught[left][0] == frame).all(1).any()
            expected = slow_left_out(taught, features, left, frame, g)
            assert np.allclose(found[k], expected, atol=1e-5)


def log_posterior(
    theta: np.ndarray, f: np.ndarray, columns: np.ndarray, priors: list[float]
) -> float:
    """Written out lesson by lesson."""
    total = 0.0
    for scores, c in zip(f, columns, strict=True):
        logits = [
            sum(np.exp(theta[h]) * scores[k, h] for h in range(len(theta)))
            for k in range(f.shape[1])
        ]
        total += logits[c] - np.log(sum(np.exp(x) for x in logits))
    start = np.log(LOGIT_SCALE * np.asarray(priors) / sum(priors))
    covariance = np.full((len(theta),) * 2, SCALE_SPREAD**2) + WEIGHT_SPREAD**2 * np.eye(len(theta))
    off = theta - start
    return float(total - off @ np.linalg.solve(covariance, off) / 2)


def test_place_weights_are_at_the_maximum_of_the_posterior():
    random = np.random.default_rng(3)
    columns = random.integers(0, 4, 20)
    f = random.normal(size=(20, 4, 3)) * 0.3
    f[np.arange(20), columns, 1] += 0.5
    priors = [1.0, 0.5, 2.0]
    theta = np.log(place_weights(f, columns, priors))
    best = log_posterior(theta, f, columns, priors)
    for step in np.concatenate([np.eye(3), -np.eye(3), random.normal(size=(20, 3))]) * 1e-2:
        assert log_posterior(theta + step, f, columns, priors) < best
    assert theta[1] > theta[0] + 1
    assert theta[1] > theta[2] + 1


def test_without_a_second_lesson_the_prior_decides():
    made = teach(head((1.0, 3.0)), lessons(3, 1))
    assert np.allclose(made.judge(made.fits(3)).beta, [LOGIT_SCALE / 4, LOGIT_SCALE * 3 / 4])


def test_lessons_find_the_place_that_tells_the_classes_apart():
    made = teach(head(), lessons(4, 4))
    first, second = made.judge(made.fits(4)).beta
    assert second > 4 * first
    unseen = lessons(4, 9)[16:]
    right = [made.scores(z, 4).mean(0).argmax() == c for z, c in unseen]
    assert np.mean(right) > 0.9


@pytest.mark.parametrize("each", [2, LESSONS_KEPT + 3])
def test_neither_order_nor_merging_matters(each: int):
    taught = lessons(3, each)
    whole = teach(head(), taught)
    order = [taught[k] for k in np.random.default_rng(1).permutation(len(taught))]
    other = head()
    other.expand(3)
    teach(other, order)
    one, two = head(), head()
    for part in (one, two):
        part.expand(3)
    teach(one, order[::2])
    teach(two, order[1::2])
    one.merge(two, np.arange(3))
    z = np.concatenate([frames for frames, _ in lessons(3, 2, seed=5)])
    for made in (other, one):
        assert np.array_equal(made.sample.arrays["key"], whole.sample.arrays["key"])
        assert np.array_equal(made.sample.arrays["mean"], whole.sample.arrays["mean"])
        assert np.array_equal(made.sample.arrays["frame"], whole.sample.arrays["frame"])
        scores = whole.scores(z, 3)
        assert abs(made.scores(z, 3) - scores).max() < 1e-6 * abs(scores).max()


def test_a_batch_of_several_classes_is_one_lesson_of_each():
    taught = lessons(3, 1)
    apart = teach(head(), taught)
    together = head()
    together.expand(3)
    z = np.concatenate([frames for frames, _ in taught])
    together.learn(z, np.concatenate([np.full(len(x), c) for x, c in taught]), 1)
    # G is rounded to 29 bits after every call
    assert np.allclose(apart.scores(z, 3), together.scores(z, 3), rtol=1e-7, atol=1e-7)


def test_frames_of_a_lesson_do_not_outweigh_another_lesson():
    (first, c), *rest = lessons(3, 2)
    long = [(np.repeat(first, 50, axis=0), c), *rest]
    ours, theirs = teach(head(), [(first, c), *rest]), teach(head(), long)
    z = np.concatenate([frames for frames, _ in rest])
    assert np.allclose(ours.scores(z, 3), theirs.scores(z, 3), atol=1e-5)


def test_forgetting_takes_the_lessons_of_a_class_out():
    taught = lessons(4, 3)
    made = teach(head(), taught)
    made.forget(1)
    columns = made.sample.lessons(3).columns
    assert sorted(columns.tolist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    never = teach(head(), [(z, c - (c > 1)) for z, c in taught if c != 1])
    assert np.array_equal(made.sample.arrays["key"][:3], never.sample.arrays["key"])
    assert np.allclose(made.statistics.means(3), never.statistics.means(3))


def test_numpy_and_torch_agree():
    taught = lessons(3, LESSONS_KEPT + 2)
    ours, theirs = teach(head(), taught), teach(torch_head(), taught, torch.as_tensor)
    ours.set_reference(generic())
    theirs.set_reference(torch.from_numpy(generic()))
    keys = [np.asarray(made.sample.arrays["key"]) / 2**53 for made in (theirs, ours)]
    assert np.allclose(*keys, rtol=0, atol=1e-9)
    z = np.concatenate([frames for frames, _ in taught])
    told = theirs.scores(torch.from_numpy(z), 3).numpy()
    assert np.allclose(ours.scores(z, 3), told, rtol=1e-6, atol=1e-8)
    wide, best = z.astype(np.float64), told.argmax(1)
    familiar = theirs.familiarity(3)(torch.from_numpy(wide), torch.from_numpy(best)).numpy()
    assert np.allclose(ours.familiarity(3)(wide, best), familiar, rtol=1e-5, atol=1e-6)


def test_one_class_and_equal_frames_are_solved():
    single = teach(head(), lessons(1, 2))
    assert np.array_equal(single.scores(np.ones((2, DIM), dtype=np.float32), 1), np.zeros((2, 1)))
    equal = teach(head(), [(np.ones((3, DIM), dtype=np.float32), c) for c in (0, 1, 0, 1)])
    assert np.isfinite(equal.scores(np.ones((2, DIM), dtype=np.float32), 2)).all()


def slow_strange(
    taught: list[Lesson], features: slice, frame: np.ndarray, own: int, g: np.ndarray | None
) -> np.ndarray:
    """Scores of a frame by the regression without its class; S, rho, 1 / K and the weight of the
    generic frames stay.
    """
    classes = 1 + max(c for _, c in taught)
    z = [frames[:, features].astype(np.float64) for frames, _ in taught]
    means = [
        [x.mean(0) for x, (_, c) in zip(z, taught, strict=True) if c == k] for k in range(classes)
    ]
    mu = np.stack([np.mean(own, 0) for own in means])
    between = np.concatenate([np.stack(m) - mu[c] for c, m in enumerate(means)])
    scatter = sum(np.cov(x.T, bias=True) for x in z) + between.T @ between
    offset = mu - mu.mean(0)
    c = scatter / len(taught) + offset.T @ offset / classes
    rho = LEVEL * np.trace(c) / len(taught)
    others = np.delete(np.arange(classes), own)
    rest = mu[others] - mu[others].mean(0)
    c = scatter / len(taught) + rest.T @ rest / classes + rho * np.eye(len(c))
    w = np.linalg.solve(c, rest.T).T / classes
    m = mu[others].mean(0)
    return w @ (frame[features] - slow_origin(m, g, features, len(taught), classes))


@pytest.mark.parametrize("known", [False, True])
def test_strange_scores_are_those_of_a_regression_without_the_class(known):
    taught = lessons(4, 2)
    made = teach(head(), taught)
    g = generic().mean(0) if known else None
    if known:
        made.set_reference(generic())
    columns, _, frames = made.sample.lessons(4)
    judged = made.judge(made.fits(4))
    share = np.asarray(judged.beta) / sum(judged.beta)
    for k, frame in enumerate(frames):
        places = [slow_strange(taught, f, frame, columns[k], g) for f in (slice(0, 4), slice(4, 7))]
        expected = share[0] * places[0] + share[1] * places[1]
        assert np.allclose(np.delete(judged.strange[k], columns[k]), expected, atol=1e-5)


def test_at_the_origin_all_classes_score_nothing():
    """It is half way to the mean of the generic frames after one lesson each, a third after two."""
    g = generic().mean(0)
    for each, share in ((1, 1 / 2), (2, 1 / 3), (3, 1 / 4)):
        made = teach(head(), lessons(3, each))
        m = made.statistics.means(3).mean(0)
        made.set_reference(generic())
        origin = (m + share * (g - m)).astype(np.float32)
        assert np.allclose(made.scores(origin[None], 3), 0, atol=1e-4)


def generic(seed: int = 11) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(20, DIM)) + 1


def test_familiarity_is_the_cosine_of_the_middle_what_scores_have_proved_and_the_room():
    """Worked out frame by frame."""
    taught = lessons(3, 3)
    made = teach(head((1.0, 3.0)), taught)
    made.set_reference(generic())
    judged = made.judge(made.fits(3))
    share = np.asarray(judged.beta) / sum(judged.beta)
    centre, mu = generic().mean(0), made.statistics.means(3)

    def cosines(frame: np.ndarray, part: slice) -> list[float]:
        x, others = (frame - centre)[part], (mu - centre)[:, part]
        return [x @ y / np.sqrt((x @ x) * (y @ y)) for y in others]

    z = np.random.default_rng(5).normal(size=(6, DIM))
    scores = made.scores(z, 3) / sum(judged.beta)
    told = made.familiarity(3)
    columns = made.sample.lessons(3).columns
    left_out = sum(s * fit.left_out for s, fit in zip(share, made.fits(3), strict=True))
    assert judged.trust == pytest.approx(np.mean([left_out[k, c] for k, c in enumerate(columns)]))
    assert judged.trust > 0.1
    whole, middle = slice(0, 4), slice(4, 7)
    kept = made.sample.lessons(3)
    rooms = [
        np.mean([alike for k, alike in enumerate(cosines(frame, whole)) if k != own])
        for frame, own in zip(kept.frames.astype(np.float64), columns, strict=True)
    ]
    usual, lifted = np.mean(rooms), 0  # three lessons of each class
    for frame, score, found in zip(z, scores, told(z, scores.argmax(1)), strict=True):
        likeness = np.array(cosines(frame, middle)) + judged.trust * score
        others = np.delete(cosines(frame, whole), likeness.argmax())
        lift = max(0.0, 0.75 * (usual - (usual + others.sum()) / 3))
        lifted += lift > 0.01
        expected = told.strangers.share_below(np.array([max(likeness) + lift]))[0]
        assert found == pytest.approx(expected, abs=1e-6)
    assert 0 < lifted < len(z)


def test_after_one_lesson_of_each_scores_prove_nothing():
    made = teach(head(), lessons(3, 1))
    assert made.judge(made.fits(3)).trust == 0


def test_an_altered_sample_is_refused():
    made = teach(head(), lessons(2, 3))
    made.check(2, [0, 1])
    key, mean = made.sample.arrays["key"], made.sample.arrays["mean"]
    for array, where, value in ((key, (0, 0), -1), (key, (0, 0), 2**62), (mean, (0, 0, 0), np.nan)):
        kept = array[where]
        array[where] = value
        with pytest.raises(InputError, match=r"lessons\."):
            made.check(2, [0, 1])
        array[where] = kept


def test_prior_weights_must_match_the_places():
    with pytest.raises(InputError, match="2 places"):
        head((1.0,))
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="positive"):
            head((1.0, wrong))


def test_equal_frames_of_two_classes_are_solved():
    """What is left of their scatter is the rounding of G to float32."""
    same = np.full((3, DIM), 1000.1, dtype=np.float32)
    made = teach(head(), [(same, 0), (same, 1), (same, 0)])
    assert np.isfinite(made.scores(same, 2)).all()
    made = teach(torch_head(), [(same, 0), (same, 1), (same, 0)], torch.as_tensor)
    assert made.scores(torch.as_tensor(same), 2).isfinite().all()


def test_its_reference_can_be_set_after_lessons():
    made = teach(head(), lessons(2, 2))
    assert not made.has_reference
    made.set_reference(generic())
    assert made.has_reference


def test_merged_it_takes_a_reference_if_it_has_none():
    ours, theirs = teach(head(), lessons(2, 1)), teach(head(), lessons(2, 1, seed=1))
    theirs.set_reference(generic())
    ours.merge(theirs, np.arange(2))
    for name in ("centre", "spread"):
        assert (ours.sample.arrays[name] == theirs.sample.arrays[name]).all()
    ours.set_reference(generic(12))
    ours.merge(theirs, np.arange(2))
    assert (ours.sample.arrays["centre"] == generic(12).mean(0).astype(np.float32)).all()


def many_lessons(classes: int, each: int, frames: int, dim: int) -> np.ndarray:
    """Root features as of a network: all positive, alike, and the more so within a lesson."""
    random = np.random.default_rng(5)
    z = 1 + 0.3 * random.normal(size=(classes, 1, 1, dim))
    z = z + 0.2 * random.normal(size=(1, each, 1, dim))
    return abs(z + 0.1 * random.normal(size=(classes, each, frames, dim)))


def test_another_engine_keeps_the_same_lessons_and_frames():
    """Engines differ by 2.5e-6 (root of the mean square, ONNX Runtime and torch on MobileNet)."""
    dim = 512
    z = many_lessons(40, 10, 10, dim)
    other = z + 2.5e-6 * np.random.default_rng(6).normal(size=z.shape)
    samples = []
    for features in (z, other):
        sample = LessonSample.empty((dim,))
        sample.expand(len(z))
        for row, own in enumerate(features):
            for frames in own:
                sample.add(row, frames)
        samples.append(sample.lessons(len(z)))
    assert len(samples[0].columns) == 40 * LESSONS_KEPT
    assert abs(samples[0].means - samples[1].means).max() < 1e-4
    assert abs(samples[0].frames - samples[1].frames).max() < 1e-4


def test_keys_are_spread_evenly_and_do_not_tell_what_is_in_the_lesson():
    """So that the lessons with the smallest keys are a sample like one that is drawn."""
    z = many_lessons(10, 200, 1, 256)[:, :, 0]
    key = np.asarray(feature_keys(z.reshape(-1, 256)), np.float64)
    share = np.histogram(key / 2**53, bins=8, range=(0, 1))[0] / len(key)
    assert abs(share - 1 / 8).max() < 0.03
    offset = z.reshape(-1, 256) - z.reshape(-1, 256).mean(0)
    direction = np.linalg.svd(offset[::4], full_matrices=False)[2][0]
    assert abs(np.corrcoef(key, offset @ direction)[0, 1]) < 0.08


def test_keys_do_not_depend_on_the_scale_or_the_library():
    z = many_lessons(3, 4, 5, 64).reshape(-1, 64)
    keys = np.asarray(feature_keys(z), np.float64) / 2**53
    for same in (feature_keys(100 * z), feature_keys(torch.from_numpy(z))):
        assert np.allclose(np.asarray(same, np.float64) / 2**53, keys, atol=1e-9)
    assert all(key > 0 for key in feature_keys(np.zeros((2, 64))))


def test_alikeness_is_the_mean_cosine_of_lessons_of_different_classes():
    taught = lessons(4, 3)
    made = teach(head((1.0, 0.5)), taught)
    assert made.alikeness(4) == USUAL_ALIKENESS  # no reference yet
    made.set_reference(generic())
    g = generic().astype(np.float32).mean(0)[: BLOCKS[0]]
    # LESSONS_KEPT is more than three: every lesson counts; the only place with the largest prior
    units = {}
    for frames, column in taught:
        off = frames.mean(0).astype(np.float32)[: BLOCKS[0]] - g
        units.setdefault(column, []).append(off / np.linalg.norm(off))
    cosines = [
        np.mean([u @ v for u in units[c] for v in units[k]])
        for c in range(4)
        for k in range(4)
        if c != k
    ]
    assert made.alikeness(4) == pytest.approx(np.mean(cosines), abs=1e-5)
    e = np.log2((1 - np.mean(cosines)) / np.mean(cosines)) if np.mean(cosines) > 0 else 2.0
    assert made.priors_of(4) == pytest.approx([1.0, 0.5 ** np.clip(e, 0, 2)], abs=1e-4)
    assert made.alikeness(1) == USUAL_ALIKENESS
    assert made.priors_of(1) == pytest.approx([1.0, 0.5])


def test_the_whole_picture_does_not_say_how_alike_classes_are():
    made = teach(head((1.0, 1.0)), lessons(3, 1))
    made.set_reference(generic())
    before = made.alikeness(3)
    made.sample.arrays["mean"][:, :, : BLOCKS[0]] += 1000
    made.sample.arrays["frame"][:, :, : BLOCKS[0]] += 1000
    assert made.alikeness(3) == pytest.approx(before)
