"""The locks: hashes for everything that `make` installs, and no disagreement with the pins."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import lock  # noqa: E402

A, B, C = ("sha256:" + digit * 64 for digit in "abc")
COMPILED = f"""\
nvidia-nccl==2.0 ; sys_platform == 'linux' \\
    --hash={A}
torch==2.13.0 \\
    --hash={A} \\
    --hash={B}
    # via primavista
triton==3.0 ; sys_platform == 'linux' \\
    --hash={B}
Zlib-NG==1.0 ; sys_platform == 'win32' \\
    --hash={C}
"""
ALL = f"zlib_ng==1.0 \\\n    --hash={C}\n"
TORCH = f"torch==2.13.0 \\\n    --hash={A}\n"
CPU = f"torch==2.13.0+cpu \\\n    --hash={B}\n"


def test_torch_and_what_it_needs_for_cuda_are_apart_from_the_rest():
    everything, torch, cpu = lock.split(lock.parse(COMPILED))
    assert list(everything) == ["Zlib-NG==1.0 ; sys_platform == 'win32'"]
    assert [entry.partition("==")[0] for entry in torch] == ["nvidia-nccl", "torch", "triton"]
    assert lock.parse(lock.render(torch, "x"))["torch==2.13.0"].split() == [
        f"--hash={A}",
        f"--hash={B}",
    ]
    assert list(cpu) == ["torch==2.13.0+cpu"]


@pytest.mark.parametrize(
    ("everything", "cpu", "needed", "said"),
    [
        (ALL, CPU, {"zlib-ng", "torch"}, []),
        (ALL, CPU, {"numpy"}, ["numpy is a dependency and is not locked"]),
        ("zlib-ng==1.0\n", CPU, set(), ["zlib-ng==1.0 has no hash"]),
        (ALL, CPU.replace("13", "12"), set(), ["torch-cpu.txt is not torch 2.13.0"]),
    ],
)
def test_what_does_not_agree_is_named(everything, cpu, needed, said):
    found = lock.problems(everything, TORCH, cpu, needed)
    assert len(found) == len(said)
    assert all(line.startswith(wanted) for line, wanted in zip(found, said, strict=True))


def test_the_locks_of_the_project_are_up_to_date():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = re.search(r"^EXTRAS := (.*)$", makefile, re.M)
    assert extras is not None
    texts = [(ROOT / "locks" / name).read_text(encoding="utf-8") for name in lock.HEADERS]
    found = lock.problems(*texts, lock.wanted(extras[1].split(",")))
    assert not found, "run `make lock`"
    assert not any("://" in text for text in texts)


def test_make_installs_by_hash_only():
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\n$(STAMP):")[2]
    installs = [line for line in recipe.splitlines() if "$(PIP)" in line]
    assert len(installs) == 4
    for line in installs:
        assert "--no-deps" in line
        assert "--require-hashes" in line or "--no-build-isolation -e ." in line
