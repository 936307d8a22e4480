"""Short forms of the long strains, and the parts in which they are run."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs the extra `live`")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from strains.endure import Tally, endure  # noqa: E402

linux = pytest.mark.skipif(sys.platform != "linux", reason="the strains need /proc and fork")
SHORT = {"bench-kills": 3, "lesson-kills": 2, "malformed": 150, "day": 15, "crowd": 2}


def noting(drawn: list[float], until: int):
    """A strain that notes what it draws, and is interrupted at a step."""

    @contextmanager
    def strain(folder: Path, tally: Tally):
        def step(number: int, draw) -> None:
            if number == until:
                raise KeyboardInterrupt
            drawn.append(draw.random())
            tally.outcomes["steps"] += 1
            tally.check(number != 1, "the second step")

        yield step

    return strain


def test_a_strain_in_parts_takes_the_same_steps(tmp_path, monkeypatch):
    monkeypatch.setattr("strains.endure.SAVE_SECONDS", -1.0)
    whole: list[float] = []
    endure("x", noting(whole, -1), tmp_path / "whole", 6, seed=3)
    parts: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        endure("x", noting(parts, 4), tmp_path / "parts", 6, seed=3)
    tally = endure("x", noting(parts, -1), tmp_path / "parts", 6, seed=3)
    assert parts == whole
    assert len(set(parts)) == 6
    assert (tally.done, tally.outcomes["steps"], tally.outcomes["wrong"]) == (6, 6, 1)
    assert tally.wrong == ["the second step"]
    with pytest.raises(SystemExit, match="--seed 3"):
        endure("x", noting(parts, -1), tmp_path / "parts", 6, seed=4)


def test_a_part_ends_after_its_minutes(tmp_path):
    found = endure("x", noting([], -1), tmp_path, 10, minutes=1e-9)
    assert found.done == 1
    assert endure("x", noting([], -1), tmp_path, 10).done == 10


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_the_command(name, tmp_path):
    command = [sys.executable, str(BENCHMARKS / "strain.py"), name, "--count", str(SHORT[name])]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "COLUMNS": "200"}
    )
    said = done.stdout + done.stderr[-3000:]
    if name == "crowd":  # its bound on delays is for an idle machine
        assert "an honest client" not in said, said
        assert "answered beside: 20" in said, said
    else:
        assert done.returncode == 0, said
    assert f"{name}: {SHORT[name]} in " in done.stdout
