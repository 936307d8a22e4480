"""A strategy and a backbone of the user's own, in a package beside, through the command line.

Everything runs in processes of its own, as it would for a user: the command, and its workers.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from primavista.cli.bench import app

HEADS = """
import torch
from primavista import Look, StrategyInfo
from primavista.nn.class_rows import Rows
from primavista.strategies.base import LearnReport
from primavista.strategies.base import EmbeddingStrategy


class NearestMean(EmbeddingStrategy):
    def __init__(self, backbone, *, seed=0, scale=1.0):
        super().__init__(backbone, seed=seed)
        self.means = Rows()
        self.means.add_rows("total", torch.zeros(0, backbone.dim))
        self.means.add_rows("count", torch.zeros(0, 1))

    def learn_batch(self, B):
        self.means.total.index_add_(0, B.columns, self.features(B))
        self.means.count.index_add_(0, B.columns, torch.ones(B.count, 1))
        return LearnReport(B.i, B.count, B.new)

    def score_features(self, z):
        return -torch.cdist(z, self.means.total / self.means.count.clamp(min=1))


class Sharp(NearestMean):
    info = StrategyInfo("sharp", "Sharp-9", source="a paper", look=Look("#123abc", "8"))
"""
NETS = """
from torch import nn


def small(width=8):
    return nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
"""
PLAN = """
name = "mine"
device = "cpu"
runs = 1

[data]
kind = "folder"
path = "toys"
size = 32

[backbone]
name = "lab_of_a_test.nets:small"
options = {width = 6}

[[groups]]
name = "main"
strategies = ["lab_of_a_test.heads:NearestMean", "lab_of_a_test.heads:Sharp", "ncm"]
protocols = ["nicv2"]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working folder with a plan and data, and a folder `site` with a package."""
    package = tmp_path / "site" / "lab_of_a_test"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "heads.py").write_text(HEADS)
    (package / "nets.py").write_text(NETS)
    (tmp_path / "plan.toml").write_text(PLAN)
    draw = np.random.default_rng(0)
    for channel, name in enumerate(("cup", "ball")):
        for session in range(4):
            for frame in range(2):
                path = tmp_path / "toys" / name / f"s{session}" / f"{frame}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                picture = draw.integers(0, 80, (32, 32, 3), np.uint8)
                picture[8:20, 8:20, channel] = 220
                Image.fromarray(picture).save(path)
    return tmp_path


def primavista(place: Path, *arguments: str, path: bool = True) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, OMP_NUM_THREADS="1", XDG_CACHE_HOME=str(place / "cache"))
    environment.pop("PYTHONPATH", None)
    if path:
        environment["PYTHONPATH"] = str(place / "site")
    command = [str(Path(sys.executable).with_name("primavista")), *arguments]
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )


def final_table(out: Path) -> Path:
    """Return the table of final accuracies, whatever the group adds to its name."""
    (found,) = (out / "tables").glob("final*.csv")
    return found


OWN = ("heads:NearestMean", "heads:Sharp", "nets:small")
EVIL = """
from pathlib import Path

Path("ran").touch()


class Harmless:
    pass
"""


def test_only_run_imports_the_code_of_a_plan_and_says_so_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N7 of the second review: looking at the plan of a stranger ran its code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "evil_of_a_test.py").write_text(EVIL)
    group = 'name = "g"\nstrategies = ["evil_of_a_test:Harmless"]\nprotocols = ["nicv2"]'
    (tmp_path / "plan.toml").write_text(f'name = "theirs"\n[[groups]]\n{group}\n')

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments])

    status = call("status", "plan.toml")
    assert status.exit_code == 0
    assert "only cells that were begun are shown" in status.stdout
    assert call("report", "plan.toml").exit_code == 1
    assert not (tmp_path / "ran").exists()
    ran = call("run", "plan.toml")
    assert "importing the code that plan.toml names: evil_of_a_test:Harmless" in ran.stdout
    assert "neither a strategy class nor a function" in str(ran.exception)
    assert (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_plan_with_own_code_runs_in_workers_and_is_in_the_report(place: Path) -> None:
    ran = primavista(place, "bench", "run", "plan.toml", "--threads", "2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "importing the code that plan.toml names: lab_of_a_test.heads:" in ran.stdout
    registered = [part for name in OWN for part in ("--register", f"lab_of_a_test.{name}")]
    assert f"next: primavista {' '.join(registered)} bench report plan.toml" in ran.stdout
    seen = primavista(place, "bench", "status", "plan.toml")
    assert "3 of 3 cells done" in seen.stdout
    told = primavista(place, *registered, "bench", "report", "plan.toml", "--figures", "svg")
    assert told.returncode == 0, told.stderr
    out = place / "primavista-runs" / "mine"

    with final_table(out).open() as file:
        rows = {row["strategy"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"ncm", "NearestMean", "Sharp-9"}
    assert {row["runs"] for row in rows.values()} == {"1"}
    # the same rule as ours, on the same features
    assert len({row["final accuracy (%)"] for row in rows.values()}) == 1
    assert any("#123abc" in figure.read_text("utf-8") for figure in out.rglob("*.svg"))
    page = (out / "report.html").read_text("utf-8")
    assert "lab_of_a_test.nets:small" in page
    assert not (out / "tables" / "stale.csv").exists()

    # a changed network is a changed cell
    nets = place / "site" / "lab_of_a_test" / "nets.py"
    nets.write_text(NETS.replace("nn.ReLU()", "nn.ReLU6()"))
    changed = primavista(place, *registered, "bench", "status", "plan.toml")
    assert "0 of 3 cells done" in changed.stdout

    # without the package the report is still written, and says what it knows
    given = ("--out", str(out), "--figures", "svg")
    bare = primavista(place, "bench", "report", "plan.toml", *given, path=False)
    assert bare.returncode == 0, bare.stderr
    assert "Sharp" in final_table(out).read_text()
    missing = primavista(place, "bench", "run", "plan.toml", path=False)
    assert missing.returncode == 1
    assert "there is no module 'lab_of_a_test'" in missing.stderr


@pytest.mark.slow
def test_a_protocol_of_ones_own_runs_in_workers(place: Path) -> None:
    streams = "def one_by_one(data, run):\n    return [[session] for session in data.train]\n"
    (place / "site" / "lab_of_a_test" / "streams.py").write_text(streams)
    protocol = "lab_of_a_test.streams:one_by_one"
    plan = PLAN.replace('["nicv2"]', f'["{protocol}"]')
    (place / "plan.toml").write_text(plan.replace('"lab_of_a_test.heads:Sharp", ', ""))
    ran = primavista(place, "bench", "run", "plan.toml", "--threads", "2")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"lab_of_a_test.nets:small, {protocol}" in ran.stdout
    lines = list((place / "primavista-runs" / "mine").rglob("metrics.jsonl"))
    # two classes with three training sessions each
    assert [len(path.read_text().splitlines()) for path in lines] == [6, 6]


@pytest.mark.slow
def test_a_learner_with_own_code_is_used_again_if_the_user_names_it(place: Path) -> None:
    strategy, backbone = "lab_of_a_test.heads:NearestMean", "lab_of_a_test.nets:small"
    options = ("--strategy", strategy, "--backbone", backbone, "--size", "32")
    learned = primavista(place, "learn", "toys.pv", "toys", *options)
    assert learned.returncode == 0, learned.stdout + learned.stderr
    frame = "toys/cup/s0/0.png"
    refused = primavista(place, "predict", "toys.pv", frame)
    assert refused.returncode == 1
    named = ("--register", strategy, "--register", backbone)
    assert " ".join(named) in refused.stderr
    found = primavista(place, *named, "predict", "toys.pv", frame)
    assert found.returncode == 0, found.stderr
    assert "cup" in found.stdout
