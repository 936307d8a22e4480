"""The description of the runs: a paragraph to paste and a table, from the results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from primavista.networks.base import FROM_FUNCTION
from primavista.report.read import StoredCell
from primavista.report.table import Row, Table
from primavista.report.titles import DATA_TITLES, protocol_order, protocol_title, strategy_order
from primavista.strategies.registry import strategy_info

Describe = Callable[[StoredCell], str | None]


def retrained_note(cells: Iterable[StoredCell]) -> list[str]:
    """Say which strategies were trained from scratch a few times in a run, and tested only then."""
    times: dict[str, set[int]] = {}
    for cell in cells:
        if cell.cell.retrain is not None:
            times.setdefault(cell.strategy, set()).add(cell.cell.retrain)
    notes = []
    for name in sorted(times, key=strategy_order):
        info = strategy_info(name)
        on = "everything seen so far" if info.joint else "the frames that it stores"
        counts = " or ".join(f"{count}" for count in sorted(times[name]))
        after = "the last batch" if counts == "1" else f"{counts} evenly spaced batches"
        notes.append(f"{info.title} was trained from scratch on {on}, and tested, after {after}.")
    return notes


def tested_on(cells: Iterable[StoredCell]) -> str:
    """Describe the test frames in words, such as `450 test frames (the whole test set)`."""
    done = [cell for cell in cells if cell.test_frames is not None]
    counts = sorted({cell.test_frames or 0 for cell in done})
    if not counts:
        return "the test set"
    number = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{number} test frames ({', '.join(sorted(set(map(_test_part, done))))})"


def _test_part(cell: StoredCell) -> str:
    if cell.full_test:
        return "the whole test set"
    thin = cell.cell.test_thin
    return f"one in {thin} of each test session" if thin > 1 else "the reduced test set"


def _join(texts: Iterable[str], last: str = "and") -> str:
    """Join different texts, as in `a, b and c`."""
    found = list(dict.fromkeys(text for text in texts if text))
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} {last} {found[-1]}"


def methods_paragraph(cells: Iterable[StoredCell]) -> str:
    """Describe strategies, data, network, tests, runs and machine; empty if no cell is done."""
    done = [cell for cell in cells if cell.status == "done"]
    if not done:
        return ""

    def every(describe: Describe, last: str = "and") -> str:
        return _join((describe(cell) or "" for cell in done), last)

    done.sort(key=lambda cell: (strategy_order(cell.strategy), protocol_order(cell.protocol)))
    runs = len({cell.run for cell in done})
    over = f"means and sample standard deviations over {runs} runs" if runs > 1 else "of one run"
    sentences = (
        f"We compare {every(lambda cell: strategy_info(cell.strategy).title)} on "
        f"{every(_protocol)}.",
        f"The data is {every(_data)}, with {every(_training, 'or')} for training, at "
        f"{every(_size, 'or')}.",
        f"The network is {every(_network, 'or')}, computed in {every(_precision, 'or')}.",
        f"Accuracy is measured on {tested_on(done)}; results are {over}.",
        *retrained_note(done),
        "Hyperparameters are those of primavista's presets, except where the table of changes "
        "says otherwise.",
        f"Everything was computed with {every(_software, 'or')}.",
    )
    return " ".join(sentences)


def run_table(cells: Sequence[StoredCell]) -> Table:
    """Return what was run, one row per fact."""
    counted = {cell.protocol for cell in cells if cell.batches}
    telling = [cell for cell in cells if cell.batches or cell.protocol not in counted]
    rows: list[Row] = []
    for title, describe in FACTS:
        texts = dict.fromkeys(text for text in map(describe, telling) if text)
        if texts:
            rows.append((title, "; ".join(texts)))
    return Table("run", "What was run", ("", "in these results"), tuple(rows))


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


def _precision(cell: StoredCell) -> str:
    return cell.cell.precision


def _run(cell: StoredCell) -> str:
    return f"{cell.run} (seed {cell.cell.seed})"


def _software(cell: StoredCell) -> str:
    machine = cell.machine
    place = machine.get("gpu") if cell.cell.device == "cuda" else machine.get("cpu")
    names = [name for name in ("primavista", "torch", "python") if machine.get(name)]
    versions = [f"{name} {machine[name]}" for name in names]
    return f"{_join(versions) or 'an unknown version'} on {place or cell.cell.device}"


FACTS: tuple[tuple[str, Describe], ...] = (
    ("data", _data),
    ("training set", _training),
    ("test frames", _tested),
    ("split into training and test sessions", _split),
    ("side of the frames", _size),
    ("network", _network),
    ("precision", _precision),
    ("protocols", _protocol),
    ("runs", _run),
    ("computed with", _software),
)
