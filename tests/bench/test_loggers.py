from __future__ import annotations

import json
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from primavista.bench.folder import METRICS, read_lines
from primavista.bench.local import Inline
from primavista.bench.trackers import make_tracker
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

    suite("dslda", limit=3).run(Inline(), trackers=[Ear()])
    assert heard == [
        ("start", "dslda"),
        ("log", 1),
        ("log", 2),
        ("log", 3),
        ("finish", 3),
        ("close", None),
    ]


def test_weights_and_biases_gets_a_run_a_cell(suite, monkeypatch, tmp_path):
    calls = []

    class Run:
        summary: dict[str, float] = {}  # noqa: RUF012

        def log(self, values, step):
            calls.append((step, values["accuracy"]))

        def finish(self, exit_code):
            calls.append(("finish", exit_code))

    fake = types.ModuleType("wandb")
    fake.init = lambda **settings: (
        calls.append((settings["project"], settings["config"]["strategy"])) or Run()
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    one = suite("dslda", limit=2)
    one.run(Inline(), trackers=[make_tracker("wandb", tmp_path, "mine")])
    assert calls[0] == ("mine", "dslda")
    assert [call[0] for call in calls[1:]] == [1, 2, "finish"]
    assert calls[-1] == ("finish", 0)
    assert Run.summary["accuracy"] == one.states[0].accuracy


def records(path: Path) -> Iterator[Any]:
    """What an offline run of W&B holds.

    Its header, then LevelDB's log format, blocks of 32 KiB with pieces of records.
    """
    from wandb.proto import wandb_internal_pb2

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack(
            "<IHB", data[place : place + 7]
        )  # checksum, bytes, 1 whole 2 first 3 middle 4 last
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_real_weights_and_biases_offline(suite, monkeypatch, tmp_path):
    wandb = pytest.importorskip("wandb")
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "WANDB_SILENT": "true",
    }.items():
        monkeypatch.setenv(name, value)
    one = suite("dslda", "cwr*", limit=3)
    one.run(Inline(), trackers=[make_tracker("wandb", tmp_path, "mine")])
    wandb.teardown()  # its process writes behind our back until it ends
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    for path, state in zip(files, one.states, strict=True):
        found: dict[str, list[Any]] = {}
        for record in records(path):
            found.setdefault(record.WhichOneof("record_type"), []).append(record)
        (run,) = {(r.run.project, r.run.display_name) for r in found["run"]}
        assert run == ("mine", state.planned.folder)
        config = {
            item.key: json.loads(item.value_json) for item in found["run"][0].run.config.update
        }
        assert (config["strategy"], config["protocol"]) == (state.planned.cell.strategy, "nicv2")
        rows = [
            {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            }
            for record in found["history"]
        ]
        lines = read_lines(state.path / METRICS)
        assert [(row["_step"], row["accuracy"]) for row in rows] == [
            (line["batch"], line["measures"]["accuracy"]) for line in lines
        ]
        assert found["exit"][0].exit.exit_code == 0
        summary = {
            i.key or i.nested_key[0]: json.loads(i.value_json)
            for r in found["summary"]
            for i in r.summary.update
        }
        assert summary["accuracy"] == state.accuracy


def test_tensorboard_writes_a_file_a_cell(suite, tmp_path):
    pytest.importorskip("tensorboard")
    suite("dslda", limit=2).run(Inline(), trackers=[make_tracker("tensorboard", tmp_path, "mine")])
    assert len(list((tmp_path / "tensorboard").rglob("events*"))) == 1


def test_trackers_that_are_not_there(monkeypatch, tmp_path):
    with pytest.raises(InputError, match="there is no tracker"):
        make_tracker("mlflow", tmp_path, "mine")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"primavista\[trackers\]"):
        make_tracker("wandb", tmp_path, "mine")
