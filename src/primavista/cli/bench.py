"""`primavista bench`: run plans, show how far they are, and make their reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import Threads, printable, register_named
from primavista.cli.commands import CommandGroup
from primavista.cli.progress import progress_bar
from primavista.cli.suite import (
    RESULTS,
    make_executor,
    make_suite,
    print_failures,
    print_learning_warnings,
    run_with_progress,
    summary,
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
Overrides = Annotated[list[str] | None, typer.Option("--set")]


@app.add
def run(
    plan: str,
    out: Path | None = None,
    overrides: Overrides = None,
    groups: Annotated[list[str] | None, typer.Option("--group")] = None,
    data: str | None = None,
    on: str = "local",
    threads: Threads = 0,
    per_gpu: Annotated[int, typer.Option(min=1)] = 2,
    fresh: bool = False,
    deterministic: bool = False,
) -> None:
    """Run the cells of a plan that are not done. A failed cell does not stop the others; the exit
    code is then 1. Code of your own that the plan names is named and imported.

    Example: `primavista bench run quick --set runs=1`

    Args:
        groups: Only this group; repeatable.
        on: local, inline (this process), ray, or ray://HOST:PORT.
        per_gpu: Cells at a time on each GPU.
        fresh: Each cell in a process of its own, which takes longer: all report their peak memory.
    """
    settings = [*(overrides or ()), *(["deterministic=true"] if deterministic else ())]
    chosen = find_plan(plan, settings, data)
    folder = out or RESULTS / chosen.name
    own = _import_own_code(chosen, plan)
    again = " ".join(("primavista", *(f"--register {name}" for name in own)))
    suite = make_suite(chosen, folder, groups or (), shared_data=not out)
    executor = make_executor(on, threads, per_gpu, fresh)
    console = Console()
    failed = run_with_progress(console, suite, executor)
    print_learning_warnings(console, suite)
    typer.echo(f"results in {folder}; next: {again} bench report {plan} --out {folder}")
    if failed:
        raise typer.Exit(1)


@app.add
def tune(
    plan: str,
    to: Path | None = None,
    out: Path | None = None,
    overrides: Overrides = None,
    data: str | None = None,
    on: str = "local",
    threads: Threads = 0,
    per_gpu: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Choose hyperparameters from a small grid, by final accuracy on run 0, as the paper did, and
    write a plan with them. Code of your own that the plan names is named and imported.

    Example: `primavista bench tune quick --to mine.toml`

    Args:
        to: The file of the plan to write; NAME-tuned.toml if not given.
        on: local, inline (this process), ray, or ray://HOST:PORT.
        per_gpu: Cells at a time on each GPU.
    """
    from primavista.bench.tune import choices, grid_plan, plan_text, tuned_plan
    from primavista.errors import CHOOSE_FOLDER, file_errors
    from primavista.storage.disk import write_atomically

    given = find_plan(plan, overrides, data)
    _import_own_code(given, plan)
    chosen = grid_plan(given)
    folder = out or RESULTS / chosen.name
    suite = make_suite(chosen, folder, shared_data=not out)
    console = Console(highlight=False)
    failed = run_with_progress(console, suite, make_executor(on, threads, per_gpu))
    found = choices(given, suite.states)
    tuned = tuned_plan(given, found)
    table = Table("strategy", "protocol", "chosen", "accuracy (%)")
    for one in found:
        options = ", ".join(f"{name}={value}" for name, value in one.options.items())
        cells = one.strategy, one.protocol, options, f"{one.accuracy:.1f}"
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console.print(table)
    path = to or Path(f"{tuned.name}.toml")
    with file_errors("write", path, CHOOSE_FOLDER):
        write_atomically(path, plan_text(tuned).encode())
    if failed:
        typer.echo(f"{len(failed)} points of the grid failed, and are not among the choices")
    typer.echo(f"wrote {path}; next: primavista bench run {path}")


@app.add
def status(
    plan: str,
    out: Path | None = None,
    overrides: Overrides = None,
    data: str | None = None,
) -> None:
    """Show the cells that are done, running and failed, and estimate the time left.

    Example: `primavista bench status quick`
    """
    from primavista.bench.folder import RESULT, saved_plan
    from primavista.bench.run import recorded_states

    given = chosen = find_plan(plan, overrides, data)
    folder = out or RESULTS / chosen.name
    if not overrides and data is None:
        chosen = saved_plan(folder, chosen.name) or chosen
    notes = []
    if own := chosen.own_code:
        states = recorded_states(folder, chosen.name)
        notes.append(
            f"only cells that were begun are shown: the plan names {', '.join(own)}, "
            "which only `bench run` imports"
        )
    else:
        states = make_suite(chosen, folder).states
    console = Console(highlight=False)
    console.print(_status_table(chosen, states))
    if chosen != given:
        notes.append(
            f"this is the plan as it was last run; {plan} differs from it now, or --set did"
        )
    planned = {folder / state.planned.folder for state in states}
    others = [path for path in folder.glob(f"*/*/{RESULT}") if path.parent not in planned]
    if others:
        notes.append(
            f"{len(others)} other results are in the folder: of other options or strategies, "
            "or stale, since the code or the data has changed; the report tells which"
        )
    for note in notes:
        console.print(printable(f"note: {note}"), markup=False, soft_wrap=True)
    print_failures(console, [state for state in states if state.status == "failed"])
    console.print(summary(states))


def _status_table(plan: Plan, states: Sequence[CellState]) -> Table:
    from primavista.bench.run import counts

    title = Text(printable(f"{plan.name}: {plan.title}"))
    table = Table("group", title=title, title_justify="left")
    for status in counts(()):
        table.add_column(status, justify="right")
    for group in plan.groups:
        own = counts(state for state in states if group.name in state.planned.groups)
        table.add_row(Text(printable(group.name)), *(str(count or "") for count in own.values()))
    return table


@app.add
def report(
    plan: str,
    out: Path | None = None,
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

    try:
        name = find_plan(plan).name
    except InputError:
        if out is None:  # a report needs no plan
            raise
        name = ""
    folder = out or RESULTS / name
    kinds = [kind.strip() for kind in figures.split(",") if kind.strip()]
    with progress_bar("writing the report") as bar:
        written = write_report(
            folder, against=against, figures=kinds, page_width=page_width, progress=bar
        )
    typer.echo(f"wrote {written}")


def _import_own_code(plan: Plan, name: str) -> list[str]:
    """Name and import the code of the user's own that a plan names; return its references."""
    own = plan.own_code
    if own:
        typer.echo(printable(f"importing the code that {name} names: {', '.join(own)}"))
        register_named(*own)
    return own


def find_plan(name: str, overrides: Sequence[str] | None = None, source: str | None = None) -> Plan:
    """Read a plan, and set the values and the data set that the command line gives."""
    from primavista.bench.data import data_settings
    from primavista.bench.plan import load_plan

    return load_plan(name, overrides or (), data=None if source is None else data_settings(source))
