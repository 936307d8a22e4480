"""Several frames, one answer: the rule by hand-worked numbers, and when a window starts anew."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from primavista import FileError, InputError, Learner, Prediction
from primavista.learner.prediction import AnswerRule
from primavista.learner.watch import MOST_FRAMES, Watch, correlation, fuse, fused_rank, thumbnail

NAMES = ("cup", "mug", "pen")


def told(*shares: float, familiarity: float | None = 0.5, known: bool = True) -> Prediction:
    scores = dict(zip(NAMES, shares, strict=False))
    label = max(scores, key=scores.__getitem__)
    return Prediction(label, scores[label], "known" if known else "unknown", scores, familiarity)


def noise(seed: int, side: int = 32) -> np.ndarray:
    """A picture of 8 x 8 cells of random brightness."""
    cells = np.random.default_rng(seed).integers(0, 256, (8, 8, 1))
    return np.kron(cells, np.ones((side // 8, side // 8, 3))).astype(np.uint8)


class Scripted:
    """A learner that answers what it is told to, one answer after the other."""

    def __init__(self, *answers: Prediction, threshold: float = 0.3) -> None:
        self.answers, self.answer_rule = list(answers), AnswerRule(threshold)

    def predict(self, frame: object) -> Prediction:
        return self.answers.pop(0)


def test_the_geometric_mean_by_hand():
    """(0.9 * 0.4)^(1/2) = 0.6 and (0.1 * 0.6)^(1/2) = 0.2449: 0.6 / 0.8449 = 0.7101."""
    fused = fuse(
        [told(0.9, 0.1, familiarity=0.8), told(0.4, 0.6, familiarity=0.1)], AnswerRule(0.44)
    )
    assert fused.label == "cup"
    assert fused.confidence == pytest.approx(0.710102, abs=1e-6)
    assert fused.scores == pytest.approx({"cup": 0.710102, "mug": 0.289898}, abs=1e-6)
    assert fused.familiarity == pytest.approx(0.45)
    assert fused.known
    assert not fuse(
        [told(0.9, 0.1, familiarity=0.8), told(0.4, 0.6, familiarity=0.1)], AnswerRule(0.46)
    ).known


@pytest.mark.parametrize("correlation", [0.3, 0.9])
@pytest.mark.parametrize("count", [1, 5, 20])
def test_a_threshold_takes_the_same_share_of_strangers_for_clips_of_any_length(correlation, count):
    """Strangers: z = sqrt(rho) a + sqrt(1 - rho) e_t, whose ranks are uniform."""
    random, normal = np.random.default_rng(count), NormalDist()
    clip, frame = random.normal(size=(4000, 1)), random.normal(size=(4000, count))
    z = correlation**0.5 * clip + (1 - correlation) ** 0.5 * frame
    ranks = [[normal.cdf(x) for x in row] for row in z.tolist()]
    fused = np.array([fused_rank(row, correlation) for row in ranks])
    for threshold in (0.6, 0.9, 0.95):
        assert (fused >= threshold).mean() == pytest.approx(1 - threshold, abs=0.025)
    # a mean of ranks is not a rank: of the strangers it takes fewer than one in ten
    if count > 1 and correlation < 0.5:
        assert (np.mean(ranks, axis=1) >= 0.9).mean() < 0.02


@pytest.mark.parametrize(
    ("familiarity", "confidence", "answer"),
    [
        (0.9, 0.3, "known"),  # whatever its probability: the threshold is about strangers alone
        (0.89, 0.5, "likely"),
        (0.65, 0.9, "likely"),
        (0.89, 0.49, "unknown"),
        (0.64, 0.9, "unknown"),
    ],
)
def test_a_likely_name_is_more_probable_than_all_others_together(familiarity, confidence, answer):
    assert AnswerRule(0.9, ranked=True).answer(confidence, 5, familiarity) == answer
    # without a rank among strangers nothing promises that two of three are right
    plain = AnswerRule(0.9).answer(confidence, 5, familiarity)
    assert plain == ("known" if familiarity >= 0.9 else "unknown")


def test_ranks_are_fused_by_hand():
    """z = 1.2816 and 0.8416: 1.0616 / sqrt(0.5 + 0.25) = 1.2258, whose rank is 0.8899."""
    frames = [told(0.9, 0.1, familiarity=0.9), told(0.8, 0.2, familiarity=0.8)]
    fused = fuse(frames, AnswerRule(0.88, ranked=True, correlation=0.5))
    assert fused.familiarity == pytest.approx(0.8899, abs=1e-4)
    assert fused.answer == "known"
    assert fuse(frames, AnswerRule(0.89, ranked=True, correlation=0.5)).answer == "likely"
    assert 0 < fused_rank([0.0, 1.0, 1.0], 0.0) < 1  # no frame decides alone
    assert fused_rank([0.3], 0.7) == pytest.approx(0.3)


def test_the_mean_of_the_scores_decides():
    """softmax(mean of logits), by a slow version of its own, for logits of any offset."""
    logits = np.random.default_rng(0).normal(size=(7, 3)) * 3
    frames = [np.exp(row) / np.exp(row).sum() for row in logits]
    mean = logits.mean(0)
    expected = np.exp(mean) / np.exp(mean).sum()
    fused = fuse([told(*row.tolist()) for row in frames], AnswerRule(0.3))
    assert list(fused.scores.values()) == pytest.approx(expected.tolist(), abs=1e-9)


def test_no_single_frame_rules_a_name_out():
    """A share of 0 counts as 1e-6: one such frame against nine of 0.9 : 0.1.

    9 ln 9 = 19.8 for cup, ln 1e6 = 13.8 for mug: cup.
    """
    assert fuse([told(0.9, 0.1)] * 9 + [told(0.0, 1.0)], AnswerRule(0.3)).label == "cup"
    assert (
        fuse([told(0.9, 0.1)] * 6 + [told(0.0, 1.0)], AnswerRule(0.3)).label == "mug"
    )  # 13.2 < 13.8


def test_without_familiarity_the_confidence_decides():
    """K = 2, p = 0.7101: (0.7101 - 1/2) / (1/2) = 0.4202."""
    frames = [told(0.9, 0.1, familiarity=None), told(0.4, 0.6, familiarity=None)]
    fused = fuse(frames, AnswerRule(0.42))
    assert (fused.familiarity, fused.known) == (None, True)
    assert not fuse(frames, AnswerRule(0.421)).known


shares = st.lists(st.floats(1e-3, 1), min_size=3, max_size=3)
clips = st.lists(st.tuples(shares, st.floats(0, 1)), min_size=1, max_size=8)


@given(clips, st.randoms())
def test_the_order_of_the_frames_does_not_matter(clip, random):
    frames = [
        told(*(np.array(row) / sum(row)).tolist(), familiarity=familiarity)
        for row, familiarity in clip
    ]
    shuffled = list(frames)
    random.shuffle(shuffled)
    one, two = fuse(frames, AnswerRule(0.3)), fuse(shuffled, AnswerRule(0.3))
    assert one.scores == pytest.approx(two.scores, abs=1e-12)
    assert one.familiarity == pytest.approx(two.familiarity, abs=1e-12)
    assert sum(one.scores.values()) == pytest.approx(1)
    assert one.confidence == max(one.scores.values()) == one.scores[one.label]


def test_a_clip_of_equal_frames_is_one_of_them():
    frame = told(0.7, 0.2, 0.1)
    fused = fuse([frame] * 5, AnswerRule(0.3))
    assert (fused.label, fused.known) == ("cup", True)
    assert fused.scores == pytest.approx(frame.scores)
    assert fuse([frame], AnswerRule(0.3)) is frame


def test_the_last_second_counts_and_no_more():
    answers = [told(0.9, 0.1), told(0.4, 0.6), told(0.4, 0.6)]
    watch = Watch(Scripted(*answers))
    assert watch.predict(noise(1), at=0.0) == answers[0]
    assert watch.predict(noise(1), at=0.9).confidence == pytest.approx(0.710102, abs=1e-6)
    assert len(watch) == 2
    assert watch.predict(noise(1), at=1.0).label == "mug"  # the first frame is a second old
    assert len(watch) == 2


def test_a_window_of_no_time_answers_each_frame_by_itself():
    answers = [told(0.9, 0.1), told(0.2, 0.8), told(0.6, 0.4)]
    watch = Watch(Scripted(*answers), seconds=0)
    assert [watch.predict(noise(1), at=0.0) for _ in answers] == answers
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="from 0 on"):
            Watch(Scripted(), seconds=wrong)


def test_nothing_of_the_old_scene_remains():
    old, new = [told(0.99, 0.01)] * 9, [told(0.3, 0.7), told(0.4, 0.6)]
    watch = Watch(Scripted(*old, *new))
    for k in range(9):
        watch.predict(noise(1), at=k / 20)
    assert len(watch) == 9
    assert watch.predict(noise(2), at=9 / 20) == new[0]
    fresh = Watch(Scripted(*new))
    fresh.predict(noise(2), at=9 / 20)
    assert watch.predict(noise(2), at=0.5) == fresh.predict(noise(2), at=0.5)
    assert len(watch) == 2


@pytest.mark.parametrize(
    ("answers", "times"),
    [
        ([told(0.9, 0.1), told(0.3, 0.7)], [5.0, 0.0]),  # a video that starts again
        ([told(0.9, 0.1), told(0.2, 0.5, 0.3)], [0.0, 0.1]),  # a new object was taught
        ([told(0.9, 0.1), Prediction(None, 0.0, "unknown")], [0.0, 0.1]),  # all were forgotten
    ],
)
def test_other_times_and_other_names_start_anew(answers, times):
    watch = Watch(Scripted(*answers))
    given = [watch.predict(noise(1), at=at) for at in times]
    assert given == answers


def test_reset_and_the_bound_of_the_window():
    watch = Watch(Scripted(*[told(0.9, 0.1)] * (MOST_FRAMES + 20), told(0.2, 0.8)))
    for _ in range(MOST_FRAMES + 20):
        watch.predict(noise(1), at=0.0)
    assert len(watch) == MOST_FRAMES
    watch.reset()
    assert watch.predict(noise(1), at=0.0).label == "mug"


def test_a_thumbnail_by_hand():
    """The centre square of 16 x 20 pixels: each cell is the mean of 2 x 2 pixels."""
    image = np.zeros((16, 20, 3), np.uint8)
    image[0, 2] = (30, 60, 90)  # the first pixel of the square
    image[:, 0] = 255  # outside
    cells = thumbnail(image)
    assert cells.shape == (192,)
    assert cells[:3].tolist() == [30 / 4, 60 / 4, 90 / 4]
    assert not cells[3:].any()
    assert np.array_equal(cells, thumbnail(Image.fromarray(image)))
    assert np.array_equal(thumbnail(noise(1, 8)[..., 0]), thumbnail(noise(1, 8)))


@pytest.mark.parametrize("shape", [(1, 1, 3), (3, 5), (9, 9, 4), (480, 640, 3), (2000, 9, 3)])
def test_thumbnails_of_any_shape(shape):
    cells = thumbnail(np.full(shape, 7, np.uint8))
    assert len(cells) == min(8, *shape[:2]) ** 2 * 3
    assert (cells == 7).all()


def test_what_is_the_same_scene():
    picture = noise(3, 64).astype(float)
    same = thumbnail(picture)
    darker = thumbnail(picture * 0.5 + 20)
    assert correlation(same, same) == pytest.approx(1)
    assert correlation(same, darker) > 0.99  # light and contrast do not matter
    moved = thumbnail(np.roll(picture, 2, axis=1))  # by a quarter of a cell
    assert correlation(same, moved) > 0.65
    assert correlation(same, thumbnail(noise(4, 64))) < 0.65
    grain = np.random.default_rng(0).normal(0, 5, (2, 64, 64, 3))
    plain = [thumbnail(100 + one) for one in grain]
    assert correlation(*plain) > 0.95  # the noise of a camera before a wall
    assert correlation(plain[0], same) < 0.65  # something comes before the wall
    red, blue = (np.full((64, 64, 3), colour) for colour in ((200, 60, 60), (60, 60, 200)))
    assert correlation(thumbnail(red), thumbnail(red + 20)) > 0.99
    assert correlation(thumbnail(red), thumbnail(blue)) < 0.65  # another wall
    assert correlation(same, thumbnail(picture[:4, :4])) == 0  # of another number of cells


def test_correlation_by_hand():
    """a = (-40, 40), b = (-30, 30), e = 2 * 16: 2432 / sqrt(3232 * 1832) = 0.99946."""
    one, two = np.array([0.0, 80.0]), np.array([10.0, 70.0])
    assert correlation(one, two) == pytest.approx(2432 / (3232 * 1832) ** 0.5)
    assert correlation(one, two[::-1]) == pytest.approx((32 - 2400) / (3232 * 1832) ** 0.5)


@pytest.fixture(scope="module")
def learner() -> Learner:
    made = Learner("ncm", weights="random", width=0.0625, size=32, device="cpu")
    for k, name in enumerate(["mug", "kettle", "cup"]):
        made.learn(clip(k), name)
    return made


def clip(seed: int, count: int = 6) -> np.ndarray:
    random = np.random.default_rng(seed)
    colour = np.random.default_rng(seed % 100).integers(60, 200, 3)
    return (colour + random.integers(-40, 40, (count, 32, 32, 3))).clip(0, 255).astype(np.uint8)


def test_a_video_of_one_frame_is_predict(learner):
    frame = clip(101)[0]
    assert learner.predict_video(frame) == learner.predict(frame)
    assert learner.predict_video(frame[None]) == learner.predict(frame)
    assert learner.watch(0).predict(frame) == learner.predict(frame)


def test_a_video_fuses_the_predictions_of_its_frames(learner):
    frames = np.concatenate([clip(101), clip(2, 1)])
    one = learner.predict_video(frames)
    alone = learner.predict(frames)
    shares = np.array([list(p.scores.values()) for p in alone]).clip(1e-6)
    logs = np.log(shares).mean(0)
    expected = np.exp(logs) / np.exp(logs).sum()
    assert list(one.scores.values()) == pytest.approx(expected.tolist(), abs=1e-6)
    assert one.familiarity == pytest.approx(np.mean([p.familiarity for p in alone]))
    assert one.known == (one.familiarity >= learner.threshold)
    watch = learner.watch()
    for k, frame in enumerate(frames):
        last = watch.add(frames[0], learner.predict(frame), at=k / 10)
    assert last.scores == pytest.approx(one.scores, abs=1e-6)


def test_no_frames_and_no_objects(learner):
    with pytest.raises(InputError, match="no frames"):
        learner.predict_video([])
    with pytest.raises(FileError, match=r"cannot open mug\.mp4"):
        learner.predict_video("mug.mp4")
    with pytest.raises(ValueError, match="one frame at a time"):
        learner.watch().predict(clip(0))
    empty = learner.untaught()
    assert empty.predict_video(clip(0)) == Prediction(None, 0.0, "unknown")
    assert empty.watch().predict(clip(0)[0]) == Prediction(None, 0.0, "unknown")
