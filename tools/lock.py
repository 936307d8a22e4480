"""Lock every package that `make` installs, with the hashes of its files for all platforms.

    python tools/lock.py --extras video,live                  # writes the files in locks/
    python tools/lock.py --extras video,live --upgrade numpy  # the same, with the newest numpy
    python tools/lock.py --extras video,live --check          # exit code 1 if they are out of date

Writing needs uv and a package registry; checking needs neither. Versions that are locked stay as
they are; uv chooses those of new packages and of the packages to upgrade. A lock lists the hashes
of all files of a release, so that one file serves every platform.

torch is published as several builds of one version, and each has its own file. torch-cpu.txt is the
build that the tests use, for machines where pip finds it; torch.txt is the registry's build, on
Linux with the CUDA packages that it needs. `make` tries them in this order.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = "3.11.5"  # pymdown-extensions needs it
TORCH = re.compile(r"torch$|triton$|(nvidia|cuda)-")
# of torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl
CPU_BUILD = {
    "torch==2.13.0+cpu": (
        "--hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
    )
}
HEADERS = {
    "all.txt": "everything that `make` installs except torch, for all platforms",
    "torch.txt": "torch of the package registry, and what it needs for CUDA on Linux",
    "torch-cpu.txt": "the build of torch for CPUs that the tests run with",
}
Lock = dict[str, str]  # "name==version ; marker" to its hashes, as lines


def normal(name: str) -> str:
    """Return the normal form of the name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Return the version of each pinned package of a requirements file."""
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.M)
    return {normal(name): version for name, version in found}


def parse(text: str) -> Lock:
    """Return the entries of a requirements file with hashes."""
    lock: Lock = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("    --hash="):
            lock[current] += line.strip(" \\") + "\n"
        elif line and not line.lstrip().startswith("#"):
            current = line.strip(" \\")
            lock[current] = ""
    return lock


def render(lock: Lock, header: str) -> str:
    """Return the text of a requirements file with hashes."""
    lines = [f"# Written by `make lock`: {header}."]
    for entry, hashes in lock.items():
        lines.append(" \\\n    ".join([entry, *hashes.split()]))
    return "\n".join(lines) + "\n"


def split(lock: Lock) -> tuple[Lock, Lock, Lock]:
    """Return the content of each file of `HEADERS`."""
    torch = {entry: lock[entry] for entry in lock if TORCH.match(entry.partition("==")[0])}
    rest = {entry: lock[entry] for entry in lock if entry not in torch}
    return rest, torch, CPU_BUILD


def wanted(extras: Iterable[str]) -> set[str]:
    """Return the packages that pyproject.toml names: dependencies, extras and build tools."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = [*ours["project"]["dependencies"], *ours["build-system"]["requires"]]
    for extra in extras:
        lines += ours["project"]["optional-dependencies"][extra]
    return {normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in lines}


def problems(everything: str, torch: str, cpu: str, needed: set[str]) -> list[str]:
    """List the disagreements between the dependencies and the locks."""
    locked = pins(everything) | pins(torch)
    found = [f"{name} is a dependency and is not locked" for name in sorted(needed - set(locked))]
    if pins(cpu) != {"torch": f"{locked.get('torch')}+cpu"}:
        found.append(f"torch-cpu.txt is not torch {locked.get('torch')}: give the hash in lock.py")
    for text in (everything, torch, cpu):
        found += [f"{entry} has no hash" for entry, hashes in parse(text).items() if not hashes]
    return found


def compile_lock(extras: Iterable[str], upgrade: Iterable[str]) -> Lock:
    """Ask uv for the versions and the hashes, for all platforms.

    uv prefers the versions of the file that it writes, so it is given the present locks.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
    command += ["--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-header"]
    command += ["--no-annotate", "pyproject.toml"]
    for extra in extras:
        command += ["--extra", extra]
    for name in upgrade:
        command += ["--upgrade-package", name]
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder) / "joined.txt"
        present = [ROOT / "locks" / name for name in ("all.txt", "torch.txt")]
        joined.write_text("".join(path.read_text(encoding="utf-8") for path in present))
        subprocess.run([*command, "--output-file", str(joined)], cwd=ROOT, check=True)
        return parse(joined.read_text(encoding="utf-8"))


def main() -> int:
    """Write or check the locks; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--extras", required=True, help="those of the Makefile, with commas")
    parser.add_argument("--upgrade", action="append", default=[], help="a package; may be repeated")
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    extras = given.extras.split(",")
    if not given.check:
        locks = split(compile_lock(extras, given.upgrade))
        for (name, header), lock in zip(HEADERS.items(), locks, strict=True):
            (ROOT / "locks" / name).write_text(render(lock, header), encoding="utf-8")
    places = [ROOT / "locks" / name for name in HEADERS]
    found = problems(*(path.read_text(encoding="utf-8") for path in places), wanted(extras))
    for line in found:
        print(f"{line}: run `make lock`", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
