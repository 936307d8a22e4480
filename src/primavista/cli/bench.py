"""`primavista bench`: plans are run, looked at and reported."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from primavista.errors import InputError

if TYPE_CHECKING:
    from primavista.bench.cell import Settings
    from primavista.bench.jobs import Event, Executor
    from primavista.bench.plan import Plan
    from primavista.bench.suite import State, Suite

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Plans: a grid of strategies x options x protocols x runs, one folder a cell, resumable, local or on Ray.

    PLAN is `quick`, `paper`, `claims`, or a TOML file of your own. Stopped or killed, the same command goes on.""",
)
RUNS = Path("primavista-runs")
ROWS = 12  # of the live table
QUIET = 30.0  # seconds between lines where there is no terminal
PlanName = Annotated[
    str, typer.Argument(metavar="PLAN", help="quick, paper, claims, or a TOML file.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder of the results (default: primavista-runs/PLAN).")
]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, e.g. data.frames=30 or runs=3; repeat it."),
]
Source = Annotated[
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
        list[str] | None, typer.Option("--group", help="Only this group; repeat it.")
    ] = None,
    data: Source = None,
    on: Annotated[
        str, typer.Option(help="local, inline (this process), ray, or ray://HOST:PORT.")
    ] = "local",
    threads: Annotated[
        int, typer.Option(help="CPU threads shared by the cells; 0: one a processor.", min=0)
    ] = 0,
    per_gpu: Annotated[int, typer.Option(help="Cells at a time on each GPU.", min=1)] = 2,
    storage: Annotated[
        Path | None, typer.Option(help="Ray: a folder that every node sees; results go there.")
    ] = None,
    deterministic: Deterministic = False,
    tracker: Annotated[
        list[str] | None, typer.Option(help="tensorboard or wandb; repeat it.")
    ] = None,
) -> None:
    """Run a plan, or what is left of it. Exit code 1 where a cell failed; the others go on.

    Example: `primavista bench run quick --set runs=1`
    """
    from primavista.bench.suite import Suite
    from primavista.bench.trackers import make_logger

    chosen = find_plan(
        plan, [*(overrides or ()), *(["deterministic=true"] if deterministic else ())], data
    )
    folder = out or (storage or RUNS) / chosen.name
    suite = Suite(chosen, folder, groups or (), settings_for(out or storage))
    loggers = [make_logger(kind, folder, chosen.name) for kind in tracker or ()]
    where = executor(on, threads or processors(), per_gpu, storage is not None)
    failed = watched(Console(), suite, where, at_once(suite, where), loggers)
    typer.echo(f"results in {folder}; next: primavista bench report {plan} --out {folder}")
    if failed:
        raise typer.Exit(1)


@app.command()
def status(
    plan: PlanName, out: Out = None, overrides: Override = None, data: Source = None
) -> None:
    """Show what is done, running and failed, and how long the rest will take.

    Example: `primavista bench status quick`
    """
    from primavista.bench.folder import saved_plan
    from primavista.bench.suite import Suite, counts, seconds_left

    chosen = find_plan(plan, overrides, data)
    folder = out or RUNS / chosen.name
    if not overrides and data is None:
        chosen = saved_plan(folder, chosen.name) or chosen
    states = Suite(chosen, folder).states
    console, found = Console(highlight=False), counts(states)
    table = Table(title=f"{chosen.name}: {chosen.title}", title_justify="left")
    for column in ("group", "done", "running", "failed", "stopped", "waiting"):
        table.add_column(column, justify="left" if column == "group" else "right")
    for group in chosen.groups:
        own = counts(state for state in states if group.name in state.planned.groups)
        table.add_row(group.name, *(str(count or "") for count in own.values()))
    console.print(table)
    show_failed(console, [state for state in states if state.status == "failed"])
    left = seconds_left(states, max(1, found["running"]))
    known = (
        f", about {clock(left)} left" if left is not None and found["done"] < len(states) else ""
    )
    console.print(
        f"{found['done']} of {len(states)} cells done, {found['running']} running, {found['failed']} failed{known}"
    )


@app.command()
def report(
    plan: PlanName,
    out: Out = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Folder with the authors' published curves, to draw over ours."),
    ] = None,
) -> None:
    """Make the report of what there is so far: figures, tables, one HTML file.

    Example: `primavista bench report quick`
    """
    folder = out or RUNS / find_plan(plan, None, None).name
    written = make_report(folder, against)
    typer.echo(f"wrote {written}" if written else "this installation cannot write reports")


def find_plan(name: str, overrides: Sequence[str] | None, source: str | None) -> Plan:
    """A plan with what the command line sets in it."""
    from primavista.bench.data import parse_source
    from primavista.bench.plan import load_plan

    return load_plan(name, overrides or (), data=None if source is None else parse_source(source))


def make_report(folder: Path, against: Path | None = None) -> Path | None:
    """The report of a folder of results; None where the reports' part is not there."""
    try:
        from primavista.report import write_report
    except ImportError:
        return None
    settings: dict[str, Any] = {} if against is None else {"against": against}
    return write_report(folder, **settings)


def settings_for(out: Path | None) -> Settings | None:
    """Plans in the usual folder share the frames that are drawn for them; a folder of your own holds everything itself."""
    from primavista.bench.cell import Settings

    return Settings((RUNS / "data").resolve()) if out is None else None


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def executor(on: str, threads: int, per_gpu: int, shared: bool) -> Executor:
    """Where cells are run."""
    import torch

    from primavista.bench.executors.local import Inline, Processes
    from primavista.bench.executors.ray import RayCluster

    if on == "inline":
        return Inline()
    if on == "local":
        return Processes(threads, torch.cuda.device_count(), per_gpu)
    if on == "ray" or on.startswith("ray://"):
        return RayCluster(on if on != "ray" else "", shared, per_gpu)
    raise InputError(f"--on {on}: it is local, inline, ray, or ray://HOST:PORT")


def at_once(suite: Suite, where: Executor) -> int:
    """How many cells run side by side, for the estimate of what is left."""
    from primavista.bench.executors.local import Processes

    if not isinstance(where, Processes) or not suite.states:
        return 1
    return where.places(suite.states[0].planned.cell)


def watched(
    console: Console, suite: Suite, where: Executor, side: int, loggers: Sequence[Any] = ()
) -> list[State]:
    """Run a suite with live progress, or a line now and then where there is no terminal; says what failed."""
    board = Board(console, suite, side)
    try:
        with board:
            failed = suite.run(where, board.hear, loggers, board.drawing)
    except KeyboardInterrupt:
        console.print(
            "[yellow]stopped.[/yellow] What is learned is kept: the same command goes on from there."
        )
        raise typer.Exit(130) from None
    show_failed(console, failed)
    return failed


def show_failed(console: Console, failed: Sequence[State]) -> None:
    """The failed cells, each with its reason."""
    for state in failed:
        console.print(
            f"[red]failed:[/red] {escape(state.planned.title)}: {escape(state.reason)}",
            soft_wrap=True,
        )


def clock(seconds: float | None) -> str:
    """Seconds as a person reads them.

    >>> clock(59), clock(200), clock(7260)
    ('59 s', '3 min 20 s', '2 h 1 min')
    """
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s"
        if whole < 3600
        else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


class Board:
    """The live table of a suite; where there is no terminal, a line as cells end and now and then between."""

    def __init__(self, console: Console, suite: Suite, side: int) -> None:
        self.console, self.suite, self.side = console, suite, side
        self.drawn: tuple[int, int] | None = None
        self._said = time.monotonic()
        self._live = (
            Live(console=console, refresh_per_second=4, get_renderable=self.table)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Board:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._live.__exit__(*error)

    def drawing(self, done: int, total: int) -> None:
        """Frames are being drawn."""
        self.drawn = None if done >= total else (done, total)
        if not self._live and self._due():
            self.console.print(f"drawing frames: {done} of {total}")

    def hear(self, state: State, event: Event) -> None:
        """A cell has got further."""
        if self._live:
            return
        if event.kind == "done":
            self.console.print(f"{state.planned.title}: {state.accuracy:.1f} %", highlight=False)
        elif event.kind in ("failed", "again"):
            self.console.print(
                f"{state.planned.title}: {event.reason}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        elif self._due():
            running = [s for s in self.suite.states if s.status == "running"]
            parts = [
                f"{s.planned.cell.strategy} {s.batch}/{s.batches}{_percent(s, ' at ')}"
                for s in running
            ]
            self.console.print(
                f"{', '.join(parts)}; {self._rest()}", highlight=False, soft_wrap=True
            )

    def table(self) -> Group:
        """What the terminal shows."""
        table = Table(box=None, pad_edge=False, show_header=False)
        for justify in ("left", "left", "right", "right", "left"):
            table.add_column(justify=justify)
        if self.drawn:
            table.add_row("drawing frames", _bar(*self.drawn), f"{self.drawn[0]}/{self.drawn[1]}")
        states = self.suite.states
        active = (
            states if len(states) <= ROWS else [s for s in states if s.status == "running"][:ROWS]
        )
        for state in active:
            name = state.planned.title if len(states) > ROWS else state.planned.cell.strategy
            place = f"{state.batch}/{state.batches}" if state.batches else ""
            mark = {"failed": "[red]failed", "done": "[green]done", "running": ""}.get(
                state.status, f"[dim]{state.status}"
            )
            table.add_row(
                escape(name),
                _bar(state.batch, state.batches or 0),
                place,
                f"[bold]{_percent(state)}",
                mark,
            )
        return Group(table, f"[dim]{self._rest()}[/dim]")

    def _rest(self) -> str:
        from primavista.bench.suite import counts, seconds_left

        states = self.suite.states
        found = counts(states)
        done, left = found["done"], seconds_left(states, max(self.side, found["running"]))
        return f"{done} of {len(states)} done" + (f", about {clock(left)} left" if left else "")

    def _due(self) -> bool:
        if time.monotonic() - self._said < QUIET:
            return False
        self._said = time.monotonic()
        return True


def _percent(state: State, before: str = "") -> str:
    return "" if state.accuracy is None else f"{before}{state.accuracy:.1f} %"


def _bar(done: int, total: int, width: int = 30) -> str:
    filled = round(width * done / total) if total else 0
    return f"[cyan]{'━' * filled}[/cyan][dim]{'─' * (width - filled)}[/dim]"
