"""The description of the runs, from the results alone: a paragraph to paste, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from primavista.networks.base import FROM_FUNCTION
from primavista.report.read import FolderResults, StoredCell
from primavista.report.series import Series, number_range
from primavista.report.table import Row, Table
from primavista.report.texts import listed, write_texts
from primavista.report.titles import DATA_TITLES, protocol_order, protocol_title, strategy_order
from primavista.storage.settings import OptionValue
from primavista.strategies.creation import all_options
from primavista.strategies.registry import strategy_info


def retrained_note(cells: Iterable[StoredCell]) -> tuple[str, ...]:
    """Say which strategies were trained from scratch a few times in a run, and tested only then."""
    times: dict[str, set[int]] = {}
    for cell in cells:
        if cell.cell.retrain is not None:
            times.setdefault(cell.strategy, set()).add(cell.cell.retrain)
    ordered = sorted(times, key=strategy_order)
    return write_texts("retrained", times=[(strategy_info(n), sorted(times[n])) for n in ordered])


def tested_on(cells: Iterable[StoredCell]) -> str:
    """Describe the test frames in words, such as `450 test frames (the whole test set)`."""
    counts: list[int] = []
    parts: set[str] = set()
    for cell in cells:
        if cell.test_frames is not None:
            counts.append(cell.test_frames)
            parts.add(_test_part(cell))
    if not counts:
        return "the test set"
    return f"{number_range(counts)} test frames ({', '.join(sorted(parts))})"


def _test_part(cell: StoredCell) -> str:
    if cell.full_test:
        return "the whole test set"
    thin = cell.cell.test_thin
    return f"one in {thin} of each test session" if thin > 1 else "the reduced test set"


def _describe(cells: Sequence[StoredCell]) -> dict[str, list[str]]:
    """Return the different texts of each fact."""
    return {
        title: list(dict.fromkeys(text for text in map(describe, cells) if text))
        for title, describe in FACTS.items()
    }


def methods_paragraph(cells: Iterable[StoredCell]) -> str:
    """Describe strategies, data, network, tests, runs and machine; empty if no cell is done."""
    done = [cell for cell in cells if cell.status == "done"]
    if not done:
        return ""
    done.sort(key=lambda cell: (strategy_order(cell.strategy), protocol_order(cell.protocol)))
    paragraphs = write_texts(
        "methods",
        facts=_describe(done),
        strategies=list(dict.fromkeys(strategy_info(cell.strategy).title for cell in done)),
        tested=tested_on(done),
        runs=len({cell.run for cell in done}),
        retrained=retrained_note(done),
        cells=done,
    )
    return " ".join(paragraphs)


def run_table(cells: Sequence[StoredCell]) -> Table:
    """Return what was run, one row per fact."""
    counted = {cell.protocol for cell in cells if cell.batches}
    telling = [cell for cell in cells if cell.batches or cell.protocol not in counted]
    found = _describe(telling).items()
    rows = tuple((title, "; ".join(texts)) for title, texts in found if texts)
    return Table("run", "What was run", ("", "in these results"), rows)


def _protocol(cell: StoredCell) -> str:
    batches = f" ({cell.batches:,} batches)" if cell.batches else ""
    return f"{protocol_title(cell.protocol)}{batches}"


def _data(cell: StoredCell) -> str:
    name = DATA_TITLES.get(cell.data_name, cell.data_name)
    kind = cell.cell.data.kind
    return name if kind in ("core50", "rendered") else f"{name} ({kind})"


def _training(cell: StoredCell) -> str | None:
    if cell.facts is None or cell.result is None:
        return None
    sessions, frames = cell.facts.train_sessions, cell.facts.train_frames
    return f"{len(cell.result.classes)} classes, {sessions:,} sessions, {frames:,} frames"


def _tested(cell: StoredCell) -> str | None:
    return tested_on([cell]) if cell.test_frames is not None else None


def _split(cell: StoredCell) -> str | None:
    if cell.cell.data.kind != "folder":
        return None
    return "other test sessions in each run" if cell.varies_split else "the same in all runs"


def _size(cell: StoredCell) -> str | None:
    size = cell.facts.size if cell.facts else cell.data.get("size")
    return f"{size} px" if size else None


def _network(cell: StoredCell) -> str:
    spec = cell.cell.backbone
    options = ", ".join(f"{key} {value}" for key, value in spec.options.items())
    own = "the weights that it is built with"
    weights = own if spec.weights == FROM_FUNCTION else f"the weights {spec.weights}"
    return f"{spec.name}{f' ({options})' if options else ''} with {weights}"


def _software(cell: StoredCell) -> str:
    machine = cell.result.machine if cell.result else {}
    place = machine.get("gpu") if cell.cell.device == "cuda" else machine.get("cpu")
    names = [name for name in ("primavista", "torch", "python") if machine.get(name)]
    versions = [f"{name} {machine[name]}" for name in names]
    return f"{listed(versions) or 'an unknown version'} on {place or cell.cell.device}"


FACTS: dict[str, Callable[[StoredCell], str | None]] = {
    "data": _data,
    "training set": _training,
    "test frames": _tested,
    "split into training and test sessions": _split,
    "side of the frames": _size,
    "network": _network,
    "precision": lambda cell: cell.cell.precision,
    "protocols": _protocol,
    "runs": lambda cell: f"{cell.run} (seed {cell.cell.seed})",
    "computed with": _software,
}


def option_table(series: Sequence[Series]) -> Table:
    """Return every option of each strategy as it was run, and how they differ from its preset."""
    rows: list[Row] = []
    for one in series:
        options = (f"{name} {option_text(value)}" for name, value in one.options.items())
        source = strategy_info(one.strategy).source or None
        changes = "; ".join(_changes(one)) or None
        rows.append((one.panel.title, one.name, "; ".join(options) or None, changes, source))
    columns = ("protocol", "strategy", "options", "other than the preset", "source of the preset")
    table = Table("hyperparameters", "Hyperparameters", columns, tuple(rows))
    return table.without_empty_columns(3)


def _changes(series: Series) -> list[str]:
    """Say which options differ from the strategy's own on this protocol."""
    try:
        usual = all_options(series.strategy, series.panel.protocol, {})
    except Exception:  # of a strategy that cannot be imported or created here
        return []
    if series.cells[0].cell.retrain is not None:
        usual.pop("every", None)  # the plan says how often it is retrained
    return [
        f"{name} {option_text(value)} instead of {option_text(usual[name])}"
        for name, value in series.options.items()
        if name in usual and value != usual[name]
    ]


def option_text(value: OptionValue) -> str:
    """Return the value of an option as readers see it.

    >>> option_text(3.5e-05), option_text(2e6), option_text(True)
    ('3.5e-05', '2e+06', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def cell_table(results: FolderResults) -> Table:
    """Return the cells that are unfinished, failed, damaged or stale."""
    rows: list[Row] = []
    for cell in (*results.cells, *results.superseded):
        if cell.status == "done" and not cell.stale:
            continue
        state = "stale" if cell.status == "done" else cell.status
        batches = f"{cell.reached}{f' of {cell.batches}' if cell.batches else ''}"
        last = next(reversed(cell.curve().values()), None)
        shown = "no" if cell in results.superseded else "yes"
        title, reason = strategy_info(cell.strategy).title, cell.failure or cell.stale
        rows.append((state, cell.path, title, batches, last, reason, shown))
    for path, why in results.damaged.items():
        rows.append(("damaged", path, None, None, None, why, "no"))
    rows.sort(key=lambda row: str(row[0]))
    columns = ("state", "cell", "strategy", "batches", "accuracy so far (%)", "reason", "shown")
    title, notes = "Failed, unfinished and stale cells", write_texts("cells")
    return Table("cells", title, columns, tuple(rows), notes)
