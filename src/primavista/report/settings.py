"""The hyperparameters, generated from the presets, what cells changed of them, and the machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from primavista.report.names import look, protocol_name
from primavista.report.published import HARDWARE
from primavista.report.read import Cell, mapping
from primavista.report.series import Series
from primavista.report.table import Table, Value

WORDS = {
    "epochs_1": "B1 epochs",
    "lr_1": "B1 rate",
    "epochs": "epochs",
    "lr": "rate",
    "lr_head": "CWR rate",
    "lam": "lambda",
    "max_f": "max F",
    "w_1": "w1",
    "w_i": "wi",
    "head": "head",
    "guard": "guard",
    "norm": "norm",
    "freeze": "freeze",
    "shrinkage": "shrinkage",
}


def preset_table() -> Table:
    """tab:hyper_core50 as the presets have it, with the source of each."""
    from primavista.strategies.registry import STRATEGIES

    keys = [key for key in WORDS if any(key in preset.options for preset in STRATEGIES.values())]
    keys += sorted({key for preset in STRATEGIES.values() for key in preset.options} - set(keys))
    rows: list[tuple[Value, ...]] = []
    for name, preset in STRATEGIES.items():
        rows.append(
            (look(name).name, *(plain(preset.options.get(key)) for key in keys), preset.source)
        )
    columns = ("strategy", *(WORDS.get(key, key) for key in keys), "source")
    notes = (
        "B1: the first batch; the other values are those from batch 2 on. Rate: the learning rate; CWR rate: that of the CWR "
        "layer. What a preset leaves out is the default of its class.",
    )
    return Table(
        "hyperparameters",
        "tab:hyper_core50: hyperparameters of the presets",
        columns,
        tuple(rows),
        notes,
    )


def renorm_table() -> Table:
    """table:renormpar as the presets have it."""
    from primavista.strategies.registry import RENORM

    words = {
        "r_max": "r_max",
        "d_max": "d_max",
        "moments_decay": "weight of the past",
        "startup": "start-up in batch 1 (iterations)",
    }
    keys = sorted({key for values in RENORM.values() for key in values}, key=list(words).index)
    rows = tuple(
        (
            words[key],
            *(plain(values.get(key)) for values in RENORM.values()),
            "text" if key == "startup" else "table:renormpar",
        )
        for key in keys
    )
    columns = ("parameter", *map(protocol_name, RENORM), "source")
    return Table(
        "renormalisation", "table:renormpar: batch renormalisation from batch 2", columns, rows
    )


def changed_table(series: Sequence[Series]) -> Table | None:
    """Where cells ran with other values than their preset and their protocol's renormalisation."""
    from primavista.strategies.registry import RENORM, STRATEGIES

    rows: list[tuple[Value, ...]] = []
    for one in series:
        if one.strategy not in STRATEGIES:
            continue
        usual = {**STRATEGIES[one.strategy].options, **RENORM.get(one.panel.protocol, {})}
        changes = [
            f"{key} {plain(one.options[key])} instead of {plain(value)}"
            for key, value in usual.items()
            if key in one.options and one.options[key] != value
        ]
        if changes:
            rows.append((one.panel.title, one.name, "; ".join(changes)))
    return (
        Table(
            "changed",
            "Where cells differ from the presets",
            ("protocol", "strategy", "changes"),
            tuple(rows),
        )
        if rows
        else None
    )


def machine_table(cells: Sequence[Cell]) -> Table:
    """Each machine that finished cells, beside the paper's."""
    machines: dict[str, tuple[Mapping[str, Any], int]] = {}
    for cell in cells:
        if cell.result and (machine := mapping(cell.result.get("machine"))):
            machine |= {
                key: cell.plan[key]
                for key in ("device", "threads", "precision", "engine")
                if key in cell.plan
            }
            key = repr(sorted((name, plain(value)) for name, value in machine.items()))
            machines[key] = (machine, machines.get(key, ({}, 0))[1] + 1)
    keys = list(
        dict.fromkeys([key for machine, _ in machines.values() for key in machine] + list(HARDWARE))
    )
    rows: list[tuple[Value, ...]] = []
    for key in keys:
        rows.append(
            (key, *(plain(machine.get(key)) for machine, _ in machines.values()), HARDWARE.get(key))
        )
    rows.append(("cells", *(str(count) for _, count in machines.values()), None))
    names = (
        ["ours"]
        if len(machines) == 1
        else [f"ours, {place}" for place in range(1, len(machines) + 1)]
    )
    return Table("machine", "The machines", ("", *names, "the paper (table:hardware)"), tuple(rows))


def plain(value: object) -> str | None:
    """A value of a JSON file as one word or line.

    >>> plain(3.5e-05), plain(2e6), plain({"a": 1})
    ('3.5e-05', '2e+06', 'a: 1')
    """
    match value:
        case None:
            return None
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case Mapping():
            return ", ".join(f"{key}: {plain(item)}" for key, item in value.items())
        case list() | tuple():
            return ", ".join(str(plain(item)) for item in value)
    return str(value)
