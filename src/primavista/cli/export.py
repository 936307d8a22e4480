"""`primavista export`: a learner as ONNX, or as a file with which primavista-edge learns on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from primavista.cli.arguments import printable
from primavista.errors import InputError


def export(
    model: Annotated[Path, typer.Argument(help="A saved learner, e.g. kitchen.pv.")],
    kind: Annotated[
        str,
        typer.Option(
            "--format", help="onnx: to predict anywhere; edge: to predict and learn, without torch."
        ),
    ] = "onnx",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file (default: beside the model).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that exists (never over the model).")
    ] = False,
) -> None:
    """Write a learner for machines without torch, after comparing it with torch.

    `--format onnx` is one graph from uint8 frames, N x size x size x 3, to features and scores:
    normalisation inside, class names and preprocessing in the metadata, any batch size. `--format
    edge` is the learner's own file with that graph inside: `primavista-edge` (numpy and onnxruntime
    alone) predicts with it, goes on learning, and saves what this package loads.

    Example: primavista export kitchen.pv --format onnx -o kitchen.onnx
    """
    from primavista.learner.export import SUFFIXES
    from primavista.learner.export import export as write
    from primavista.learner.learner import Learner

    if kind not in SUFFIXES:
        raise InputError(f"--format is {' or '.join(SUFFIXES)}; got {kind!r}")
    chosen: Any = kind
    target = out or model.parent / f"{model.stem}{SUFFIXES[chosen]}"
    _check_target(model, target, force)
    learner = Learner.load(model, device="cpu")
    write(learner, target, chosen)
    console = Console(highlight=False, soft_wrap=True)
    names = ", ".join(printable(label) for label in learner.labels)
    console.print(f"{printable(str(target))}: {names}", markup=False)
    megabytes = target.stat().st_size / 1e6
    console.print(f"{megabytes:.1f} MB, equal to torch on trial frames", markup=False)
    if kind == "edge" and not learner.strategy.freezes:
        note = (
            f"{learner.strategy_name} trains the network itself, which needs torch: on the edge "
            "this file predicts only"
        )
        console.print(note, style="yellow", markup=False)


def _check_target(model: Path, target: Path, force: bool) -> None:
    if not target.exists():
        return
    if model.exists() and target.samefile(model):
        raise InputError(f"{target} is the learner itself: give another name")
    if target.is_dir():
        raise InputError(f"{target} is a folder: give the name of a file in it")
    if not force:
        raise InputError(f"{target} exists: give another name with -o, or --force to write over it")
