"""The description of the runs: a paragraph to paste and a table, from the results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from primavista.networks.base import FROM_FUNCTION
from primavista.report.read import StoredCell
from primavista.report.series import number_range
from primavista.report.table import Table
from primavista.report.texts import listed, write_texts
from primavista.report.titles import DATA_TITLES, protocol_order, protocol_title, strategy_order
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
