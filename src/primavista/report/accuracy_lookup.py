"""Final accuracies, found by strategy, protocol and the options that differ from the preset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from primavista.bench.resolve import all_options
from primavista.errors import InputError
from primavista.report.read import StoredCell
from primavista.report.titles import protocol_order
from primavista.strategies.builtin import STRATEGIES

NOT_A_VARIANT = frozenset({"every"})  # an option that depends on the plan
NONE: Mapping[str, Any] = {}


@dataclass
class Finals:
    """The finished cells of one data set, network and precision.

    Args:
        title: The name of the data set.
        cells: The finished cells, by strategy, protocol, changed options and test set.
    """

    title: str
    cells: dict[tuple[str, str, str, bool], list[StoredCell]] = field(default_factory=dict)

    def final(
        self,
        strategy: str,
        protocol: str,
        changes: Mapping[str, Any] = NONE,
        full: bool | None = None,
    ) -> dict[int, float]:
        """Return the final accuracy of each run.

        `changes` are all options that differ from the preset. `full` says whether the full test set
        was used, or the reduced one; None is the reduced one if there is a result for it.
        """
        pairs = ((cell.run, cell.final()) for cell in self._find(strategy, protocol, changes, full))
        return {run: value for run, value in pairs if value is not None}

    def after_batch_1(self, strategy: str, protocol: str) -> dict[int, float]:
        """Return the accuracy of each run after batch 1; see `final`."""
        found = self._find(strategy, protocol, NONE, None)
        return {cell.run: cell.curve[1] for cell in found if 1 in cell.curve}

    def _find(
        self, strategy: str, protocol: str, changes: Mapping[str, Any], full: bool | None
    ) -> list[StoredCell]:
        sets = (False, True) if full is None else (full,)
        keys = [(strategy, protocol, _json(changes), one) for one in sets]
        return next((self.cells[key] for key in keys if key in self.cells), [])

    def protocols(self, beginning: str) -> list[str]:
        """Return the protocols whose names begin so, from coarse to fine."""
        found = {protocol for _, protocol, *_ in self.cells if protocol.startswith(beginning)}
        return sorted(found, key=protocol_order)

    def changes(self, strategy: str, protocol: str) -> list[dict[str, Any]]:
        """Return the options that differ from the preset, for each variant that there is."""
        found = {key[2] for key in self.cells if key[:2] == (strategy, protocol)}
        return [json.loads(text) for text in sorted(found)]


def find_finals(cells: Iterable[StoredCell]) -> list[Finals]:
    """Return the final accuracies of each data set, network and precision among the cells.

    An option that all cells share, though it is not the preset's, does not make a variant: the
    user chose it for everything.
    """
    done = [cell for cell in cells if cell.status == "done"]
    shared = _shared_options(done)
    found: dict[str, Finals] = {}
    for cell in done:
        finals = found.setdefault(_context(cell), Finals(cell.data_name))
        changes = {name: value for name, value in _changes(cell).items() if name not in shared}
        key = cell.strategy, cell.protocol, _json(changes), cell.full_test
        finals.cells.setdefault(key, []).append(cell)
    return list(found.values())


def _context(cell: StoredCell) -> str:
    """Return everything that compared cells must have in common beside their protocol."""
    data = {name: value for name, value in cell.data.items() if name != "test"}
    backbone = {n: v for n, v in cell.settings.items() if n.startswith("backbone ")}
    return _json([data, backbone, cell.cell.precision, cell.cell.limit])


def _changes(cell: StoredCell) -> dict[str, Any]:
    """Return the options of a cell that differ from the preset of its strategy and protocol."""
    if cell.strategy not in STRATEGIES:
        return dict(cell.options)
    try:
        usual = all_options(cell.strategy, cell.protocol, {})
    except InputError:
        return dict(cell.options)
    return {
        name: value
        for name, value in cell.options.items()
        if name in usual and name not in NOT_A_VARIANT and _json(usual[name]) != _json(value)
    }


def _shared_options(cells: Sequence[StoredCell]) -> set[str]:
    """Return the options that have the same value in every cell that has them."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for name, value in cell.options.items():
            values.setdefault(name, set()).add(_json(value))
    return {name for name, found in values.items() if len(found) == 1}


def _json(value: object) -> str:
    """Return a text that is equal for equal values, such as 3 and 3.0."""
    return json.dumps(_with_floats(value), sort_keys=True, default=str)


def _with_floats(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _with_floats(own) for name, own in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
