"""The claims of the paper: verdicts worked out by hand, and a plan that measures all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from primavista.bench.folder import write_result
from primavista.bench.plan import load_plan
from primavista.report.claims import (
    CLAIMS,
    MARGIN,
    Claim,
    Comparison,
    Estimate,
    check_claims,
    claims_table,
    comparisons_table,
    paired_estimate,
    pooled_estimate,
)
from primavista.report.read import read_results
from primavista.strategies.creation import all_options

from .test_report import make_cell

SAME, MORE = (50.0, 51.0, 52.0), (60.0, 61.5, 62.5)


def runs(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_paired_differences_by_hand() -> None:
    assert paired_estimate([4.0]) == Estimate(4.0, None)
    found = paired_estimate([1.0, 3.0])
    assert found.difference == 2.0
    assert found.half_width == pytest.approx(6.314)  # t(1) * sqrt(2) / sqrt(2)


def test_two_samples_by_hand() -> None:
    assert pooled_estimate([4.0], [1.0]) == Estimate(3.0, None)
    found = pooled_estimate([10.0, 12.0], [1.0, 3.0, 5.0])
    assert found.difference == 8.0
    # Squares 2 and 8 over 3 degrees of freedom, times 1/2 + 1/3; t(3) is 2.353.
    assert found.half_width == pytest.approx(2.353 * (10 / 3 * 5 / 6) ** 0.5)
    alone = pooled_estimate([10.0], [1.0, 3.0])  # the spread of the other side, sqrt(2)
    assert alone.half_width == pytest.approx(6.314 * (2 * 1.5) ** 0.5)


def test_runs_are_paired_where_both_sides_have_them() -> None:
    first, second = runs(10.0, 20.0, 30.0), runs(9.0, 19.0, 29.0)
    assert Comparison("", "", "better", first, second).estimate == Estimate(1.0, 0.0)
    unpaired = Comparison("", "", "better", first, second, paired=False).estimate
    assert unpaired.half_width == pytest.approx(2.132 * (100 * 2 / 3) ** 0.5)
    one = Comparison("", "", "better", {0: 25.0}, second).estimate
    assert one.difference == 6.0


@pytest.mark.parametrize(
    ("expected", "difference", "half", "text"),
    [
        ("better", 1.0, 0.9, "holds"),
        ("better", 1.0, 1.1, "open: the mean agrees"),
        ("better", -1.0, 0.9, "does not hold"),
        ("better", -1.0, 1.1, "open: the mean disagrees"),
        ("the same", 1.0, 0.9, "holds"),
        ("the same", 1.0, 1.1, "open: the mean agrees"),
        ("the same", 3.0, 1.1, "open: the mean disagrees"),
        ("the same", 4.0, 1.0, "does not hold"),
        ("the same", -4.0, 1.0, "does not hold"),
        ("the same", MARGIN, 0.0, "holds"),
        ("no better", -9.0, 5.0, "holds"),
        ("no better", 1.0, 0.9, "holds"),
        ("no better", 4.0, 1.0, "does not hold"),
        ("no better", 1.0, 1.5, "open: the mean agrees"),
    ],
)
def test_verdicts(expected: Any, difference: float, half: float, text: str) -> None:
    # Two paired runs with the differences d ± h / t(1) have the mean d and the half width h.
    spread = half / 6.314
    first = runs(50.0 + difference - spread, 50.0 + difference + spread)
    assert Comparison("", "", expected, first, runs(50.0, 50.0)).verdict.text == text


def test_one_run_on_each_side_is_open() -> None:
    one = Comparison("", "", "better", {0: 60.0}, {0: 50.0})
    assert one.verdict.text == "open: one run each, which agrees"
    assert one.verdict.tone == "open"


def test_a_claim_holds_if_all_its_comparisons_do() -> None:
    good = Comparison("a", "x", "better", runs(2.0, 2.0), runs(1.0, 1.0))
    bad = Comparison("b", "x", "better", runs(1.0, 1.0), runs(2.0, 2.0))
    unclear = Comparison("c", "x", "better", runs(1.0, 5.0), runs(2.0, 2.0))

    def outcome(*comparisons: Comparison) -> tuple[str, str]:
        verdict = Claim("", "", comparisons).verdict
        return verdict.text, verdict.tone

    assert outcome(good, good) == ("holds", "good")
    assert outcome(bad, bad) == ("does not hold", "bad")
    assert outcome(good, bad) == ("holds in 1 of 2; does not hold in 1 of 2", "bad")
    assert outcome(good, unclear) == ("holds in 1 of 2; open in 1, the mean agreeing in 1", "open")
    assert outcome(unclear) == ("open: the mean agrees", "open")


def put(
    folder: Path, strategy: str, protocol: str, finals: tuple[float, ...], **options: Any
) -> None:
    """Write finished cells of one variant, of which the first batch has an accuracy of 14."""
    more = {name: options.pop(name) for name in ("group", "test_thin", "data") if name in options}
    more = {"group": "claim: mine", **more}
    every = all_options(strategy, protocol, options)  # as `bench run` writes them
    for run, final in enumerate(finals):
        make_cell(folder, strategy, protocol, run, (14.0, final), options=every, **more)


def check(folder: Path) -> dict[str, Claim]:
    return {claim.title: claim for claim in check_claims(read_results(folder).cells)}


def test_claims_take_their_cells_from_any_group(tmp_path: Path) -> None:
    put(tmp_path, "ar1*", "nicv2-391", MORE, group="fig:results")
    put(tmp_path, "ar1*", "nicv2-391", SAME, norm="bn")
    put(tmp_path, "cwr*", "nicv2-391", SAME, group="fig:results")
    put(tmp_path, "cwr*", "nicv2-391", MORE, wpast="ratio")
    put(tmp_path, "cwr+", "nic", SAME)
    put(tmp_path, "cwr*", "nic", MORE)
    put(tmp_path, "ar1*", "nicv2-391", SAME, lr_head=1e-4)
    put(tmp_path, "ar1*", "nicv2-391", SAME, r_max=3, d_max=5)  # whole numbers are the same values
    put(tmp_path, "ar1*", "nicv2-391", MORE, path="displacement")
    put(tmp_path, "ar1*", "nicv2-391", MORE, path="displacement", guard="penalty")
    put(tmp_path, "dslda", "nicv2-391", (1.0, 2.0, 3.0))
    put(tmp_path, "dslda", "nicv2-391", (90.0, 91.0, 92.0), tune=True)
    put(tmp_path, "ar1*", "nicv2-391", MORE, freeze="none", norm="bn")  # two changes: another thing
    found = {title: claim.verdict.text for title, claim in check(tmp_path).items()}
    assert found == {
        "Renormalisation lets AR1* learn from small batches, and helps with larger ones": "holds",
        "AR1* is better than CWR*, less so with smaller batches, and equal with 391": "holds",
        "DSLDA is below CWR* and AR1*": "holds",
        "DSLDA on features that batch 1 has trained is below CWR* and AR1*": "does not hold",
        "CWR+ does not suit NIC; CWR* does": "holds",
        "Modulating the learning rate is as good as the penalty": "holds",
        "AR1* still works with r_max 3 and d_max 5": "open: the mean disagrees",
        "Smaller r_max and d_max are better": "holds",
        "AR1* benefits from a higher learning rate of the CWR layer": "holds",
        "The root in wpast helps": "does not hold",
    }
    claim = check(tmp_path)["Smaller r_max and d_max are better"]
    (one,) = claim.comparisons
    assert one.estimate.difference == pytest.approx((10 + 10.5 + 10.5) / 3)
    # The deviation of 10, 10.5 and 10.5 is sqrt(1/12); t(2) is 2.920.
    assert one.estimate.half_width == pytest.approx(2.920 * (1 / 12) ** 0.5 / 3**0.5)
    assert claim.measured == "AR1*, table − 3 and 5: +10.3 ± 0.5 (391)"


def test_an_option_that_all_cells_share_is_not_a_variant(tmp_path: Path) -> None:
    put(tmp_path, "ar1*", "nicv2-391", MORE, epochs=1)
    put(tmp_path, "ar1*", "nicv2-391", SAME, epochs=1, norm="bn")
    put(tmp_path, "cwr+", "nicv2-391", SAME, epochs=1)
    (claim,) = check(tmp_path).values()
    assert claim.verdict.text == "holds"


def test_baselines_are_fair_and_then_collapse(tmp_path: Path) -> None:
    for protocol, finals in (
        ("nicv2-79", (30.0, 31.0)),
        ("nicv2-196", (20.0, 20.5)),
        ("nicv2-391", (8.0, 8.0)),
    ):
        put(tmp_path, "naive", protocol, finals)
    claim = check(tmp_path)["Naive, LwF and EWC are fair with 79 batches and collapse with 391"]
    rows = [(one.what, one.where, one.expected) for one in claim.comparisons]
    assert rows == [
        ("Naive, end − after batch 1", "NICv2-79", "better"),
        ("Naive, end − after batch 1", "NICv2-391", "no better"),
        ("Naive, coarse − fine", "NICv2-79 − 196", "better"),
        ("Naive, coarse − fine", "NICv2-196 − 391", "better"),
    ]
    assert claim.verdict.text == "holds"
    put(tmp_path, "ewc", "nicv2-79", (30.0, 31.0))
    put(tmp_path, "ewc", "nicv2-391", (50.0, 50.0))  # it has learned
    title = "Naive, LwF and EWC are fair with 79 batches and collapse with 391"
    assert check(tmp_path)[title].verdict.text == "holds in 5 of 6; does not hold in 1 of 6"


def test_the_advantage_of_ar1_shrinks(tmp_path: Path) -> None:
    for protocol, gain in (("nicv2-79", 6.0), ("nicv2-196", 3.0), ("nicv2-391", 0.5)):
        put(tmp_path, "cwr*", protocol, SAME)
        put(tmp_path, "ar1*", protocol, tuple(x + gain + 0.1 * run for run, x in enumerate(SAME)))
    claim = check(tmp_path)[
        "AR1* is better than CWR*, less so with smaller batches, and equal with 391"
    ]
    assert [(one.where, one.expected) for one in claim.comparisons] == [
        ("NICv2-79", "better"),
        ("NICv2-196", "better"),
        ("NICv2-391", "the same"),
        ("NICv2-79 − 196", "better"),
        ("NICv2-196 − 391", "better"),
    ]
    assert claim.verdict.text == "holds"


def test_better_by_more_than_15_points(tmp_path: Path) -> None:
    put(tmp_path, "ar1*", "nicv2-391", (60.0, 61.0))
    put(tmp_path, "naive", "nicv2-391", (40.0, 41.0))
    put(tmp_path, "lwf", "nicv2-391", (46.0, 47.0))  # by 14 only
    claim = check(tmp_path)["AR1* is better than Naive, LwF and EWC by more than 15 points"]
    assert [(one.what, one.estimate.difference) for one in claim.comparisons] == [
        ("AR1* − Naive − 15", 5.0),
        ("AR1* − LwF − 15", -1.0),
    ]
    assert claim.verdict.text == "holds in 1 of 2; does not hold in 1 of 2"


def test_smaller_batches_cost_less_than_they_cost_naive(tmp_path: Path) -> None:
    for strategy, coarse, fine in (("ar1*", 60.0, 55.0), ("cwr*", 50.0, 50.5), ("lwf", 27.0, 8.0)):
        put(tmp_path, strategy, "nicv2-79", (coarse, coarse + 1))
        put(tmp_path, strategy, "nicv2-391", (fine, fine + 1))
    claim = check(tmp_path)["Smaller batches cost CWR* and AR1* little"]
    assert [(one.what, one.where, one.estimate.difference) for one in claim.comparisons] == [
        ("drop of LwF − drop of AR1*", "NICv2-79 − 391", 14.0),
        ("drop of LwF − drop of CWR*", "NICv2-79 − 391", 19.5),
    ]
    assert claim.verdict.text == "holds"


def test_both_sides_share_what_is_given(tmp_path: Path) -> None:
    put(tmp_path, "ar1*", "nicv2-79", SAME, freeze="none")  # with the preset's path: not compared
    put(tmp_path, "ar1*", "nicv2-79", SAME)
    put(tmp_path, "ar1*", "nicv2-79", MORE, path="displacement")
    put(tmp_path, "ar1*", "nicv2-79", SAME, path="displacement", freeze="none")
    put(tmp_path, "ewc", "nicv2-79", SAME)
    put(tmp_path, "ewc", "nicv2-79", SAME, guard="modulate")
    found = check(tmp_path)
    (freezing,) = found["Freezing the depthwise layers does not matter on NICv2"].comparisons
    assert freezing.what == "AR1*, depthwise frozen − nothing frozen"
    assert freezing.estimate.difference == pytest.approx((10 + 10.5 + 10.5) / 3)
    (guard,) = found["Modulating the learning rate is as good as the penalty"].comparisons
    assert (guard.what, guard.verdict.text) == ("EWC, modulation − penalty", "holds")


def test_freezing_on_ni(tmp_path: Path) -> None:
    values = {"none": 60.0, "depthwise": 62.0, "pointwise": 50.0, "all": 55.0}
    for freeze, value in values.items():
        options = {"freeze": freeze, "norm": "bn", "epochs": 1, "epochs_1": 1, "freeze_from": 1}
        put(tmp_path, "naive", "ni", (value, value + 1), **options)
    put(tmp_path, "naive", "nicv2-79", SAME)  # so that the epochs are not shared by all
    (claim,) = check(tmp_path).values()
    assert claim.verdict.text == "holds"
    assert {one.where for one in claim.comparisons} == {"NI, batch norm"}
    assert len(claim.comparisons) == 5


def test_the_test_set(tmp_path: Path) -> None:
    rendered = {"kind": "rendered", "name": "rendered"}
    put(tmp_path, "cwr*", "nicv2-79", SAME, test_thin=20, data=rendered)
    put(tmp_path, "cwr*", "nicv2-79", tuple(x + 0.5 for x in SAME), test_thin=1, data=rendered)
    put(tmp_path, "dslda", "nicv2-79", MORE, test_thin=20, data=rendered)
    claims = check(tmp_path)
    assert claims["The reduced test set gives the accuracies of the full one"].measured == (
        "CWR*, reduced − full: −0.5 ± 0.0 (79)"
    )
    (one,) = claims["DSLDA is below CWR* and AR1*"].comparisons
    assert one.first == runs(*SAME)  # those of the reduced test set


def test_data_sets_are_not_mixed(tmp_path: Path) -> None:
    for name, gain in (("mine", 1.0), ("yours", -1.0)):
        data = {"kind": "folder", "name": name, "path": f"/{name}"}
        put(tmp_path, "ar1*", "nicv2", SAME, data=data)
        put(tmp_path, "dslda", "nicv2", tuple(x - gain for x in SAME), data=data)
    claim = check(tmp_path)["DSLDA is below CWR* and AR1*"]
    assert {one.where: one.verdict.text for one in claim.comparisons} == {
        "NICv2, mine": "holds",
        "NICv2, yours": "does not hold",
    }


def test_there_are_no_claims_unless_a_plan_asks(tmp_path: Path) -> None:
    put(tmp_path, "ar1*", "nicv2-391", MORE, group="fig:results")
    put(tmp_path, "dslda", "nicv2-391", SAME, group="fig:results")
    assert check(tmp_path) == {}
    assert claims_table([]).rows == comparisons_table([]).rows == ()


def test_the_claims_plan_measures_every_claim(tmp_path: Path) -> None:
    """Every claim has all its comparisons when the cells of the plan are done."""
    plan = load_plan("claims", ["device=cpu"])
    names: dict[str, list[str]] = {}
    for planned in plan.planned():
        cell = planned.cell
        place = tmp_path / planned.folder
        place.mkdir(parents=True)
        (place / "run.json").write_text(cell.model_dump_json())
        lines = [{"batch": b, "measures": {"accuracy": a}} for b, a in ((1, 14.0), (2, 40.0))]
        (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = {"format": 1, "final": {"accuracy": 40.0}, "batches": 2}
        write_result(place, result)
        for group in planned.groups:
            names.setdefault(group, []).append(planned.folder)
    groups = [{"plan": "claims", "name": name, "cells": cells} for name, cells in names.items()]
    record = {"format": 1, "base": {}, "plans": {}, "groups": groups}
    (tmp_path / "plan.json").write_text(json.dumps(record))
    claims = check(tmp_path)
    assert list(claims) == [claim["title"] for claim in CLAIMS]
    compared = [len(claim.comparisons) for claim in claims.values()]
    # norm of AR1*, of 4 others; 2 x 3 x 3, of AR1* by 15; 2 x 2 drops; 3 x (2 + 2); 3 + 2; twice
    # DSLDA, 2 x 3; 3 x 3; NIC and 3 NICv2; guard and freezing of AR1* and EWC; NI; ...
    assert compared == [3, 12, 18, 9, 4, 12, 5, 6, 6, 9, 4, 2, 2, 5, 3, 3, 2, 2, 3, 2, 4, 9, 2]
