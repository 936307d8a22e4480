"""Make a virtual environment with Avalanche and this package, importing neither of them.

    python benchmarks/peer_environment.py FOLDER

It has the versions of `locks/`. If that is a build for CPUs, the torchvision that pip finds may
be compiled for another build: `import torchvision` then fails with "operator torchvision::nms does
not exist". Avalanche needs none of these operators, so the environment's copy of torchvision is
told not to describe them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AVALANCHE = "avalanche-lib==0.6.0"
MISSING = "does not exist"
NOTHING = '"""The compiled operators belong to another build of torch: none is described."""\n'


def python_of(folder: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    windows = folder / "Scripts" / "python.exe"
    return windows if windows.exists() else folder / "bin" / "python"


def locked_versions() -> str:
    """Return the version of each locked package, without its hashes."""
    text = "".join((ROOT / "locks" / name).read_text() for name in ("all.txt", "torch.txt"))
    return "\n".join(re.findall(r"^[\w.-]+==[^\s\\]+", text, re.M))


def make_environment(folder: Path) -> Path:
    """Install missing packages, which takes minutes the first time; return the interpreter."""
    stamp = folder / ".peers"
    wanted = "\n".join([locked_versions(), AVALANCHE, str(ROOT)])
    if stamp.exists() and stamp.read_text() == wanted:
        return python_of(folder)
    print(f"making an environment with Avalanche in {folder} (some minutes)", file=sys.stderr)
    if not python_of(folder).exists():
        venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    python = python_of(folder)
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    limits = folder / "versions.txt"
    limits.write_text(locked_versions())
    packages = ["-e", f"{ROOT}[train]", "pytest", "hypothesis", AVALANCHE]
    subprocess.run([*pip, "-c", str(limits), *packages], check=True)
    _mend_torchvision(python)
    stamp.write_text(wanted)
    return python


def _mend_torchvision(python: Path) -> None:
    tried = subprocess.run(
        [str(python), "-c", "import torchvision"], capture_output=True, text=True, check=False
    )
    if tried.returncode == 0:
        return
    if MISSING not in tried.stderr:
        raise SystemExit(f"torchvision cannot be imported:\n{tried.stderr}")
    (found,) = (python.parent.parent).rglob("torchvision/_meta_registrations.py")
    found.write_text(NOTHING)
    subprocess.run([str(python), "-c", "import torchvision"], check=True)


if __name__ == "__main__":
    print(make_environment(Path(sys.argv[1]).resolve()))
