"""`primavista run`: the main job, strategies side by side over a NICv2 stream."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from primavista.bench.evaluate import Step

DEFAULT = ["ar1*", "cwr*", "dslda", "ewc", "lwf", "naive"]


def run(
    strategies: Annotated[
        list[str] | None, typer.Argument(help="Strategies, e.g. 'ar1*' 'cwr*'; all of the paper's if none.")
    ] = None,
    objects: Annotated[int, typer.Option(help="Objects in each of the 10 categories.", min=1)] = 2,
    frames: Annotated[int, typer.Option(help="Frames a session (CORe50 has 300).", min=1)] = 12,
    size: Annotated[int, typer.Option(help="Side of the images in pixels (the paper: 128).", min=32)] = 64,
    order: Annotated[int, typer.Option("--run", help="Which of the random orders (0 to 9 in the paper).")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads; 0: as many as there are processors.")] = 0,
) -> None:
    """The main job: the paper's strategies over a NICv2 stream of single-session batches, live, with a closing table.

    The objects are drawn on the spot (10 categories; sessions 3, 7 and 10 are the test set), the backbone is MobileNet v1 with
    ImageNet weights, and every batch after the first shows one video of one object.

    Example: `primavista run 'cwr*' dslda --objects 5 --frames 30 --size 128`
    """
    import torch

    from primavista.backbones import build
    from primavista.bench.evaluate import evaluate
    from primavista.learner import choose_device
    from primavista.strategies import create
    from primavista.streams.protocols import nicv2
    from primavista.streams.rendered import Scene
    from primavista.streams.rendered.dataset import materialise

    console = Console()
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    where = choose_device(device)
    chosen = strategies or DEFAULT
    backbone = build(size=size)
    for name in chosen:
        create(name, backbone)  # a wrong name is said before anything is drawn
    began = time.perf_counter()
    with _progress(console) as bars:
        task = bars.add_task(f"drawing {10 * objects} objects x 11 videos", total=None, accuracy="")
        data = materialise(
            Scene(objects=objects, frames=frames, size=size),
            device=where,
            progress=lambda done, total: bars.update(task, completed=done, total=total),
        )
        stream = nicv2(data, run=order)
        every = max(1, len(stream) // 12)
        last: dict[str, Step] = {}
        seconds: dict[str, float] = {}
        for name in chosen:
            task = bars.add_task(name, total=len(stream), accuracy="")
            strategy = create(name, backbone, seed=order).to(where)
            for step in evaluate(strategy, stream, test_every=every, test_thin=max(1, frames // 4)):
                seconds[name] = seconds.get(name, 0.0) + step.learn_seconds
                if step.accuracy is not None:
                    last[name] = step
                    bars.update(task, accuracy=f"{step.accuracy:.1f} %")
                bars.update(task, completed=step.batch)
    console.print(_table(last, seconds, len(stream), len(data.classes), where.type))
    console.print(f"[dim]{time.perf_counter() - began:.0f} s in all; run {order}, {frames} frames a video, {size} px.[/dim]")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TextColumn("[bold]{task.fields[accuracy]:>7}"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=console,
    )  # fmt: skip


def _table(last: dict[str, Step], seconds: dict[str, float], batches: int, classes: int, device: str) -> Table:
    table = Table(
        title=f"{classes} objects in {batches} batches, one video each after the first ({device})", title_justify="left"
    )
    table.add_column("strategy")
    table.add_column("final accuracy", justify="right")
    table.add_column("learning, s", justify="right")
    table.add_column("ms a batch", justify="right")
    table.add_column("state beyond the backbone", justify="right")
    for name, step in sorted(last.items(), key=lambda item: -(item[1].accuracy or 0)):
        spent = seconds[name]
        table.add_row(
            name,
            f"{step.accuracy:.1f} %",
            f"{spent:.1f}",
            f"{1000 * spent / batches:.0f}",
            f"{step.state_bytes / 2**20:.2f} MiB",
        )
    return table
