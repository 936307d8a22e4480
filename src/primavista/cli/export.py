"""`primavista export`: a learner as ONNX, or as a file with its network inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from primavista.cli.arguments import check_copy, printable
from primavista.errors import require_extra


def export(
    model: Path,
    kind: Annotated[Literal["onnx", "portable"], typer.Option("--format")] = "onnx",
    out: Annotated[Path | None, typer.Option("-o", "--out")] = None,
    force: bool = False,
) -> None:
    """Write a learner for machines without torch, after comparing it with torch.

    `--format onnx` is one graph from uint8 frames, N x size x size x 3, to features and scores:
    normalisation inside, class names and preprocessing in the metadata, any batch size. `--format
    portable` is the learner's own file, for a strategy that does not train its network: it loads
    without torch, as files with the network of the package do anyway.

    Example: `primavista export kitchen.pv -o kitchen.onnx`

    Args:
        kind: portable: the learner's file with its network inside.
        out: The file (default: beside the model).
        force: Write over a file that exists (never over the model).
    """
    require_extra("torch", "train")
    from primavista.learner.export import SUFFIXES
    from primavista.learner.export import export as write
    from primavista.learner.learner import Learner

    target = out or model.parent / f"{model.stem}{SUFFIXES[kind]}"
    learner = Learner.load(model, device="cpu")
    check_copy(model, target, " with -o, or --force to write over it", replace=force)
    write(learner, target, kind)
    console = Console(highlight=False, soft_wrap=True)
    names = ", ".join(printable(label) for label in learner.labels)
    console.print(f"{printable(str(target))}: {names}", markup=False)
    megabytes = target.stat().st_size / 1e6
    console.print(f"{megabytes:.1f} MB, equal to torch on trial frames", markup=False)
