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
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import AsJson, printable

# The part of a file that an array belongs to, by the beginning of its name; all others belong to
# the strategy.
PARTS = {"undo/": "undo", "backbone.": "network", "head.": "head", "onnx/": "graph"}


def inspect(
    model: Path,
    as_json: AsJson = False,
) -> None:
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
        console.print(_classes(facts))


def describe(path: Path) -> dict[str, Any]:
    """Return everything that the file of a learner says, and how large its parts are, for JSON."""
    from primavista.learner.coach import advise, from_records
    from primavista.storage import learner_file
    from primavista.storage.manifest import parse_manifest

    arrays, raw = learner_file.read(path)
    manifest = parse_manifest(raw, str(path))
    sizes: Counter[str] = Counter()
    for name, array in arrays.items():
        sizes[_part_of(name)] += array.nbytes
    tests = from_records({one.id: one.held_out for one in manifest.classes})
    advice = advise(tests, {one.id: one.name for one in manifest.classes})
    return {
        "file": str(path),
        "format": manifest.format,
        "bytes": path.stat().st_size,
        "sha256": learner_file.digest(arrays, raw),
        "strategy": manifest.strategy.model_dump(),
        "backbone": manifest.backbone.model_dump(),
        "engine": manifest.engine,
        "threshold": manifest.threshold,
        "classes": [one.model_dump(exclude_defaults=True) for one in manifest.classes],
        "lessons": list(manifest.lessons),
        "advice": [asdict(one) for one in advice],
        "undo": manifest.undo is not None,
        "tensor_bytes": dict(sizes),
    }


def _part_of(name: str) -> str:
    for beginning, part in PARTS.items():
        if name.startswith(beginning):
            return part
    return "strategy"


def _facts(facts: Mapping[str, Any]) -> Table:
    strategy, backbone = facts["strategy"], facts["backbone"]
    table = Table(
        title=Text(printable(facts["file"])),
        title_justify="left",
        show_header=False,
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    sizes = ", ".join(f"{name} {_size(count)}" for name, count in facts["tensor_bytes"].items())
    rows = {
        "format": str(facts["format"]),
        "size": f"{_size(facts['bytes'])} ({sizes})",
        "sha256": facts["sha256"],
        "strategy": strategy["name"],
        "options": _pairs({**strategy["options"], "seed": strategy["seed"]}),
        "network": f"{backbone['name']} {_pairs(backbone['options'])}".strip(),
        "features by": facts["engine"],
        "images": f"{backbone['size']} x {backbone['size']} pixels: the centre square, resized",
        "threshold": f"{facts['threshold']:g} (below it a frame is unknown)",
        "lessons": str(len(facts["lessons"])),
        "undo": "the last change can be taken back" if facts["undo"] else "nothing to take back",
        "objects": str(len(facts["classes"])) if facts["classes"] else "none yet: primavista learn",
    }
    for name, text in rows.items():
        table.add_row(name, Text(printable(text)))
    return table


def _classes(facts: Mapping[str, Any]) -> Table:
    table = Table("id", "object", "frames", "show next")
    table.columns[2].justify = "right"
    for one in facts["classes"]:
        name = one["name"]
        about = [advice for advice in facts["advice"] if name in advice["labels"]]
        told = Text(printable(", ".join(_next(advice, name) for advice in about)))
        table.add_row(str(one["id"]), Text(printable(name)), str(one["frames"]), told)
    return table


def _next(advice: Mapping[str, Any], name: str) -> str:
    """Return what an advice says about one object in a few words, for a cell of a table.

    >>> _next({"kind": "confused", "labels": ("mug", "cup")}, "mug")
    'confused with cup'
    >>> _next({"kind": "another side", "labels": ("mug",), "right": 3, "frames": 10}, "mug")
    'another side (3 of 10 new frames were right)'
    """
    if advice["kind"] == "confused":
        other = next(label for label in advice["labels"] if label != name)
        return f"confused with {other}"
    if advice["kind"] in ("second object", "once more"):
        return str(advice["kind"])
    right = f"{advice['right']} of {advice['frames']} new frames were right"
    return f"{advice['kind']} ({right})"


def _pairs(options: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())


def _size(count: int) -> str:
    """Return a number of bytes as a person reads it.

    >>> _size(900), _size(3 * 2**20)
    ('900 bytes', '3.0 MiB')
    """
    if count < 1024:
        return f"{count} bytes"
    return f"{count / 1024:.1f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"
