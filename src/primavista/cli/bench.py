"""`primavista bench`: run plans, show how far they are, and make their reports."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import printable
from primavista.errors import InputError

if TYPE_CHECKING:
    from primavista.bench.cell import CellEvent, RunSettings
    from primavista.bench.plan import Plan
    from primavista.bench.run import CellState, Executor, Suite
    from primavista.bench.trackers import Tracker

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Run plans: grids of strategies x options x protocols x runs, one folder per cell,
    resumable, on this machine or on Ray.

    PLAN is `quick`, `paper`, `claims`, or a TOML file of your own. If it is stopped or killed, the
    same command resumes.""",
)
RESULTS = Path("primavista-runs")
TABLE_ROWS = 12  # of the live table
QUIET_SECONDS = 30.0  # between lines, without a terminal
PlanName = Annotated[
    str, typer.Argument(metavar="PLAN", help="quick, paper, claims, or a TOML file.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the results (default: primavista-runs/PLAN).")
]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, e.g. data.frames=30 or runs=3; repeatable."),
]
SourceName = Annotated[
    str | None,
    typer.Option("--data", help="A data set: rendered:objects=2,frames=12, or a folder."),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="On a GPU: the same bits each time, more slowly. (On the CPU it is always so.)",
    ),
]


@app.command()
def run(
    plan: PlanName,
    out: Out = None,
    overrides: Override = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", help="Only this group; repeatable.")
    ] = None,
    data: SourceName = None,
    on: Annotated[
        str, typer.Option(help="local, inline (this process), ray, or ray://HOST:PORT.")
    ] = "local",
    threads: Annotated[
        int, typer.Option(help="CPU threads shared by the cells; 0: one per processor.", min=0)
    ] = 0,
    per_gpu: Annotated[int, typer.Option(help="Cells at a time on each GPU.", min=1)] = 2,
    storage: Annotated[
        Path | None, typer.Option(help="Ray: a folder that every node sees; results go there.")
    ] = None,
    deterministic: Deterministic = False,
    tracker: Annotated[
        list[str] | None, typer.Option(help="tensorboard or wandb; repeatable.")
    ] = None,
) -> None:
    """Run the cells of a plan that are not done. A failed cell does not stop the others; the exit
    code is then 1.

    Example: `primavista bench run quick --set runs=1`
    """
    from primavista.bench.trackers import make_tracker

    settings = [*(overrides or ()), *(["deterministic=true"] if deterministic else ())]
    chosen = find_plan(plan, settings, data)
    folder = out or (storage or RESULTS) / chosen.name
    suite = make_suite(chosen, folder, groups or (), run_settings(out or storage))
    trackers = [make_tracker(kind, folder, chosen.name) for kind in tracker or ()]
    executor = make_executor(on, threads or processors(), per_gpu, storage is not None)
    failed = run_with_progress(Console(), suite, executor, trackers)
    typer.echo(f"results in {folder}; next: primavista bench report {plan} --out {folder}")
    if failed:
        raise typer.Exit(1)


@app.command()
def status(
    plan: PlanName, out: Out = None, overrides: Override = None, data: SourceName = None
) -> None:
    """Show the cells that are done, running and failed, and estimate the time left.

    Example: `primavista bench status quick`
    """
    from primavista.bench.folder import saved_plan
    from primavista.bench.run import counts, seconds_left

    given = chosen = find_plan(plan, overrides, data)
    folder = out or RESULTS / chosen.name
    if not overrides and data is None:
        chosen = saved_plan(folder, chosen.name) or chosen
    states = make_suite(chosen, folder).states
    console, found = Console(highlight=False), counts(states)
    console.print(_status_table(chosen, states))
    if chosen != given:
        text = (
            f"note: this is the plan as it was last run; {plan} differs from it now, or --set did"
        )
        console.print(printable(text), markup=False, soft_wrap=True)
    _print_other_results(console, folder, states)
    print_failures(console, [state for state in states if state.status == "failed"])
    left = seconds_left(states, max(1, found["running"]))
    estimate = ""
    if left is not None and found["done"] < len(states):
        estimate = f", about {format_seconds(left)} left"
    console.print(
        f"{found['done']} of {len(states)} cells done, {found['running']} running, "
        f"{found['failed']} failed{estimate}"
    )


def _print_other_results(console: Console, folder: Path, states: Sequence[CellState]) -> None:
    """Say how many results the plan does not count: of other options, or stale."""
    from primavista.bench.folder import RESULT

    planned = {folder / state.planned.folder for state in states}
    others = [path for path in folder.glob(f"*/*/{RESULT}") if path.parent not in planned]
    if others:
        text = (
            f"note: {len(others)} other results are in the folder: of other options or strategies, "
            "or stale, since the code or the data has changed; the report tells which"
        )
        console.print(text, markup=False, soft_wrap=True)


def _status_table(plan: Plan, states: Sequence[CellState]) -> Table:
    from primavista.bench.run import counts

    title = Text(printable(f"{plan.name}: {plan.title}"))
    table = Table(title=title, title_justify="left")
    for column in ("group", "done", "running", "failed", "stopped", "waiting"):
        table.add_column(column, justify="left" if column == "group" else "right")
    for group in plan.groups:
        own = counts(state for state in states if group.name in state.planned.groups)
        table.add_row(Text(printable(group.name)), *(str(count or "") for count in own.values()))
    return table


@app.command()
def report(
    plan: PlanName,
    out: Out = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Folder with the authors' published curves, to draw over ours."),
    ] = None,
    figures: Annotated[
        str,
        typer.Option(help="Kinds of files of the figures."),
    ] = "pdf,svg,png",
    page_width: Annotated[
        float, typer.Option(help="Inches: the width of figures that span the page.")
    ] = 6.25,
) -> None:
    """Make the report of the results so far: figures, tables, one HTML file.

    Example: `primavista bench report quick`
    """
    from primavista.report import write_report

    folder = _results_folder(plan, out)
    columns = (TextColumn("writing the report"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)

        def report_progress(done: int, total: int | None, /) -> None:
            bars.update(task, completed=done, total=total)

        kinds = [kind.strip() for kind in figures.split(",") if kind.strip()]
        written = write_report(
            folder,
            against=against,
            figures=kinds,
            page_width=page_width,
            progress=report_progress,
        )
    typer.echo(f"wrote {written}")


def _results_folder(plan: str, out: Path | None) -> Path:
    """Return the folder of a plan's results. Reading the plan registers its own strategies."""
    try:
        name = find_plan(plan, None, None).name
    except InputError:
        if out is None:
            raise
        return out  # a report needs no plan
    return out or RESULTS / name


def find_plan(name: str, overrides: Sequence[str] | None, source: str | None) -> Plan:
    """Read a plan, and set the values that the command line gives.

    Args:
        name: the name of a plan, or the path of a TOML file.
        overrides: texts "key=value".
        source: the data set, as on the command line.
    """
    from primavista.bench.data import data_settings
    from primavista.bench.plan import load_plan

    return load_plan(name, overrides or (), data=None if source is None else data_settings(source))


def make_suite(
    plan: Plan, folder: Path, groups: Sequence[str] = (), settings: RunSettings | None = None
) -> Suite:
    """Return the cells of a plan, with a progress bar while new files of the data are read.

    Args:
        plan: the plan.
        folder: the folder of the results.
        groups: the names of the groups to run; all if there are none.
        settings: how cells are run.
    """
    from primavista.bench.run import Suite

    columns = (TextColumn("reading the data"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def report(done: int, total: int | None, /) -> None:
            task = bars.task_ids[0] if bars.task_ids else bars.add_task("", total=total)
            bars.update(task, completed=done)

        return Suite(plan, folder, groups, settings, report)


def run_settings(out: Path | None) -> RunSettings | None:
    """Return how cells are run.

    Plans in the usual folder share the frames that are rendered for them; a folder that the user
    names holds everything itself.

    Args:
        out: the folder that the user named, if any.
    """
    from primavista.bench.cell import RunSettings

    return RunSettings((RESULTS / "data").resolve()) if out is None else None


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_executor(on: str, threads: int, per_gpu: int, shared: bool) -> Executor:
    """Return the executor that runs the cells.

    Args:
        on: local, inline, ray, or ray://HOST:PORT.
        threads: CPU threads of this machine to use.
        per_gpu: how many cells run at a time on each GPU.
        shared: whether the nodes of a cluster see the folders of the results.

    Raises:
        InputError: if there is no such place.
    """
    if on == "inline":
        from primavista.bench.executors.local import Inline

        return Inline()
    if on == "local":
        import torch

        from primavista.bench.executors.local import Processes

        return Processes(threads, torch.cuda.device_count(), per_gpu)
    if on == "ray" or on.startswith("ray://"):
        from primavista.bench.executors.ray import RayCluster

        return RayCluster(on if on != "ray" else "", shared, per_gpu)
    raise InputError(f"--on {on}: choose local, inline, ray, or ray://HOST:PORT")


def run_with_progress(
    console: Console, suite: Suite, executor: Executor, trackers: Sequence[Tracker] = ()
) -> list[CellState]:
    """Run a suite with a live table, or with a line now and then if there is no terminal.

    Args:
        console: where to print.
        suite: the cells.
        executor: the executor that runs them.
        trackers: they follow every cell.

    Returns:
        The cells that failed; they are printed too.

    Raises:
        typer.Exit: with code 130 after Ctrl-C.
    """
    display = ProgressDisplay(console, suite, cells_at_once(suite, executor))
    try:
        with display:
            failed = suite.run(executor, display.on_event, trackers, display.on_frames)
    except KeyboardInterrupt:
        console.print(
            "[yellow]stopped.[/yellow] Everything learned is kept: the same command resumes."
        )
        raise typer.Exit(130) from None
    print_failures(console, failed)
    return failed


def cells_at_once(suite: Suite, executor: Executor) -> int:
    """Return how many cells run side by side, for the estimate of the time left.

    Args:
        suite: the cells.
        executor: the executor that runs them.
    """
    places = getattr(executor, "places", None)
    return places(suite.states[0].planned.cell) if places and suite.states else 1


def print_failures(console: Console, failed: Sequence[CellState]) -> None:
    """Print the cells that failed, each with its reason.

    Args:
        console: where to print.
        failed: the cells.
    """
    for state in failed:
        told = escape(printable(f"{state.planned.title}: {state.reason}"))
        text = f"[red]failed:[/red] {told}"
        console.print(text, soft_wrap=True)


def format_seconds(seconds: float | None) -> str:
    """Return a duration as a person reads it.

    Args:
        seconds: the duration; None if it is unknown.

    >>> format_seconds(59), format_seconds(200), format_seconds(7260)
    ('59 s', '3 min 20 s', '2 h 1 min')
    """
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class ProgressDisplay:
    """The live table of a suite; without a terminal, a line per cell and a few in between.

    Args:
        console: where to print.
        suite: the cells.
        at_once: how many cells run side by side.
    """

    def __init__(self, console: Console, suite: Suite, at_once: int) -> None:
        self.console = console
        self.suite = suite
        self.at_once = at_once
        self._frames: tuple[int, int] | None = None  # rendered so far, and in all
        self._printed_at = time.monotonic()
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, refresh_per_second=4, get_renderable=self.table)

    def __enter__(self) -> ProgressDisplay:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, traceback)

    def on_frames(self, done: int, total: int | None) -> None:
        """Show how many frames are rendered.

        Args:
            done: how many are.
            total: how many there will be.
        """
        self._frames = None if total is None or done >= total else (done, total)
        if not self._live and self._may_print():
            self.console.print(f"drawing frames: {done} of {total}")

    def on_event(self, state: CellState, event: CellEvent) -> None:
        """Show that a cell has got further.

        Args:
            state: the cell.
            event: the event.
        """
        if self._live:
            return
        title = printable(state.planned.title)
        if event.kind == "done":
            text = f"{title}: {state.accuracy:.1f} %"
            self.console.print(text, highlight=False, markup=False)
        elif event.kind in ("failed", "restarted"):
            text = f"{title}: {printable(event.reason)}"
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        elif self._may_print():
            self._print_running()

    def table(self) -> Group:
        """Return the live table and a summary, for the terminal."""
        table = Table(box=None, pad_edge=False, show_header=False)
        for justify in ("left", "left", "right", "right", "left"):
            table.add_column(justify=justify)
        if self._frames:
            done, total = self._frames
            table.add_row("drawing frames", _bar(done, total), f"{done}/{total}")
        states = self.suite.states
        all_fit = len(states) <= TABLE_ROWS
        if not all_fit:
            states = [state for state in states if state.status == "running"][:TABLE_ROWS]
        for state in states:
            name = state.planned.cell.strategy if all_fit else state.planned.title
            table.add_row(Text(printable(name)), *_progress_columns(state))
        return Group(table, f"[dim]{self._summary()}[/dim]")

    def _print_running(self) -> None:
        parts = []
        for state in self.suite.states:
            if state.status == "running":
                name = state.planned.cell.strategy
                accuracy = "" if state.accuracy is None else f" at {_percent(state)}"
                parts.append(f"{name} {state.batch}/{state.batches}{accuracy}")
        text = f"{', '.join(parts)}; {self._summary()}"
        self.console.print(text, highlight=False, soft_wrap=True)

    def _summary(self) -> str:
        from primavista.bench.run import counts, seconds_left

        states = self.suite.states
        found = counts(states)
        left = seconds_left(states, max(self.at_once, found["running"]))
        estimate = f", about {format_seconds(left)} left" if left else ""
        return f"{found['done']} of {len(states)} done{estimate}"

    def _may_print(self) -> bool:
        if time.monotonic() - self._printed_at < QUIET_SECONDS:
            return False
        self._printed_at = time.monotonic()
        return True


def _progress_columns(state: CellState) -> tuple[str, str, str, str]:
    marks = {"failed": "[red]failed", "done": "[green]done", "running": ""}
    mark = marks.get(state.status, f"[dim]{state.status}")
    position = f"{state.batch}/{state.batches}" if state.batches else ""
    return _bar(state.batch, state.batches or 0), position, f"[bold]{_percent(state)}", mark


def _percent(state: CellState) -> str:
    return "" if state.accuracy is None else f"{state.accuracy:.1f} %"


def _bar(done: int, total: int, width: int = 30) -> str:
    filled = round(width * done / total) if total else 0
    return f"[cyan]{'━' * filled}[/cyan][dim]{'─' * (width - filled)}[/dim]"
