"""Numbers of the report, worked out by hand or by the files that the authors published."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from primavista.errors import FileError
from primavista.report import write_report
from primavista.report.methods import option_table
from primavista.report.published import TARGETS, read_published, target_accuracies
from primavista.report.read import read_results
from primavista.report.result_tables import efficiency_table, final_table, parity_table
from primavista.report.series import MeanStd, build_series, mean_curve, mean_std
from primavista.report.table import (
    Difference,
    Table,
    Verdict,
    format_value,
    to_csv,
    to_latex,
    to_markdown,
)
from primavista.report.texts import escape_latex, templates

from .test_report import CORE50_FACTS, make_cell


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def test_mean_and_sample_deviation() -> None:
    # squares 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, over 8 - 1
    found = mean_std([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert found == MeanStd(5.0, pytest.approx((32 / 7) ** 0.5), 8)
    assert mean_std([3.0]) == MeanStd(3.0, None, 1)
    assert mean_std([]) is None


def test_a_mean_curve_is_over_the_runs_that_got_there() -> None:
    assert mean_curve([{1: 10.0, 2: 20.0, 4: 50.0}, {1: 30.0, 2: 40.0}]) == [
        (1, MeanStd(20.0, pytest.approx(200**0.5), 2)),  # 10 and 10 from the mean: 200 / 1
        (2, MeanStd(30.0, pytest.approx(200**0.5), 2)),
        (4, MeanStd(50.0, None, 1)),
    ]


def test_final_accuracy(tmp_path: Path) -> None:
    for run, final in enumerate((50.0, 60.0, 64.0)):
        make_cell(tmp_path, "cwr*", run=run, accuracies=(10.0, final))
    make_cell(tmp_path, "cwr*", run=3, accuracies=(10.0, 99.0), done=False)
    write_report(tmp_path, figures=["svg"])
    (row,) = rows(tmp_path / "tables" / "final.csv")
    assert row["strategy"] == "CWR*"
    assert row["runs"] == "3"
    assert float(row["final accuracy (%)"]) == 58.0
    assert float(row["final accuracy (%), std"]) == pytest.approx(
        (104 / 2) ** 0.5
    )  # 8, 2, 6: 64 + 4 + 36
    assert float(row["without run 0 (%)"]) == 62.0
    html = (tmp_path / "report.html").read_text("utf-8")
    assert "58.00 ± 7.21" in html
    assert row["test frames"] == "2,249"


def test_runs_with_other_options_are_other_series(tmp_path: Path) -> None:
    make_cell(tmp_path, "ar1*", run=0)
    make_cell(tmp_path, "ar1*", run=1)
    make_cell(tmp_path, "ar1*", run=0, options={"norm": "bn"})
    make_cell(tmp_path, "ar1*", run=0, options={"lr": 0.5})
    make_cell(
        tmp_path, "ar1*", run=0, accuracies=(1.0,), done=False
    )  # a second, unfinished copy of run 0
    found = {
        one.name: [cell.run for cell in one.cells]
        for one in build_series(read_results(tmp_path).cells)
    }
    assert found == {"AR1*, lr=None": [0, 1], "AR1*, lr=0.5": [0], "AR1* with BN": [0]}


def times(minutes: float, std: float) -> list[Any]:
    """Of the minutes of a run, 3/4 are learning, 1/20 solving and 1/5 testing."""
    shares = (0.75, 0.05, 0.2)
    near = pytest.approx
    return [MeanStd(near(share * minutes), near(share * std), 2) for share in shares]


def one_run(minutes: float) -> MeanStd:
    return MeanStd(pytest.approx(minutes), None, 1)


def test_time_and_memory_of_several_runs(tmp_path: Path) -> None:
    for run, seconds in enumerate((60.0, 180.0)):
        make_cell(tmp_path, "ar1*", "nicv2-391", run, seconds=seconds)
        make_cell(
            tmp_path,
            "cumulative",
            "nicv2-391",
            run,
            seconds=600.0,
            stored=1_000_000,
            options={"norm": "bn"},
        )
    make_cell(tmp_path, "naive", "nicv2-79", 0)
    table = efficiency_table("times", build_series(read_results(tmp_path).cells))
    none, two = 0.0, 2.0
    assert table.rows == (
        ("NICv2-79", "Naive", 1, *map(one_run, (0.75, 0.05, 0.2)), none, two),
        ("NICv2-391", "AR1*", 2, *times(2.0, 2**0.5), none, two),  # 1 and 3 minutes
        ("NICv2-391", "Cumulative", 2, *times(10.0, 0.0), 3.0, two),
    )
    assert table.columns[3:6] == ("learning (min)", "solving (min)", "testing (min)")


def test_the_published_files_give_the_target_table(shared: Path) -> None:
    published = read_published(shared / "data")
    assert {len(runs) for runs in published.values()} == {10}
    assert {
        len(run) for key, runs in published.items() for run in runs if key[0] == "nicv2-391"
    } == {391}
    assert (
        published["nicv2-391", "ar1*", "brn"][0][0] == 14.0
    )  # after batch 1, not after its first iteration
    for key, found in target_accuracies(published).items():
        target = TARGETS[key]
        assert found.mean == pytest.approx(target.mean, abs=0.005001)
        assert found.std == target.std or found.std == pytest.approx(target.std, abs=0.005001)
    reference = (shared / "reference.md").read_text("utf-8")
    words = {"ar1*": "AR1*", "cwr*": "CWR*", "ewc": "EWC", "lwf": "LwF", "naive": "Naive"}
    for strategy, name in words.items():
        curves = [published[f"nicv2-{n}", strategy, "brn"] for n in (79, 196, 391)]
        finals = [mean_std([run[-1] for run in runs]) for runs in curves]
        # the reference has population deviations of 10 runs
        cells = [f"{final.mean:.2f} ± {final.std * 0.9**0.5:.2f}" for final in finals]
        assert f"| {name} | {' | '.join(cells)} |" in reference


def test_parity_of_the_authors_with_themselves(shared: Path, tmp_path: Path) -> None:
    published = read_published(shared / "data")
    for (protocol, strategy, norm), one in published.items():
        if protocol == "nicv2-79":
            for run, curve in enumerate(one):
                make_cell(
                    tmp_path,
                    strategy,
                    protocol,
                    run,
                    curve,
                    options={"norm": norm},
                    name=f"{strategy[:3]}{norm}{run}",
                )
    write_report(tmp_path, against=shared / "data", figures=["svg"])
    found = rows(tmp_path / "tables" / "parity.csv")
    assert len(found) == 6
    assert {row["within one std"] for row in found} == {"yes"}
    assert all(abs(float(row["difference"])) < 1e-9 for row in found)
    figure = tmp_path / "figures" / "accuracy-nicv2-79.svg"
    assert "dotted, spaced for dashed: published" in figure.read_text("utf-8")


def test_parity_by_hand(tmp_path: Path) -> None:
    make_cell(tmp_path, "ar1*", "nicv2-391", 0, (55.33,))  # 56.32 - 0.99
    make_cell(tmp_path, "cwr*", "nicv2-391", 0, (58.0,))  # 56.99 + 1.01
    make_cell(tmp_path, "cumulative", "nicv2-391", 0, (84.0,), options={"norm": "bn"})
    make_cell(
        tmp_path, "ewc", "nicv2-391", 0, (5.4,), data={"kind": "rendered", "name": "rendered"}
    )
    make_cell(tmp_path, "naive", "nicv2-391", 0, (8.0,), done=False)
    table = parity_table(build_series(read_results(tmp_path).cells), target_accuracies({}))
    verdicts = {row[1]: (row[-3], row[-1]) for row in table.rows}
    assert verdicts["AR1*"][1] == Verdict("yes", "good")
    assert verdicts["CWR*"][1] == Verdict("no", "bad")
    assert isinstance(verdicts["CWR*"][0], Difference)
    assert verdicts["CWR*"][0].value == pytest.approx(1.01)
    assert verdicts["Cumulative"][1] == Verdict("no deviation published", "open")
    reason = "the result does not say what its data was"
    assert verdicts["EWC"][1] == Verdict(f"not compared: {reason}", "open")
    assert verdicts["Naive"] == (None, Verdict("no finished run", "open"))


def test_an_accuracy_far_below_the_published_one_is_not_within_one_std(tmp_path: Path) -> None:
    make_cell(tmp_path, "ar1*", "nicv2-391", 0, (55.25,))  # 56.32 - 1.07; the deviation is 1.06
    table = parity_table(build_series(read_results(tmp_path).cells), target_accuracies({}))
    assert table.rows[0][-1] == Verdict("no", "bad")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"core50": None}, "the data is not CORe50"),
        (
            {"core50": {"test_set": "reduced", "complete": False}},
            "the data is a part of CORe50 (400 training sessions, 119,894 frames)",
        ),
        ({"size": 64}, "the frames have 64 px, not 128"),
    ],
)
def test_what_is_not_core50_gets_no_parity_verdict(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    data = {"kind": "store", "name": "core50-mine", "path": "/data/core50-mine"}
    make_cell(tmp_path, "ar1*", "nicv2-391", 0, (56.0,), data=data, facts=CORE50_FACTS | changes)
    table = parity_table(build_series(read_results(tmp_path).cells), target_accuracies({}))
    assert table.rows[0][-1] == Verdict(f"not compared: {reason}", "open")


def test_parity_does_not_depend_on_the_name_of_the_folder(tmp_path: Path) -> None:
    data = {"kind": "store", "name": "frames", "path": "/data/frames"}
    facts = CORE50_FACTS | {"order": "generated"}
    make_cell(tmp_path, "ar1*", "nicv2-391", 0, (56.0,), data=data, facts=facts)
    make_cell(tmp_path, "ar1*", "nicv2-391", 1, (56.2,), data=data, facts=CORE50_FACTS)
    html = write_report(tmp_path, figures=["svg"]).read_text("utf-8")
    (row,) = rows(tmp_path / "tables" / "parity.csv")
    assert (row["within one std"], row["our orders"]) == ("yes", "generated, official")
    (row,) = rows(tmp_path / "tables" / "final.csv")
    assert row["orders of batches"] == "generated, official"
    assert "Orders of batches on CORe50: 1 official, 1 generated by this package" in html


def test_a_cumulative_that_is_retrained_a_few_times_is_said(tmp_path: Path) -> None:
    options = {"norm": "bn"}
    make_cell(tmp_path, "cumulative", "nicv2-391", retrain=10, options=options)
    table = efficiency_table("times", build_series(read_results(tmp_path).cells))
    notes = " ".join(table.notes)
    assert (
        "Cumulative was trained from scratch on everything seen so far, and tested, after 10 "
        "evenly spaced batches."
    ) in notes


def test_gdumb_is_said_to_train_on_its_memory_and_to_be_tested_only_then(tmp_path: Path) -> None:
    """It was said to train on everything seen so far, and to be tested as often as the others."""
    curve = (None, 20.0, 30.0)
    make_cell(tmp_path, "gdumb", retrain=2, accuracies=curve, options={"every": None})
    make_cell(tmp_path, "cumulative", retrain=1, options={"every": None, "norm": "bn"})
    make_cell(tmp_path, "naive")
    write_report(tmp_path, figures=[])
    page = (tmp_path / "report.html").read_text("utf-8")
    all_seen, stored = "on everything seen so far", "on the frames that it stores"
    twice = "after 2 evenly spaced batches"
    cumulative = (
        f"Cumulative was trained from scratch {all_seen}, and tested, after the last batch."
    )
    gdumb = f"GDumb (rehearses) was trained from scratch {stored}, and tested, {twice}."
    assert cumulative in page
    assert gdumb in page
    # above the figures, in the notes of three tables, and in the paragraph on methods
    assert page.count(all_seen) == page.count(stored) == 5
    table = efficiency_table("times", build_series(read_results(tmp_path).cells))
    notes = " ".join(table.notes)
    assert gdumb in notes
    methods = (tmp_path / "methods.txt").read_text("utf-8")
    assert cumulative in methods
    assert gdumb in methods


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1,5\t2\n", "no '# scenario:'"),
        ("# scenario: NICv2 - 79\n# strategy: LWF\n1\t2\n", "2 values; nicv2-79 has 80"),
        ("# scenario: NICv2 - 1\n# strategy: LWF\n1\tx\n", "line 3: could not convert"),
    ],
)
def test_published_files_that_are_not(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.tsv").write_text(content)
    with pytest.raises(FileError, match=message):
        read_published(tmp_path)


PRESENT = {"moments": "batch_1", "unseen": "negatives"}  # the values of the presets


def test_options_are_listed_as_they_were_run_with_their_changes(tmp_path: Path) -> None:
    options = {"lr": 0.5, "epochs": 2, "r_max": 3.0, **PRESENT}
    make_cell(tmp_path, "naive", "nicv2-79", options=options)
    make_cell(tmp_path, "mine:Own", "nicv2-79", options={"rate": 2e6})
    table = option_table(build_series(read_results(tmp_path).cells))
    naive, own = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert naive["options"] == (
        "norm brn; freeze depthwise; lr 0.5; epochs 2; r_max 3; moments batch_1; unseen negatives"
    )
    assert naive["other than the preset"] == "lr 0.5 instead of 3.5e-05; r_max 3 instead of 1.25"
    assert naive["source of the preset"] == "tab:hyper_core50, Naive"
    assert own["options"] == "norm brn; freeze depthwise; rate 2e+06"
    assert own["other than the preset"] is None


def test_a_change_that_no_preset_names_is_listed_and_not_denied_in_the_methods(
    tmp_path: Path,
) -> None:
    """`norm` and `minibatch` are in no table of presets: the methods said that nothing changed."""
    make_cell(tmp_path, "naive", options={"norm": "bn", "minibatch": 7, **PRESENT})
    write_report(tmp_path, figures=[])
    (row,) = rows(tmp_path / "tables" / "hyperparameters.csv")
    assert row["other than the preset"] == "norm bn instead of brn; minibatch 7 instead of 128"
    methods = (tmp_path / "methods.txt").read_text("utf-8")
    assert (
        "Hyperparameters are those of primavista's presets for these protocols, except where the "
        "table of hyperparameters says otherwise."
    ) in methods


def test_one_table_four_ways() -> None:
    table = Table(
        "t",
        "A & B",
        ("name", "mean (%)", "difference", "verdict"),
        (
            ("a_b", MeanStd(1.234, 0.5, 3), Difference(-0.25), Verdict("yes", "good")),
            ("<c>", None, Difference(0.0), Verdict("no", "bad")),
        ),
        ("100% of it",),
    )
    assert to_csv(table).splitlines() == [
        'name,mean (%),"mean (%), std","mean (%), runs",difference,verdict',
        "a_b,1.234,0.5,3,-0.25,yes",
        "<c>,,,,0.0,no",
    ]
    assert r"\begin{tabular}{lrrl}" in to_latex(table)
    lines = to_latex(table).splitlines()
    assert r"\caption{A \& B.}" in lines
    assert r"a\_b & 1.23 $\pm$ 0.50 & $-$0.25 & yes \\" in lines
    assert r"\textless{}c\textgreater{} & -- & +0.00 & no \\" in lines
    assert r"\par\smallskip\parbox{\linewidth}{100\% of it}" in lines
    assert to_markdown(table).splitlines() == [
        "| name | mean (%) | difference | verdict |",
        "| --- | ---: | ---: | --- |",
        r"| a\_b | 1.23 ± 0.50 | −0.25 | ✓ yes |",
        "| &lt;c> | – | +0.00 | ✗ no |",
        "",
        "100% of it",
    ]
    html = templates().get_template("table.html.jinja").render(table=table)
    assert '<td class="good">✓ yes</td>' in html
    assert "&lt;c&gt;" in html
    assert '<td class="n">1.23 ± 0.50</td>' in html


def test_latex_escapes() -> None:
    assert escape_latex(r"\ & % $ # _ { } ~ ^") == (
        r"\textbackslash{} \& \% \$ \# \_ \{ \} \textasciitilde{} \textasciicircum{}"
    )
    assert format_value(MeanStd(-1.0, None, 1)) == "−1.00"


def test_what_is_stored_stands_beside_the_accuracy(tmp_path: Path) -> None:
    """2 MB more after each of three batches: 6 MB at most. Naive stores none, and has no entry."""
    make_cell(tmp_path, "latent-replay", stored=2_000_000)
    make_cell(tmp_path, "naive")
    table = final_table("final", build_series(read_results(tmp_path).cells))
    assert table.columns[4:6] == ("test frames", "stored data (MB)")
    assert {row[1]: row[5] for row in table.rows} == {
        "latent replay (rehearses)": 6.0,
        "Naive": None,
    }


def test_final_table_leaves_out_empty_columns(tmp_path: Path) -> None:
    make_cell(tmp_path)
    table = final_table("final", build_series(read_results(tmp_path).cells))
    assert table.columns == (
        "protocol",
        "strategy",
        "final accuracy (%)",
        "runs",
        "test frames",
        "on the classes seen (%)",
        "average incremental (%)",
        "average on all classes (%)",
        "average over tasks (%)",
        "average anytime (%)",
        "learning accuracy (%)",
        "forgetting",
        "backward transfer",
        "forward transfer",
        "orders of batches",
    )
    assert table.rows == (
        (
            "NICv2-3",
            "Naive",
            MeanStd(30.0, None, 1),
            1,
            "2,249",
            *(MeanStd(v, None, 1) for v in (50.0, 60.0, 20.0, 40.0, 45.0, 70.0, 5.0, -4.0, 0.5)),
            "official",
        ),
    )


def test_no_cell_of_a_csv_table_is_run_as_a_formula() -> None:
    """The name of a data set and the reason of a failure may come from somebody else's folder."""
    hostile = ("=HYPERLINK(1)", "+1", "-1", "@x", "\t=1", "\n=1", "\uff1d1")
    table = Table("failed", "", ("cell", "reason"), tuple((text, -2.5) for text in hostile))
    cells = [row[0] for row in csv.reader(io.StringIO(to_csv(table)))][1:]
    assert cells == [f"'{text}" for text in hostile]
    assert to_csv(table).splitlines()[1].endswith(",-2.5")  # numbers stay numbers
