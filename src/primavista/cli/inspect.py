"""`primavista inspect`: what is in a saved learner. It reads the file alone, without torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import AsJson, printable

# The part of a file that an array belongs to, by the beginning of its name; all others belong to
# the strategy.
PARTS = {"undo/": "undo", "backbone.": "network", "head.": "head", "onnx/": "graph"}


def inspect(model: Path, as_json: AsJson = False) -> None:
    """Show what a saved learner knows and how it was made, and verify its checksum.

    Example: `primavista inspect kitchen.pv`
    """
    facts = describe(model.expanduser())
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    console = Console(highlight=False)
    console.print(_facts(facts))
    if facts["classes"]:
        objects = Table("id", "object", "frames")
        objects.columns[2].justify = "right"
        for one in facts["classes"]:
            objects.add_row(str(one["id"]), Text(printable(one["name"])), str(one["frames"]))
        console.print(objects)
    for advice in facts["advice"]:
        console.print(f"next: {printable(advice['text'])}", markup=False, soft_wrap=True)


def describe(path: Path) -> dict[str, Any]:
    """Return everything that the file of a learner says, and how large its parts are, for JSON."""
    from primavista.learner.coach import advise, from_records
    from primavista.storage import learner_file
    from primavista.storage.manifest import parse_manifest

    arrays, raw = learner_file.read(path)
    manifest = parse_manifest(raw, str(path))
    sizes: Counter[str] = Counter()
    for name, array in arrays.items():
        parts = (part for beginning, part in PARTS.items() if name.startswith(beginning))
        sizes[next(parts, "strategy")] += array.nbytes
    tests = from_records({one.id: one.held_out for one in manifest.classes})
    advice = advise(tests, {one.id: one.name for one in manifest.classes})
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "sha256": learner_file.digest(arrays, raw),
        **manifest.model_dump(exclude={"next_id"}),
        "advice": [asdict(one) for one in advice],
        "undo": manifest.undo is not None,
        "tensor_bytes": dict(sizes),
    }


def _facts(facts: Mapping[str, Any]) -> Table:
    strategy, backbone = facts["strategy"], facts["backbone"]
    table = Table.grid("", "", padding=(0, 2, 0, 0))
    table.title, table.title_justify = Text(printable(facts["file"])), "left"
    sizes = ", ".join(f"{name} {decimal(count)}" for name, count in facts["tensor_bytes"].items())
    rows = {
        "format": str(facts["format"]),
        "size": f"{decimal(facts['bytes'])} ({sizes})",
        "sha256": facts["sha256"],
        "strategy": strategy["name"],
        "options": _pairs({**strategy["options"], "seed": strategy["seed"]}),
        "network": f"{backbone['name']} {_pairs(backbone['options'])}".strip(),
        "features by": facts["engine"],
        "images": f"{backbone['size']} x {backbone['size']} pixels: the centre square, resized",
        "threshold": f"{facts['threshold']:g} (from it on an answer is known)",
        "lessons": str(len(facts["lessons"])),
        "undo": "the last change can be taken back" if facts["undo"] else "nothing to take back",
        "objects": str(len(facts["classes"])) if facts["classes"] else "none yet: primavista learn",
    }
    for name, text in rows.items():
        table.add_row(f"[bold]{name}[/bold]", Text(printable(text)))
    return table


def _pairs(options: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())
