"""The claims of the paper's text, each with a verdict from paired runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import fmean, stdev
from typing import Literal

from primavista.report.read import StoredCell
from primavista.report.table import Difference, Row, Table, Tone, Verdict
from primavista.report.titles import protocol_order, protocol_title
from primavista.strategies.registry import strategy_info

MARGIN = 2.0  # differences up to this many points of accuracy count as the same
RULE = (
    "Rule: both sides of a claim are compared run by run (the same order of batches), by final "
    "accuracy; the interval is the 95% confidence interval of the mean difference (Student's t). "
    "“Better” holds if the whole interval is above 0 and fails if it is below 0. “The same” holds "
    f"if the whole interval is within ±{MARGIN:g} points and fails if it is outside. Anything "
    "else is open, and so is a single run, which has no interval: it can only agree or disagree."
)
# The 97.5% quantiles of Student's t with 1 to 10 degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

Side = Literal["first", "second"]
Expectation = Literal["better", "the same"]
Estimate = tuple[float | None, float | None, int]  # difference, half width of its interval, runs


@dataclass(frozen=True)
class Contrast:
    """A setting in which the two sides of a claim differ.

    Args:
        side: tells which side a cell is on; None if it is on neither.
        titles: the names of the first and the second side.
        expected: what the paper says of the first side relative to the second.
        paper: the paper's words.
    """

    side: Callable[[StoredCell], Side | None]
    titles: tuple[str, str]
    expected: Expectation
    paper: str


def _by_option(key: str, first: str, second: str) -> Callable[[StoredCell], Side | None]:
    """Return a function that tells the side by the value of one option."""

    def side(cell: StoredCell) -> Side | None:
        value = cell.options.get(key)
        if value == first:
            return "first"
        return "second" if value == second else None

    return side


def _number(cell: StoredCell, option: str) -> float | None:
    """Return the value of an option if it is a finite number."""
    value = cell.options.get(option)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None


def _renorm_limits(cell: StoredCell) -> Side | None:
    r_max = _number(cell, "r_max")
    if r_max is None:
        return None
    return "second" if r_max >= 3 else "first"


def _learning_rates(cell: StoredCell) -> Side | None:
    lr = _number(cell, "lr")
    lr_head = _number(cell, "lr_head")
    if lr is None:
        return None
    return "first" if lr_head is not None and lr_head != lr else "second"


def _test_set(cell: StoredCell) -> Side | None:
    test = cell.data.get("test")
    if test in ("reduced", "full"):
        return "first" if test == "reduced" else "second"
    if cell.test_thin is None:
        return None
    return "first" if cell.test_thin > 1 else "second"


CONTRASTS: tuple[Contrast, ...] = (
    Contrast(
        _by_option("guard", "modulate", "penalty"),
        ("modulation", "penalty"),
        "the same",
        "“negligible in terms of accuracy (less than 0.1% average improvement in NICv2-79)”",
    ),
    Contrast(
        _by_option("norm", "brn", "bn"),
        ("renormalisation", "batch norm"),
        "better",
        "“improves accuracy of all the methods”",
    ),
    Contrast(
        _by_option("freeze", "depthwise", "none"),
        ("depthwise frozen", "nothing frozen"),
        "the same",
        "“in NICv2 experiments this had a negligible impact on the accuracy”",
    ),
    Contrast(
        _by_option("wpast", "sqrt", "ratio"),
        ("wpast with the root", "without"),
        "better",
        "“the weight for the most recent batches may be too low”, hence the square root",
    ),
    Contrast(
        _by_option("head", "cwr*", "cwr+"),
        ("CWR*", "CWR+"),
        "better",
        "CWR+ “is not well suited for NI and NIC scenarios”",
    ),
    Contrast(
        _renorm_limits,
        ("r_max, d_max of the table", "r_max 3, d_max 5"),
        "better",
        "3 and 5 “still works”, but “reducing them … brings some” benefits",
    ),
    Contrast(
        _learning_rates,
        ("two learning rates", "one learning rate"),
        "better",
        "“largely benefits from the use of an higher learning rate for the CWR layer”",
    ),
    Contrast(
        _test_set,
        ("reduced test set", "full test set"),
        "the same",
        "“the accuracy results on the original and the down sampled version are very close”",
    ),
)
GRANULARITY = (
    "“The advantage of AR1* over CWR* … reduces as the batch size decreases "
    "and is null for 391 batches”"
)


@dataclass(frozen=True)
class Comparison:
    """One comparison under a claim.

    Args:
        title: the two sides and the protocol.
        expected: what the paper says of the first side relative to the second.
        difference: the mean difference in points; None if there are no paired runs.
        half_width: half the width of its 95% confidence interval; None if there is one run.
        runs: the number of paired runs.
    """

    title: str
    expected: Expectation
    difference: float | None
    half_width: float | None
    runs: int

    @property
    def verdict(self) -> Verdict:
        """The outcome by `RULE`."""
        if self.difference is None:
            return Verdict("open: no run finished on both sides", "open")
        if self.half_width is None:
            return self._single_run(self.difference)
        low, high = self.difference - self.half_width, self.difference + self.half_width
        if self.expected == "better":
            holds, fails = low > 0, high < 0
        else:
            holds = low >= -MARGIN and high <= MARGIN
            fails = low > MARGIN or high < -MARGIN
        if holds:
            return Verdict("holds", "good")
        return Verdict("does not hold", "bad") if fails else Verdict("open", "open")

    def _single_run(self, difference: float) -> Verdict:
        if self.expected == "better":
            agrees = difference > 0
        else:
            agrees = abs(difference) <= MARGIN
        return Verdict(f"open: one run, which {'agrees' if agrees else 'disagrees'}", "open")


@dataclass(frozen=True)
class Claim:
    """A claim with its comparisons; it holds if all of them do.

    Args:
        name: the title of the plan's group.
        paper: the paper's words.
        comparisons: one per strategy and protocol.
    """

    name: str
    paper: str
    comparisons: tuple[Comparison, ...]

    @property
    def verdict(self) -> Verdict:
        """The outcome of all comparisons together."""
        if not self.comparisons:
            return Verdict("open: nothing to compare", "open")
        tones: set[Tone] = {comparison.verdict.tone for comparison in self.comparisons}
        if tones == {"bad"}:
            return Verdict("does not hold", "bad")
        if "bad" in tones:
            return Verdict("does not hold everywhere", "bad")
        return Verdict("open", "open") if "open" in tones else Verdict("holds", "good")


def check_claims(cells: Iterable[StoredCell]) -> list[Claim]:
    """Return one claim per group of cells that tests one.

    The settings in which the cells of a group differ tell what is compared.

    Args:
        cells: all cells; those in no group of a claim are ignored.
    """
    cells_of: dict[str, list[StoredCell]] = {}
    for cell in cells:
        for group in cell.groups:
            if group.claim:
                cells_of.setdefault(group.title or group.name, []).append(cell)
    return [_check_claim(name, own) for name, own in cells_of.items()]


def claims_table(claims: Sequence[Claim]) -> Table | None:
    """Return a table with one row per comparison, or None if there is no claim.

    Args:
        claims: as `check_claims` returns them.
    """
    rows = [row for claim in claims for row in _claim_rows(claim)]
    if not rows:
        return None
    numbers = ("paired runs", "difference (points)", "± (95%)")
    columns = ("claim", "compared", "expected", *numbers, "verdict")
    return Table("claims", "The claims of the text", columns, tuple(rows), (RULE,))


def _claim_rows(claim: Claim) -> list[Row]:
    if not claim.comparisons:
        return [(claim.name, "nothing to compare", "better", 0, None, None, claim.verdict)]
    rows: list[Row] = []
    for one in claim.comparisons:
        difference = None if one.difference is None else Difference(one.difference)
        numbers = (one.runs, difference, one.half_width)
        rows.append((claim.name, one.title, one.expected, *numbers, one.verdict))
    return rows


def _check_claim(name: str, cells: Sequence[StoredCell]) -> Claim:
    strata: dict[tuple[str, str], list[StoredCell]] = {}
    for cell in cells:
        strata.setdefault((cell.protocol, _family(cell)), []).append(cell)
    keys = sorted(strata, key=lambda key: (protocol_order(key[0]), key[1]))
    ordered = [strata[key] for key in keys]
    for contrast in CONTRASTS:
        if any({"first", "second"} <= set(map(contrast.side, own)) for own in ordered):
            compared = [
                _compare_sides(contrast, own) for own in ordered if any(map(contrast.side, own))
            ]
            return Claim(name, contrast.paper, tuple(compared))
    return Claim(name, GRANULARITY, tuple(_compare_granularity(cells)))


def _compare_sides(contrast: Contrast, cells: Sequence[StoredCell]) -> Comparison:
    first = [cell for cell in cells if contrast.side(cell) == "first"]
    second = [cell for cell in cells if contrast.side(cell) == "second"]
    names = sorted({strategy_info(cell.strategy).title for cell in cells})
    strategies = "" if set(names) <= set(contrast.titles) else f"{' and '.join(names)}: "
    sides = f"{contrast.titles[0]} against {contrast.titles[1]}"
    title = f"{strategies}{sides}, {protocol_title(cells[0].protocol)}"
    return Comparison(title, contrast.expected, *paired_interval(_differences(first, second)))


def _compare_granularity(cells: Sequence[StoredCell]) -> list[Comparison]:
    """Check that AR1* − CWR* shrinks from coarse to fine protocols and vanishes at the finest."""
    gains = _gains(cells)
    if not gains:
        return []
    coarse, fine = next(iter(gains)), list(gains)[-1]
    title = f"AR1* against CWR*, {protocol_title(fine)}"
    finest = Comparison(title, "the same", *paired_interval(gains[fine]))
    if coarse == fine:
        return [finest]
    title = f"AR1* − CWR*, {protocol_title(coarse)} against {protocol_title(fine)}"
    shrinks = Comparison(title, "better", *_unpaired_interval(gains[coarse], gains[fine]))
    return [shrinks, finest]


def _gains(cells: Sequence[StoredCell]) -> Mapping[str, list[float]]:
    """Return AR1* − CWR* of each paired run, by protocol from coarse to fine."""
    gains: dict[str, list[float]] = {}
    for protocol in sorted({cell.protocol for cell in cells}, key=protocol_order):
        own = [cell for cell in cells if cell.protocol == protocol]
        ar1 = [cell for cell in own if _family(cell) == "ar1"]
        cwr = [cell for cell in own if _family(cell) == "cwr"]
        gain = _differences(ar1, cwr)
        if gain:
            gains[protocol] = gain
    return gains


def _family(cell: StoredCell) -> str:
    """Return the name that variants of a strategy share: `cwr` for `cwr*` and `cwr+`."""
    return cell.strategy.rstrip("*+")


def _differences(first: Sequence[StoredCell], second: Sequence[StoredCell]) -> list[float]:
    """Return the differences of final accuracy in the runs that finished on both sides."""
    ours, others = _final_accuracies(first), _final_accuracies(second)
    return [ours[run] - others[run] for run in sorted(ours.keys() & others.keys())]


def _final_accuracies(cells: Sequence[StoredCell]) -> dict[int, float]:
    pairs = ((cell.run, cell.final()) for cell in cells)
    return {run: value for run, value in pairs if value is not None}


def paired_interval(differences: Sequence[float]) -> Estimate:
    """Return the mean, half the width of its 95% confidence interval, and the number of runs.

    Args:
        differences: one per paired run; there is no mean without any, no interval with one.

    >>> mean, half_width, runs = paired_interval([1.0, 2.0, 3.0])
    >>> mean, round(half_width, 2), runs
    (2.0, 2.48, 3)
    """
    runs = len(differences)
    if runs == 0:
        return None, None, 0
    if runs == 1:
        return differences[0], None, 1
    return fmean(differences), _t_quantile(runs - 1) * stdev(differences) / sqrt(runs), runs


def _unpaired_interval(first: Sequence[float], second: Sequence[float]) -> Estimate:
    runs = min(len(first), len(second))
    difference = fmean(first) - fmean(second)
    if runs < 2:
        return difference, None, runs
    error = sqrt(stdev(first) ** 2 / len(first) + stdev(second) ** 2 / len(second))
    return difference, _t_quantile(runs - 1) * error, runs


def _t_quantile(degrees: int) -> float:
    return _T[degrees - 1] if degrees <= len(_T) else 1.96 + 2.7 / degrees
