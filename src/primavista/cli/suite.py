"""What `run` and `bench` share: making the cells of a plan, and running them with a live view."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import printable
from primavista.cli.progress import progress_bar, resumable
from primavista.errors import InputError

if TYPE_CHECKING:
    from primavista.bench.cell import CellEvent
    from primavista.bench.plan import Plan
    from primavista.bench.run import CellState, Executor, Suite

RESULTS = Path("primavista-runs")
TABLE_ROWS = 12  # of the live table
BAR_WIDTH = 30  # characters
QUIET_SECONDS = 30.0  # between lines about a cell that runs, without a terminal
MARKS = {"failed": "[red]failed", "done": "[green]done", "running": ""}


def make_suite(
    plan: Plan, folder: Path, groups: Sequence[str] = (), shared_data: bool = True
) -> Suite:
    """Return the cells of a plan, with a progress bar while new files of the data are read.

    Args:
        plan: The plan.
        folder: The folder of the results.
        groups: The names of the groups to run; all if there are none.
        shared_data: Plans in the usual folder share the frames that are rendered for them; a folder
            that the user names holds everything itself.
    """
    from primavista.bench.cell import RunSettings
    from primavista.bench.run import Suite

    settings = RunSettings((RESULTS / "data").resolve()) if shared_data else None
    with progress_bar("reading the data") as bar:
        return Suite(plan, folder, groups, settings, bar)


def make_executor(on: str, threads: int, per_gpu: int, fresh: bool = False) -> Executor:
    """Return the executor that runs the cells.

    Args:
        on: local, inline, ray, or ray://HOST:PORT.
        threads: CPU threads of this machine to use; 0: one per processor.
        per_gpu: Cells that run at a time on each GPU.
        fresh: Each cell has a process of its own, on this machine.

    Raises:
        InputError: If there is no such place.
    """
    if on == "inline":
        from primavista.bench.local import Inline

        return Inline()
    if on == "local":
        import torch

        from primavista.backbones.onnx import usable_cores
        from primavista.bench.local import Processes

        return Processes(threads or usable_cores(), torch.cuda.device_count(), per_gpu, fresh)
    if on == "ray" or on.startswith("ray://"):
        from primavista.bench.ray import RayCluster

        return RayCluster(on if on != "ray" else "", per_gpu)
    raise InputError(f"--on {on}: choose local, inline, ray, or ray://HOST:PORT")


def run_with_progress(console: Console, suite: Suite, executor: Executor) -> list[CellState]:
    """Run a suite with a live table, or with lines if there is no terminal.

    The cells that failed are printed and returned. Ctrl-C ends the command with code 130.
    """
    view = SuiteView(console, suite)
    live = Live(console=console, refresh_per_second=4, get_renderable=view.table)
    with resumable(), live if console.is_terminal else nullcontext():
        failed = suite.run(executor, view.on_event, view.on_frames)
    print_failures(console, failed)
    return failed


def print_learning_warnings(console: Console, suite: Suite) -> None:
    """Say which strategies learned little of what they were taught."""
    from primavista.bench.run import learning_warnings

    for warning in learning_warnings(suite.states):
        told = escape(printable(warning))
        console.print(f"[yellow]warning:[/yellow] {told}", soft_wrap=True)


def print_failures(console: Console, failed: Sequence[CellState]) -> None:
    """Print the cells that failed, each with its reason."""
    for state in failed:
        reason = " ".join(state.reason.split())  # it may have lines
        told = escape(printable(f"{state.planned.title}: {reason}"))
        console.print(f"[red]failed:[/red] {told}", soft_wrap=True)


def format_seconds(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    >>> format_seconds(59.4), format_seconds(7260)
    ('0:00:59', '2:01:00')
    """
    return str(timedelta(seconds=round(seconds)))


def summary(states: Sequence[CellState]) -> str:
    """Return how many cells are done, running and failed, and how much time is left, if known."""
    from primavista.bench.run import counts, seconds_left

    found = counts(states)
    left = seconds_left(states, found["running"])
    estimate = f", about {format_seconds(left)} left" if left else ""
    return (
        f"{found['done']} of {len(states)} cells done, {found['running']} running, "
        f"{found['failed']} failed{estimate}"
    )


class SuiteView:
    """The live table of a suite; without a terminal, a line per cell and a few between."""

    def __init__(self, console: Console, suite: Suite) -> None:
        self.console, self.suite = console, suite
        self._frames: tuple[int, int] | None = None  # rendered so far, and in all
        self._printed_at = time.monotonic()

    def on_frames(self, done: int, total: int | None) -> None:
        """Show how many frames are rendered."""
        self._frames = None if total is None or done >= total else (done, total)
        self._print_progress(f"drawing frames: {done} of {total}")

    def on_event(self, state: CellState, event: CellEvent) -> None:
        """Show that a cell has ended or, now and then, how far it is, if there is no table."""
        title, position = printable(state.planned.title), f"{state.batch} of {state.batches}"
        if event.kind == "batch":
            self._print_progress(f"{title}: batch {position}; {summary(self.suite.states)}")
        if self.console.is_terminal or event.kind not in ("done", "failed", "restarted"):
            return
        result = f"{state.accuracy:.1f} %" if event.kind == "done" else event.reason
        text = f"{title}: {printable(result)}"
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _print_progress(self, text: str) -> None:
        """Print a line without a terminal, if the last one is old enough."""
        if self.console.is_terminal or time.monotonic() - self._printed_at < QUIET_SECONDS:
            return
        self._printed_at = time.monotonic()
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

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
            position = f"{state.batch}/{state.batches}" if state.batches else ""
            accuracy = "" if state.accuracy is None else f"[bold]{state.accuracy:.1f} %"
            status = MARKS.get(state.status, f"[dim]{state.status}")
            bar = _bar(state.batch, state.batches)
            table.add_row(Text(printable(name)), bar, position, accuracy, status)
        return Group(table, f"[dim]{summary(self.suite.states)}[/dim]")


def _bar(done: int, total: int | None) -> ProgressBar:
    return ProgressBar(total or 1, done, BAR_WIDTH, complete_style="cyan", finished_style="cyan")
