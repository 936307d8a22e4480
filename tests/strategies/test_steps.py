"""`on_step` is told of every step of gradient descent, and changes nothing."""

from __future__ import annotations

import copy

import pytest
import torch

import primavista as pv
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import tiny_backbone, toy_batch
from primavista.strategies.creation import create
from primavista.strategies.naive import Naive
from primavista.streams.rendered.renderer import Scene

TRAINED = [name for name, info in STRATEGIES.items() if info.training_options]
SHORT = {
    "gdumb": {"epochs_1": 2},
    "cumulative": {"most": 4, "rise": 2, "fall": 2, "window": 2},
    "latent-replay-2020": {"new_patterns": 2},
    "rehearsal": {"new_patterns": 2},
}


def taught(name: str, hook=None):
    strategy = create(name, tiny_backbone(), minibatch=4, **SHORT.get(name, {}))
    strategy.on_step = hook
    reports = [strategy.learn(*toy_batch([k, k + 1] * 5, seed=k)) for k in range(2)]
    return strategy, reports


@pytest.mark.parametrize("name", TRAINED)
def test_every_step_is_told_and_nothing_changes(name):
    steps: list[pv.TrainingStep] = []
    told, reports = taught(name, steps.append)
    untold, _ = taught(name)
    for key, tensor in untold.state_dict().items():
        assert tensor.equal(told.state_dict()[key]), key
    if name == "dslda":  # its features are frozen: it takes no steps
        assert steps == []
        return
    assert all(step.lr > 0 and step.loss >= 0 for step in steps)
    for batch in {step.batch for step in steps}:
        own = [step for step in steps if step.batch == batch]
        starts = [k for k, step in enumerate(own) if step.step == 0]
        assert [step.step for step in own[starts[-1] :]] == list(range(len(own) - starts[-1]))
    if name == "cumulative":
        return  # its losses are of windows of steps
    losses = [report.losses for report in reports if report.losses][-1]  # FSA trains on batch 1
    last = steps[max(k for k, step in enumerate(steps) if step.step == 0) :]
    for epoch, loss in enumerate(losses):
        own = [step for step in last if step.epoch == epoch]
        mean = sum(step.loss * step.patterns for step in own) / sum(step.patterns for step in own)
        assert mean == pytest.approx(loss, rel=1e-5)


def test_a_loss_worked_by_hand():
    """A head of zeros gives every one of 4 outputs the same probability: the loss is log 4."""
    steps: list[pv.TrainingStep] = []
    strategy = Naive(tiny_backbone(), capacity=4, unseen="reset", epochs_1=1, lr_1=0.5)
    strategy.on_step = steps.append
    strategy.learn(*toy_batch([0, 1, 2]))
    assert [(step.batch, step.epoch, step.step, step.patterns) for step in steps] == [(1, 0, 0, 3)]
    assert steps[0].loss == pytest.approx(torch.tensor(4.0).log().item(), rel=1e-6)
    assert steps[0].lr == 0.5


def test_rates_that_fall_within_a_batch_are_told():
    steps: list[pv.TrainingStep] = []
    strategy = create("icarl", tiny_backbone(), minibatch=2, epochs_1=5, lr_1=0.5)
    strategy.on_step = steps.append
    strategy.learn(*toy_batch([0, 1]))
    # one step per epoch; a fifth after 7/10 of the steps, and a fifth of that after 9/10
    assert [round(step.lr, 6) for step in steps] == [0.5, 0.5, 0.5, 0.5, 0.1]


def test_copies_tell_nobody_and_a_learner_goes_on_telling():
    steps: list[pv.TrainingStep] = []
    strategy, _ = taught("naive", steps.append)
    steps.clear()
    copy.deepcopy(strategy).learn(*toy_batch([0, 1]))
    assert steps == []
    strategy.draft().learn(*toy_batch([0, 1]))
    assert steps
    learner = pv.Learner("naive", backbone=tiny_backbone())
    learner.strategy.on_step = steps.append
    for k, name in enumerate(("cup", "mug")):
        steps.clear()
        learner.learn(toy_batch([k] * 4)[0], name)
        assert steps


def test_a_hook_that_fails_stops_the_lesson_and_changes_nothing():
    learner = pv.Learner("naive", backbone=tiny_backbone())
    learner.learn(toy_batch([0] * 4)[0], "cup")
    before = {
        name: tensor.clone() for name, tensor in learner.strategy.strategy.state_dict().items()
    }

    def fail(step: pv.TrainingStep) -> None:
        raise OSError("the disk is full")

    learner.strategy.on_step = fail
    with pytest.raises(OSError, match="the disk is full"):
        learner.learn(toy_batch([1] * 4)[0], "mug")
    assert learner.labels == ["cup"]
    after = learner.strategy.strategy.state_dict()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())


def test_evaluate_takes_a_hook():
    scene = Scene(categories=2, objects=1, frames=2, size=32)
    stream = pv.nicv2(pv.rendered(scene), run=0)[:2]
    steps: list[pv.TrainingStep] = []
    backbone = pv.build_backbone("mobilenet_v1", "random", width=0.0625, size=32)
    for _ in pv.evaluate("naive", stream, backbone=backbone, on_step=steps.append):
        pass
    assert {step.batch for step in steps} == {1, 2}
