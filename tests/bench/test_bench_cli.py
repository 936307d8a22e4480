"""The commands as people call them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from primavista.cli.bench import app
from primavista.cli.suite import format_seconds, print_failures
from primavista.errors import InputError

PLAN = """
name = "mine"
device = "cpu"
test_thin = 1
limit = 4
data = { kind = "rendered", categories = 3, objects = 2, frames = 2, size = 32 }
backbone = { weights = "random", options = { width = 0.0625 } }
[[groups]]
name = "good"
strategies = ["dslda", "cwr*"]
protocols = ["nicv2"]
"""
BAD = """
[[groups]]
name = "bad"
strategies = ["cwr*"]
protocols = ["nicv2"]
options = { compat = "all_outputs", capacity = 4 }
"""
SMALL = ["--objects", "2", "--frames", "2", "--size", "32", "--weights", "random", "--threads", "1"]


@pytest.fixture
def here(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two plans; their frames are drawn already."""
    monkeypatch.chdir(tmp_path)
    for out in ("primavista-runs/mine", "out"):
        (tmp_path / out).mkdir(parents=True)
        (tmp_path / out / "data").symlink_to(cache)
    (tmp_path / "mine.toml").write_text(PLAN)
    (tmp_path / "bad.toml").write_text(PLAN + BAD)
    return tmp_path


def test_a_reason_with_lines_is_printed_on_one(capsys):
    planned = SimpleNamespace(title="mine on nicv2, run 0")
    failed = SimpleNamespace(planned=planned, reason="name it yourself:\n  in Python: register()")
    print_failures(Console(), [failed])
    told = "failed: mine on nicv2, run 0: name it yourself: in Python: register()\n"
    assert capsys.readouterr().out == told


def call(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.slow
def test_run_status_and_the_same_command_again(here):
    before = call("status", "mine.toml")
    assert "0 of 2 cells done" in before.stdout, before
    done = call("run", "mine.toml", "--on", "inline")
    assert done.exit_code == 0, done
    assert "dslda on nicv2, run 0:" in done.stdout
    assert "results in primavista-runs/mine" in done.stdout
    assert "2 of 2 cells done, 0 running, 0 failed" in call("status", "mine.toml").stdout
    again = call("run", "mine.toml", "--on", "inline")
    assert again.exit_code == 0
    assert "dslda on nicv2, run 0:" not in again.stdout


@pytest.mark.slow
def test_the_report_is_found_by_the_name_of_the_plan_not_of_its_file(here):
    (here / "another.toml").write_text(PLAN)
    assert call("run", "another.toml", "--on", "inline").exit_code == 0
    done = call("report", "another.toml")
    assert "wrote primavista-runs/mine/report.html" in done.stdout, done


@pytest.mark.slow
def test_a_deterministic_plan_says_so_in_its_cells(here):
    assert call("run", "mine.toml", "--on", "inline", "--deterministic").exit_code == 0
    runs = [json.loads(path.read_text()) for path in here.rglob("run.json")]
    assert [run["deterministic"] for run in runs] == [True, True]
    again = call("run", "mine.toml", "--on", "inline")
    assert "holds results with another deterministic" in str(again.exception)


@pytest.mark.slow
def test_a_failed_cell_makes_the_command_fail_and_is_listed(here):
    done = call("run", "bad.toml", "--on", "inline", "--out", "out")
    assert done.exit_code == 1
    assert (
        "failed: cwr*, capacity=4, compat=all_outputs on nicv2, run 0: "
        "compat='caffe' has all outputs" in done.stdout
    )
    status = call("status", "bad.toml", "--out", "out")
    assert "2 of 3 cells done, 0 running, 1 failed" in status.stdout
    assert "all outputs from the start" in " ".join(status.stdout.split())


@pytest.mark.slow
def test_status_knows_what_was_set_when_the_plan_was_run(here):
    assert (
        call("run", "mine.toml", "--on", "inline", "--set", "runs=2", "--set", "limit=2").exit_code
        == 0
    )
    shown = call("status", "mine.toml").stdout
    assert "4 of 4 cells done" in shown
    assert "this is the plan as it was last run; mine.toml differs from it now" in shown
    assert "as it was last run" not in call("status", "mine.toml", "--set", "runs=2").stdout


@pytest.mark.slow
def test_status_counts_the_results_that_are_not_those_of_the_plan(here):
    """After a change of code or options the results were gone without a word."""
    assert call("run", "mine.toml", "--on", "inline", "--set", "limit=2").exit_code == 0
    assert "other results" not in call("status", "mine.toml").stdout
    shown = call("status", "mine.toml", "--set", "limit=2", "--set", "test_every=2").stdout
    assert "0 of 2 cells done" in shown
    assert "note: 2 other results are in the folder" in shown


@pytest.mark.slow
def test_one_group_alone(here):
    assert call("run", "bad.toml", "--on", "inline", "--group", "good").exit_code == 0
    wrong = call("run", "bad.toml", "--group", "god")
    assert isinstance(wrong.exception, InputError)
    assert "the plan 'mine' has no group god: it has good, bad" in str(wrong.exception)


def test_wrong_places_to_run_are_said(here):
    wrong = call("run", "mine.toml", "--on", "mars")
    assert "choose local, inline, ray, or ray://HOST:PORT" in str(wrong.exception)


@pytest.mark.slow
def test_off_a_terminal_a_line_tells_now_and_then_how_far_it_is(here, monkeypatch):
    command = ("run", "mine.toml", "--out", "new", "--on", "inline", "--group", "good")
    assert ": batch " not in call(*command).stdout  # it takes less than 30 seconds
    monkeypatch.setattr("primavista.cli.suite.QUIET_SECONDS", 0.0)
    text = call(*command[:3], "newer", *command[4:]).stdout
    assert "drawing frames: " in text
    assert re.search(r"nicv2.*: batch 2 of 4; 0 of 2 cells done, 1 running, .* left", text), text


def test_times_for_people():
    assert format_seconds(61) == "0:01:01"


def primavista(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "primavista", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_the_main_job_is_stopped_by_ctrl_c_and_the_same_command_goes_on(tmp_path):
    data = "rendered:categories=3,objects=2,frames=2,size=32"
    command = ["run", "cwr*", "dslda", "--data", data, *SMALL]
    process = primavista(*command, cwd=tmp_path)
    until = time.monotonic() + 90
    while time.monotonic() < until and not any(
        path.stat().st_size for path in tmp_path.rglob("metrics.jsonl")
    ):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    text, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "stopped. What is done is kept: the same command resumes from there." in error
    first = next(tmp_path.rglob("metrics.jsonl")).read_bytes()
    assert first
    process = primavista(*command, cwd=tmp_path)
    text, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert "6 objects in 46 batches" in text
    for name in ("cwr*", "dslda"):
        assert f"{name} on nicv2, run 0:" in text
    assert len(list(tmp_path.rglob("result.json"))) == 2


@pytest.mark.slow
def test_the_main_job_takes_protocol_data_backbone_and_options(tmp_path):
    command = [
        "run",
        "naive",
        "--protocol",
        "ni",
        "--data",
        "rendered:categories=2,objects=2,frames=2,size=32",
        "--option",
        "norm=bn",
    ]
    process = primavista(*command, *SMALL, "--out", "results", cwd=tmp_path)
    text, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert "4 objects in 8 batches, ni" in text
    assert "naive, norm=bn" in text
    assert (tmp_path / "results" / "plan.json").exists()


@pytest.mark.slow
def test_a_damaged_file_fails_one_cell_and_not_the_plan(here):
    """M11: what a power cut leaves of a log or a result, and what somebody wrote into it."""
    assert call("run", "mine.toml", "--on", "inline").exit_code == 0
    out = here / "primavista-runs" / "mine"
    first, second = sorted(path.parent for path in out.rglob("result.json"))
    lines = (first / "timings.jsonl").read_bytes()
    for tail in (b"\0" * 60 + b"\n", b'{"learn_seconds": "x"}\n', b"[]\n", b"nonsense\n"):
        (first / "timings.jsonl").write_bytes(lines + tail)
        assert "2 of 2 cells done" in call("status", "mine.toml").stdout
        assert call("run", "mine.toml", "--on", "inline").exit_code == 0
    good = (first / "result.json").read_bytes()
    for bad in (b"{}", b"[]", b"", b"\0" * 100, good[: len(good) // 2]):
        (first / "result.json").write_bytes(bad)
        status = call("status", "mine.toml")
        assert status.exit_code == 0, status
        assert "1 of 2 cells done, 0 running, 1 failed" in status.stdout
        run = call("run", "mine.toml", "--on", "inline")
        assert run.exit_code == 1
        assert f"delete {first}" in " ".join(run.stdout.split()).replace("\n", "")
        assert (first / "result.json").read_bytes() == bad
    (first / "result.json").write_bytes(good)
    assert "2 of 2 cells done" in call("status", "mine.toml").stdout
    assert second.exists()


@pytest.mark.slow
def test_what_others_wrote_cannot_command_the_terminal(here):
    """L3: titles, names of groups and reasons of failures come from files."""
    escape = "\\u001b]0;PWN\\u001b[2J[bold red]x"
    text = PLAN.replace('name = "mine"', f'name = "mine"\ntitle = "t{escape}"')
    (here / "mine.toml").write_text(text.replace('name = "good"', f'name = "g{escape}"'))
    assert call("run", "mine.toml", "--on", "inline").exit_code == 0
    cell = next((here / "primavista-runs" / "mine").rglob("result.json")).parent
    (cell / "result.json").unlink()
    (cell / "failed.json").write_text(json.dumps({"reason": json.loads(f'"{escape}"')}))
    shown = call("status", "mine.toml").stdout
    assert "\x1b" not in shown
    assert shown.count("[bold red]x") == 3
