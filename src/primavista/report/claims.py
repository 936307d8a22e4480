"""The claims of the paper's text, each with a verdict from our runs; `claims.toml` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import sqrt
from statistics import fmean, stdev
from typing import Any, Literal

from primavista.errors import InputError
from primavista.report.published import packaged_toml
from primavista.report.read import StoredCell
from primavista.report.series import MeanStd, json_text, mean_std
from primavista.report.table import Difference, Row, Table, Tone, Verdict, format_value
from primavista.report.texts import write_texts
from primavista.report.titles import FREEZING, protocol_order, protocol_title
from primavista.storage.settings import parse_setting
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.creation import all_options
from primavista.strategies.registry import strategy_info

CLAIMS: Sequence[Mapping[str, Any]] = packaged_toml("claims.toml")["claims"]
NICV2 = "nicv2"
TONES: tuple[Tone, ...] = ("good", "bad", "open")
BASELINES = ("naive", "lwf", "ewc")
NAIVE_ON_NI = ("naive", "ni")
NOT_A_VARIANT = "every"  # an option that depends on the plan
Options = Mapping[str, Any]
Side = tuple[str, Options]  # a strategy and its options that differ from the preset
PRESET: Options = {}  # no option differs from the preset
MARGIN = 2.0  # differences up to this many points of accuracy count as the same
# The 95% quantiles of Student's t with 1 to 20 degrees of freedom.
_T = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
)

Expectation = Literal["better", "the same", "no better"]
Runs = Mapping[int, float]  # an accuracy for each run


@dataclass(frozen=True)
class Estimate:
    """The difference of two accuracies, in points.

    Args:
        difference: The mean difference.
        half_width: Half the width of its 90% confidence interval; None if there are too few runs.
    """

    difference: float
    half_width: float | None


def paired_estimate(differences: Sequence[float]) -> Estimate:
    """Return the mean of differences between paired runs.

    >>> found = paired_estimate([1.0, 2.0, 3.0])
    >>> found.difference, round(found.half_width, 3)
    (2.0, 1.686)
    """
    if len(differences) == 1:
        return Estimate(differences[0], None)
    error = stdev(differences) / sqrt(len(differences))
    return Estimate(fmean(differences), _t_quantile(len(differences) - 1) * error)


def pooled_estimate(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Return the difference of the means of two samples of equal variance.

    A sample of one takes its spread from the other.

    >>> found = pooled_estimate([1.0, 2.0, 3.0], [0.0])
    >>> found.difference, round(found.half_width, 3)
    (2.0, 3.372)
    """
    difference = fmean(first) - fmean(second)
    degrees = len(first) + len(second) - 2
    if degrees == 0:
        return Estimate(difference, None)
    squares = sum((x - fmean(own)) ** 2 for own in (first, second) for x in own)
    error = sqrt(squares / degrees * (1 / len(first) + 1 / len(second)))
    return Estimate(difference, _t_quantile(degrees) * error)


def _t_quantile(degrees: int) -> float:
    return _T[degrees - 1] if degrees <= len(_T) else 1.645 + 1.6 / degrees


@dataclass(frozen=True)
class Comparison:
    """Two accuracies that a claim compares."""

    what: str
    where: str
    expected: Expectation
    first: Runs
    second: Runs
    paired: bool = True

    @property
    def estimate(self) -> Estimate:
        """The difference; each side has a finished run."""
        common = sorted(self.first.keys() & self.second.keys())
        if self.paired and len(common) > 1:
            return paired_estimate([self.first[run] - self.second[run] for run in common])
        return pooled_estimate(list(self.first.values()), list(self.second.values()))

    @property
    def means(self) -> tuple[MeanStd | None, MeanStd | None]:
        """The mean accuracy of each side over all its runs."""
        return mean_std(list(self.first.values())), mean_std(list(self.second.values()))

    @property
    def verdict(self) -> Verdict:
        """The outcome by the rule that the report states below its table of claims."""
        found = self.estimate
        agrees = "agrees" if self._holds(found.difference, found.difference) else "disagrees"
        if found.half_width is None:
            return Verdict(f"open: one run each, which {agrees}", "open")
        low, high = found.difference - found.half_width, found.difference + found.half_width
        if self._holds(low, high):
            return Verdict("holds", "good")
        if self._fails(low, high):
            return Verdict("does not hold", "bad")
        return Verdict(f"open: the mean {agrees}", "open")

    def _holds(self, low: float, high: float) -> bool:
        if self.expected == "better":
            return low > 0
        return high <= MARGIN and (self.expected == "no better" or low >= -MARGIN)

    def _fails(self, low: float, high: float) -> bool:
        if self.expected == "better":
            return high < 0
        return low > MARGIN or (self.expected == "the same" and high < -MARGIN)


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
        count, good, bad, unclear = len(tones), *map(tones.count, TONES)
        if count in (good, bad):
            return Verdict("holds", "good") if good else Verdict("does not hold", "bad")
        agree = sum(one.tone == "open" and one.text.endswith(" agrees") for one in verdicts)
        parts = {
            f"holds in {good} of {count}": good,
            f"does not hold in {bad} of {count}": bad,
            f"open in {unclear}, the mean agreeing in {agree}": unclear,
        }
        text = "; ".join(part for part, number in parts.items() if number)
        return Verdict(text, "bad" if bad else "open")

    @property
    def measured(self) -> str:
        """Every difference with half the width of its interval, in points; a line per contrast."""
        by_what: dict[str, list[str]] = {}
        for one in self.comparisons:
            value = format_value(Difference(one.estimate.difference), 1)
            if one.estimate.half_width is not None:
                value += f" ± {one.estimate.half_width:.1f}"
            where = one.where.removeprefix("NICv2-")
            by_what.setdefault(one.what, []).append(f"{value} ({where})")
        return ";\n".join(f"{what}: {', '.join(values)}" for what, values in by_what.items())


@dataclass
class Finals:
    """The finished cells of one data set, network and precision.

    Args:
        title: The name of the data set.
        cells: Each finished cell, with its options that differ from the preset.
    """

    title: str
    cells: list[tuple[StoredCell, Options]] = field(default_factory=list)

    def final(
        self, strategy: str, protocol: str, changes: Options = PRESET, full: bool | None = None
    ) -> Runs:
        """Return the final accuracy of each run.

        `changes` are all options that differ from the preset. `full` says whether the full test set
        was used, or the reduced one; None is the reduced one if there is a result for it.
        """
        found = self._find(strategy, protocol, changes, full)
        pairs = ((cell.run, cell.final()) for cell in found)
        return {run: value for run, value in pairs if value is not None}

    def after_batch_1(self, strategy: str, protocol: str) -> Runs:
        """Return the accuracy of each run of the preset after batch 1."""
        found = self._find(strategy, protocol, PRESET, None)
        return {cell.run: cell.curve()[1] for cell in found if 1 in cell.curve()}

    def _find(
        self, strategy: str, protocol: str, changes: Options, full: bool | None
    ) -> list[StoredCell]:
        wanted = strategy, protocol, changes
        found = [c for c, own in self.cells if (c.strategy, c.protocol, own) == wanted]
        if full is None:
            full = all(cell.full_test for cell in found)
        return [cell for cell in found if cell.full_test == full]

    def protocols(self, beginning: str = NICV2) -> list[str]:
        """Return the protocols whose names begin so, from coarse to fine."""
        found = {cell.protocol for cell, _ in self.cells}
        return sorted(filter(lambda name: name.startswith(beginning), found), key=protocol_order)


def find_finals(cells: Iterable[StoredCell]) -> list[Finals]:
    """Return the final accuracies of each data set, network and precision among the cells.

    An option that all cells share, though it is not the preset's, does not make a variant: the
    user chose it for everything.
    """
    done = [cell for cell in cells if cell.status == "done"]
    values: dict[str, set[str]] = {}
    for cell in done:
        for name, value in cell.options.items():
            values.setdefault(name, set()).add(json_text(value))
    ignored = {name for name, own in values.items() if len(own) == 1} | {NOT_A_VARIANT}
    found: dict[str, Finals] = {}
    for cell in done:
        data = {name: value for name, value in cell.data.items() if name != "test"}
        backbone = cell.cell.backbone.model_dump()
        context = json_text([data, backbone, cell.cell.precision, cell.cell.limit])
        finals = found.setdefault(context, Finals(cell.data_name))
        changes = {name: own for name, own in _changes(cell).items() if name not in ignored}
        finals.cells.append((cell, changes))
    return list(found.values())


def _changes(cell: StoredCell) -> Options:
    """Return the options of a cell that differ from the preset of its strategy and protocol."""
    if cell.strategy not in STRATEGIES:
        return cell.options
    try:
        usual = all_options(cell.strategy, cell.protocol, {})
    except InputError:
        return cell.options
    options = cell.options.items()
    return {name: own for name, own in options if name in usual and usual[name] != own}


def _title(strategy: str) -> str:
    return strategy_info(strategy).title


def _sides(claim: Mapping[str, Any]) -> Iterator[tuple[str, Side, Side]]:
    """Return the title of each contrast of a claim, and the strategy and options of its sides."""
    for first, second in product(claim.get("first", ()), claim.get("second", ())):
        (ours, own), (theirs, other) = _side(first), _side(second)
        what = f"{_title(ours)} − {_title(theirs)}"
        yield what + "".join(f", {name}" for name in other), (ours, own), (theirs, other)
    for strategy in claim.get("strategies", ()):
        (first, own), (second, other) = claim["variants"].items()
        given = claim.get("given", {}).get(strategy, {})
        what = f"{_title(strategy)}, {first} − {second}"
        yield what, (strategy, {**given, **own}), (strategy, {**given, **other})


def _side(text: str) -> Side:
    """Read a strategy with an option, if it has one, as in `dslda:tune=true`."""
    name, colon, setting = text.partition(":")
    if not colon:
        return name, PRESET
    (option,), value = parse_setting(setting, "tune=true")
    return name, {option: value}


def _differing(strategy: str, protocol: str, options: Options) -> Options:
    """Return the options of a side that differ from the preset."""
    usual = all_options(strategy, protocol, {})
    return {name: value for name, value in options.items() if usual.get(name) != value}


def _compare(claim: Mapping[str, Any], finals: Finals) -> Iterator[Comparison]:
    """Return the comparisons that decide a claim, also those without results."""
    if "check" in claim:
        yield from CHECKS[claim["check"]](finals)
    for what, first, second in _sides(claim):
        for protocol in finals.protocols(claim.get("protocols", NICV2)):
            where, expected = protocol_title(protocol), claim.get("expected", "better")
            ours, theirs = (
                finals.final(name, protocol, _differing(name, protocol, own))
                for name, own in (first, second)
            )
            by = claim.get("by", 0)
            what_by = f"{what} − {by}" if by else what
            handicapped = {run: value + by for run, value in theirs.items()}
            yield Comparison(what_by, where, expected, ours, handicapped)


def _collapse(finals: Finals) -> Iterator[Comparison]:
    """Check that the baselines learn from coarse batches, less from finer ones, then nothing."""
    protocols = finals.protocols()
    for strategy in BASELINES if len(protocols) > 1 else ():
        ends = {protocol: finals.final(strategy, protocol) for protocol in protocols}
        expectations: dict[str, Expectation] = {protocols[0]: "better", protocols[-1]: "no better"}
        for protocol, expected in expectations.items():
            what, start = "end − after batch 1", finals.after_batch_1(strategy, protocol)
            where = protocol_title(protocol)
            yield Comparison(f"{_title(strategy)}, {what}", where, expected, ends[protocol], start)
        yield from _shrinking(f"{_title(strategy)}, coarse − fine", ends)


def _drop(finals: Finals) -> Iterator[Comparison]:
    """Check that CWR* and AR1* lose less from coarse to fine batches than Naive and LwF."""
    protocols = finals.protocols()
    if len(protocols) < 2:
        return
    coarse, fine = protocols[0], protocols[-1]
    where = f"{protocol_title(coarse)} − {protocol_title(fine).removeprefix('NICv2-')}"

    def drop(strategy: str) -> Runs:
        before, after = finals.final(strategy, coarse), finals.final(strategy, fine)
        return {run: before[run] - after[run] for run in before.keys() & after.keys()}

    for ours, theirs in product(("ar1*", "cwr*"), ("naive", "lwf")):
        what = f"drop of {_title(theirs)} − drop of {_title(ours)}"
        yield Comparison(what, where, "better", drop(theirs), drop(ours), paired=False)


def _granularity(finals: Finals) -> Iterator[Comparison]:
    """Check that AR1* − CWR* is positive for coarse batches, shrinks, and vanishes at the end."""
    protocols = finals.protocols()
    gains: dict[str, Runs] = {}
    for protocol in protocols:
        last = len(protocols) > 1 and protocol == protocols[-1]
        expected: Expectation = "the same" if last else "better"
        ar1, cwr = finals.final("ar1*", protocol), finals.final("cwr*", protocol)
        gains[protocol] = {run: ar1[run] - cwr[run] for run in ar1.keys() & cwr.keys()}
        yield Comparison("AR1* − CWR*", protocol_title(protocol), expected, ar1, cwr)
    yield from _shrinking("(AR1* − CWR*), coarse − fine", gains)


def _shrinking(what: str, values: Mapping[str, Runs]) -> Iterator[Comparison]:
    """Compare successive protocols, whose runs have different orders."""
    for coarse, fine in pairwise(values):
        where = f"{protocol_title(coarse)} − {protocol_title(fine).removeprefix('NICv2-')}"
        yield Comparison(what, where, "better", values[coarse], values[fine], paired=False)


def _freezing_on_ni(finals: Finals) -> Iterator[Comparison]:
    """Check that freezing the depthwise layers is the best of four, the pointwise the worst."""
    better = [("depthwise", other) for other in ("none", "pointwise", "all")]
    better += [(other, "pointwise") for other in ("none", "all")]
    settings: dict[str, Options] = {}
    for cell, own in finals.cells:
        if (cell.strategy, cell.protocol) == NAIVE_ON_NI:
            rest = {name: value for name, value in own.items() if name != "freeze"}
            settings[json_text(rest)] = rest
    for _, setting in sorted(settings.items()):
        norm = ", batch norm" if setting.get("norm") == "bn" else ""
        for first, second in better:
            # Freezing the depthwise layers is the preset.
            changes = [{"freeze": one} if one != "depthwise" else {} for one in (first, second)]
            best, other = (finals.final(*NAIVE_ON_NI, {**setting, **own}) for own in changes)
            what = f"{FREEZING[first]} − {FREEZING[second]}"
            yield Comparison(what, f"NI{norm}", "better", best, other)


def _test_sets(finals: Finals) -> Iterator[Comparison]:
    """Check that the reduced test set gives the accuracies of the full one."""
    strategies = sorted({cell.strategy for cell, _ in finals.cells if cell.full_test})
    for strategy, protocol in product(strategies, finals.protocols()):
        reduced, full = (finals.final(strategy, protocol, full=one) for one in (False, True))
        what = f"{_title(strategy)}, reduced − full"
        yield Comparison(what, protocol_title(protocol), "the same", reduced, full)


CHECKS: dict[str, Callable[[Finals], Iterator[Comparison]]] = {
    "collapse": _collapse,
    "drop": _drop,
    "granularity": _granularity,
    "freezing_on_ni": _freezing_on_ni,
    "test_sets": _test_sets,
}


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
    for claim in CLAIMS:
        comparisons = []
        for finals in all_finals:
            found = [one for one in _compare(claim, finals) if one.first and one.second]
            if len(all_finals) > 1:
                found = [replace(one, where=f"{one.where}, {finals.title}") for one in found]
            comparisons += found
        if comparisons:
            claims.append(Claim(claim["title"], claim["paper"], tuple(comparisons)))
    return claims


def claims_table(claims: Sequence[Claim], *notes: str) -> Table:
    """Return a table with one row per claim."""
    rows: list[Row] = [(one.title, one.paper, one.measured, one.verdict) for one in claims]
    columns = ("claim", "the paper", "measured: differences in points (batches)", "verdict")
    rule = write_texts("rule", margin=f"{MARGIN:g}")
    return Table("claims", "One row per claim", columns, tuple(rows), (*rule, *notes))


def comparisons_table(claims: Sequence[Claim], *notes: str) -> Table:
    """Return a table with one row per comparison."""
    rows: list[Row] = []
    for claim in claims:
        for one in claim.comparisons:
            runs = f"{len(one.first)} and {len(one.second)}"
            numbers = (*one.means, runs, Difference(one.estimate.difference))
            outcome = one.estimate.half_width, one.expected, one.verdict
            rows.append((claim.title, one.what, one.where, *numbers, *outcome))
    titles = ("first (%)", "second (%)", "runs", "difference", "± (90%)", "expected", "verdict")
    columns = ("claim", "compared: first − second", "protocol", *titles)
    return Table("comparisons", "The comparisons behind the claims", columns, tuple(rows), notes)
