"""What a paper needs: figures at their printed size, tables that fit, a paragraph on methods."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path
from typing import Any

import pytest

from primavista.bench.folder import write_result
from primavista.errors import InputError
from primavista.report import write_report
from primavista.report.read import read_results
from primavista.report.result_tables import best_values
from primavista.report.sections import Page, build_page
from primavista.report.series import MeanStd, build_series
from primavista.report.table import Row, Table, to_latex
from primavista.report.titles import shorten_names

from .test_numbers import FACTS
from .test_report import make_cell

pytestmark = pytest.mark.xdist_group("publish")  # its report is drawn by one process only

CHROMIUM = Path("/usr/bin/chromium")
SIGNS = [f"{number:02}_straight_or_{side}" for number in range(12) for side in ("right", "left")]
TOYS: dict[str, Any] = {
    "data": {"kind": "folder", "name": "toys", "path": "/toys", "size": 64},
    "backbone": {"name": "mobilenet_v1", "weights": "imagenet"},
    "facts": FACTS,
    "hyperparameters_chosen_on_run": None,
}
STRATEGIES = {"ar1*": 60.0, "dslda": 71.5, "naive": 20.0, "cumulative": 90.0}


def make_folder(folder: Path, group: str) -> Path:
    """Write three runs of four strategies on one protocol, and two on another, in one group."""
    for run in range(3):
        for strategy, final in STRATEGIES.items():
            curve = (5.0, 0.0, final + run)  # 0: a marker on the edge of the axes
            options = {"norm": "bn"} if strategy == "cumulative" else {}
            make_cell(folder, strategy, "nicv2-3", run, curve, options=options, group=group, **TOYS)
        make_cell(folder, "naive", "nicv2-4", run, (1.0, 2.0, 3.0, 100.0), group=group, **TOYS)
    return folder


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a plan whose group has a name of its own."""
    folder = make_folder(tmp_path_factory.mktemp("main"), "main")
    write_report(folder)
    return folder


def page_of(folder: Path, *groups: str) -> Page:
    """Return the report of one cell per group, without drawing it to files."""
    for strategy, group in zip(("cwr*", "naive"), groups, strict=False):
        make_cell(folder, strategy, group=group, **TOYS)
    return build_page(read_results(folder), {})


def files_of(page: Page) -> set[str]:
    figures = {picture.name for section in page.sections for picture in section.all_pictures}
    return figures | {f"{table.name}.tex" for section in page.sections for table in section.tables}


def test_the_name_of_a_group_changes_nothing_but_its_heading(tmp_path: Path) -> None:
    """The review found no time table, stream or class figure for groups of other names."""
    main = page_of(tmp_path / "main", "main")
    paper = page_of(tmp_path / "paper", "fig:results")
    assert files_of(main) == files_of(paper)
    assert {"accuracy.tex", "efficiency.tex", "final.tex"} <= files_of(main)
    names = {"accuracy-nicv2-3", "confusion-nicv2-3-cwr-star"}
    assert names <= files_of(main)
    assert len(main.sections) == len(paper.sections)


def test_every_group_of_a_plan_has_all_its_figures(tmp_path: Path) -> None:
    found = files_of(page_of(tmp_path, "first", "second"))
    for kind, name in (("accuracy", ""), ("confusion", "-naive")):
        assert f"{kind}-second-nicv2-3{name}" in found
    assert "confusion-nicv2-3-cwr-star" in found
    assert {"efficiency.tex", "efficiency-second.tex"} <= found


def test_groups_that_are_drawn_together_are_headed_by_all_their_titles(tmp_path: Path) -> None:
    """The heading was the title of the first, such as "Rehearsal-free", for all of them."""
    groups = []
    for strategy, title in (("naive", "Rehearsal-free"), ("er", "With a memory")):
        place = make_cell(tmp_path, strategy, **TOYS)
        cells = [str(place.relative_to(tmp_path))]
        name = f"fig:signs {strategy}"
        groups.append({"plan": "mine", "name": name, "title": title, "cells": cells})
    plan = {"format": 1, "base": {}, "plans": {}, "groups": groups}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert build_page(read_results(tmp_path), {}).sections[0].title == (
        "Rehearsal-free; With a memory"
    )


def sizes_in_svg(path: Path) -> list[float]:
    found = re.findall(r"font(?:-size)?:[^;\"]*?([\d.]+)px", path.read_text("utf-8"))
    return [float(size) for size in found]


def pdf_streams(content: bytes) -> bytes:
    """Return everything that is compressed in a PDF, one after the other."""
    found = b""
    for match in re.finditer(rb"stream\r?\n", content):
        try:
            found += zlib.decompressobj().decompress(content[match.end() :])
        except zlib.error:
            continue
    return found


@pytest.mark.slow
def test_figures_have_the_width_of_a_column_or_a_page_and_type_of_7_points(main: Path) -> None:
    widths = {"accuracy-nicv2-3": 3.05, "accuracy-nicv2-3-page": 6.25, "accuracy-all": 6.25}
    for name, width in widths.items():
        content = (main / "figures" / f"{name}.pdf").read_bytes()
        box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", content)
        assert box is not None
        assert float(box[1]) == pytest.approx(72 * width, abs=0.01)
        png = (main / "figures" / f"{name}.png").read_bytes()
        assert int.from_bytes(png[16:20], "big") == pytest.approx(300 * width, abs=1)
    for path in sorted((main / "figures").glob("*.svg")):
        sizes = sizes_in_svg(path)
        assert sizes, path.name
        assert min(sizes) >= 7.0, path.name


def test_fonts_in_a_pdf_are_truetype_and_their_sizes_are_readable(main: Path) -> None:
    for path in sorted((main / "figures").glob("accuracy*.pdf")):
        content = path.read_bytes()
        inside = content + pdf_streams(content)
        assert b"/Type3" not in inside, path.name
        assert b"/FontFile2" in inside, path.name
        sizes = [float(size) for size in re.findall(rb"/F\d+ ([\d.]+) Tf", inside)]
        assert min(sizes) >= 7.0, path.name


def test_markers_on_the_edge_are_not_clipped_and_lie_in_the_picture(main: Path) -> None:
    """Curves begin and end on the edges of the axes: nothing that has markers may be clipped."""
    for path in sorted((main / "figures").glob("accuracy-*.svg")):
        root = ET.fromstring(path.read_text("utf-8"))
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        parents = {child: parent for parent in root.iter() for child in parent}
        markers = 0
        for node in root.iter():
            is_band = node.attrib.get("x") == "0"
            if not node.tag.endswith("}use") or "x" not in node.attrib or is_band:
                continue
            up: ET.Element | None = node
            while up is not None:
                assert "clip-path" not in up.attrib, path.name
                up = parents.get(up)
            markers += 1
            assert 1.5 <= float(node.attrib["x"]) <= width - 1.5, path.name
            assert 1.5 <= float(node.attrib["y"]) <= height - 1.5, path.name
        assert markers > 10, path.name


def texts_in(path: Path) -> list[str]:
    root = ET.fromstring(path.read_text("utf-8"))
    return ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")]


def test_names_of_classes_stay_distinct(tmp_path: Path) -> None:
    """The review found the same text for two classes, cut after 15 letters."""
    place = make_cell(tmp_path, "naive", **TOYS)
    result = json.loads((place / "result.json").read_text())
    confusion = [[int(i == j) for j in range(24)] for i in range(24)]
    result.update(classes=SIGNS, confusion=confusion)
    write_result(place, result)
    write_report(tmp_path, figures=["svg"])
    texts = texts_in(tmp_path / "figures" / "confusion-nicv2-3-naive.svg")
    rows = [text for text in texts if re.match(r"\d\d_", text)]
    assert len(rows) == 48  # beside the rows and below the columns
    assert len(set(rows)) == 24
    sizes = sizes_in_svg(tmp_path / "figures" / "confusion-nicv2-3-naive.svg")
    assert min(sizes) >= 7.0


def test_shortened_names_differ_and_short_ones_stay() -> None:
    names = ["a" * 30 + "x", "a" * 30 + "y", "b"]
    short = shorten_names(names, 10)
    assert len(set(short)) == 3
    assert max(map(len, short)) == 10
    middle = ["a" * 12 + "x" + "a" * 12, "a" * 12 + "y" + "a" * 12]
    assert len(set(shorten_names(middle, 10))) == 2


def test_variants_are_named_by_what_is_unusual_about_them(tmp_path: Path) -> None:
    for options in ({}, {"lr": 1}, {"lr": 1, "guard": "penalty"}, {"lr": 1, "epochs": 9}):
        make_cell(tmp_path / "few", "ar1*", options=options, **TOYS)
    found = {one.name for one in build_series(read_results(tmp_path / "few").cells)}
    assert found == {"AR1*, lr=None", "AR1*", "AR1*, guard=penalty", "AR1*, epochs=9"}
    for last in (1, 2):  # six settings differ, and two variants differ in the last alone
        options = dict.fromkeys("abcde", 1) | {"z": last}
        make_cell(tmp_path / "many", "ar1*", options=options, **TOYS)
    for other in range(3):
        make_cell(tmp_path / "many", "ar1*", options={"x": other}, **TOYS)
    names = [one.name for one in build_series(read_results(tmp_path / "many").cells)]
    assert len(names) == len(set(names)) == 5


def test_tables_are_sorted_with_the_best_in_bold_and_the_bound_last(main: Path) -> None:
    rows = list(csv.DictReader((main / "tables" / "accuracy.csv").read_text().splitlines()))
    names = [row["strategy"] for row in rows if row["protocol"] == "NICv2-3"]
    assert names == ["DSLDA", "AR1*", "Naive", "Cumulative"]
    tex = (main / "tables" / "accuracy.tex").read_text()
    assert r"DSLDA & \textbf{72.5 $\pm$ 1.0}" in tex  # 71.5, 72.5, 73.5
    assert r"Cumulative & 91.0 $\pm$ 1.0" in tex
    assert "fig:" not in tex
    assert tex.count("NICv2-3 &") == 1
    assert "<b>72.5 ± 1.0</b>" in (main / "report.html").read_text("utf-8")
    assert "**72.5 ± 1.0**" in (main / "tables" / "accuracy.md").read_text("utf-8")


def test_the_best_of_each_block_by_hand() -> None:
    rows: list[Row] = [
        ("a", MeanStd(1.0, 0.1, 2), 5.0),
        ("a", MeanStd(3.0, 0.1, 2), 7.0),
        ("a", MeanStd(9.0, 0.1, 2), None),  # a bound, which does not compete
        ("b", 4.0, 2.0),
        ("b", 4.001, 2.0),
        ("c", 1.0, 1.0),
    ]
    rivals = [True, True, False, True, True, True]
    table = Table("t", "T", ("block", "high", "low"), tuple(rows), digits=1)
    found = best_values(table, {"high": "high", "low": "low"}, rivals)
    assert found.bold == {(1, 1), (0, 2), (3, 1), (4, 1), (3, 2), (4, 2)}


def test_what_learned_little_is_named_and_is_never_the_best(tmp_path: Path) -> None:
    """Naive has the least forgetting, and learned less than half of what ncm did."""
    for strategy, learning, forgetting in (
        ("naive", 27.0, 1.0),
        ("ncm", 68.0, 9.0),
        ("er", 34.0, 5),
    ):
        place = make_cell(tmp_path, strategy, learning=learning, **TOYS)
        result = json.loads((place / "result.json").read_text())
        write_result(place, result | {"final": result["final"] | {"forgetting": forgetting}})
    page = build_page(read_results(tmp_path), {})
    (warning,) = page.warnings
    assert warning.startswith("Naive learned little on NICv2-3: 27.0 % right")
    assert "where ncm has 68.0 %" in warning
    table = next(t for section in page.sections for t in section.tables if t.name == "accuracy")
    column = table.columns.index("forgetting")
    assert [table.rows[row][1] for row, place in table.bold if place == column] == [
        "ER (rehearses) with BRN"
    ]


def test_a_latex_table_says_once_what_all_rows_share() -> None:
    rows = tuple(("NICv2", name, MeanStd(1.0, 0.5, 3), 3, "120") for name in ("a", "b"))
    columns = ("protocol", "strategy", "accuracy (%)", "runs", "test frames")
    tex = to_latex(Table("t", "T", columns, rows, caption="All of it"))
    assert r"\begin{tabular}{lr}" in tex
    assert r"a & 1.00 $\pm$ 0.50 \\" in tex
    assert "Protocol: NICv2. Runs: 3. Test frames: 120." in tex
    assert r"\caption{All of it}" in tex


def test_names_cannot_act_in_a_latex_table() -> None:
    r"""After `\\\\` LaTeX takes a star or a bracket for an argument."""
    rows = (("*a", 1.0), ("[b]", 2.0), (r"\input{x} & %", 3.0), ("<d>", 4.0))
    lines = to_latex(Table("t", "T", ("name", "value"), rows)).splitlines()
    for line in (
        r"{}*a & 1.00 \\",
        r"{[}b{]} & 2.00 \\",
        r"\textbackslash{}input\{x\} \& \% & 3.00 \\",
        r"\textless{}d\textgreater{} & 4.00 \\",
    ):
        assert line in lines


def test_rows_of_a_latex_table_name_their_block_once() -> None:
    rows = (("NC", "a", 1.0), ("NC", "b", 2.0), ("NI", "a", 3.0))
    lines = to_latex(Table("t", "T", ("protocol", "strategy", "x"), rows)).splitlines()
    assert [line for line in lines if line.endswith(r"0 \\")] == [
        r"NC & a & 1.00 \\",
        r" & b & 2.00 \\",
        r"NI & a & 3.00 \\",
    ]


def test_a_network_of_ones_own_is_described_by_what_is_known_of_it(tmp_path: Path) -> None:
    own = {"name": "my_nets:small", "weights": "own", "options": {"width": 16, "depth": 2}}
    make_cell(tmp_path, backbone=own)
    write_report(tmp_path, figures=[])
    assert (
        "The network is my_nets:small (width 16, depth 2) with the weights that it is built with,"
    ) in (tmp_path / "methods.txt").read_text("utf-8")


def test_the_methods_paragraph_comes_from_the_results(main: Path) -> None:
    text = (main / "methods.txt").read_text("utf-8")
    for part in (
        "We compare AR1*, DSLDA, Naive and Cumulative on NICv2-3 (3 batches) and NICv2-4",
        "toys (folder), with 4 classes, 400 sessions, 119,894 frames for training, at 64 px",
        "mobilenet_v1 with the weights imagenet, computed in float32",
        "measured on 40 test frames (the whole test set)",
        "means and sample standard deviations over 3 runs",
        "on a <processor> & co",
    ):
        assert part in text, part
    assert "chosen on run" not in text
    tex = (main / "methods.tex").read_text("utf-8")
    assert r"\textless{}processor\textgreater{} \& co" in tex
    assert "A paragraph to paste" in (main / "report.html").read_text("utf-8")


DOCUMENT = r"""\documentclass[%s]{article}
\usepackage{booktabs,graphicx}
\begin{document}
\section{Methods}
\input{methods}
Table~\ref{tab:accuracy} and Figure~\ref{f:accuracy-nicv2-3} show it.
%s
\end{document}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex (texlive)")
@pytest.mark.parametrize("layout", ["10pt", "10pt,twocolumn", "10pt,twocolumn,a4paper"])
def test_a_document_with_every_table_and_figure_and_the_methods_compiles(
    main: Path, tmp_path: Path, layout: str
) -> None:
    """Plain articles, without an error, an undefined reference, or a line that is too wide."""
    source = main
    if "twocolumn" not in layout:
        source = tmp_path / "narrow"
        write_report(main, out=source, figures=["pdf"], page_width=4.75)
    names = sorted(path.stem for path in (source / "tables").glob("*.tex"))
    parts = [rf"\input{{tables/{name}}}\clearpage" for name in names]
    for path in sorted((source / "figures").glob("*.pdf")):
        box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", path.read_bytes())
        assert box is not None
        float_ = "figure" if float(box[1]) < 72 * 3.1 else "figure*"
        inside = rf"\includegraphics{{figures/{path.stem}}}\caption{{A}}\label{{f:{path.stem}}}"
        parts.append(rf"\begin{{{float_}}}{inside}\end{{{float_}}}\clearpage")
    (tmp_path / "paper.tex").write_text(DOCUMENT % (layout, "\n".join(parts)))
    for name in ("tables", "figures", "methods.tex"):
        (tmp_path / name).symlink_to(source / name)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    for _ in range(2):
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:]
    assert "undefined" not in done.stdout
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", done.stdout)]
    assert not [points for points in wide if points > 0.5], done.stdout[-3000:]
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")


def test_the_width_of_a_page_can_be_that_of_the_document(main: Path, tmp_path: Path) -> None:
    write_report(main, out=tmp_path, figures=["svg"], page_width=4.75)
    for name in ("accuracy-nicv2-3-page", "accuracy-all"):
        root = ET.fromstring((tmp_path / "figures" / f"{name}.svg").read_text("utf-8"))
        assert float(root.attrib["viewBox"].split()[2]) == pytest.approx(72 * 4.75, abs=0.01)
    with pytest.raises(InputError, match="2 to 30 inches"):
        write_report(main, out=tmp_path, page_width=345)


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no Chromium: apt-get install chromium")
def test_tables_that_scroll_on_a_phone_say_so(main: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto((main / "report.html").as_uri())
        tables = page.evaluate(
            """() => [...document.querySelectorAll('.scroll')].map(box => [
                box.getAttribute('aria-label'),
                box.scrollWidth > box.clientWidth,
                box.tabIndex,
                getComputedStyle(box).backgroundImage.split('linear-gradient').length - 1,
                getComputedStyle(box).backgroundAttachment,
            ])"""
        )
        whole = page.evaluate("document.documentElement.scrollWidth")
        browser.close()
    assert whole == 390
    assert any(scrolls for _, scrolls, *_ in tables)
    for name, _, index, shades, attachment in tables:
        assert name
        assert index == 0  # the keyboard reaches it
        # Two shadows at the edges, and two covers that move with the table and hide them there.
        assert shades == 4, name
        assert attachment == "local, local, scroll, scroll", name
