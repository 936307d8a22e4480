"""The notebooks of the gallery run from top to bottom and are stored with their outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
NOTEBOOKS = sorted(GALLERY.glob("*.ipynb"))
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")


def read_notebook(path: Path):
    return nbformat.read(path, as_version=4)


def test_there_are_three():
    names = ["benchmark", "teach_from_python", "your_own_strategy"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_outputs(path):
    notebook = read_notebook(path)
    nbformat.validate(notebook)
    assert path.stat().st_size < 400_000
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output.output_type == "error" for output in outputs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    """Each cell runs, and a cell that printed something prints something again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = read_notebook(path)
    before = [printed(cell) for cell in notebook.cells]
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    for cell, text in zip(notebook.cells, before, strict=True):
        assert bool(printed(cell)) == bool(text), cell.source


def printed(cell) -> str:
    """The text that a cell prints."""
    return "".join(o.text for o in cell.get("outputs", ()) if o.output_type == "stream")
