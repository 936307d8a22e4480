"""`primavista inspect`: what is in a saved learner. Reads the file only; needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import Model, printable

UNDO = "undo/"
PARTS = {
    "backbone.": "network",
    "head.": "head",
    "onnx/": "graph",
}  # of the tensors' names; all else is the strategy's own


def inspect(
    model: Model,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
) -> None:
    """Say what a saved learner knows and how it was made; its checksum is verified on the way.

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
    """Everything that the file says, and how large it is."""
    from primavista.storage import learner_file as files
    from primavista.storage.manifest import parse_manifest

    arrays, raw = files.read(path)
    manifest = parse_manifest(raw, str(path))
    parts: dict[str, int] = {}
    for name, array in arrays.items():
        part = (
            "undo"
            if name.startswith(UNDO)
            else next((p for head, p in PARTS.items() if name.startswith(head)), "strategy")
        )
        parts[part] = parts.get(part, 0) + array.nbytes
    return {
        "file": str(path),
        "format": manifest.format,
        "bytes": path.stat().st_size,
        "sha256": files.digest(arrays, raw),
        "strategy": manifest.strategy.model_dump(),
        "backbone": manifest.backbone.model_dump(mode="json"),
        "engine": manifest.engine,
        "threshold": manifest.threshold,
        "classes": [one.model_dump() for one in manifest.classes],
        "lessons": manifest.lessons,
        "undo": manifest.undo is not None,
        "tensor_bytes": parts,
    }


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
        "edge": "holds a graph: primavista-edge reads it"
        if "graph" in facts["tensor_bytes"]
        else "no graph: primavista export",
        "threshold": f"{facts['threshold']:g} (below it a frame is unknown)",
        "lessons": str(len(facts["lessons"])),
        "undo": "the last change can be taken back" if facts["undo"] else "nothing to take back",
        "objects": str(len(facts["classes"])) if facts["classes"] else "none yet: primavista learn",
    }
    for name, text in rows.items():
        table.add_row(name, Text(printable(text)))
    return table


def _classes(facts: Mapping[str, Any]) -> Table:
    table = Table("id", "object", "frames")
    table.columns[2].justify = "right"
    for one in facts["classes"]:
        table.add_row(str(one["id"]), Text(printable(one["name"])), str(one["frames"]))
    return table


def _pairs(options: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())


def _size(count: int) -> str:
    """Bytes as a person reads them.

    >>> _size(900), _size(3 * 2**20)
    ('900 bytes', '3.0 MiB')
    """
    return (
        f"{count} bytes"
        if count < 1024
        else f"{count / 1024:.1f} KiB"
        if count < 2**20
        else f"{count / 2**20:.1f} MiB"
    )
