"""The claims of the paper's text, each with a verdict from our runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

from primavista.report.accuracy_lookup import Finals, find_finals
from primavista.report.comparison import RULE, Comparison, Estimate, Expectation, Runs
from primavista.report.read import StoredCell
from primavista.report.table import Difference, Row, Table, Verdict, format_value
from primavista.report.titles import FREEZING, protocol_title
from primavista.strategies.registry import hyperparameters, strategy_info

NICV2 = "nicv2"
BASELINES = ("naive", "lwf", "ewc")
PROPOSED = ("ar1*", "cwr*")
WIDE = {"r_max": 3.0, "d_max": 5.0}
BATCH_NORM = {"norm": "bn"}
NORMS = ("renorm.", "batch norm")
ONE_RATE = {"lr_head": hyperparameters(strategy_info("ar1*"))["lr"]}  # that of the other layers


@dataclass(frozen=True)
class Claim:
    """A claim with its comparisons; it holds if all of them do.

    Args:
        title: The claim in a sentence.
        paper: The paper's words, or why it is measured if it is a claim of ours.
        comparisons: One per strategy and protocol.
    """

    title: str
    paper: str
    comparisons: tuple[Comparison, ...]

    @property
    def verdict(self) -> Verdict:
        """The outcome of all comparisons together."""
        if len(self.comparisons) == 1:
            return self.comparisons[0].verdict
        verdicts = [comparison.verdict for comparison in self.comparisons]
        tones = [verdict.tone for verdict in verdicts]
        count, good, bad = len(tones), tones.count("good"), tones.count("bad")
        if good == count:
            return Verdict("holds", "good")
        if bad == count:
            return Verdict("does not hold", "bad")
        parts = []
        if good:
            parts.append(f"holds in {good} of {count}")
        if bad:
            parts.append(f"does not hold in {bad} of {count}")
        if good + bad < count:
            agree = sum(one.tone == "open" and one.text.endswith(" agrees") for one in verdicts)
            parts.append(f"open in {count - good - bad}, the mean agreeing in {agree}")
        return Verdict("; ".join(parts), "bad" if bad else "open")

    @property
    def measured(self) -> str:
        """Every difference with half the width of its interval, in points; a line per contrast."""
        by_what: dict[str, list[str]] = {}
        for one in self.comparisons:
            value = f"{_format_estimate(one.estimate)} ({one.where.removeprefix('NICv2-')})"
            by_what.setdefault(one.what, []).append(value)
        return ";\n".join(f"{what}: {', '.join(values)}" for what, values in by_what.items())


def _format_estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    difference = format_value(Difference(estimate.difference), 1)
    if estimate.half_width is None:
        return difference
    return f"{difference} ± {estimate.half_width:.1f}"


Comparisons = Iterator[Comparison]
Compare = Callable[[Finals], Comparisons]


def _title(strategy: str) -> str:
    return strategy_info(strategy).title


def _against(
    firsts: Sequence[str], seconds: Sequence[str], expected: Expectation = "better"
) -> Compare:
    """Compare strategies with others on every NICv2 protocol."""

    def compare(finals: Finals) -> Comparisons:
        for first, second in product(firsts, seconds):
            for protocol in finals.protocols(NICV2):
                sides = finals.final(first, protocol), finals.final(second, protocol)
                what = f"{_title(first)} − {_title(second)}"
                yield Comparison(what, protocol_title(protocol), expected, *sides)

    return compare


def _variants(
    strategies: Sequence[str],
    sides: tuple[str, str],
    changes: tuple[Mapping[str, Any], Mapping[str, Any]],
    expected: Expectation = "better",
) -> Compare:
    """Compare two variants of strategies on every NICv2 protocol.

    `sides` are the names of the variants, and `changes` their options that differ from the preset.
    """

    def compare(finals: Finals) -> Comparisons:
        for strategy in strategies:
            for protocol in finals.protocols(NICV2):
                first, second = (finals.final(strategy, protocol, own) for own in changes)
                what = f"{_title(strategy)}, {sides[0]} − {sides[1]}"
                yield Comparison(what, protocol_title(protocol), expected, first, second)

    return compare


def _collapse(finals: Finals) -> Comparisons:
    """Check that the baselines learn from coarse batches, less from finer ones, then nothing."""
    protocols = finals.protocols(NICV2)
    for strategy in BASELINES if len(protocols) > 1 else ():
        title = _title(strategy)
        gained = f"{title}, end − after batch 1"
        expectations: tuple[Expectation, Expectation] = ("better", "no better")
        for protocol, expected in zip((protocols[0], protocols[-1]), expectations, strict=True):
            sides = finals.final(strategy, protocol), finals.after_batch_1(strategy, protocol)
            yield Comparison(gained, protocol_title(protocol), expected, *sides)
        for coarse, fine in pairwise(protocols):
            ends = finals.final(strategy, coarse), finals.final(strategy, fine)
            yield _across(f"{title}, coarse − fine", coarse, fine, "better", *ends)


def _across(
    what: str, coarse: str, fine: str, expected: Expectation, first: Runs, second: Runs
) -> Comparison:
    """Compare two protocols, whose runs have different orders."""
    where = f"{protocol_title(coarse)} − {protocol_title(fine).removeprefix('NICv2-')}"
    return Comparison(what, where, expected, first, second, paired=False)


def _granularity(finals: Finals) -> Comparisons:
    """Check that AR1* − CWR* is positive for coarse batches, shrinks, and vanishes at the end."""
    protocols = finals.protocols(NICV2)
    gains = {protocol: _gain(finals, protocol) for protocol in protocols}
    what = "AR1* − CWR*"
    for protocol in protocols:
        last = len(protocols) > 1 and protocol == protocols[-1]
        expected: Expectation = "the same" if last else "better"
        ar1, cwr = (finals.final(strategy, protocol) for strategy in PROPOSED)
        yield Comparison(what, protocol_title(protocol), expected, ar1, cwr)
    for coarse, fine in pairwise(protocols):
        shrinks = gains[coarse], gains[fine]
        yield _across(f"({what}), coarse − fine", coarse, fine, "better", *shrinks)


def _gain(finals: Finals, protocol: str) -> Runs:
    ar1, cwr = (finals.final(strategy, protocol) for strategy in PROPOSED)
    return {run: ar1[run] - cwr[run] for run in ar1.keys() & cwr.keys()}


def _cwr_plus(finals: Finals) -> Comparisons:
    for protocol in finals.protocols("ni"):
        sides = finals.final("cwr*", protocol), finals.final("cwr+", protocol)
        yield Comparison("CWR* − CWR+", protocol_title(protocol), "better", *sides)


def _freezing_on_ni(finals: Finals) -> Comparisons:
    """Check that freezing the depthwise layers is the best of four, the pointwise the worst."""
    better = [("depthwise", other) for other in ("none", "pointwise", "all")]
    better += [(other, "pointwise") for other in ("none", "all")]
    for setting in _settings_beside("freeze", finals.changes("naive", "ni")):
        norm = ", batch norm" if setting.get("norm") == "bn" else ""
        for first, second in better:
            sides = _frozen(finals, setting, first), _frozen(finals, setting, second)
            what = f"{FREEZING[first].title} − {FREEZING[second].title}"
            yield Comparison(what, f"NI{norm}", "better", *sides)


def _settings_beside(option: str, variants: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes without one option, each once."""
    found: list[dict[str, Any]] = []
    for changes in variants:
        rest = {name: value for name, value in changes.items() if name != option}
        if rest not in found:
            found.append(rest)
    return found


def _frozen(finals: Finals, setting: Mapping[str, Any], freeze: str) -> Runs:
    """Return the runs of Naive on NI; freezing the depthwise layers is the preset."""
    changes = dict(setting) if freeze == "depthwise" else {**setting, "freeze": freeze}
    return finals.final("naive", "ni", changes)


def _test_sets(finals: Finals) -> Comparisons:
    strategies = sorted({strategy for strategy, *_, full in finals.cells if full})
    for strategy in strategies:
        for protocol in finals.protocols(NICV2):
            reduced, full = (finals.final(strategy, protocol, full=one) for one in (False, True))
            what = f"{_title(strategy)}, reduced − full"
            yield Comparison(what, protocol_title(protocol), "the same", reduced, full)


# Title, the paper's words, and the comparisons that decide.
CLAIMS: tuple[tuple[str, str, Compare], ...] = (
    (
        "Renormalisation lets AR1* learn from small batches, and helps with larger ones",
        "“for 391 batches Batch Normalization heavily hurt the learning capabilities”; it “brings "
        "some advantages … even when using larger batches” (section 4, fig:bn_vs_brn)",
        _variants(["ar1*"], NORMS, ({}, BATCH_NORM)),
    ),
    (
        "Renormalisation improves the other methods too",
        "“This modification improves accuracy of all the methods” (section 4)",
        _variants(["cwr*", *BASELINES], NORMS, ({}, BATCH_NORM)),
    ),
    (
        "CWR* and AR1* are better than Naive, LwF and EWC",
        "“CWR* and AR1* show a very good learning trend”; EWC and LWF “were not able to learn "
        "effectively” (sections 4 and 5)",
        _against(PROPOSED, BASELINES),
    ),
    (
        "Naive, LwF and EWC are fair with 79 batches and collapse with 391",
        "“fair performance on 79 batches but their efficacy significantly decreases with 196 "
        "batches and are not able to learn in the most challenging case” (section 4)",
        _collapse,
    ),
    (
        "AR1* is better than CWR*, less so with smaller batches, and equal with 391",
        "“The advantage of AR1* over CWR* … reduces as the batch size decreases and is null for "
        "391 batches” (section 4)",
        _granularity,
    ),
    (
        "DSLDA is below CWR* and AR1*",
        "“DSLDA accuracy is quite good and stable but remains lower than CWR* and AR1* in all the "
        "three settings” (section 4)",
        _against(PROPOSED, ["dslda"]),
    ),
    (
        "Cumulative is an upper bound",
        "“a sort of upper bound in terms of accuracy”, about 85% (section 4)",
        _against(["cumulative"], [*PROPOSED, "dslda"]),
    ),
    (
        "CWR+ does not suit NIC; CWR* does",
        "CWR+ “is not well suited for NI and NIC scenarios” (appendix A.1)",
        _cwr_plus,
    ),
    (
        "Modulating the learning rate is as good as the penalty",
        "“negligible in terms of accuracy (less than 0.1% average improvement in NICv2-79)” "
        "(section 4)",
        _variants(["ar1*"], ("modulation", "penalty"), ({}, {"guard": "penalty"}), "the same"),
    ),
    (
        "Freezing the depthwise layers does not matter on NICv2",
        "“in NICv2 experiments this had a negligible impact on the accuracy” (section 4)",
        _variants(
            [*PROPOSED, *BASELINES],
            ("depthwise frozen", "nothing frozen"),
            ({}, {"freeze": "none"}),
            "the same",
        ),
    ),
    (
        "On NI, freezing the depthwise layers is the best of four, the pointwise ones the worst",
        "“The proposed strategy (case ii) achieves the best result … The complementary strategy "
        "(case iii) is the worst one” (section 2.3, fig:NI)",
        _freezing_on_ni,
    ),
    (
        "AR1* still works with r_max 3 and d_max 5",
        "“using the suggested values of r_max=3 and d_max=5 still works” (section 4); here: better "
        "than batch norm",
        _variants(["ar1*"], ("3 and 5", "batch norm"), (WIDE, BATCH_NORM)),
    ),
    (
        "Smaller r_max and d_max are better",
        "“reducing them (i.e. relaxing batch renormalization constrains) brings some” benefits "
        "(section 4)",
        _variants(["ar1*"], ("table", "3 and 5"), ({}, WIDE)),
    ),
    (
        "AR1* benefits from a higher learning rate of the CWR layer",
        "“the overall model performance largely benefits from the use of an higher learning rate "
        "for the CWR layer” (appendix B)",
        _variants(["ar1*"], ("two rates", "one rate"), ({}, ONE_RATE)),
    ),
    (
        "The root in wpast helps",
        "“the weight for the most recent batches may be too low … a square root is used” "
        "(section 2.1)",
        _variants(PROPOSED, ("root", "no root"), ({}, {"wpast": "ratio"})),
    ),
    (
        "The reduced test set gives the accuracies of the full one",
        "“the accuracy results on the original and the down sampled version are very close” "
        "(section 3)",
        _test_sets,
    ),
    (
        "Ours: prima is better than the rehearsal-free strategies of the paper",
        "not in the paper: prima reads a frozen network at several depths",
        _against(["prima"], [*PROPOSED, "dslda"]),
    ),
    (
        "Ours: moments that continue ImageNet's are no better than those of batch 1",
        "“global moments computed on batch 1 are inherited by batch 2” (section 4); the "
        "alternative is not in the paper",
        _variants(
            ["ar1*"], ("ImageNet's", "batch 1's"), ({"moments": "pretrained"}, {}), "no better"
        ),
    ),
)


def check_claims(cells: Sequence[StoredCell]) -> list[Claim]:
    """Return every claim that there are results for, if a plan asked for claims.

    A claim uses whatever cells there are, of any group, so that the cells of the paper's figures
    are not run again for it. Comparisons without a result on both sides are left out, and claims
    without a comparison.
    """
    if not any(group.claim for cell in cells for group in cell.groups):
        return []
    all_finals = find_finals(cells)
    claims = []
    for title, paper, compare in CLAIMS:
        comparisons = [
            _with_data_name(one, finals, len(all_finals) > 1)
            for finals in all_finals
            for one in compare(finals)
            if one.first and one.second
        ]
        if comparisons:
            claims.append(Claim(title, paper, tuple(comparisons)))
    return claims


def _with_data_name(comparison: Comparison, finals: Finals, several: bool) -> Comparison:
    if not several:
        return comparison
    return replace(comparison, where=f"{comparison.where}, {finals.title}")


def claims_table(claims: Sequence[Claim], *notes: str) -> Table:
    """Return a table with one row per claim."""
    rows: list[Row] = [(one.title, one.paper, one.measured, one.verdict) for one in claims]
    columns = ("claim", "the paper", "measured: differences in points (batches)", "verdict")
    return Table("claims", "One row per claim", columns, tuple(rows), (RULE, *notes))


def comparisons_table(claims: Sequence[Claim], *notes: str) -> Table:
    """Return a table with one row per comparison."""
    rows = [_comparison_row(claim, one) for claim in claims for one in claim.comparisons]
    numbers = ("first (%)", "second (%)", "runs", "difference", "± (90%)")
    columns = ("claim", "compared: first − second", "protocol", *numbers, "expected", "verdict")
    return Table("comparisons", "The comparisons behind the claims", columns, tuple(rows), notes)


def _comparison_row(claim: Claim, one: Comparison) -> Row:
    estimate = one.estimate
    assert estimate is not None
    runs = f"{len(one.first)} and {len(one.second)}"
    numbers = (*one.means, runs, Difference(estimate.difference), estimate.half_width)
    return claim.title, one.what, one.where, *numbers, one.expected, one.verdict
