"""prima: order, grouping and merge of lessons do not matter; sessions are lessons; its state."""

from __future__ import annotations

import copy
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from primavista import Learner
from primavista.arrays import to_numpy
from primavista.backbones.reference import generic_frames
from primavista.media.images import centre_square
from primavista.networks.base import Backbone, build
from primavista.networks.places import MiddleBackbone, shipped_reference_of
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create


def made():
    return create("prima", tiny_backbone())


def features(strategy, labels, sessions, seed):
    """Classes and rooms of their own, never centred, with a dead feature in each place."""
    random = np.random.default_rng(seed)
    dim = strategy.backbone.dim
    z = random.normal(size=(len(labels), dim)) * 0.3 + 1
    z += random.normal(size=(50, dim))[labels] + 0.5 * random.normal(size=(50, dim))[sessions]
    z[:, 3] = 0
    return torch.from_numpy(z.astype(np.float32))


def by_label(strategy, z):
    return strategy.scores_embedded(z)[:, strategy.classes.argsort()]


def familiar(strategy, z):
    return strategy.familiar()(z.double(), strategy.scores_embedded(z).argmax(1))


def state(learner):
    groups = learner.strategy.head.groups.items()
    return {f"{name}.{k}": to_numpy(x) for name, group in groups for k, x in group.arrays.items()}


def off(a, b):
    """As a share of the largest score; the scores of a single class are 0."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-3))


# lessons: a label and a number of frames each; the number of the lesson is its session
streams = st.tuples(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), min_size=2, max_size=14),
    st.integers(0, 10**6),
    st.randoms(use_true_random=False),
)


def frames_of(strategy, lessons, seed):
    labels = np.repeat([label for label, _ in lessons], [count for _, count in lessons])
    sessions = np.repeat(np.arange(len(lessons)), [count for _, count in lessons])
    z = features(strategy, labels, sessions, seed)
    return z, torch.from_numpy(labels), torch.from_numpy(sessions)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(stream=streams)
def test_any_order_and_any_grouping_of_lessons_give_the_same_scores(stream):
    lessons, seed, random = stream
    whole, other = made(), made()
    z, y, sessions = frames_of(whole, lessons, seed)
    whole.learn_embedded(z, y, sessions)
    order = random.sample(range(len(lessons)), len(lessons))
    while order:
        size = random.randint(1, len(order))
        some = [k for k in range(len(z)) if int(sessions[k]) in order[:size]]
        rows = torch.tensor(random.sample(some, len(some)))
        other.learn_embedded(z[rows], y[rows], sessions[rows])
        order = order[size:]
    test = features(whole, list(range(6)), [0] * 6, seed + 1)
    assert off(by_label(other, test), by_label(whole, test)) < 1e-5
    assert torch.allclose(familiar(other, test), familiar(whole, test), atol=1e-5)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(first=streams, second=streams, shift=st.integers(0, 5))
def test_a_merge_equals_having_learned_both(first, second, shift):
    joint, ours, theirs = made(), made(), made()
    za, a, sa = frames_of(joint, first[0], first[1])
    zb, b, sb = frames_of(joint, second[0], second[1])
    ours.learn_embedded(za, a, sa)
    theirs.learn_embedded(zb, b + 100, sb)
    joint.learn_embedded(
        torch.cat([za, zb]), torch.cat([a, b + shift]), torch.cat([sa, sb + len(first[0])])
    )
    columns = ours.columns_of([label - 100 + shift for label in theirs.classes.tolist()])
    ours.head.merge(theirs.head, torch.tensor(columns))
    test = features(joint, list(range(6)), [0] * 6, 5)
    assert off(by_label(ours, test), by_label(joint, test)) < 1e-5
    assert torch.allclose(familiar(ours, test), familiar(joint, test), atol=1e-5)


def test_frames_of_a_class_in_one_batch_are_one_lesson_unless_sessions_tell_otherwise():
    images, labels = toy_batch([0, 0, 0, 0, 1, 1])
    one, two, split = made(), made(), made()
    one.learn(images, labels)
    two.learn(images, labels, torch.tensor([7, 7, 9, 9, 9, 9]))
    for rows in ([0, 1], [2, 3, 4, 5]):
        split.learn(images[rows], labels[rows])
    assert one.head.statistics.n.tolist() == [1, 1]
    assert two.head.statistics.n.tolist() == split.head.statistics.n.tolist() == [2, 1]
    assert off(split.scores(images), two.scores(images)) < 1e-5
    assert off(one.scores(images), two.scores(images)) > 1e-3


def test_a_lesson_counts_the_same_however_many_frames_it_has():
    """Ten times the same frames are still one lesson."""
    images, labels = toy_batch([0, 0, 1, 1, 2, 2])
    short, long = made(), made()
    short.learn(images, labels)
    long.learn(images.repeat(10, 1, 1, 1), labels.repeat(10))
    assert off(long.scores(images), short.scores(images)) < 1e-5


def test_a_forgotten_class_leaves_no_lesson_and_the_others_theirs():
    images, labels = toy_batch([0, 1, 2] * 4)
    strategy = made()
    strategy.learn(images, labels)
    strategy.learn(images[:6].flip(2), labels[:6])
    before = strategy.lessons.key.clone()
    strategy.forget(1)
    assert strategy.lessons.key[:2].equal(before[[0, 2]])
    assert not strategy.lessons.key[2:].any()
    assert not strategy.lessons.mean[2:].any()
    assert strategy.scores(images).isfinite().all()


def test_a_draft_learns_and_the_original_stays_as_it_was():
    images, labels = toy_batch([0, 1] * 4)
    strategy = made()
    strategy.learn(images, labels)
    before = copy.deepcopy(strategy.state_dict())
    scores = strategy.scores(images)
    draft = strategy.draft()
    draft.learn(images.flip(1), 1 - labels)
    after = strategy.state_dict()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())
    assert strategy.scores(images).equal(scores)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["objects", "imagenet"])
@pytest.mark.parametrize("size", [128, 160, 192, 224])
def test_the_shipped_references_are_those_of_the_generic_frames(size, weights, monkeypatch):
    strategy = create("prima", build("mobilenet_v1", weights, size=size))
    expected = strategy.embed(torch.from_numpy(generic_frames(size))[:48]).double()
    monkeypatch.setattr(strategy.representation, "features", None)  # no frame is computed
    strategy._set_reference()
    centre = strategy.head.sample.arrays["centre"]
    assert centre.dtype == torch.float32
    assert off(centre.double(), expected.mean(0)) <= 1e-5
    strategy.head.sample.set_reference(expected)
    spread = shipped_reference_of(strategy.backbone)[1]
    assert off(spread, strategy.head.sample.arrays["spread"]) <= 1e-4


def test_another_network_size_or_preprocessing_has_no_shipped_reference_of():
    own = build("mobilenet_v1", "imagenet", size=128)
    assert shipped_reference_of(MiddleBackbone(own)) is not None
    assert shipped_reference_of(own) is None  # not read at all places
    assert shipped_reference_of(MiddleBackbone(build("mobilenet_v1", "imagenet", size=96))) is None
    trained = copy.deepcopy(own)
    with torch.no_grad():
        next(trained.parameters())[0, 0, 0, 0] += 1e-6
    assert shipped_reference_of(MiddleBackbone(trained)) is None
    other = Backbone(own.body, replace(own.spec, mean=(0.4, 0.5, 0.5)))
    assert shipped_reference_of(MiddleBackbone(other)) is None


def test_the_centre_is_the_mean_of_the_generic_frames_and_set_by_the_first_lesson():
    strategy = made()
    assert not strategy.lessons.centre.any()
    images, labels = toy_batch([0, 1] * 2)
    strategy.learn(images, labels)
    expected = strategy.embed(torch.from_numpy(generic_frames(16))).mean(0)
    assert torch.allclose(strategy.lessons.centre, expected, atol=1e-6)
    assert generic_frames(16).shape == (48, 16, 16, 3)
    assert len({bytes(frame) for frame in generic_frames(16)}) == 48


def test_the_state_of_mobilenet_v1_stays_within_its_bound():
    strategy = create("prima", build("mobilenet_v1", "random"))
    before = {
        name
        for name in create("ncm", build("mobilenet_v1", "random")).state_dict()
        if name.startswith("backbone.")
    }
    labels = torch.arange(100)
    strategy.learn_embedded(torch.zeros(100, strategy.backbone.dim), labels)
    size = {name: t.numel() * t.element_size() for name, t in strategy.state_dict().items()}
    assert {name for name in size if name.startswith("backbone.")} == before
    beyond = sum(bytes_ for name, bytes_ in size.items() if name not in before)
    gram = 8 * (3 * 1024 * 1025 / 2 + 4 * 512 * 513 / 2)
    assert beyond == pytest.approx(gram + 100 * 5120 * (8 + 2 * 4 * 4), rel=1e-3)
    assert beyond < 64e6


def test_a_learner_with_it_saves_loads_and_tells_the_unknown(tmp_path):
    learner = Learner("prima", weights="random", size=32, width=0.25, device="cpu")
    images, labels = toy_batch([0, 1] * 8)
    images = images.repeat_interleave(2, 1).repeat_interleave(2, 2)
    for label, name in ((0, "one"), (1, "two")):
        learner.learn(images[labels == label].numpy(), name)
    learner.save(tmp_path / "toys.pv")
    loaded = Learner.load(tmp_path / "toys.pv", device="cpu")
    for mine, its, label in zip(
        learner.predict(images.numpy()),
        loaded.predict(images.numpy()),
        labels.tolist(),
        strict=True,
    ):
        assert mine == its
        assert mine.label == ("one", "two")[label]
        assert mine.familiarity is not None
    loaded.save(tmp_path / "again.pv")
    assert (tmp_path / "again.pv").read_bytes() == (tmp_path / "toys.pv").read_bytes()


@pytest.mark.slow
def test_a_file_has_five_bytes_per_number_of_the_gram_matrix_and_loses_nothing(tmp_path):
    """Saved and loaded after every lesson, it ends with the bits of one that never was."""
    kept = Learner("prima", weights="random", size=32, width=0.25, device="cpu", engine="torch")
    saved = kept.copy()
    shots = np.random.default_rng(0).integers(0, 256, (12, 5, 32, 32, 3)).astype(np.uint8)
    for k, clip in enumerate(shots):
        kept.learn(clip, f"object {k % 4}")
        saved.learn(clip, f"object {k % 4}")
        saved.save(tmp_path / "a.pv")
        saved = Learner.load(tmp_path / "a.pv", device="cpu", engine="torch")
    arrays, _ = saved.content()
    assert arrays["moments.gram"].dtype == np.uint8
    assert arrays["moments.gram"].shape == (
        len(kept.strategy.head.groups["moments"].arrays["gram"]),
        5,
    )
    test = shots[:, 0]
    for change in (lambda learner: None, lambda learner: learner.forget("object 1")):
        change(saved)
        change(kept)
        for name, array in state(kept).items():
            assert np.array_equal(state(saved)[name], array), name
        assert np.array_equal(saved.strategy.judge(test).scores, kept.strategy.judge(test).scores)


@pytest.mark.slow
def test_what_a_file_keeps_for_undo_is_a_few_rows_and_gives_the_scores_back(tmp_path):
    """All but G to the bit; G to the precision of float32, which no score shows."""
    learner = Learner("prima", weights="random", size=32, width=0.25, device="cpu", engine="torch")
    shots = np.random.default_rng(0).integers(0, 256, (12, 5, 32, 32, 3)).astype(np.uint8)
    test = shots[:, 0]

    def change(k):
        if k == 9:
            learner.forget("object 1")
        elif k == 10:
            learner.rename("object 2", "mug")
        else:
            learner.learn(shots[k], f"object {k % 4}")

    for k in range(12):
        change(k)
        learner.save(tmp_path / "a.pv")
        loaded = Learner.load(tmp_path / "a.pv", device="cpu", engine="torch")
        assert loaded.to_bytes() == (tmp_path / "a.pv").read_bytes()
        arrays, _ = loaded.content()
        stored = sum(array.nbytes for name, array in arrays.items() if name.startswith("undo/"))
        assert stored < arrays["moments.gram"].nbytes / 4
        before = learner.copy()
        before.undo()
        loaded.undo()
        assert loaded.labels == before.labels
        for name, array in state(before).items():
            found = state(loaded)[name]
            if name == "moments.gram":
                assert abs(found - array).max() <= 1e-7 * abs(array).max()
            elif not name.startswith("lessons."):  # these have no empty rows in files
                assert np.array_equal(found, array), name
        if before.labels:
            expected = before.strategy.judge(test).scores
            difference = abs(loaded.strategy.judge(test).scores - expected).max()
            assert difference <= 1e-6 * max(abs(expected).max(), 1e-3)


@pytest.mark.slow
def test_real_frames_with_the_settings_that_it_ships_with(shared: Path):
    """The CORe50 frames, sessions 3, 7 and 10 unseen, a lesson per session: at least 84 of 100."""
    parts: dict[str, tuple[list, list, list]] = {"train": ([], [], []), "test": ([], [], [])}
    with tarfile.open(shared / "data" / "core50_frames.tar") as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            if member.name.endswith(".jpg"):
                category, session, _ = member.name.split("/")
                part = parts["test" if int(session[1:]) in (3, 7, 10) else "train"]
                picture = Image.open(io.BytesIO(archive.extractfile(member).read()))
                for column, value in zip(
                    part, (centre_square(picture, 192), category, int(session[1:])), strict=True
                ):
                    column.append(value)
    classes = sorted(set(parts["train"][1]))
    strategy = create("prima", build("mobilenet_v1", "objects", size=192))
    images, names, sessions = parts["train"]
    labels = torch.tensor([classes.index(name) for name in names])
    strategy.learn(torch.from_numpy(np.stack(images)), labels, torch.tensor(sessions))
    images, names, _ = parts["test"]
    best = strategy.classes[strategy.scores(torch.from_numpy(np.stack(images))).argmax(1)]
    right = best == torch.tensor([classes.index(name) for name in names])
    assert float(right.double().mean()) >= 0.84


def test_a_lesson_that_arrives_frame_by_frame_is_one_lesson():
    whole = Learner("prima", weights="random", width=0.125, size=32, device="cpu", engine="torch")
    pieces = whole.copy()
    clip = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3)).astype(np.uint8)
    whole.learn(clip, "mug")
    lesson = pieces.open_lesson()
    for frame in clip:
        lesson.add(frame)
        lesson.prepare()
    pieces.learn(lesson, "mug")
    ours, theirs = pieces.strategy.head, whole.strategy.head
    assert ours.statistics.n.tolist() == theirs.statistics.n.tolist() == [1]
    assert np.allclose(ours.statistics.s, theirs.statistics.s, atol=1e-5)
    assert np.allclose(ours.sample.arrays["mean"], theirs.sample.arrays["mean"], atol=1e-5)


def test_an_untaught_copy_has_the_centre_and_nothing_else():
    learner = Learner("prima", weights="random", width=0.125, size=32, device="cpu")
    assert not learner.untaught().strategy.head.has_reference
    learner.learn(np.zeros((2, 32, 32, 3), np.uint8), "dark")
    fresh = learner.untaught().strategy
    ours, theirs = (head.sample.arrays for head in (fresh.head, learner.strategy.head))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ("centre", "spread"))
    assert not len(fresh.classes)
    assert not fresh.head.statistics.gram.any()
    ours["centre"][:] = 0
    assert learner.strategy.head.has_reference


def test_made_again_from_its_own_backbone_it_reads_every_place_once():
    learner = Learner("prima", weights="random", width=0.125, size=32, device="cpu")
    for _ in range(3):
        learner = learner.untaught()
    hooks = [len(module._forward_hooks) for module in learner.strategy.network.backbone.modules()]
    assert sum(hooks) == 4  # the blocks that are read
