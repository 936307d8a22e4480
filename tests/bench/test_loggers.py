from __future__ import annotations

import sys
import types

import pytest

from primavista.bench.executors import Inline
from primavista.bench.loggers import make_logger
from primavista.errors import InputError, MissingExtraError


def test_loggers_hear_of_every_batch(suite):
    heard = []

    class Ear:
        def start(self, name, run):
            heard.append(("start", run["strategy"]))

        def log(self, name, line):
            heard.append(("log", line["batch"]))

        def finish(self, name, result):
            heard.append(("finish", result["batches"]))

        def close(self):
            heard.append(("close", None))

    suite("dslda", limit=3).run(Inline(), loggers=[Ear()])
    assert heard == [("start", "dslda"), ("log", 1), ("log", 2), ("log", 3), ("finish", 3), ("close", None)]


def test_weights_and_biases_gets_a_run_a_cell(suite, monkeypatch, tmp_path):
    calls = []

    class Run:
        summary: dict[str, float] = {}  # noqa: RUF012

        def log(self, values, step):
            calls.append((step, values["accuracy"]))

        def finish(self, exit_code):
            calls.append(("finish", exit_code))

    fake = types.ModuleType("wandb")
    fake.init = lambda **settings: calls.append((settings["project"], settings["config"]["strategy"])) or Run()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    one = suite("dslda", limit=2)
    one.run(Inline(), loggers=[make_logger("wandb", tmp_path, "mine")])
    assert calls[0] == ("mine", "dslda")
    assert [call[0] for call in calls[1:]] == [1, 2, "finish"]
    assert calls[-1] == ("finish", 0)
    assert Run.summary["accuracy"] == one.states[0].accuracy


def test_tensorboard_writes_a_file_a_cell(suite, tmp_path):
    pytest.importorskip("tensorboard")
    suite("dslda", limit=2).run(Inline(), loggers=[make_logger("tensorboard", tmp_path, "mine")])
    assert len(list((tmp_path / "tensorboard").rglob("events*"))) == 1


def test_trackers_that_are_not_there(monkeypatch, tmp_path):
    with pytest.raises(InputError, match="no tracker 'mlflow': there are tensorboard and wandb"):
        make_logger("mlflow", tmp_path, "mine")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"primavista\[trackers\]"):
        make_logger("wandb", tmp_path, "mine")
