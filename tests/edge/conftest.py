from __future__ import annotations

import importlib
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

EDGE = Path(__file__).resolve().parents[2] / "edge"


def assemble(folder: Path) -> None:
    """The package as its wheel has it.

    Its own modules, and those of primavista that its build copies in.
    """
    shutil.copytree(
        EDGE / "primavista_edge",
        folder / "primavista_edge",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    build = tomllib.loads((EDGE / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    for source, target in build["force-include"].items():
        (folder / target).parent.mkdir(exist_ok=True)
        shutil.copy(EDGE / source, folder / target)


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("edge")
    assemble(folder)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("primavista_edge")
    finally:
        sys.path.remove(str(folder))
