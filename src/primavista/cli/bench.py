"""`primavista bench`: run plans, show how far they are, and make their reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import Deterministic, Out, Threads, printable
from primavista.cli.commands import CommandGroup
from primavista.cli.progress import progress_bar
from primavista.cli.suite import (
    RESULTS,
    format_seconds,
    make_executor,
    make_suite,
    print_failures,
    run_settings,
    run_with_progress,
)
from primavista.errors import InputError

if TYPE_CHECKING:
    from primavista.bench.plan import Plan
    from primavista.bench.run import CellState

app = CommandGroup(
    """Run plans: grids of strategies x options x protocols x runs, one folder per cell,
    resumable, on this machine or on Ray.

    PLAN is `quick`, `paper`, `claims`, or a TOML file of your own. If it is stopped or killed, the
    same command resumes.""",
    add_completion=False,
)
PlanName = Annotated[
    str, typer.Argument(metavar="PLAN", help="quick, paper, claims, or a TOML file.")
]
Override = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value, e.g. data.frames=30 or runs=3; repeatable."),
]
SourceName = Annotated[
    str | None,
    typer.Option("--data", help="A data set: rendered:objects=2,frames=12, or a folder."),
]


@app.add
def run(
    plan: PlanName,
    out: Out = None,
    overrides: Override = None,
    groups: Annotated[list[str] | None, typer.Option("--group")] = None,
    data: SourceName = None,
    on: str = "local",
    threads: Threads = 0,
    per_gpu: Annotated[int, typer.Option(min=1)] = 2,
    storage: Path | None = None,
    deterministic: Deterministic = False,
    tracker: list[str] | None = None,
) -> None:
    """Run the cells of a plan that are not done. A failed cell does not stop the others; the exit
    code is then 1.

    Example: `primavista bench run quick --set runs=1`

    Args:
        groups: Only this group; repeatable.
        on: local, inline (this process), ray, or ray://HOST:PORT.
        per_gpu: Cells at a time on each GPU.
        storage: Ray: a folder that every node sees; results go there.
        tracker: tensorboard or wandb; repeatable.
    """
    from primavista.bench.trackers import make_tracker

    settings = [*(overrides or ()), *(["deterministic=true"] if deterministic else ())]
    chosen = find_plan(plan, settings, data)
    folder = out or (storage or RESULTS) / chosen.name
    suite = make_suite(chosen, folder, groups or (), run_settings(out or storage))
    trackers = [make_tracker(kind, folder, chosen.name) for kind in tracker or ()]
    executor = make_executor(on, threads, per_gpu, storage is not None)
    failed = run_with_progress(Console(), suite, executor, trackers)
    typer.echo(f"results in {folder}; next: primavista bench report {plan} --out {folder}")
    if failed:
        raise typer.Exit(1)


@app.add
def status(
    plan: PlanName,
    out: Out = None,
    overrides: Override = None,
    data: SourceName = None,
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


@app.add
def report(
    plan: PlanName,
    out: Out = None,
    against: Path | None = None,
    figures: str = "pdf,svg,png",
    page_width: float = 6.25,
) -> None:
    """Make the report of the results so far: figures, tables, one HTML file.

    Example: `primavista bench report quick`

    Args:
        against: Folder with the authors' published curves, to draw over ours.
        figures: Kinds of files of the figures.
        page_width: Inches: the width of figures that span the page.
    """
    from primavista.report import write_report

    folder = _results_folder(plan, out)
    kinds = [kind.strip() for kind in figures.split(",") if kind.strip()]
    with progress_bar("writing the report") as bar:
        written = write_report(
            folder, against=against, figures=kinds, page_width=page_width, progress=bar
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
    """Read a plan, and set the values and the data set that the command line gives."""
    from primavista.bench.data import data_settings
    from primavista.bench.plan import load_plan

    return load_plan(name, overrides or (), data=None if source is None else data_settings(source))
