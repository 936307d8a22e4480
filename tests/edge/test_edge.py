"""The runtime without torch learns what the learner with torch learns, and each reads the other's
files.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from primavista import InputError, Learner
from primavista.backbones.base import build
from primavista.frames import crop_and_resize, lesson_id
from primavista.heads.base import from_five_bytes
from primavista.learner.export import export, onnx_model
from primavista.storage import learner_file as files

LEARNING = ["cwr*", "cwr+", "dslda", "ncm", "lda", "ridge", "prima"]


def frames(seed: int, count: int = 7) -> np.ndarray:
    base = np.random.default_rng(seed).integers(0, 200, 3)
    noise = np.random.default_rng(seed + 100).integers(0, 55, (count, 32, 32, 3))
    return (base + noise).astype(np.uint8)


def taught(strategy: str, **options: object) -> Learner:
    learner = Learner(strategy, weights="random", width=0.25, size=32, **options)
    for k, name in enumerate(["mug", "kettle"]):
        learner.learn(frames(k), name)
    return learner


@pytest.fixture
def twins(edge, tmp_path):
    def make(strategy: str, **options: object):
        learner = taught(strategy, **options)
        return learner, edge.Learner.load(export(learner, tmp_path / "a.edge.pv", "edge"))

    return make


def shares(predictions) -> np.ndarray:
    return np.array([list(p.scores.values()) for p in predictions])


def numbers(name: str, array: np.ndarray) -> np.ndarray:
    """The numbers that an array of a file stands for."""
    if name.endswith("moments.gram") and array.dtype == np.uint8:
        return from_five_bytes(name, array)
    if name.endswith((".added", ".removed")):  # factors, of which there is more than one
        return array.T @ array
    return array


def assert_same(learner: Learner, small, tmp_path) -> None:
    """All that the file holds, the level of undo too: tensors within 1e-4, the rest equal."""
    learner.save(tmp_path / "big.pv")
    small.save(tmp_path / "small.pv")
    one, told = files.read(tmp_path / "big.pv")
    two, said = files.read(tmp_path / "small.pv")
    assert set(two) == {*one, *files.GRAPHS}
    for name, stored in one.items():
        assert stored.dtype == two[name].dtype
        assert stored.shape == two[name].shape, name
        array, other = numbers(name, stored), numbers(name, two[name])
        assert np.abs(array - other).max(initial=0) <= 1e-4 * max(
            1, np.abs(array).max(initial=0)
        ), name
    for key in ("classes", "next_id", "lessons", "strategy", "backbone", "threshold", "undo"):
        assert told[key] == said[key], key


@pytest.mark.slow
@pytest.mark.parametrize("strategy", LEARNING)
def test_predictions_are_the_same(twins, strategy):
    learner, small = twins(strategy)
    given = np.concatenate([frames(k) for k in range(3)])
    one, two = learner.predict(given), small.predict(given)
    assert np.abs(shares(one) - shares(two)).max() < 1e-4
    assert [p.label for p in one] == [p.label for p in two]
    assert [p.known for p in one] == [p.known for p in two]
    assert np.allclose(
        [p.familiarity for p in one], [p.familiarity for p in two], rtol=1e-3, atol=1e-3
    )
    single = small.predict(given[0])
    assert (single.label, single.known) == (one[0].label, one[0].known)


@pytest.mark.parametrize("strategy", ["cwr*", "prima"])
def test_a_clip_and_a_watched_camera_give_the_same(twins, strategy):
    learner, small = twins(strategy)
    given = np.concatenate([frames(0), frames(1, 3)])
    one, two = learner.predict_video(given), small.predict_video(given)
    assert np.abs(shares([one]) - shares([two])).max() < 1e-4
    assert (one.label, one.known) == (two.label, two.known)
    big, little = learner.watch(), small.watch()
    for k, frame in enumerate(given):
        one, two = big.predict(frame, at=k / 20), little.predict(frame, at=k / 20)
        assert len(big) == len(little)
        assert (one.label, one.known) == (two.label, two.known)
        assert np.abs(shares([one]) - shares([two])).max() < 1e-4
        assert one.familiarity is None or abs(one.familiarity - two.familiarity) < 1e-3
    assert small.watch(0).predict(given[0]) == small.predict(given[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("cwr*", {}),
        ("cwr+", {}),
        ("dslda", {}),
        ("cwr*", {"wpast": "ratio", "epochs": 3, "minibatch": 5, "lr": 0.02, "seed": 5}),
        ("ncm", {}),
        ("lda", {}),
        ("lda", {"shrinkage": 0.01}),
        ("ridge", {}),
        ("ridge", {"expand": 300, "rho": 0.1}),
        ("prima", {}),
        ("cwr*", {"open_set": False}),
        ("cwr*", {"capacity": 2}),
        ("dslda", {"base_init": True, "shrinkage": 0.01}),
    ],
)
def test_lessons_give_the_same_weights(twins, tmp_path, strategy, options):
    learner, small = twins(strategy, **options)
    lessons = [
        ("kettle", 3),
        ("plate", 4),
        ("mug", 5),
        (["fork", "spoon", "mug"] * 4, 6),
        ("plate", 7),
    ]
    for name, seed in lessons:
        given = frames(seed, 12)
        learner.learn(given, name)
        small.learn(given, name)
        assert_same(learner, small, tmp_path)
    assert small.counts == learner.counts
    given = np.concatenate([frames(k) for k in range(8)])
    assert np.abs(shares(learner.predict(given)) - shares(small.predict(given))).max() < 1e-3


def test_a_whole_lesson_of_300_frames(twins, tmp_path):
    learner, small = twins("cwr*")
    given = np.concatenate([frames(k, 100) for k in range(3)])
    for each in (learner, small):
        each.learn(given, "plate")
    assert_same(learner, small, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", LEARNING)
def test_there_and_back(twins, edge, tmp_path, strategy):
    learner, small = twins(strategy)
    for name, seed in (("plate", 3), ("mug", 4)):
        small.learn(frames(seed), name)
        learner.learn(frames(seed), name)
    small.save(tmp_path / "back.pv")
    back = Learner.load(tmp_path / "back.pv")
    assert back.labels == learner.labels == ["mug", "kettle", "plate"]
    back.learn(frames(9), "fork")
    again = edge.Learner.load(export(back, tmp_path / "again.edge.pv", "edge"))
    learner.learn(frames(9), "fork")
    assert_same(learner, again, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", LEARNING)
def test_forgetting_renaming_and_taking_back(twins, tmp_path, strategy):
    learner, small = twins(strategy)
    for each in (learner, small):
        each.learn(frames(3), "plate")
        each.forget("mug")
        each.rename("plate", "dish")
        each.learn(frames(4), "fork")
        each.learn(frames(5), "mug")
        each.undo()
        each.learn(frames(6), "dish")
    assert small.labels == ["kettle", "dish", "fork"]
    assert_same(learner, small, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", LEARNING)
def test_the_last_change_can_be_taken_back_after_a_restart_on_either_side(
    twins, edge, tmp_path, strategy
):
    learner, small = twins(strategy)
    small.undo()  # the last lesson was taught with torch
    assert small.labels == ["mug"]
    learner.undo()
    assert_same(learner, small, tmp_path)
    for change, labels in [
        (lambda each: each.learn(frames(3), "plate"), ["mug"]),
        (lambda each: each.forget("mug"), ["mug"]),
        (lambda each: each.rename("mug", "cup"), ["mug"]),
    ]:
        change(small)
        small.save(tmp_path / "edge.pv")
        for load in (edge.Learner.load, Learner.load):
            again = load(tmp_path / "edge.pv")
            again.undo()
            assert again.labels == labels
            with pytest.raises((edge.InputError, InputError), match="nothing to undo"):
                again.undo()
        small.undo()
    assert_same(learner, small, tmp_path)


@pytest.mark.parametrize("strategy", ["ar1*", "naive", "ewc"])
def test_a_lesson_that_trained_the_network_is_taken_back_with_torch(
    twins, edge, tmp_path, strategy
):
    _, small = twins(strategy)
    with pytest.raises(edge.InputError, match="take it back with primavista"):
        small.undo()
    small.save(tmp_path / "a.pv")
    back = Learner.load(tmp_path / "a.pv")
    back.undo()
    assert back.labels == ["mug"]
    small.rename("mug", "cup")
    small.undo()
    assert small.labels == ["mug", "kettle"]


@pytest.mark.parametrize("strategy", ["ar1*", "naive", "ewc"])
def test_what_trains_the_network_predicts_and_says_why_it_does_not_learn(twins, edge, strategy):
    learner, small = twins(strategy)
    given = np.concatenate([frames(k) for k in range(3)])
    assert np.abs(shares(learner.predict(given)) - shares(small.predict(given))).max() < 1e-4
    assert not small.learns
    for change in (lambda: small.learn(frames(0), "mug"), lambda: small.forget("mug")):
        with pytest.raises(edge.InputError, match="needs torch"):
            change()
    small.rename("mug", "cup")
    assert small.predict(given)[0].scores.keys() == {"cup", "kettle"}


def test_the_first_batch_of_the_paper_is_learned_with_torch(twins, edge):
    _, small = twins("cwr*", first_batch=True)
    small._state.batches = 0
    with pytest.raises(edge.InputError, match="batch 1"):
        small.learn(frames(0), "mug")


def test_a_lesson_that_fails_changes_nothing(twins, edge, tmp_path):
    _, small = twins("cwr*")
    small.save(tmp_path / "before")
    for shown, name in (
        (frames(0).astype(float), "x"),
        ([], "x"),
        (frames(0), ""),
        (frames(0), ["a"]),
        ("mug.mp4", "x"),
    ):
        with pytest.raises(edge.InputError):
            small.learn(shown, name)
    small._session = None
    with pytest.raises(AttributeError):
        small.learn(frames(0), "x")
    small.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


@pytest.mark.parametrize("strategy", ["prima", "naive"])
def test_a_file_holds_the_network_once(twins, strategy, tmp_path):
    learner, small = twins(strategy)
    network = {n: a for n, a in learner.content()[0].items() if n.startswith("backbone.")}
    more = (tmp_path / "a.edge.pv").stat().st_size - len(learner.to_bytes())
    assert more < sum(a.nbytes for a in network.values()) / 4 < len(onnx_model(learner)) / 4
    small.save(tmp_path / "again.edge.pv")
    same_size = (tmp_path / "again.edge.pv").stat().st_size
    assert abs(same_size - (tmp_path / "a.edge.pv").stat().st_size) < 100


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["prima", "cwr*", "naive"])
def test_a_file_with_the_whole_graph_is_read(twins, edge, strategy, tmp_path):
    """Version 0.1 wrote the network twice: in the arrays of the learner and in the graph."""
    learner, small = twins(strategy)
    arrays, manifest = learner.content()
    graph = np.frombuffer(onnx_model(learner), np.uint8)
    files.write(tmp_path / "old.edge.pv", {**arrays, files.GRAPH: graph}, manifest)
    old = edge.Learner.load(tmp_path / "old.edge.pv")
    given = np.concatenate([frames(0), frames(1)])
    assert old.predict(given) == small.predict(given)
    old.save(tmp_path / "again.edge.pv")
    assert edge.Learner.load(tmp_path / "again.edge.pv").predict(given) == small.predict(given)
    loaded = Learner.load(tmp_path / "again.edge.pv")
    assert np.abs(shares(loaded.predict(given)) - shares(old.predict(given))).max() < 1e-4


def test_files_that_are_not_for_it(edge, tmp_path):
    learner = taught("cwr*")
    learner.save(tmp_path / "a.pv")
    with pytest.raises(edge.FileError, match="primavista export"):
        edge.Learner.load(tmp_path / "a.pv")
    manifest = learner.content()[1]
    strange = [
        ({files.GRAPH: np.zeros(9, np.uint8)}, {}),
        *(
            ({files.GRAPH_WEIGHTS: np.frombuffer(text, np.uint8)}, {})
            for text in (
                b"{",
                b"[]",
                b"{}",
                b'{"c4": "nothing"}',
                b'{"c4": "batches"}',
                b'{"c4": 1}',
            )
        ),
        ({}, {"format": 2}),
        ({}, {"classes": 3}),
        ({}, {"strategy": {}}),
        ({"head.cw": np.full((64, 256), np.nan, np.float32)}, {}),
        ({}, {"classes": [{"id": 9, "name": "x", "frames": 1}]}),
    ]
    good = files.read(export(learner, tmp_path / "good.edge.pv", "edge"))[0]
    for more, other in strange:
        files.write(tmp_path / "b.pv", {**good, **more}, {**manifest, **other})
        with pytest.raises(edge.FileError):
            edge.Learner.load(tmp_path / "b.pv")
    data = (tmp_path / "good.edge.pv").read_bytes()
    (tmp_path / "c.pv").write_bytes(data[:-9] + b"x" + data[-8:])
    with pytest.raises(edge.FileError, match="checksum"):
        edge.Learner.load(tmp_path / "c.pv")


def test_the_coach_says_the_same(twins, edge, tmp_path):
    """Tests that were counted with torch go on here, and those that were counted here go on there.

    A lesson of kettles that is called mug is confused.
    """
    learner, small = twins("ncm")
    for each in (learner, small):
        each.learn(frames(1, 20)[7:], "mug")
    assert [one.text for one in small.advice()] == [
        "mug and kettle are confused: show both once more"
    ]
    assert small.advice()[0].taken_for == {"kettle": 10}
    assert [vars(one) for one in small.advice()] == [vars(one) for one in learner.advice()]
    small.save(tmp_path / "small.pv")
    assert Learner.load(tmp_path / "small.pv").advice() == learner.advice()
    small = edge.Learner.load(tmp_path / "small.pv")
    small.forget("kettle")
    assert [one.kind for one in small.advice()] == ["second object"]
    assert small.advice()[0].frames == 0
    small.undo()
    assert small.advice()[0].taken_for == {"kettle": 10}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 90),
    st.integers(1, 90),
    st.integers(1, 70),
    st.sampled_from([0, 1, 3, 4]),
    st.integers(0, 99),
)
def test_images_are_cropped_and_resized_to_the_same_bits(edge, height, width, size, channels, seed):
    shape = (height, width, channels) if channels else (height, width)
    image = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    images = __import__("primavista_edge.images", fromlist=["crop_and_resize"])
    assert (images.crop_and_resize(image, size) == crop_and_resize(image, size)).all()


def test_a_photograph_is_resized_to_the_same_bits(edge):
    ramp = Image.linear_gradient("L").resize((640, 480)).rotate(20)
    image = np.stack([np.asarray(ramp), np.asarray(ramp)[::-1], np.asarray(ramp)[:, ::-1]], -1)
    images = __import__("primavista_edge.images", fromlist=["crop_and_resize"])
    assert (images.crop_and_resize(image, 128) == crop_and_resize(image, 128)).all()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ncm", "lda", "ridge", "prima"])
def test_what_devices_with_one_base_learn_is_merged(twins, tmp_path, strategy):
    """Each sends what it was taught itself.

    The base then knows all, as if it had been taught everything.
    """
    base, small = twins(strategy)
    joint = taught(strategy)
    lessons = {"one": [("plate", 3), ("mug", 4)], "two": [("fork", 5)]}
    for device, own in lessons.items():
        fresh = small.untaught()
        assert fresh.labels == []
        assert fresh.predict(frames(0)[0]).label is None
        for name, seed in own:
            fresh.learn(frames(seed), name)
            joint.learn(frames(seed), name)
        fresh.save(tmp_path / f"{device}.pv")
        base.merge(tmp_path / f"{device}.pv")
    assert small.labels == ["mug", "kettle"]
    assert base.counts == joint.counts == {"mug": 14, "kettle": 7, "plate": 7, "fork": 7}
    given = np.concatenate([frames(k) for k in (0, 1, 3, 5)])
    assert np.allclose(shares(base.predict(given)), shares(joint.predict(given)), atol=1e-3)
    assert set(base.lessons) == set(joint.lessons)


def test_an_untaught_learner_is_that_of_torch(twins, tmp_path):
    learner, small = twins("prima")
    assert_same(learner.untaught(), small.untaught(), tmp_path)


def test_what_cannot_be_merged_is_not_begun_anew(edge, twins):
    with pytest.raises(
        edge.InputError, match=r"dslda depends on the order.*ncm, lda, ridge, prima"
    ):
        twins("dslda")[1].untaught()


@pytest.mark.parametrize("name", ["\udcff", "a\nb", " ", "x" * 201, 3, None])
def test_a_name_that_primavista_refuses_is_refused_here(edge, twins, name):
    _, small = twins("ncm")
    for refused in (lambda: small.learn(frames(3), name), lambda: small.rename("mug", name)):
        with pytest.raises(edge.InputError, match="a name must be a text"):
            refused()
    assert small.counts == {"mug": 7, "kettle": 7}


def test_blanks_around_a_name_are_taken_away_and_the_file_is_read(twins, tmp_path):
    _, small = twins("ncm")
    small.learn(frames(3), " mug ")
    small.rename("kettle ", " pot")
    small.save(tmp_path / "small.pv")
    assert Learner.load(tmp_path / "small.pv").counts == {"mug": 14, "pot": 7}


def test_lessons_have_the_same_names(edge):
    learner = __import__("primavista_edge.learner", fromlist=["lesson_id"])
    for count in (*range(1, 40), 100, 299, 300, 301, 600):
        images = np.arange(count, dtype=np.uint32).view(np.uint8).reshape(count, 2, 2, 1)
        given = images.repeat(3, -1)
        assert learner.lesson_id(given) == lesson_id(torch.from_numpy(given))


def test_a_vision_transformer_goes_to_the_edge(edge, tmp_path):
    small = {"patch": 8, "dim": 24, "depth": 6, "heads": 3, "grid": 4}
    learner = Learner("prima", backbone=build("vit", "random", size=32, **small))
    noise = np.random.default_rng(0).integers(0, 60, (2, 12, 32, 32, 3), np.uint8)
    reds, blues = noise + np.array([[180, 0, 0], [0, 0, 180]], np.uint8)[:, None, None, None]
    learner.learn(reds[:8], "red")
    learner.learn(blues[:8], "blue")
    twin = edge.Learner.load(export(learner, tmp_path / "a.edge.pv", "edge"))
    for here, there in zip(learner.predict(blues[8:]), twin.predict(blues[8:]), strict=True):
        assert there.label == here.label == "blue"
        assert there.scores == pytest.approx(here.scores, abs=1e-3)
