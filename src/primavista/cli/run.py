"""`primavista run`: the main job, strategies side by side over a NICv2 stream."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from primavista.cli.bench import (
    RUNS,
    Deterministic,
    at_once,
    clock,
    executor,
    make_report,
    processors,
    settings_for,
    watched,
)
from primavista.errors import MissingExtraError

if TYPE_CHECKING:
    from primavista.bench.plan import Plan
    from primavista.bench.suite import State, Suite

DEFAULT = [
    "ar1*",
    "ewc",
    "lwf",
    "naive",
    "prima",
    "cwr*",
    "dslda",
]  # the longest first: two at a time end together
TESTS = 8  # along the stream
TEST_FRAMES = 2  # of each test session, or a few more: the frames of a video are alike


def run(
    strategies: Annotated[
        list[str] | None,
        typer.Argument(help="Strategies, e.g. 'ar1*' 'cwr*'; all of the paper's if none."),
    ] = None,
    objects: Annotated[int, typer.Option(help="Objects in each of the 10 categories.", min=1)] = 2,
    frames: Annotated[int, typer.Option(help="Frames a session (CORe50 has 300).", min=1)] = 8,
    size: Annotated[
        int, typer.Option(help="Side of the images in pixels (the paper: 128).", min=32)
    ] = 88,
    order: Annotated[
        int, typer.Option("--run", help="Which of the random orders (0 to 9 in the paper).", min=0)
    ] = 0,
    protocol: Annotated[
        str, typer.Option(help="ni, nc, nic, nicv2-79, ...; nicv2: one session a batch.")
    ] = "nicv2",
    data: Annotated[
        str, typer.Option(help="rendered, or the folder of a data set or packed store.")
    ] = "rendered",
    backbone: Annotated[
        str, typer.Option(help="mobilenet_v1 or efficientnet_lite0.")
    ] = "mobilenet_v1",
    weights: Annotated[
        str, typer.Option(help="imagenet, timm, random, or the path of a file.")
    ] = "imagenet",
    option: Annotated[
        list[str] | None,
        typer.Option(help="Of every strategy named, e.g. norm=bn of ar1*; repeat it."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="float32, or on a GPU tf32 or bf16.")] = "float32",
    deterministic: Deterministic = False,
    threads: Annotated[
        int,
        typer.Option(
            help="CPU threads: one a strategy; 0: as many as there are processors.", min=0
        ),
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: in primavista-runs).")
    ] = None,
) -> None:
    """The main job: the paper's strategies over a NICv2 stream of single-session batches, live, with a closing table.

    The objects are drawn on the spot (10 categories; sessions 3, 7 and 10 are the test set), the backbone is MobileNet v1 with
    ImageNet weights, and every batch after the first shows one video of one object. Stopped with Ctrl-C, the same command goes
    on from there.

    Example: `primavista run 'cwr*' dslda --objects 5 --frames 30 --size 128`
    """
    from primavista.bench.suite import Suite

    console = Console(highlight=False)
    table: dict[str, Any] = {
        "name": "run",
        "title": "Strategies of the paper side by side",
        "runs": [order],
        "device": device,
        "precision": precision,
        "deterministic": deterministic,
        "test_thin": max(1, frames // TEST_FRAMES),
        "backbone": {"name": backbone, "weights": weights},
        "groups": [
            {"name": "fig:results", "strategies": strategies or DEFAULT, "protocols": [protocol]}
        ],
    }
    plan = _plan(
        table,
        data,
        {"objects": objects, "frames": frames, "size": size},
        [f"options.{o}" for o in option or ()],
    )
    folder = out or RUNS / _name(plan)
    suite = Suite(plan, folder, settings=settings_for(out))
    began = time.monotonic()
    where = executor(
        "local" if len(suite.states) > 1 else "inline", threads or processors(), 2, False
    )
    failed = watched(console, suite, where, at_once(suite, where))
    _close(console, suite)
    spent = clock(time.monotonic() - began)
    console.print(
        f"[dim]{spent} in all; run {order}, {_frames(plan)}. Results in {folder}[/dim]",
        soft_wrap=True,
    )
    try:
        written = make_report(folder)
    except MissingExtraError as error:
        console.print(f"No report: {error}", soft_wrap=True, markup=False)
    else:
        if written is not None:
            console.print(f"The report: [bold]{written}[/bold]", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _plan(table: dict[str, Any], source: str, scene: dict[str, int], options: list[str]) -> Plan:
    """The plan, tested some dozen times along a stream however long."""
    from primavista.bench.cell import make_stream
    from primavista.bench.data import RenderedData, open_data, parse_source
    from primavista.bench.plan import make_plan
    from primavista.streams.rendered.dataset import rendered

    plan = make_plan(table, options, data=parse_source(source, **scene))
    cell = plan.planned()[0].cell
    opened = (
        rendered(plan.data.scene)
        if isinstance(plan.data, RenderedData)
        else open_data(plan.data, RUNS)
    )
    return plan.model_copy(update={"test_every": max(1, len(make_stream(cell, opened)) // TESTS)})


def _name(plan: Plan) -> str:
    key = hashlib.sha256(json.dumps(plan.base(), sort_keys=True).encode()).hexdigest()[:6]
    return f"{plan.data.name}-{key}"


def _frames(plan: Plan) -> str:
    from primavista.bench.data import RenderedData

    if isinstance(plan.data, RenderedData):
        return f"{plan.data.frames} frames a video, {plan.data.size} px"
    return str(getattr(plan.data, "path", plan.data.name))


def _close(console: Console, suite: Suite) -> None:
    """The closing table, the best first."""
    from primavista.bench.folder import METRICS, RESULT, read_json, read_lines

    done = [
        (state, read_json(state.path / RESULT)) for state in suite.states if state.status == "done"
    ]
    if not done:
        return
    first = done[0][1]
    kind = suite.plan.groups[0].protocols[0]
    what = "one video each after the first" if kind == "nicv2" else kind
    title = f"{len(first['classes'])} objects in {first['batches']} batches, {what} ({done[0][0].planned.cell.device})"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in (
        "strategy",
        "accuracy",
        "change",
        "learning",
        "a batch",
        "extra state",
        "over time",
    ):
        table.add_column(
            column, justify="left" if column in ("strategy", "over time") else "right", no_wrap=True
        )
    for state, result in sorted(done, key=lambda item: -item[1]["final"]["accuracy"]):
        final, spent = result["final"], result["learn_seconds"]
        curve = [
            line["accuracy"]
            for line in read_lines(state.path / METRICS)
            if line["accuracy"] is not None
        ]
        table.add_row(
            _label(state),
            f"{final['accuracy']:.1f} %",
            _points(final["forgetting"]),
            f"{spent:.1f} s",
            f"{1000 * spent / result['batches']:.0f} ms",
            f"{result['state_bytes'] / 2**20:.2f} MiB",
            f"[cyan]{_spark(curve)}[/cyan]",
        )
    console.print(table)


def _label(state: State) -> str:
    return state.planned.title.partition(" on ")[0]


def _points(value: float | None) -> str:
    """Forgetting as the gain or loss of each class since it was first taught."""
    return "" if value is None else f"{-value:+.1f}"


def _spark(curve: list[float]) -> str:
    """The curve of the accuracy in one line of text.

    >>> _spark([0.0, 50.0, 100.0])
    '▁▄█'
    """
    top = max(curve, default=0.0) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(7.999 * value / top))] for value in curve)
