from __future__ import annotations

import pytest
import torch

import primavista.bench.evaluate as module
from primavista.bench import metrics
from primavista.bench.evaluate import Clock, TestSet, evaluate, spaced
from primavista.bench.features import FeatureCache
from primavista.bench.metrics import MEASURES, Measures
from primavista.engine.representation import Representation
from primavista.errors import InputError
from primavista.strategies.creation import create
from primavista.strategies.registry import strategy_class
from primavista.streams.open import stream as open_stream


def all_steps(strategy, stream, **settings):
    return list(evaluate(strategy, stream, **settings))


def test_one_step_a_batch_with_every_measure(tiny_data, tiny_backbone):
    stream = open_stream(tiny_data, "nicv2")[:5]
    steps = all_steps("cwr*", stream, backbone=tiny_backbone)
    assert [step.batch for step in steps] == [1, 2, 3, 4, 5]
    last = steps[-1]
    test = stream.test()
    assert last.confusion.sum() == len(test.labels)
    assert last.accuracy == pytest.approx(100 * last.confusion.trace().item() / len(test.labels))
    assert last.measures.average == pytest.approx(sum(step.accuracy for step in steps) / 5)
    assert set(last.class_accuracy) == set(test.labels.tolist())
    assert steps[0].measures.forgetting is None
    assert last.measures.forgetting is not None
    assert all(step.learn_seconds > 0 and step.test_seconds > 0 for step in steps)


def test_answers_beyond_the_classes_of_the_data_are_wrong(tiny_data, tiny_backbone):
    """With compat="caffe" all 50 outputs answer from the start; the data has 6 classes."""
    stream = open_stream(tiny_data, "nicv2")[:2]
    for step in evaluate("naive", stream, backbone=tiny_backbone, compat="caffe"):
        assert step.confusion.shape == (6, 6)
        assert step.confusion.sum() == len(stream.test().labels)


def test_a_step_says_what_an_independent_loop_finds(tiny_data, tiny_backbone):
    """The same by the contract alone: learn, scores."""
    stream = open_stream(tiny_data, "nicv2")[:4]
    strategy = create("naive", tiny_backbone)
    test = stream.test()
    for step in evaluate("naive", stream, backbone=tiny_backbone):
        batch = stream[step.batch - 1]
        strategy.learn(batch.images, batch.labels, batch.sessions)
        best = strategy.classes[strategy.scores(test.images).argmax(1)]
        assert step.accuracy == pytest.approx(
            100 * (best == test.labels).float().mean().item(), abs=1e-4
        )


def test_forward_transfer_is_measured_before_the_batch_is_learned(tiny_data, tiny_backbone):
    stream = open_stream(tiny_data, "nicv2")[:6]
    strategy = create("dslda", tiny_backbone)
    shares, known = [], set()
    for i in range(6):
        batch = stream[i]
        old = torch.tensor([label in known for label in batch.labels.tolist()])
        if old.any():
            best = strategy.classes[strategy.scores(batch.images).argmax(1)]
            shares.append(
                100 * (best == batch.labels)[old].double().mean().item() - 100 / len(known)
            )
        strategy.learn(batch.images, batch.labels)
        known |= set(batch.labels.tolist())
    last = all_steps("dslda", stream, backbone=tiny_backbone)[-1]
    assert last.measures.forward_transfer == pytest.approx(sum(shares) / len(shares))


def test_a_single_frame_can_be_selected(tiny_data):
    """An array takes a tensor of one element for a number."""
    batch = open_stream(tiny_data, "nicv2")[0]
    (place,) = one = torch.tensor([3])
    selected = module.select_patterns(batch, one)
    assert len(selected.images) == len(selected.labels) == 1
    assert torch.equal(selected.images[torch.tensor([0])][0], batch.images[one][0])
    assert selected.labels[0] == batch.labels[place]


def test_tests_come_after_the_first_each_nth_and_the_last_batch(tiny_data, tiny_backbone):
    stream = open_stream(tiny_data, "nicv2")[:8]
    steps = all_steps("dslda", stream, backbone=tiny_backbone, test_every=3)
    assert [step.batch for step in steps if step.accuracy is not None] == [1, 3, 6, 8]
    untested = steps[1]
    assert (untested.confusion, untested.class_accuracy) == (None, {})
    assert untested.measures == Measures()
    assert all(getattr(untested.measures, name) is None for name in MEASURES)


def test_features_of_a_frozen_representation_are_computed_once(
    tiny_data, tiny_backbone, monkeypatch
):
    counts = {"lda": 0, "cwr*": 0, "naive": 0}
    test = open_stream(tiny_data, "nicv2")[:5].test()
    for name in counts:
        strategy = create(name, tiny_backbone)
        forward = strategy.representation.some_features

        def counted(frames, indices, name=name, forward=forward, **how):
            counts[name] += int(
                getattr(frames, "indices", None) is not None and len(frames) == len(test.labels)
            )
            return forward(frames, indices, **how)

        monkeypatch.setattr(strategy.representation, "some_features", counted)
        all_steps(strategy, open_stream(tiny_data, "nicv2")[:5])
    assert counts == {"lda": 1, "cwr*": 5, "naive": 5}


def test_a_test_set_notices_a_new_representation(tiny_data, tiny_backbone):
    stream = open_stream(tiny_data, "nicv2")
    strategy = create("cwr*", tiny_backbone, features="fixed")
    test_set, clock = TestSet(stream, 1, FeatureCache()), Clock(strategy)
    strategy.learn(stream[0].images, stream[0].labels)
    before = test_set.confusion(strategy, clock)
    with torch.no_grad():
        for parameter in strategy.backbone.parameters():
            parameter.neg_()
    assert torch.equal(test_set.confusion(strategy, clock), before)
    strategy.embedding_version += 1
    images, labels = stream.test().images, stream.test().labels
    best = strategy.classes[strategy.score_features(strategy.embed(images)).argmax(1)]
    turned = test_set.confusion(strategy, clock)
    assert torch.equal(turned, metrics.confusion(labels, best, len(turned)))
    assert not torch.equal(turned, before)


def test_cumulative_is_retrained_and_tested_at_evenly_spaced_batches(tiny_data, tiny_backbone):
    stream = open_stream(tiny_data, "nicv2")[:7]
    steps = all_steps("cumulative", stream, backbone=tiny_backbone, every=None, retrain=3)
    assert spaced(3, 7) == {2, 5, 7}
    assert [step.batch for step in steps if step.accuracy is not None] == [2, 5, 7]
    assert [bool(step.report.losses) for step in steps] == [
        False,
        True,
        False,
        False,
        True,
        False,
        True,
    ]


def test_a_name_gets_the_default_backbone_at_the_size_of_the_frames(
    tiny_data, tiny_backbone, monkeypatch
):
    asked = []
    monkeypatch.setattr(module, "build", lambda size: asked.append(size) or tiny_backbone)
    next(evaluate("dslda", open_stream(tiny_data, "nicv2")[:2]))
    assert asked == [32]


def test_wrong_calls_are_said_before_anything_is_learned(tiny_data, tiny_backbone):
    stream = open_stream(tiny_data, "nicv2")
    with pytest.raises(InputError, match="no strategy 'ar2'"):
        evaluate("ar2", stream, backbone=tiny_backbone)
    with pytest.raises(InputError, match="test_every must be 1 or more"):
        evaluate("cwr*", stream, backbone=tiny_backbone, test_every=0)
    with pytest.raises(InputError, match="for Cumulative"):
        evaluate("cwr*", stream, backbone=tiny_backbone, retrain=3)
    with pytest.raises(InputError, match="for a strategy by name"):
        evaluate(create("cwr*", tiny_backbone), stream, backbone=tiny_backbone)


def test_runs_that_share_features_compute_them_once_and_get_the_same_numbers(
    tiny_data, tiny_backbone, monkeypatch
):
    alone = [
        all_steps("dslda", open_stream(tiny_data, "nicv2", run=run), backbone=tiny_backbone)
        for run in range(3)
    ]
    frames = []
    forward = Representation.some_features
    monkeypatch.setattr(
        Representation,
        "some_features",
        lambda self, *a, **how: frames.append(len(a[1])) or forward(self, *a, **how),
    )
    shared = FeatureCache()
    together = [
        all_steps(
            "dslda",
            open_stream(tiny_data, "nicv2", run=run),
            backbone=tiny_backbone,
            features=shared,
        )
        for run in range(3)
    ]
    assert sum(frames) == len(tiny_data.frames)  # each frame once, not once a run
    for ours, theirs in zip(together, alone, strict=True):
        assert [step.accuracy for step in ours] == [step.accuracy for step in theirs]
        assert all(step.learn_seconds > 0 for step in ours)


def test_a_trained_representation_is_never_shared(tiny_data, tiny_backbone):
    stream = open_stream(tiny_data, "nicv2")
    shared = FeatureCache()
    for seed in range(2):
        strategy = create("cwr*", tiny_backbone, seed=seed)
        strategy.learn(stream[0].images, stream[0].labels)
        assert torch.equal(
            shared.of(strategy, stream[1].images)[0], strategy.embed(stream[1].images)
        )


def test_any_module_can_be_the_network(tiny_data):
    """A module without the contract of a backbone is wrapped at the size of the frames."""

    class Pixels(torch.nn.Module):
        def forward(self, x):
            return x.mean((2, 3))

    (first, *_) = all_steps("ncm", open_stream(tiny_data, "nicv2")[:2], backbone=Pixels())
    assert first.accuracy is not None


def test_learning_solving_and_testing_are_timed_apart(tiny_data, tiny_backbone, monkeypatch):
    """On a clock that moves only where something is slow: 100 s per solve, 10 s per lesson."""
    clock = [0.0]
    for place in ("cost", "features"):
        monkeypatch.setattr(f"primavista.bench.{place}.now", lambda strategy: clock[0])
    strategy = create("dslda", tiny_backbone)
    solve, learn = strategy.head.solve, strategy.head.learn

    def slow_solve(classes):
        clock[0] += 100
        return solve(classes)

    def slow_learn(*given):
        clock[0] += 10
        return learn(*given)

    monkeypatch.setattr(strategy.head, "solve", slow_solve)
    monkeypatch.setattr(strategy.head, "learn", slow_learn)
    (step,) = all_steps(strategy, open_stream(tiny_data, "nicv2")[:1])
    assert (step.learn_seconds, step.solve_seconds, step.test_seconds) == (10.0, 100.0, 0.0)


def test_forward_transfer_says_how_many_frames_it_rests_on(tiny_data, tiny_backbone):
    """It is asked before tested batches alone: a question may cost a solve."""
    stream = open_stream(tiny_data, "nicv2")[:6]
    last = all_steps("dslda", stream, backbone=tiny_backbone, test_every=6)[-1]
    met = {label for i in range(5) for label in stream[i].labels.tolist()}
    asked = sum(label in met for label in stream[5].labels.tolist())
    assert last.measures.transfer_frames == asked
    assert last.measures.transfer_batches == (1 if asked else 0)


def test_scores_that_are_not_finite_are_refused(tiny_data, tiny_backbone):
    """They were counted: the largest of NaN is the first class."""

    class Broken(strategy_class("ncm")):
        def score_features(self, z):
            return super().score_features(z) + (torch.nan if len(self.classes) > 3 else 0)

    steps = evaluate(Broken(tiny_backbone), open_stream(tiny_data, "class-incremental"))
    next(steps)
    with pytest.raises(InputError, match="Broken gives scores that are NaN or infinite"):
        list(steps)
