"""Results from Python: tidy records, frames, figures of folders, steps and streams."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import primavista as pv
from primavista.bench.metrics import Measures
from primavista.cli.bench import app
from primavista.errors import FileError, InputError
from primavista.report import write_report
from primavista.streams.rendered.renderer import Scene

from .test_publish import STRATEGIES, make_folder
from .test_report import change_metrics, make_cell


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("results"), "main")


def test_one_record_per_run_and_one_per_batch(folder: Path) -> None:
    results = pv.load_results(folder)
    assert len(results) == 3 * (4 + 1)
    assert len(results.batches) == 3 * (4 * 3 + 4)
    (run,) = results.where(strategy="ar1*", protocol="nicv2-3", run=2)
    assert (run["name"], run["data"], run["accuracy"], run["seed"]) == ("AR1*", "toys", 62.0, 2)
    assert (run["status"], run["groups"], run["test_frames"]) == ("done", ("main",), 40)
    assert (run["backbone"], run["weights"]) == ("mobilenet_v1", "imagenet")
    assert run["learn_seconds"] == 45.0
    assert run["options.freeze"] == "depthwise"
    own = results.where(path=run["path"]).batches
    assert [(one["batch"], one["accuracy"], one["new_classes"]) for one in own] == [
        (1, 5.0, 2),
        (2, 0.0, 0),
        (3, 62.0, 0),
    ]


def test_the_accuracy_matrix_is_records_too(tmp_path: Path) -> None:
    """It was in `result.json` alone."""
    place = make_cell(tmp_path, "naive", run=1)
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    lines[0]["measures"]["task_accuracy"] = {"1": 80.0}
    lines[2]["measures"]["task_accuracy"] = {"1": 50.0, "3": 90.0}
    lines[2]["measures"] |= {"forward_transfer": 12.0, "average_anytime": 75.0}
    change_metrics(place, lines)
    results = pv.load_results(tmp_path)
    assert [
        tuple(row[key] for key in ("name", "run", "batch", "task", "accuracy"))
        for row in results.tasks
    ] == [
        ("Naive", 1, 1, 1, 80.0),
        ("Naive", 1, 3, 1, 50.0),
        ("Naive", 1, 3, 3, 90.0),
    ]
    batch = results.batches[2]
    assert (batch["forward_transfer"], batch["average_anytime"]) == (12.0, 75.0)


def test_unfinished_and_failed_runs_are_records_too(tmp_path: Path) -> None:
    make_cell(tmp_path, "naive", accuracies=(10.0,), done=False)
    make_cell(tmp_path, "ewc", reason="no memory")
    lwf = make_cell(tmp_path, "lwf")
    (lwf / "run.json").write_text("[]")
    results = pv.load_results(tmp_path)
    found = {run["strategy"]: (run["status"], run["accuracy"]) for run in results}
    assert found == {
        "naive": ("in progress", None),
        "ewc": ("failed", None),
    }
    assert list(results.damaged) == [lwf.relative_to(tmp_path).as_posix()]
    with pytest.raises(FileError, match="no results folder"):
        pv.load_results(tmp_path / "nowhere")


def test_where_takes_lists_and_groups_and_names_what_there_is(folder: Path) -> None:
    results = pv.load_results(folder)
    assert len(results.where(strategy=["ar1*", "naive"])) == 9
    assert len(results.where(groups="main")) == len(results)
    with pytest.raises(InputError, match=r"strategy is one of .*dslda"):
        results.where(strategy="mine")
    with pytest.raises(InputError, match="no field 'colour'"):
        results.where(colour="red")


def test_a_copy_of_results_has_their_cells(folder: Path) -> None:
    results = pv.load_results(folder).where(protocol="nicv2-4")
    for again in (copy.copy(results), pickle.loads(pickle.dumps(results))):
        assert isinstance(again, type(results))
        assert again == results
        assert len(again.batches) == len(results.batches) == 12


def test_a_frame_has_a_row_per_record_and_a_column_per_option(folder: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    results = pv.load_results(folder)
    frame = pandas.DataFrame(results)
    assert len(frame) == len(results)
    assert set(frame["options.norm"]) == {"brn", "bn"}
    means = frame[frame.protocol == "nicv2-3"].groupby("strategy").accuracy.mean()
    assert means.to_dict() == {name: final + 1 for name, final in STRATEGIES.items()}
    batches = pandas.DataFrame(results.batches)
    assert list(batches[batches.protocol == "nicv2-4"].batch.unique()) == [1, 2, 3, 4]


def test_a_notebook_shows_figures(folder: Path) -> None:
    picture = pv.plot(pv.load_results(folder).where(protocol="nicv2-3"))
    assert picture._repr_png_().startswith(b"\x89PNG")


def test_figures_of_a_folder_have_the_width_asked_for(folder: Path, tmp_path: Path) -> None:
    results = pv.load_results(folder)
    one = results.where(strategy="ar1*", protocol="nicv2-3")
    assert pv.plot(one).width == 3.05
    assert pv.plot(folder, width="page").width == 6.25
    assert pv.plot(one, width=4.5).width == 4.5
    assert pv.plot(one, "confusion", width="page").width == 6.25
    saved = pv.plot(one).save(tmp_path / "figure.pdf")
    assert saved.read_bytes().startswith(b"%PDF")
    assert b"<svg" in pv.plot(one).save(tmp_path / "figure.svg").read_bytes()


def test_what_cannot_be_drawn_is_said(folder: Path, tmp_path: Path) -> None:
    results = pv.load_results(folder)
    with pytest.raises(InputError, match=r"choose it with where.*AR1\* on NICv2-3"):
        pv.plot(results, "confusion")
    with pytest.raises(InputError, match="no figure 'pie'"):
        pv.plot(results, "pie")
    with pytest.raises(InputError, match="'column', 'page', or 2 to 30 inches"):
        pv.plot(results, width="poster")
    with pytest.raises(InputError, match=r"\.pdf, \.svg, \.png"):
        pv.plot(results).save(tmp_path / "figure.gif")
    with pytest.raises(FileError, match="cannot write the figure"):
        pv.plot(results).save(tmp_path / "nowhere" / "figure.pdf")
    make_cell(tmp_path / "untested", accuracies=(None, None), done=False)
    with pytest.raises(InputError, match="nothing to draw"):
        pv.plot(tmp_path / "untested")


def step(batch: int, accuracy: float | None, confusion: list[list[int]] | None = None) -> pv.Step:
    return pv.Step(
        batch=batch,
        batches=3,
        measures=Measures(accuracy=accuracy, average=accuracy),
        confusion=None if confusion is None else torch.tensor(confusion),
        learn_seconds=1.0,
        solve_seconds=0.0,
        test_seconds=1.0,
        state_bytes=0,
        report=pv.LearnReport(batch, 10, (1,)),
    )


def test_figures_of_steps_need_no_folder() -> None:
    steps = [step(1, 10.0), step(2, None), step(3, 50.0, [[4, 0], [4, 0]])]
    assert "strategy 50.0" in pv.plot(steps).svg
    again = [step(1, 20.0), step(2, None), step(3, 60.0, [[4, 0], [3, 1]])]
    drawn = pv.plot({"ar1*": [steps, again], "mine": steps}).svg
    assert "AR1* 55.0" in drawn
    assert "mine 50.0" in drawn
    assert "accuracy on 8 test frames (%)" in drawn
    assert "mean of the diagonal 50.0%" in pv.plot(steps, "confusion").title
    with pytest.raises(InputError, match="its steps have no test"):
        pv.plot([step(1, None)])


def test_a_stream_is_drawn_batch_by_batch() -> None:
    data = pv.rendered(Scene(categories=2, objects=2, sessions=4, frames=2, size=32))
    picture = pv.plot(pv.nicv2(data), width="page")
    assert picture.width == 6.25
    assert "training batch" in picture.svg


def test_the_kinds_of_figures_are_named_as_the_command_line_names_them(folder: Path) -> None:
    with pytest.raises(
        InputError, match=r"'gif' is not a kind of figure: choose from pdf, svg, png"
    ):
        write_report(folder, figures=["svg", "gif"])
    done = CliRunner().invoke(app, ["report", "none", "--out", str(folder), "--figures", "gif"])
    assert isinstance(done.exception, InputError)  # the command line shows its text
    assert "'gif' is not a kind of figure: choose from pdf, svg, png" in str(done.exception)
    assert not (folder / "report.html").exists()
