"""`primavista export`: a learner as ONNX, for any runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from primavista.cli.arguments import Model, printable
from primavista.errors import InputError


def export(
    model: Model,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file (default: beside the model).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that exists (never over the model).")
    ] = False,
) -> None:
    """Write a learner as ONNX, after comparing what it computes with the learner itself.

    It is one graph from uint8 frames, N x size x size x 3, to features and scores: normalisation
    inside, class names and preprocessing in the metadata, any batch size.

    Example: `primavista export kitchen.pv -o kitchen.onnx`
    """
    from primavista.learner.export import export as write
    from primavista.learner.learner import Learner

    target = out or model.parent / f"{model.stem}.onnx"
    _check_target(model, target, force)
    learner = Learner.load(model, device="cpu")
    write(learner, target)
    console = Console(highlight=False, soft_wrap=True)
    names = ", ".join(printable(label) for label in learner.labels)
    console.print(f"{printable(str(target))}: {names}", markup=False)
    megabytes = target.stat().st_size / 1e6
    console.print(f"{megabytes:.1f} MB, equal to the learner on trial frames", markup=False)


def _check_target(model: Path, target: Path, force: bool) -> None:
    if not target.exists():
        return
    if model.exists() and target.samefile(model):
        raise InputError(f"{target} is the learner itself: give another name")
    if target.is_dir():
        raise InputError(f"{target} is a folder: give the name of a file in it")
    if not force:
        raise InputError(f"{target} exists: give another name with -o, or --force to write over it")
