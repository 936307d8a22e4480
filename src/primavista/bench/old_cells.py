"""Cells of version 0.1, in which some strategies learned by other rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from primavista.bench.folder import RUN, read_json
from primavista.errors import FileError
from primavista.storage.settings import OptionValue
from primavista.strategies.registry import rules_of_version_0_1

StoredOptions = tuple[str, Mapping[str, OptionValue]]


def old_rules_note(cells: Iterable[StoredOptions]) -> str | None:
    """Say which cells learned by rules of version 0.1, and what becomes of them.

    Args:
        cells: the strategy of each cell, and its options as its `run.json` has them.

    Returns:
        Two sentences; None if there is no such cell.

    >>> old_rules_note([("prima", {"balance": 1.0})]).split(". ")[0]
    '1 cell learned by rules of version 0.1: prima (rule=frames)'
    """
    rules: dict[str, str] = {}
    count = 0
    for strategy, options in cells:
        old = rules_of_version_0_1(strategy, options)
        if old:
            rules[strategy] = ", ".join(f"{name}={value}" for name, value in old.items())
            count += 1
    if not count:
        return None
    listed = "; ".join(f"{strategy} ({rules[strategy]})" for strategy in sorted(rules))
    number = "1 cell" if count == 1 else f"{count} cells"
    return (
        f"{number} learned by rules of version 0.1: {listed}. "
        "A plan runs such cells anew by the present rules; the old results stay beside the new."
    )


def stored_options_in(out: Path) -> list[StoredOptions]:
    """Read the strategy and the options of every cell in a folder of results.

    Args:
        out: the folder, which need not exist. Damaged cells are left out; running or reporting
            them gives the error.
    """
    found = []
    for path in sorted(out.glob(f"*/*/{RUN}")):
        try:
            run = read_json(path)
        except FileError:
            continue
        strategy = run.get("strategy") if isinstance(run, dict) else None
        if isinstance(strategy, str) and isinstance(run.get("options"), dict):
            found.append((strategy, run["options"]))
    return found
