"""The description of the runs: data, test frames, network and settings, from the results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from primavista.networks.base import FROM_FUNCTION
from primavista.report.read import StoredCell
from primavista.report.table import Row, Table
from primavista.report.titles import DATA_TITLES, protocol_title, strategy_order
from primavista.strategies.registry import strategy_info

Describe = Callable[[StoredCell], str | None]


@dataclass(frozen=True)
class Retrained:
    """A strategy that was trained from scratch a few times in a run, and tested only then.

    Args:
        title: the strategy.
        on: what it was trained on, in words.
        times: how many times in a run, each number once.
    """

    title: str
    on: str
    times: tuple[int, ...]

    @property
    def after(self) -> str:
        """The batches after which it was trained, in words."""
        several = [f"{count}" for count in self.times if count > 1]
        texts = ["the last batch"] if 1 in self.times else []
        texts += [f"{' or '.join(several)} evenly spaced batches"] if several else []
        return " or ".join(texts)


def retrained_strategies(cells: Iterable[StoredCell]) -> list[Retrained]:
    """Return the strategies that their plan had trained from scratch a few times in a run.

    Args:
        cells: any cells.
    """
    times: dict[str, set[int]] = {}
    for cell in cells:
        if cell.retrain is not None:
            times.setdefault(cell.strategy, set()).add(cell.retrain)
    found = []
    for name in sorted(times, key=strategy_order):
        info = strategy_info(name)
        on = "everything seen so far" if info.joint else "the frames that it stores"
        found.append(Retrained(info.title, on, tuple(sorted(times[name]))))
    return found


def tested_on(cells: Sequence[StoredCell]) -> str:
    """Describe the test frames in words, such as `all 450 test frames`.

    Args:
        cells: cells of one figure; those that are not done do not tell the number.
    """
    counts = sorted({cell.test_frames for cell in cells if cell.test_frames is not None})
    parts = sorted({text for text in map(_test_part, cells) if text})
    if not counts:
        return "the test set" + (f" ({', '.join(parts)})" if parts else "")
    number = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"{number} test frames" + (f" ({', '.join(parts)})" if parts else "")


def _test_part(cell: StoredCell) -> str | None:
    """Return which part of the test set is tested, in words."""
    if not cell.readable:
        return None
    if cell.full_test:
        return "the whole test set"
    thin = cell.test_thin or 1
    return f"one in {thin} of each test session" if thin > 1 else "the reduced test set"


def run_table(cells: Sequence[StoredCell]) -> Table | None:
    """Return what was run, one row per fact; None if no cell can be read.

    Args:
        cells: all cells.
    """
    known = _telling(cells)
    rows: list[Row] = []
    for title, describe in FACTS:
        texts = dict.fromkeys(text for text in map(describe, known) if text)
        if texts:
            rows.append((title, "; ".join(texts)))
    if not rows:
        return None
    return Table("run", "What was run", ("", "in these results"), tuple(rows))


def _telling(cells: Sequence[StoredCell]) -> list[StoredCell]:
    """Leave out cells that do not tell their number of batches, if others of the protocol do."""
    readable = [cell for cell in cells if cell.readable]
    counted = {cell.protocol for cell in readable if cell.batches}
    return [cell for cell in readable if cell.batches or cell.protocol not in counted]


def _data(cell: StoredCell) -> str:
    name = DATA_TITLES.get(cell.data_name, cell.data_name)
    kind = cell.data.get("kind")
    return name if kind in (None, "core50", "rendered") else f"{name} ({kind})"


def _training(cell: StoredCell) -> str | None:
    facts = cell.result.data if cell.result else None
    if facts is None or cell.result is None:
        return None
    classes = len(cell.result.classes)
    frames = f"{facts.train_frames:,} frames"
    return f"{classes} classes, {facts.train_sessions:,} sessions, {frames}"


def _tested(cell: StoredCell) -> str | None:
    return tested_on([cell]) if cell.test_frames is not None else None


def _split(cell: StoredCell) -> str | None:
    if cell.data.get("kind") != "folder":
        return None
    return "other test sessions in each run" if cell.varies_split else "the same in all runs"


def _size(cell: StoredCell) -> str | None:
    facts = cell.result.data if cell.result else None
    size = facts.size if facts else cell.data.get("size")
    return f"{size} px" if size else None


def _backbone(cell: StoredCell) -> str:
    found = {key.removeprefix("backbone "): value for key, value in cell.settings.items()}
    options = found.get("options") or {}
    more = "".join(f", {key} {value}" for key, value in options.items())
    return f"{found.get('name', '?')}{more}"


def _weights(cell: StoredCell) -> str | None:
    weights = cell.settings.get("backbone weights")
    if weights == FROM_FUNCTION:
        return "those that the network is built with"
    return str(weights) if weights else None


def _protocol(cell: StoredCell) -> str:
    batches = f" ({cell.batches:,} batches)" if cell.batches else ""
    return f"{protocol_title(cell.protocol)}{batches}"


def _run(cell: StoredCell) -> str:
    return f"{cell.run} (seed {cell.cell.seed})" if cell.cell else "?"


def _code(cell: StoredCell) -> str | None:
    if cell.result is None:
        return None
    return str(cell.result.machine.get("primavista") or "") or None


FACTS: Iterable[tuple[str, Describe]] = (
    ("data", _data),
    ("training set", _training),
    ("test frames", _tested),
    ("split into training and test sessions", _split),
    ("side of the frames", _size),
    ("network", _backbone),
    ("weights", _weights),
    ("precision", lambda cell: cell.cell.precision if cell.cell else None),
    ("protocols", _protocol),
    ("runs", _run),
    ("version of primavista", _code),
)
