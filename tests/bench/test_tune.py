"""Hyperparameters from a grid, chosen on run 0; and presets that belong to a protocol."""

from __future__ import annotations

import tomllib

import pytest
import torch
from typer.testing import CliRunner

from primavista.bench.local import Inline
from primavista.bench.plan import load_plan, make_plan
from primavista.bench.run import Suite
from primavista.bench.tune import choices, grid_plan, plan_text, points, tuned_plan
from primavista.cli.app import app
from primavista.errors import InputError
from primavista.nn.class_rows import Rows
from primavista.strategies import registry
from primavista.strategies.base import EmbeddingStrategy, LearnReport
from primavista.strategies.creation import all_options
from primavista.strategies.info import StrategyInfo

PLAN = """
name = "mine"
runs = 2
device = "cpu"
limit = 4

[data]
kind = "rendered"
categories = 3
objects = 2
frames = 2
size = 48

[backbone]
weights = "imagenet"

[[groups]]
name = "main"
strategies = ["of-the-tests", "ncm"]
protocols = ["class-incremental:classes_per_batch=2", "domain-incremental"]
"""


class NearOrFar(EmbeddingStrategy):
    """The nearest class mean if `sign` is 1, and the farthest one if it is -1."""

    info = StrategyInfo("of-the-tests", "near or far", grid={"sign": (-1, 0, 1)})

    def __init__(self, backbone, *, seed=0, sign: int = -1):
        super().__init__(backbone, seed=seed)
        self.sign = sign
        self.means = Rows()
        self.means.add_rows("total", torch.zeros(0, backbone.dim))
        self.means.add_rows("count", torch.zeros(0, 1))

    def learn_batch(self, B):
        if self.sign == 0:
            raise InputError("this point of the grid fails")
        self.means.total.index_add_(0, B.columns, self.features(B))
        self.means.count.index_add_(0, B.columns, torch.ones(B.count, 1))
        return LearnReport(B.i, B.count, B.new)

    def score_features(self, z):
        return -self.sign * torch.cdist(z, self.means.total / self.means.count.clamp(min=1))


@pytest.fixture(autouse=True)
def near_or_far(monkeypatch):
    monkeypatch.setattr(registry, "_OWN", {})
    registry.register(NearOrFar)


def test_the_best_point_that_did_not_fail_is_chosen_and_the_plan_is_run_with_it(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(PLAN)
    ran = CliRunner().invoke(app, ["bench", "tune", "mine.toml", "--on", "inline", "--out", "grid"])
    assert ran.exit_code == 0, ran.output
    # one of each protocol; the preset, -1, is a point of the grid and counts once
    assert "2 points of the grid failed" in ran.output
    assert "sign=1" in ran.output
    assert "learned little" not in ran.output  # of the points of a grid, most do
    tuned = load_plan("mine-tuned.toml")
    assert (tuned.name, tuned.runs, tuned.hyperparameters_chosen_on_run) == ("mine-tuned", 2, 0)
    cells = [planned.cell for planned in tuned.planned()]
    assert len(cells) == 8
    signs = {cell.options["sign"] for cell in cells if cell.strategy == "of-the-tests"}
    assert signs == {1}
    assert all(cell.hyperparameters_chosen_on_run == 0 for cell in cells)


def test_the_accuracy_of_a_choice_is_the_highest_of_run_0(tmp_path):
    plan = make_plan(tomllib.loads(PLAN))
    suite = Suite(grid_plan(plan), tmp_path / "grid")
    assert {state.planned.cell.run for state in suite.states} == {0}
    assert {state.planned.cell.strategy for state in suite.states} == {"of-the-tests"}
    suite.run(Inline())
    for choice in choices(plan, suite.states):
        own = [s for s in suite.states if s.planned.cell.protocol == choice.protocol]
        by_sign = {s.planned.cell.options["sign"]: s.accuracy for s in own if s.status == "done"}
        assert by_sign.keys() == {-1, 1}
        assert choice.accuracy == by_sign[1] > by_sign[-1]
        assert choice.options == {"sign": 1}


def test_a_plan_survives_its_toml():
    table = tomllib.loads(PLAN) | {"title": 'Größe "x" \\ y', "seed": 3}
    table["groups"] += [{**table["groups"][0], "name": "two", "variants": [{"sign": 1}]}]
    plan = make_plan(table)
    found = make_plan(tomllib.loads(plan_text(plan)))
    assert found == plan
    assert tuned_plan(plan, []).groups == plan.groups


def test_without_a_grid_there_is_nothing_to_tune():
    table = tomllib.loads(PLAN)
    table["groups"][0]["strategies"] = ["ncm", "prima"]
    with pytest.raises(InputError, match="no strategy of the plan 'mine' has hyperparameters"):
        grid_plan(make_plan(table))
    assert points("of-the-tests") == [{}, {"sign": -1}, {"sign": 0}, {"sign": 1}]


def test_a_strategy_that_learns_little_is_told_in_the_terminal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = PLAN.replace("runs = 2", "runs = 1").replace(', "domain-incremental"', "")
    (tmp_path / "mine.toml").write_text(table)
    ran = CliRunner().invoke(app, ["bench", "run", "mine.toml", "--on", "inline", "--out", "out"])
    assert ran.exit_code == 0, ran.output
    assert "warning: of-the-tests on class-incremental:classes_per_batch=2 learned" in ran.output
    assert "where ncm on class-incremental:classes_per_batch=2 has" in ran.output
    assert "ncm on class-incremental:classes_per_batch=2 learned" not in ran.output


def test_options_belong_to_a_protocol_and_the_users_come_last(monkeypatch):
    preset = {"class-incremental": {"sign": 1}}
    info = StrategyInfo("of-the-tests", "near or far", presets=preset)
    monkeypatch.setattr(NearOrFar, "info", info)
    for protocol, given, sign in (
        ("class-incremental:first=2", {}, 1),
        ("nicv2-391", {}, -1),
        ("class-incremental", {"sign": -1}, -1),
    ):
        assert all_options("of-the-tests", protocol, given) == {"sign": sign}


def test_large_batches_have_the_learning_rate_of_batch_1_and_more_epochs():
    for name in ("naive", "lwf", "ewc", "ar1", "ar1*"):
        usual = all_options(name, "nicv2-391", {})
        for protocol in ("class-incremental:classes_per_batch=2", "domain-incremental"):
            own = all_options(name, protocol, {})
            assert own["lr"] == own["lr_1"] == 1e-3 > usual["lr"]
            assert own["epochs"] == 8 > usual["epochs"]
