"""Merging learners: equal to having taught one of them everything; nothing is counted twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from primavista import FileError, InputError, Learner
from primavista.heads.statistics import add_gram
from primavista.media.frames import lesson_id

CLIPS = {"mug": 0, "kettle": 1, "cup": 2, "pot": 3}


def clip(seed: int, count: int = 6) -> np.ndarray:
    base = np.random.default_rng(seed % 10).integers(0, 200, (1, 8, 8, 3))
    noise = np.random.default_rng(seed + 100).integers(0, 55, (count, 32, 32, 3))
    return (base.repeat(4, 1).repeat(4, 2) + noise).astype(np.uint8)


def tiny(strategy: str = "ridge", **options) -> Learner:
    return Learner(
        strategy, **{"weights": "random", "width": 0.125, "size": 32, "device": "cpu", **options}
    )


def taught(lessons, **options) -> Learner:
    learner = tiny(**options)
    for name, seed in lessons:
        learner.learn(clip(seed), name)
    return learner


def shares(learner, frames):
    return [dict(sorted(prediction.scores.items())) for prediction in learner.predict(frames)]


FIRST, SECOND = [("mug", 0), ("kettle", 1)], [("pot", 3), ("kettle", 11), ("cup", 2), ("mug", 10)]


@pytest.mark.parametrize("strategy", ["ridge", "lda", "ncm"])
@pytest.mark.parametrize("by_file", [False, True])
def test_merged_equals_taught_together(strategy, by_file, tmp_path):
    """Names are joined though their ids differ; a name known to one alone comes along."""
    a, b, joint = (
        taught(lessons, strategy=strategy) for lessons in (FIRST, SECOND, FIRST + SECOND)
    )
    b.save(tmp_path / "b.pv")
    a.merge(tmp_path / "b.pv" if by_file else b)
    assert a.counts == joint.counts == {"mug": 12, "kettle": 12, "pot": 6, "cup": 6}
    assert a.labels == ["mug", "kettle", "pot", "cup"]
    frames = np.concatenate([clip(seed, 2) for seed in (0, 1, 2, 3, 14)])
    for ours, theirs in zip(shares(a, frames), shares(joint, frames), strict=True):
        assert ours == pytest.approx(
            theirs, rel=1e-4
        )  # the features of a frame depend a little on its company, in float32
    assert [p.label for p in a.predict(frames)] == [p.label for p in joint.predict(frames)]


def test_undo_takes_a_merge_back_even_after_a_restart(tmp_path):
    a = taught(FIRST)
    a.save(tmp_path / "before.pv")
    before = a.predict(clip(0))
    a.merge(taught(SECOND))
    a.save(tmp_path / "after.pv")
    a.undo()
    assert a.predict(clip(0)) == before
    again = Learner.load(tmp_path / "after.pv", device="cpu")
    assert again.labels == ["mug", "kettle", "pot", "cup"]
    again.undo()
    assert again.labels == ["mug", "kettle"]
    assert again.predict(clip(0)) == before


def test_what_goes_on_after_a_merge(tmp_path):
    a = taught(FIRST)
    a.merge(taught([("cup", 2)]))
    a.learn(clip(3), "pot")
    a.forget("cup")
    a.merge(taught([("cup", 12)]))  # another video of it: a new id, never given before
    assert a.labels == ["mug", "kettle", "pot", "cup"]
    a.save(tmp_path / "a.pv")
    assert Learner.load(tmp_path / "a.pv", device="cpu").labels == a.labels


def test_nothing_is_counted_twice(tmp_path):
    a, b = taught(FIRST), taught([("pot", 3), ("kettle", 1)])
    a.save(tmp_path / "before.pv")
    for other in (a, b, tmp_path / "before.pv"):
        with pytest.raises(InputError, match=r"lessons are among ours.*count twice"):
            a.merge(other)
    c = taught([("cup", 2)])
    a.merge(c)
    with pytest.raises(InputError, match="1 of the other's 1 lessons"):
        a.merge(c)
    a.undo()
    a.save(tmp_path / "after.pv")
    # all as before, but for the level of undo
    assert Learner.load(tmp_path / "after.pv").labels == Learner.load(tmp_path / "before.pv").labels
    assert a.counts == {"mug": 6, "kettle": 6}


def test_an_id_tells_copies_of_a_lesson_and_not_frames_that_two_lessons_share():
    """The guide says so: a video that lacks one frame counts again."""
    frames = np.random.default_rng(3).integers(0, 256, (20, 32, 32, 3), np.uint8)
    looked_at = {int(19 * k / 7) for k in range(8)}
    between = [k for k in range(20) if k not in looked_at]
    others = frames.copy()
    others[between] = 0
    assert lesson_id(torch.from_numpy(frames)) == lesson_id(torch.from_numpy(others))
    assert lesson_id(torch.from_numpy(frames)) != lesson_id(torch.from_numpy(frames[:-1]))
    changed = frames.copy()
    changed[19, 0, 0, 0] ^= 1
    assert lesson_id(torch.from_numpy(frames)) != lesson_id(torch.from_numpy(changed))


def test_what_does_not_match_is_named(tmp_path):
    a = taught(FIRST)
    other_weights = Learner("ridge", weights="random", width=0.125, size=32, device="cpu", seed=0)
    with torch.no_grad():
        other_weights.strategy.network.backbone.body.stem.conv.weight += 1e-4
    for other, words in [
        (taught([("cup", 2)], strategy="lda"), "strategy is ridge, the other's is lda"),
        (taught([("cup", 2)], balance=0.0), r"settings differ: balance [\d.]+ here and 0\.0 there"),
        (taught([("cup", 2)], size=64), "settings differ: size 32 here and 64 there"),
        (taught([("cup", 2)], width=0.25), r"settings differ: width 0\.125 here and 0\.25 there"),
        (taught([("cup", 2)], seed=5), "settings differ: seed 0 here and 5 there"),
        (other_weights, "different weights.*stem"),
    ]:
        with pytest.raises(InputError, match=words):
            a.merge(other)
    with pytest.raises(
        InputError, match=r"depends on the order.*those that can are prima, ncm, lda"
    ):
        taught(FIRST, strategy="cwr*").merge(taught([("cup", 2)], strategy="cwr*"))
    with pytest.raises(InputError, match="naive depends on the order"):
        tiny("naive").untaught()
    with pytest.raises(FileError, match="cannot read"):
        a.merge(tmp_path / "missing.pv")
    assert a.labels == ["mug", "kettle"]


def test_another_engine_is_named_with_the_way_out(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    a = taught(FIRST, engine="torch")
    taught([("cup", 2)], engine="onnx").save(tmp_path / "b.pv")
    with pytest.raises(
        InputError,
        match=r'engine torch here and onnx there\.\n  right: .*load\(file, engine="torch"\)',
    ):
        a.merge(tmp_path / "b.pv")
    a.merge(Learner.load(tmp_path / "b.pv", engine="torch", device="cpu"))
    assert a.labels == ["mug", "kettle", "cup"]


def test_a_module_of_ones_own_can_be_merged_from_a_file(tmp_path):
    body = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 2), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
    )
    a, b = (Learner("ncm", backbone=body, size=32, device="cpu") for _ in range(2))
    a.learn(clip(0), "mug")
    b.learn(clip(1), "kettle")
    b.save(tmp_path / "b.pv")
    a.merge(tmp_path / "b.pv")
    assert a.labels == ["mug", "kettle"]


def test_a_file_cannot_ask_for_more_random_features_than_it_holds(tmp_path):
    from primavista.storage import learner_file as files

    learner = taught(FIRST, expand=20)
    learner.save(tmp_path / "a.pv")
    assert Learner.load(tmp_path / "a.pv", device="cpu").predict(clip(1)) == learner.predict(
        clip(1)
    )
    arrays, manifest = files.read(tmp_path / "a.pv")
    manifest["strategy"]["options"]["expand"] = 30_000
    files.write(tmp_path / "b.pv", arrays, manifest)
    with pytest.raises(FileError, match="30000 random features"):
        Learner.load(tmp_path / "b.pv")


def test_statistics_that_make_no_sense_are_named(tmp_path):
    from primavista.storage import learner_file as files

    learner = taught(FIRST)
    learner.save(tmp_path / "a.pv")
    arrays, manifest = files.read(tmp_path / "a.pv")
    gram = arrays["moments.gram"]
    files.write(tmp_path / "b.pv", {**arrays, "moments.gram": -gram}, manifest)
    with pytest.raises(FileError, match=r"moments\.gram is not a sum over frames"):
        tiny().merge(tmp_path / "b.pv")
    on_diagonal = np.zeros_like(gram)
    add_gram(on_diagonal, np.eye(arrays["moments.s"].shape[1]))
    files.write(
        tmp_path / "c.pv",
        {**arrays, "moments.gram": np.where(on_diagonal == 1, gram, 100 * gram)},
        manifest,
    )
    with pytest.raises(InputError, match="statistics are inconsistent"):
        Learner.load(tmp_path / "c.pv", device="cpu").predict(clip(0))
