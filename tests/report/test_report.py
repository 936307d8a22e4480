"""The whole report: every file is there; the page is well-formed, self-contained and escaped."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from primavista.bench.folder import write_result
from primavista.errors import FileError, MissingExtraError
from primavista.report import texts, write_report

pytestmark = pytest.mark.xdist_group("report")  # the large report is drawn by one process only
VOID = {"meta", "br", "link", "img", "input", "hr"}
NAMES = ["cup 1", "cup 2", "ball 1", "ball 2"]
CORE50_FACTS = {
    "core50": {"test_set": "reduced", "complete": True},
    "size": 128,
    "train_sessions": 400,
    "train_frames": 119_894,
    "test_frames": 2_249,
    "order": "official",
}


def make_cell(
    folder: Path,
    strategy: str = "naive",
    protocol: str = "nicv2-3",
    run: int = 0,
    accuracies: tuple[float | None, ...] = (10.0, 20.0, 30.0),
    *,
    done: bool = True,
    options: dict[str, Any] | None = None,
    seconds: float = 60.0,
    reason: str | None = None,
    stored: int = 0,
    name: str = "",
    facts: dict[str, Any] | None = None,
    saturated: tuple[float | None, ...] = (),
    group: str = "",
    learning: float = 70.0,
    **plan: Any,
) -> Path:
    """Write a cell as `bench run` does, and record its group in `plan.json`."""
    place = folder / (
        name or f"{protocol}/{strategy}-{run}-{len(list(folder.glob('*/*')))}".replace("*", "-star")
    )
    place.mkdir(parents=True)
    record = {
        "format": 1,
        "strategy": strategy,
        "options": {"norm": "brn", "freeze": "depthwise", **(options or {})},
        "protocol": protocol,
        "run": run,
        "data": {"kind": "core50", "path": "/core50"},
        "backbone": {"name": "mobilenet_v1"},
        "seed": run,
        "device": "cpu",
        "threads": 1,
        "precision": "float32",
        "engine": "torch",
        "test_every": 1,
        "test_thin": 1,
        "hyperparameters_chosen_on_run": 0,
        **plan,
    }
    (place / "run.json").write_text(json.dumps(record))
    if group:
        add_to_group(folder, group, place)
    lines = [
        {
            "batch": batch,
            "patterns": 40 if batch == 1 else 20,
            "new_classes": [0, 2] if batch == 1 else [],
            "losses": [1.0],
            "saturated": saturated[batch - 1] if saturated else None,
            "state_bytes": 2_000_000,
            "stored_bytes": stored * batch,
            "measures": {"accuracy": accuracy, "average": accuracy},
            "class_accuracy": {}
            if accuracy is None
            else {str(label): accuracy for label in range(4)},
        }
        for batch, accuracy in enumerate(accuracies, 1)
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if reason is not None:
        (place / "failed.json").write_text(json.dumps({"reason": reason}))
    elif done:
        result = {
            "format": 1,
            "final": {
                "accuracy": accuracies[-1],
                "seen_accuracy": 50.0,
                "average_incremental": 60.0,
                "average": 20.0,
                "average_accuracy": 40.0,
                "average_anytime": 45.0,
                "learning_accuracy": learning,
                "forgetting": 5.0,
                "backward_transfer": -4.0,
                "forward_transfer": 0.5,
                "transfer_batches": 2,
                "transfer_frames": 40,
            },
            "confusion": [[3, 1, 0, 0], [1, 3, 0, 0], [0, 0, 4, 0], [0, 0, 2, 2]],
            "classes": NAMES,
            "batches": len(accuracies),
            "learn_seconds": seconds * 0.75,
            "solve_seconds": seconds * 0.05,
            "test_seconds": seconds * 0.2,
            "state_bytes": 2_000_000,
            "stored_bytes": stored * len(accuracies),
            "parameters": 3_000_000,
            "machine": {"cpu": "a <processor> & co", "cores": 2},
            "data": facts or (None if "data" in plan else CORE50_FACTS),
        }
        write_result(place, result)
    return place


def change_metrics(place: Path, lines: list[dict[str, Any]]) -> None:
    """Write other lines than those of `make_cell`, with the checksums that a run would give."""
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_result(place, json.loads((place / "result.json").read_text()))


def add_to_group(folder: Path, name: str, place: Path) -> None:
    path = folder / "plan.json"
    empty: dict[str, Any] = {"format": 1, "base": {}, "plans": {}, "groups": []}
    record = json.loads(path.read_text()) if path.exists() else empty
    known = {group["name"]: group for group in record["groups"]}
    if name not in known:
        known[name] = {"plan": "mine", "name": name, "title": "", "cells": []}
        record["groups"].append(known[name])
    known[name]["cells"].append(place.relative_to(folder).as_posix())
    path.write_text(json.dumps(record))


class Reader(HTMLParser):
    """Every tag is closed by its own; links and sources are collected."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> does not close what is open"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def note(self, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                self.links.append(value or "")
            if key == "id":
                self.ids.append(value or "")


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text("utf-8"))
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bit of everything, in the layout of the engine and with a plan that names the groups."""
    folder = tmp_path_factory.mktemp("results")
    for run in (0, 1):
        for strategy in ("ar1*", "cwr*", "naive"):
            make_cell(folder, strategy, "nicv2-3", run, (10.0, 20.0 + run, 30.0 + run))
            make_cell(folder, strategy, "nicv2-4", run, (10.0, None, 20.0, 40.0 + 2 * run))
        make_cell(
            folder,
            "ar1*",
            "nicv2-3",
            run,
            (9.0, 9.0, 9.0),
            options={"norm": "bn"},
            group="fig:bn_vs_brn",
        )
        for freeze in ("none", "depthwise", "pointwise", "all"):
            make_cell(
                folder, "naive", "ni", run, (50.0, 60.0), options={"freeze": freeze}, group="fig:NI"
            )
        for guard in ("modulate", "penalty"):
            name = f"claims/{guard}{run}"
            make_cell(
                folder, "ewc", "nicv2-3", run, (30.0 + run,), options={"guard": guard}, name=name
            )
        make_cell(folder, "cwr*", "nicv2-3", run, (1.0, 2.0), group="my own", options={"epochs": 9})
    make_cell(folder, "ewc", "nicv2-3", 0, (10.0, 15.0), done=False)
    make_cell(folder, "lwf", "nicv2-3", 0, (10.0,), reason="no <memory> left & gone")
    cells = [f"claims/{guard}{run}" for guard in ("modulate", "penalty") for run in (0, 1)]
    groups = [
        {
            "plan": "mine",
            "name": "claim: guard",
            "title": "guards are alike",
            "cells": [*cells, "claims/not-begun"],
        }
    ]
    record = json.loads((folder / "plan.json").read_text())
    record["groups"] += groups
    (folder / "plan.json").write_text(json.dumps(record))
    write_report(folder)
    return folder


def test_every_figure_and_table_is_written(full: Path) -> None:
    figures = {path.name for path in (full / "figures").iterdir()}
    tables = {path.name for path in (full / "tables").iterdir()}
    stems = {
        "accuracy-all",
        "accuracy-nicv2-3",
        "accuracy-nicv2-4",
        "accuracy-bn-vs-brn-nicv2-3",
        "accuracy-ni-ni",
        "accuracy-my-own-nicv2-3",
        "confusion-nicv2-3-ar1-star",
        "confusion-nicv2-4-cwr-star",
    }
    assert {f"{stem}.{ending}" for stem in stems for ending in ("svg", "png")} <= figures
    names = {
        "final",
        "final-bn-vs-brn",
        "final-ni",
        "final-my-own",
        "pairwise",
        "run",
        "claims",
        "comparisons",
        "efficiency",
        "hyperparameters",
        "cells",
    }
    assert {f"{name}.{ending}" for name in names for ending in ("csv", "tex", "md")} <= tables
    assert not list(full.rglob("*.part"))


def test_figures_are_drawings_with_text_as_text(full: Path) -> None:
    for path in (full / "figures").glob("*.svg"):
        root = ET.fromstring(path.read_text("utf-8"))
        words = " ".join(
            "".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")
        )
        assert "batch" in words or "predicted class" in words, path.name
        assert (path.with_suffix(".png")).read_bytes().startswith(b"\x89PNG")
    curves = (full / "figures" / "accuracy-nicv2-3.svg").read_text("utf-8")
    assert "AR1* 30.5" in curves
    assert "accuracy on 2,249 test frames (%)" in curves


def test_the_page_is_well_formed_and_self_contained(full: Path) -> None:
    page = read(full / "report.html")
    outside = [link for link in page.links if not link.startswith(("#", "data:"))]
    assert outside == ["https://arxiv.org/abs/1907.03799"]
    assert len(page.ids) == len(set(page.ids))
    text = (full / "report.html").read_text("utf-8")
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert "<script" not in text
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\"'<> )]+", text)) == {"https://arxiv.org/abs/1907.03799"}
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_page_says_what_it_should(full: Path) -> None:
    words = " ".join(read(full / "report.html").words)
    assert "Hyperparameters were chosen on run 0" in words
    assert "Cells of the plan that have not started yet: 1." in words
    assert "no <memory> left & gone" in words
    assert "EWC, modulation − penalty" in words
    assert "There are no results here for: Renormalisation improves the other methods too" in words
    assert "a <processor> & co" in words
    assert "in progress" in words  # ewc
    assert "Naive, freeze=pointwise" in words


@pytest.mark.slow
def test_the_report_is_the_same_each_time(full: Path, tmp_path: Path) -> None:
    again = write_report(full, out=tmp_path / "deep" / "er", figures=["svg", "png"])
    assert again == tmp_path / "deep" / "er" / "report.html"
    figures = [path for path in (full / "figures").iterdir() if path.suffix != ".pdf"]
    for path in [full / "report.html", *figures, *(full / "tables").iterdir()]:
        assert (again.parent / path.relative_to(full)).read_bytes() == path.read_bytes(), path.name


def test_a_pdf_is_the_same_each_time(tmp_path: Path) -> None:
    make_cell(tmp_path)
    first, second = (
        write_report(tmp_path, out=tmp_path / out, figures=["pdf"]) for out in ("first", "second")
    )
    drawn = list((first.parent / "figures").iterdir())
    assert drawn
    for path in drawn:
        assert (second.parent / "figures" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$x_1$ & 100% \\ {}"]
)
def test_whatever_comes_from_files_is_escaped(tmp_path: Path, evil: str) -> None:
    make_cell(
        tmp_path,
        evil,
        evil,
        0,
        name="a",
        group=evil,
        data={"kind": "folder", "path": "/x", "name": evil},
        options={evil: evil},
    )
    make_cell(
        tmp_path,
        evil,
        "nicv2-3",
        0,
        name="b",
        options={"norm": evil},
        backbone={"name": evil, "weights": evil},
    )
    make_cell(tmp_path, "naive", evil, 0, name="c", reason=evil)
    result = {
        "format": 1,
        "final": {"accuracy": 3.0},
        "machine": {evil: evil},
        "classes": [evil] * 4,
        "confusion": [[1, 0, 0, 0]] * 4,
        "batches": 3,
    }
    write_result(tmp_path / "b", result)
    path = write_report(tmp_path, figures=["svg"])
    text = path.read_text("utf-8")
    assert "<script" not in text
    assert not re.search("<img (?!alt=)", text)
    for figure in (tmp_path / "figures").glob("*.svg"):
        assert "<script" not in figure.read_text("utf-8")
    words = " ".join(read(path).words)
    assert evil in words
    for table in (tmp_path / "tables").glob("*.tex"):
        assert evil not in table.read_text("utf-8")


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_without_matplotlib_or_jinja_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    make_cell(tmp_path, "ar1*")
    texts.templates.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r'pip install "primavista\[plots\]"'):
        write_report(tmp_path, figures=["svg"])


def test_an_empty_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no results in .*run\.json"):
        write_report(tmp_path, figures=["svg"])
    with pytest.raises(FileError, match="there is no results folder"):
        write_report(tmp_path / "nowhere")
    make_cell(tmp_path)
    with pytest.raises(FileError, match="no published results in"):
        write_report(tmp_path, against=tmp_path)


def test_damaged_cells_are_listed_and_the_others_shown(tmp_path: Path) -> None:
    make_cell(tmp_path, "naive", name="good")
    bad = make_cell(tmp_path, "cwr*", name="bad")
    (bad / "result.json").write_text('{"format": 1, "final"')
    (make_cell(tmp_path, "ewc", name="worse") / "run.json").write_text("[]")
    (make_cell(tmp_path, "lwf", name="future") / "run.json").write_text(
        '{"format": 7, "strategy": "lwf"}'
    )
    torn = make_cell(tmp_path, "dslda", name="torn", done=False)
    with (torn / "metrics.jsonl").open("a") as file:
        file.write('{"batch": 4, "accur')
    make_cell(tmp_path, "cumulative", name="begun", accuracies=(), done=False)
    odd = make_cell(tmp_path, "ar1*", name="odd")
    (odd / "result.json").write_text(
        '{"format": 1, "final": {"accuracy": NaN}, "confusion": [[1], [2, 3]], "machine": 3}'
    )
    words = " ".join(read(write_report(tmp_path, figures=["svg"])).words)
    assert "bad/result.json" in words
    assert "Input should be a valid dictionary" in words
    assert "run.json has an invalid field format" in words
    assert "Failed cells: 4 of 7" in words
    assert "Cells in progress: 2 of 7" in words


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    make_cell(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write the report's file"):
        write_report(tmp_path, out=tmp_path / "file")


def test_the_authors_curves_stand_beside_those_of_other_data(shared: Path, tmp_path: Path) -> None:
    data = {"kind": "rendered", "name": "rendered"}
    for protocol in ("nicv2-79", "nicv2-196"):
        make_cell(tmp_path, "ar1*", protocol, 0, (10.0, 20.0), data=data)
    write_report(tmp_path, against=shared / "data", figures=["svg"])
    words = drawn_words(tmp_path / "figures" / "accuracy-all.svg")
    assert "NICv2-79, rendered objects" in words
    assert "NICv2-79, the authors, CORe50" in words
    assert drawn_words(tmp_path / "figures" / "accuracy-nicv2-79.svg") >= {"AR1* 20.0"}
    for protocol, theirs in (("79", "AR1* 63.5"), ("196", "AR1* 60.6")):  # the public files
        name = f"accuracy-nicv2-{protocol}-the-authors-core50.svg"
        assert theirs in drawn_words(tmp_path / "figures" / name)
    assert not any("dotted" in word for word in words)
    on_core50 = tmp_path / "core50"
    make_cell(on_core50, "ar1*", "nicv2-79", 0, (10.0, 20.0))
    write_report(on_core50, against=shared / "data", figures=["svg"])
    words = drawn_words(on_core50 / "figures" / "accuracy-nicv2-79.svg")
    assert "dotted: the authors' published mean" in words
    assert "AR1* 63.5" not in words


def drawn_words(path: Path) -> set[str]:
    root = ET.fromstring(path.read_text("utf-8"))
    return {"".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")}


@pytest.mark.parametrize("name", ["tables", "figures"])
def test_a_report_is_not_written_through_a_linked_folder(tmp_path: Path, name: str) -> None:
    out, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    make_cell(out, "cwr*", "nicv2-3", 0, (1.0, 2.0))
    elsewhere.mkdir()
    (out / name).symlink_to(elsewhere)
    with pytest.raises(FileError, match=rf"{name} is a link that leads out of"):
        write_report(out)
    assert not list(elsewhere.iterdir())
