"""The table of faults fits the code: each replaces a text that occurs once, and names its tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def faults():
    spec = importlib.util.spec_from_file_location("faults", ROOT / "benchmarks" / "faults.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["faults"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["faults"]


def test_each_fault_can_be_put_into_the_code(faults):
    for fault in faults.read_faults():
        sound = (ROOT / fault.file).read_text()
        assert faults.faulty(sound, fault) != sound
        for test in fault.tests:
            path, _, function = test.partition("::")
            assert (ROOT / path).exists()
            assert not function or f"def {function}(" in (ROOT / path).read_text()


def test_a_text_that_is_not_there_is_an_error(faults):
    fault = faults.read_faults(["hd01"])[0]
    with pytest.raises(SystemExit, match="occurs 0 times"):
        faults.faulty("", fault)


def test_an_unknown_fault_is_named(faults):
    with pytest.raises(SystemExit, match="no fault xx99"):
        faults.read_faults(["xx99"])


@pytest.mark.slow
def test_a_fault_is_noticed_and_taken_back(faults, tmp_path):
    folder = tmp_path / "copy"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    fault = replace(faults.read_faults(["hd01"])[0], tests=["tests/heads/test_cwr.py"])
    assert faults.noticed_by(folder, fault).startswith("tests/heads/test_cwr.py::")
    none = replace(fault, new="past[present] = past[present] + cur")
    assert faults.noticed_by(folder, none) is None
    changed = subprocess.run(["git", "diff", "--quiet"], cwd=folder, check=False)
    assert changed.returncode == 0
