"""Put one fault after another into a copy of the code and check that a test notices each.

python benchmarks/faults.py                  # all faults of faults.toml: about 30 minutes
python benchmarks/faults.py hd01 hd02        # some of them

A fault replaces a piece of text that occurs once in its file. Its tests must pass without the
fault and fail with it. The copy is a clone of the last commit in a temporary folder, so nothing
in this folder changes. The exit code is 1 if no test notices a fault.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import track

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
MODULES = "web/node_modules"  # by `make web`; tests of the page without a server need them
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
FAILED_FILE = re.compile(r"^(?:FAILED|ERROR) ([^\s:]+)", re.MULTILINE)
TESTS_FAILED = 1  # the exit code of pytest


@dataclass(frozen=True)
class Fault:
    """A fault: `old`, which occurs once in `file`, becomes `new`; one of `tests` must fail."""

    name: str
    what: str
    file: str
    old: str
    new: str
    tests: list[str]


def read_faults(names: Sequence[str] = ()) -> list[Fault]:
    """Return the faults of these names, or all."""
    faults = [Fault(**row) for row in tomllib.loads(TABLE.read_text())["fault"]]
    unknown = set(names) - {fault.name for fault in faults}
    if unknown:
        raise SystemExit(f"there is no fault {', '.join(sorted(unknown))} in {TABLE.name}")
    return [fault for fault in faults if not names or fault.name in names]


def faulty(text: str, fault: Fault) -> str:
    """Return the text of a file with the fault in it."""
    count = text.count(fault.old)
    if count != 1:
        raise SystemExit(
            f"{fault.name}: {fault.old!r} occurs {count} times in {fault.file}; it must occur once"
        )
    return text.replace(fault.old, fault.new)


def run_tests(
    folder: Path, tests: Sequence[str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy of the project."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*command, *options, *tests], cwd=folder, env=environment, capture_output=True, text=True
    )


def noticed_by(folder: Path, fault: Fault) -> str | None:
    """Return the first test that fails with a fault in a copy of the project, or None."""
    path = folder / fault.file
    sound = path.read_text()
    path.write_text(faulty(sound, fault))
    try:
        ran = run_tests(folder, fault.tests, "-x")
    finally:
        path.write_text(sound)
    if ran.returncode == 0:
        return None
    found = FAILED.search(ran.stdout)
    if ran.returncode != TESTS_FAILED or found is None:
        raise SystemExit(f"{fault.name}: the tests did not run:\n{ran.stdout}{ran.stderr}")
    return found[1]


def main() -> None:
    """Try the faults and print what noticed each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="names of faults (default: all)")
    faults = read_faults(parser.parse_args().names)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "primavista"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
        if (ROOT / MODULES).exists():
            (folder / MODULES).symlink_to(ROOT / MODULES)
        tests = sorted({test for fault in faults for test in fault.tests})
        print(f"Running the {len(tests)} groups of tests without a fault")
        sound = run_tests(folder, tests)
        if sound.returncode == TESTS_FAILED:  # on a busy machine, a page may come too late
            sound = run_tests(folder, sorted(set(FAILED_FILE.findall(sound.stdout))))
        if sound.returncode != 0:
            raise SystemExit(f"tests fail without a fault:\n{sound.stdout}")
        found = {
            fault.name: noticed_by(folder, fault) for fault in track(faults, "Trying the faults")
        }
    for fault in faults:
        print(f"{fault.name}  {fault.what}: {found[fault.name] or 'NOT NOTICED'}")
    noticed = sum(test is not None for test in found.values())
    print(f"{noticed} of {len(faults)} faults noticed")
    raise SystemExit(0 if noticed == len(faults) else 1)


if __name__ == "__main__":
    main()
