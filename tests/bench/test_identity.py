"""A cell is run again if an option, the data or the code that computes it has changed."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from primavista.bench import identity
from primavista.bench.data import open_cell_data, split_of
from primavista.bench.identity import code_fingerprint, data_fingerprint, package_version
from primavista.bench.local import Inline
from primavista.bench.plan import make_plan
from primavista.bench.run import Suite
from primavista.errors import InputError
from primavista.report.read import read_results
from primavista.strategies import registry
from primavista.strategies.registry import register
from primavista.streams.open import open_dataset
from primavista.streams.store import pack

STRATEGY = '''
"""Nearest mean with a rate."""
import torch
from primavista.nn.class_rows import Rows
from primavista.strategies.base import LearnReport
from primavista.strategies.base import EmbeddingStrategy

SCALE = 1.0  # of the scores

class Mine(EmbeddingStrategy):
    def __init__(self, backbone, *, seed=0, lr=0.01, flavour="plain"):
        super().__init__(backbone, seed=seed)
        self.lr = lr
        self.means = Rows()
        self.means.add_rows("total", torch.zeros(0, backbone.dim))

    def learn_batch(self, B):
        """Learn."""
        self.means.total.index_add_(0, B.columns, self.lr * self.features(B))
        return LearnReport(B.i, B.count, B.new)

    def score_features(self, z):
        return SCALE * z @ self.means.total.T
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A package of somebody's own, installed with an entry point; writing it loads it again."""
    (tmp_path / "site").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text):
        (tmp_path / "site" / "mine_of_a_test.py").write_text(text)
        importlib.invalidate_caches()
        sys.modules.pop("mine_of_a_test", None)

    point = EntryPoint("mine", "mine_of_a_test:Mine", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_third_parties", lambda: {"mine": point})
    write(STRATEGY)
    yield write
    sys.modules.pop("mine_of_a_test", None)


@pytest.fixture
def toys(tmp_path):
    """Two classes of four sessions of two pictures."""
    root = tmp_path / "toys"
    draw = np.random.default_rng(0)
    for name in ("cup", "ball"):
        for session in ("s1", "s2", "s3", "s4"):
            for frame in range(2):
                path = root / name / session / f"{frame}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(draw.integers(0, 255, (32, 32, 3), np.uint8)).save(path)
    return root


def suite(toys: Path, out: Path, strategy: str = "mine", **settings) -> Suite:
    group = {"name": "g", "strategies": [strategy], "protocols": ["nicv2"]}
    plan = make_plan(
        {
            "name": "p",
            "device": "cpu",
            "groups": [group],
            "data": {"kind": "folder", "path": str(toys), "size": 32},
            "backbone": {"weights": "random", "options": {"width": 0.0625}},
            **settings,
        }
    )
    return Suite(plan, out)


def run(toys: Path, out: Path, **settings) -> list[str]:
    """Run a plan; return the titles of the cells that were not done yet."""
    one = suite(toys, out, **settings)
    waiting = [state.planned.title for state in one.states if state.status != "done"]
    assert not one.run(Inline())
    return waiting


def test_the_same_again_runs_nothing(module, toys, tmp_path):
    assert len(run(toys, tmp_path / "out")) == 1
    assert run(toys, tmp_path / "out") == []


def test_every_option_of_somebody_elses_strategy_is_recorded(module, toys, tmp_path):
    run(toys, tmp_path / "out")
    (path,) = (tmp_path / "out").rglob("run.json")
    assert json.loads(path.read_text())["options"] == {"lr": 0.01, "flavour": "plain"}


def test_a_changed_default_is_run_again(module, toys, tmp_path):
    run(toys, tmp_path / "out")
    module(STRATEGY.replace("lr=0.01", "lr=0.5"))
    assert run(toys, tmp_path / "out") == ["mine on nicv2, run 0"]


def test_a_changed_algorithm_is_run_again(module, toys, tmp_path):
    run(toys, tmp_path / "out")
    module(STRATEGY.replace("SCALE = 1.0", "SCALE = -1.0"))
    assert run(toys, tmp_path / "out") == ["mine on nicv2, run 0"]


def test_moved_added_and_changed_files_are_run_again(module, toys, tmp_path):
    run(toys, tmp_path / "out")
    (toys / "cup" / "s1").rename(tmp_path / "s1")
    assert len(run(toys, tmp_path / "out")) == 1
    (tmp_path / "s1").rename(toys / "cup" / "s1")
    assert run(toys, tmp_path / "out") == []  # as it was: the first results hold again
    picture = toys / "ball" / "s2" / "0.png"
    before = picture.read_bytes()
    picture.write_bytes((toys / "ball" / "s2" / "1.png").read_bytes())
    assert len(run(toys, tmp_path / "out")) == 1
    picture.write_bytes(before)
    assert run(toys, tmp_path / "out") == []


def test_the_report_says_which_cells_are_stale(module, toys, tmp_path):
    out = tmp_path / "out"
    run(toys, out)
    assert [cell.stale for cell in read_results(out).cells] == [None]
    (toys / "cup" / "s1").rename(tmp_path / "s1")
    (cell,) = read_results(out).cells
    assert cell.stale == "its data has changed"
    run(toys, out)
    results = read_results(out)
    assert [cell.stale for cell in results.cells] == [None]
    assert [cell.stale for cell in results.superseded] == ["its data has changed"]
    module(STRATEGY.replace("SCALE = 1.0", "SCALE = -1.0"))
    found = {cell.stale for cell in read_results(out).cells}
    assert found == {"the code that computes it has changed"}


def test_content_counts_and_not_only_names_and_sizes(tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    first = data_fingerprint(tmp_path)
    (tmp_path / "a").write_bytes(b"two")
    assert data_fingerprint(tmp_path) != first
    (tmp_path / "a").write_bytes(b"one")
    assert data_fingerprint(tmp_path) == first
    (tmp_path / "b").write_bytes(b"")
    assert data_fingerprint(tmp_path) != first
    (tmp_path / "b").unlink()
    (tmp_path / ".hidden").write_bytes(b"")  # not read as data either
    assert data_fingerprint(tmp_path) == first
    (tmp_path / "a").rename(tmp_path / "c")
    assert data_fingerprint(tmp_path) != first


def test_what_the_users_files_import_from_each_other_counts(tmp_path, monkeypatch):
    """The strategy is in a package beside a module of its own, which imports a third one late."""
    site = tmp_path / "site"
    files = {
        "own_of_a_test/__init__.py": "",
        "own_of_a_test/heads.py": """
from collections import OrderedDict
import numpy
from primavista.strategies.base import EmbeddingStrategy
from . import rates

class Mine(EmbeddingStrategy):
    pass
""",
        "own_of_a_test/rates.py": "def scale():\n    from rate_of_a_test import SCALE\n",
        "rate_of_a_test.py": "SCALE = 1.0\n",
        "not_imported_of_a_test.py": "SCALE = 1.0\n",
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(registry, "_OWN", {})
    strategy = "own_of_a_test.heads:Mine"
    register(strategy)
    first = code_fingerprint(strategy)
    version, _, own = first.partition(" ")
    assert (version, len(own)) == (package_version(), 12)
    assert code_fingerprint("ncm") == package_version()
    (site / "not_imported_of_a_test.py").write_text("SCALE = 2.0\n")
    assert code_fingerprint(strategy) == first
    for name in ("own_of_a_test/heads.py", "own_of_a_test/rates.py", "rate_of_a_test.py"):
        (site / name).write_text(files[name] + "\n")
        assert code_fingerprint(strategy) != first
        (site / name).write_text(files[name])
        assert code_fingerprint(strategy) == first


def test_the_version_of_a_checkout_has_its_commit_and_its_changes(monkeypatch):
    said = {"log": "0123456789ab\n", "diff": ""}
    monkeypatch.setattr(identity, "_git", lambda command, *_: said[command])
    version = package_version.__wrapped__
    assert version() == "0.1.0+0123456789ab"
    said["diff"] = "-1\n+2\n"
    changed = version()
    assert changed.startswith("0.1.0+0123456789ab+")
    said["diff"] = "-1\n+3\n"
    assert version() not in (changed, "0.1.0+0123456789ab")
    said.update(log="", diff="")  # not a checkout
    assert version() == "0.1.0"


@pytest.mark.slow
def test_runs_over_a_folder_may_vary_the_split(module, toys, tmp_path):
    """Run 0 has the fixed split, every third of four sessions; other runs draw one of the four."""
    fixed = suite(toys, tmp_path / "fixed", runs=4)
    assert not fixed.run(Inline())
    data = {"kind": "folder", "path": str(toys), "size": 32, "split": "run"}
    varied = suite(toys, tmp_path / "varied", runs=4, data=data)
    assert not varied.run(Inline())

    def test_sets(one):
        tested = []
        for state in one.states:
            cell = state.planned.cell
            opened = open_cell_data(cell.data, tmp_path, split=split_of(cell.data, cell.run))
            assert len(opened.test) == 2  # one session of each class
            tested.append([session.number for session in opened.test])
        return tested

    assert test_sets(fixed) == [[3, 3]] * 4
    drawn = test_sets(varied)
    assert drawn[0] == [3, 3]
    assert len({tuple(one) for one in drawn}) > 1
    assert drawn == test_sets(varied)  # the same each time
    stored = read_results(tmp_path / "varied").cells
    assert [cell.varies_split for cell in stored] == [True] * 4


def test_a_plan_may_name_the_test_sessions(module, toys, tmp_path):
    data = {"kind": "folder", "path": str(toys), "size": 32, "test": ["s1", "s4"]}
    one = suite(toys, tmp_path / "out", data=data)
    opened = open_cell_data(one.states[0].planned.cell.data, tmp_path)
    assert [session.number for session in opened.test] == [1, 4, 1, 4]
    with pytest.raises(InputError, match='leave out split = "run"'):
        suite(toys, tmp_path / "out", data={**data, "split": "run"})


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_weights_that_a_function_loads_are_part_of_a_cell(kind, toys, tmp_path, monkeypatch):
    """They were not: other weights in the same file ran no cell, and no report warned of it."""
    file = tmp_path / "w.pt"

    def of_a_test():
        module = torch.nn.Conv2d(3, 4, 3)
        module.load_state_dict(torch.load(file, weights_only=True))
        return module

    monkeypatch.setitem(registry.OWN_FUNCTIONS, "loads-of-a-test", of_a_test)
    data = {"kind": "folder", "path": str(toys), "size": 32}
    if kind == "store":
        data = {"kind": "store", "path": str(tmp_path / "toys.store")}
        pack(open_dataset(toys, size=32), data["path"])
    group = {"name": "all", "strategies": ["ncm"], "protocols": ["nicv2"]}
    table = {"name": "p", "data": data, "backbone": {"name": "loads-of-a-test"}, "groups": [group]}

    def key(seed: int) -> str:
        torch.manual_seed(seed)
        torch.save(torch.nn.Conv2d(3, 4, 3).state_dict(), file)
        (planned,) = make_plan(table).planned()
        return planned.cell.key

    assert key(1) == key(1)
    assert key(1) != key(2)
