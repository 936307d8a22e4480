"""The claims of the paper's text, each with a verdict from paired runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

from primavista.report.names import look, protocol_name, protocol_rank
from primavista.report.read import Cell, number
from primavista.report.table import Mark, Signed, Table, Tone, Value

MARGIN = 2.0  # points of accuracy that count as the same
RULE = (
    "Rule: both sides of a claim are compared run by run (the same order of batches), by final accuracy; the interval is the "
    "95% confidence interval of the mean difference (Student's t). “Better” holds if the whole interval is above 0 and fails "
    f"if it is below 0. “The same” holds if the whole interval is within ±{MARGIN:g} points and fails if it is outside. "
    "Anything else is open, and so is a single run, which has no interval: it can only point one way."
)
_T = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
)  # 97.5%, 1 to 10 degrees of freedom

Expect = Literal["better", "the same"]


@dataclass(frozen=True)
class Axis:
    """What two sides of a claim differ in: `side` gives "first" or "second", `words` their names."""

    side: Callable[[Cell], str | None]
    words: tuple[str, str]
    expect: Expect
    paper: str


def _option(key: str, first: object, second: object) -> Callable[[Cell], str | None]:
    return lambda cell: {first: "first", second: "second"}.get(cell.options.get(key))


def _limits(cell: Cell) -> str | None:
    r_max = number(cell.options.get("r_max"))
    return None if r_max is None else "second" if r_max >= 3 else "first"


def _rates(cell: Cell) -> str | None:
    lr, head = number(cell.options.get("lr")), number(cell.options.get("lr_head"))
    return None if lr is None else "first" if head is not None and head != lr else "second"


def _test_set(cell: Cell) -> str | None:
    thin, test = number(cell.plan.get("test_thin")), cell.data.get("test")
    if test in ("reduced", "full"):
        return "first" if test == "reduced" else "second"
    return None if thin is None else "first" if thin > 1 else "second"


AXES: tuple[Axis, ...] = (
    Axis(
        _option("guard", "modulate", "penalty"),
        ("modulation", "penalty"),
        "the same",
        "“negligible in terms of accuracy (less than 0.1% average improvement in NICv2-79)”",
    ),
    Axis(
        _option("norm", "brn", "bn"),
        ("renormalisation", "batch norm"),
        "better",
        "“improves accuracy of all the methods”",
    ),
    Axis(
        _option("freeze", "depthwise", "none"),
        ("depthwise frozen", "nothing frozen"),
        "the same",
        "“in NICv2 experiments this had a negligible impact on the accuracy”",
    ),
    Axis(
        _option("wpast", "sqrt", "ratio"),
        ("wpast with the root", "without"),
        "better",
        "“the weight for the most recent batches may be too low”, hence the square root",
    ),
    Axis(
        _option("head", "cwr*", "cwr+"),
        ("CWR*", "CWR+"),
        "better",
        "CWR+ “is not well suited for NI and NIC scenarios”",
    ),
    Axis(
        _limits,
        ("r_max, d_max of the table", "r_max 3, d_max 5"),
        "better",
        "3 and 5 “still works”, but “reducing them … brings some” benefits",
    ),
    Axis(
        _rates,
        ("two learning rates", "one learning rate"),
        "better",
        "“largely benefits from the use of an higher learning rate for the CWR layer”",
    ),
    Axis(
        _test_set,
        ("reduced test set", "full test set"),
        "the same",
        "“the accuracy results on the original and the down sampled version are very close”",
    ),
)
GRANULARITY = "“The advantage of AR1* over CWR* … reduces as the batch size decreases and is null for 391 batches”"


@dataclass(frozen=True)
class Check:
    """One comparison under a claim: the mean difference, half the width of its interval (None for one run), the verdict."""

    what: str
    expect: Expect
    difference: float | None
    half: float | None
    runs: int

    @property
    def verdict(self) -> Mark:
        """By `RULE`."""
        if self.difference is None:
            return Mark("open: no run finished on both sides", "open")
        if self.half is None:
            good = (
                self.difference > 0 if self.expect == "better" else abs(self.difference) <= MARGIN
            )
            return Mark(
                f"open: one run, which points {'that' if good else 'the other'} way", "open"
            )
        low, high = self.difference - self.half, self.difference + self.half
        if self.expect == "better":
            holds, fails = low > 0, high < 0
        else:
            holds, fails = low >= -MARGIN and high <= MARGIN, low > MARGIN or high < -MARGIN
        return (
            Mark("holds", "good")
            if holds
            else Mark("does not hold", "bad")
            if fails
            else Mark("open", "open")
        )


@dataclass(frozen=True)
class Claim:
    """A claim with its checks; it holds if all of them do."""

    name: str
    paper: str
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Mark:
        """That of all checks together."""
        if not self.checks:
            return Mark("open: nothing to compare", "open")
        tones: list[Tone] = [check.verdict.tone for check in self.checks]
        if "bad" in tones:
            return Mark(
                "does not hold" if set(tones) == {"bad"} else "does not hold everywhere", "bad"
            )
        return Mark("open", "open") if "open" in tones else Mark("holds", "good")


def claims(cells: Sequence[Cell]) -> list[Claim]:
    """One for each group of cells that tests a claim; what its cells differ in says what is compared."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        for group in cell.groups:
            if group.claim:
                groups.setdefault(group.title or group.name, []).append(cell)
    return [_claim(name, own) for name, own in groups.items()]


def claims_table(found: Sequence[Claim]) -> Table | None:
    """A line a comparison."""
    rows: list[tuple[Value, ...]] = []
    for claim in found:
        for check in claim.checks or (Check("nothing to compare", "better", None, None, 0),):
            difference = Signed(check.difference) if check.difference is not None else None
            verdict = check.verdict if claim.checks else claim.verdict
            rows.append(
                (claim.name, check.what, check.expect, check.runs, difference, check.half, verdict)
            )
    columns = (
        "claim",
        "compared",
        "expected",
        "paired runs",
        "difference (points)",
        "± (95%)",
        "verdict",
    )
    return (
        Table("claims", "The claims of the text", columns, tuple(rows), (RULE,)) if rows else None
    )


def _claim(name: str, cells: Sequence[Cell]) -> Claim:
    strata: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        strata.setdefault((_family(cell), cell.protocol), []).append(cell)
    ordered = sorted(strata.items(), key=lambda item: (protocol_rank(item[0][1]), item[0][0]))
    for axis in AXES:
        if any({"first", "second"} <= {axis.side(cell) for cell in own} for _, own in ordered):
            checks = [_compare(axis, own) for _, own in ordered if any(map(axis.side, own))]
            return Claim(name, axis.paper, tuple(checks))
    return Claim(name, GRANULARITY, tuple(_granularity(cells)))


def _compare(axis: Axis, cells: Sequence[Cell]) -> Check:
    first = [cell for cell in cells if axis.side(cell) == "first"]
    second = [cell for cell in cells if axis.side(cell) == "second"]
    names = sorted({look(cell.strategy).name for cell in cells})
    whose = "" if set(names) <= set(axis.words) else f"{' and '.join(names)}: "
    what = f"{whose}{axis.words[0]} against {axis.words[1]}, {protocol_name(cells[0].protocol)}"
    return Check(what, axis.expect, *interval(_differences(first, second)))


def _granularity(cells: Sequence[Cell]) -> list[Check]:
    """AR1* − CWR* shrinks from the coarsest to the finest protocol, and is null at the finest."""
    gains: dict[str, list[float]] = {}
    for protocol in sorted({cell.protocol for cell in cells}, key=protocol_rank):
        own = [cell for cell in cells if cell.protocol == protocol]
        gain = _differences(
            [c for c in own if _family(c) == "ar1"], [c for c in own if _family(c) == "cwr"]
        )
        if gain:
            gains[protocol] = gain
    if not gains:
        return []
    coarse, fine = min(gains, key=protocol_rank), max(gains, key=protocol_rank)
    checks = [
        Check(f"AR1* against CWR*, {protocol_name(fine)}", "the same", *interval(gains[fine]))
    ]
    if coarse != fine:
        what = f"AR1* − CWR*, {protocol_name(coarse)} against {protocol_name(fine)}"
        checks.insert(0, Check(what, "better", *_unpaired(gains[coarse], gains[fine])))
    return checks


def _family(cell: Cell) -> str:
    return cell.strategy.rstrip("*+")


def _differences(first: Sequence[Cell], second: Sequence[Cell]) -> list[float]:
    ours = {cell.run: value for cell in first if (value := cell.final()) is not None}
    others = {cell.run: value for cell in second if (value := cell.final()) is not None}
    return [ours[run] - others[run] for run in sorted(ours.keys() & others.keys())]


def interval(differences: Sequence[float]) -> tuple[float | None, float | None, int]:
    """The mean, half the width of its 95% interval, and the count.

    >>> mean, half, count = interval([1.0, 2.0, 3.0])
    >>> mean, round(half, 2), count
    (2.0, 2.48, 3)
    """
    count = len(differences)
    if count < 2:
        return (differences[0] if count else None), None, count
    return fmean(differences), _t(count - 1) * stdev(differences) / sqrt(count), count


def _unpaired(first: Sequence[float], second: Sequence[float]) -> tuple[float, float | None, int]:
    count = min(len(first), len(second))
    difference = fmean(first) - fmean(second)
    if count < 2:
        return difference, None, count
    return (
        difference,
        _t(count - 1) * sqrt(stdev(first) ** 2 / len(first) + stdev(second) ** 2 / len(second)),
        count,
    )


def _t(freedom: int) -> float:
    return _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.7 / freedom
