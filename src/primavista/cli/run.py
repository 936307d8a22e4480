"""`primavista run`: the plan `quick` with a live view, a closing table and a report."""

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

from primavista.cli.arguments import Threads, register_named
from primavista.cli.suite import (
    RESULTS,
    format_seconds,
    make_executor,
    make_suite,
    print_learning_warnings,
    run_with_progress,
)
from primavista.errors import MissingExtraError

if TYPE_CHECKING:
    from primavista.bench.folder import CellResult
    from primavista.bench.plan import Plan
    from primavista.bench.run import CellState, Suite

TESTS = 8  # along the stream
TEST_FRAMES = 2  # of each rendered test session, or a few more: the frames of a video are alike
COLUMNS = ("strategy", "accuracy", "change", "learning", "per batch", "extra state", "over time")


def run(
    strategies: Annotated[list[str] | None, typer.Argument()] = None,
    objects: Annotated[int, typer.Option(min=1)] = 2,
    frames: Annotated[int, typer.Option(min=1)] = 8,
    size: Annotated[int, typer.Option(min=32)] = 88,
    order: Annotated[int, typer.Option("--run", min=0)] = 0,
    protocol: str = "nicv2",
    data: str = "rendered",
    backbone: str = "mobilenet_v1",
    weights: str | None = None,
    option: list[str] | None = None,
    device: str = "auto",
    precision: str = "float32",
    deterministic: bool = False,
    threads: Threads = 0,
    out: Path | None = None,
) -> None:
    """Run the main job: strategies over a NICv2 stream of single-session batches, live, with a
    closing table.

    The objects are drawn on the spot (10 categories; sessions 3, 7 and 10 are the test set), the
    backbone is MobileNet v1 with ImageNet weights, and every batch after the first shows one video
    of one object. After Ctrl-C the same command resumes.

    Drawn videos are tested on two frames each, or a few more. CORe50 is tested on its official
    reduced list, and every other data set on all its test frames.

    It is `primavista bench run quick` with other settings, a closing table and a report.

    Example: `primavista run 'cwr*' dslda --objects 5 --frames 30 --size 128`

    Args:
        strategies: Strategies, e.g. 'ar1*' 'cwr*', or your own, package.module:Class; prima and the
            paper's without Cumulative if none.
        objects: Objects in each of the 10 categories.
        frames: Frames per drawn session (CORe50: 300).
        size: Side of the images in pixels (the paper: 128).
        order: Which of the random orders (0 to 9 in the paper).
        protocol: ni, nc, nic, nicv2-79, ..., class-incremental:first=50, domain-incremental; nicv2:
            one session per batch.
        data: rendered, or the folder of a data set or packed store.
        backbone: mobilenet_v1, efficientnet_lite0, resnet50, or your own: package.module:function,
            which returns a torch.nn.Module.
        weights: imagenet (default), timm, random, or the path of a file.
        option: An option of every strategy, e.g. norm=bn; repeat it.
        precision: float32, or on a GPU tf32 or bf16.
    """
    console = Console(highlight=False)
    network = {"name": backbone, **({} if weights is None else {"weights": weights})}
    settings = [f"options.{text}" for text in option or ()]
    settings += [f"protocols={json.dumps([protocol])}"]
    settings += [f"strategies={json.dumps(strategies)}"] if strategies else []
    scene = {"objects": objects, "frames": frames, "size": size}
    keys: dict[str, Any] = {"runs": [order], "backbone": network, "device": device}
    keys |= {"precision": precision, "deterministic": deterministic}
    plan = _quick_plan(settings, data, scene, keys)
    key = hashlib.sha256(json.dumps(plan.base(), sort_keys=True).encode()).hexdigest()[:6]
    folder = out or RESULTS / f"{plan.data.name}-{key}"
    suite = make_suite(plan, folder, shared_data=out is None)
    began = time.monotonic()
    on = "local" if len(suite.states) > 1 else "inline"
    failed = run_with_progress(console, suite, make_executor(on, threads, 2))
    _print_results(console, suite)
    print_learning_warnings(console, suite)
    spent = format_seconds(time.monotonic() - began)
    console.print(f"[dim]{spent} in all. Results in {folder}[/dim]", soft_wrap=True)
    _write_report(console, folder)
    if failed:
        raise typer.Exit(1)


def _quick_plan(
    settings: list[str], source: str, scene: dict[str, int], keys: dict[str, Any]
) -> Plan:
    """Return the plan `quick`, with about `TESTS` tests along the stream, however long that is."""
    from primavista.bench.cell import cell_stream
    from primavista.bench.data import data_settings, open_cell_data
    from primavista.bench.plan import load_plan
    from primavista.streams.rendered.dataset import rendered

    data = data_settings(source, **scene)
    # A thinning of 1 takes the official reduced test set of CORe50, and all test frames of others.
    thin = max(1, scene["frames"] // TEST_FRAMES) if data["kind"] == "rendered" else 1
    plan = load_plan("quick", settings, data=data, test_thin=thin, **keys)
    register_named(*plan.own_code)
    first, *_ = plan.cells_of(plan.groups[0])  # all of them: a wrong option is found here
    if plan.data.kind == "rendered":
        opened = rendered(plan.data.scene)
    else:
        opened = open_cell_data(plan.data, RESULTS)
    batches = len(cell_stream(first, opened))
    return plan.model_copy(update={"test_every": max(1, batches // TESTS)})


def _print_results(console: Console, suite: Suite) -> None:
    """Print the closing table, the best strategy first."""
    from primavista.bench.folder import read_result

    done = [(state, read_result(state.path)) for state in suite.states if state.status == "done"]
    found = [(state, result) for state, result in done if result is not None]
    if not found:
        return
    first_state, first = found[0]
    protocol = suite.plan.groups[0].protocols[0]
    what = "one video each after the first" if protocol == "nicv2" else protocol
    device = first_state.planned.cell.device
    title = f"{len(first.classes)} objects in {first.batches} batches, {what} ({device})"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in COLUMNS:
        is_text = column in ("strategy", "over time")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for state, result in sorted(found, key=lambda pair: -(pair[1].final.accuracy or 0.0)):
        table.add_row(*_result_columns(state, result))
    console.print(table)


def _result_columns(state: CellState, result: CellResult) -> tuple[str, ...]:
    from primavista.bench.folder import read_metrics

    seconds = result.learn_seconds or 0.0
    change = result.final.backward_transfer
    accuracies = [line.measures.accuracy for line in read_metrics(state.path)]
    curve = [accuracy for accuracy in accuracies if accuracy is not None]
    return (
        state.planned.title.partition(" on ")[0].rpartition(":")[2],  # of a reference, the name
        f"{result.final.accuracy:.1f} %",
        "" if change is None else f"{change:+.1f}",
        f"{seconds:.1f} s",
        f"{1000 * seconds / result.batches:.0f} ms",
        f"{(result.state_bytes or 0) / 2**20:.2f} MiB",
        f"[cyan]{_sparkline(curve)}[/cyan]",
    )


def _sparkline(curve: list[float]) -> str:
    """Draw the curve of the accuracy in one line of text.

    >>> _sparkline([0.0, 50.0, 100.0])
    '▁▄█'
    """
    top = max(curve, default=0.0) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(7.999 * value / top))] for value in curve)


def _write_report(console: Console, folder: Path) -> None:
    from primavista.report import write_report

    try:
        # `primavista bench report` writes them as PDF too, which takes longer
        written = write_report(folder, figures=("svg", "png"))
    except MissingExtraError as error:
        console.print(f"No report: {error}", soft_wrap=True, markup=False)
    else:
        console.print(f"The report: [bold]{written}[/bold]", soft_wrap=True)
