"""What `run` and `bench` share: making the cells of a plan, and running them with a live view."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import printable
from primavista.cli.progress import progress_bar
from primavista.errors import InputError

if TYPE_CHECKING:
    from primavista.bench.cell import CellEvent, RunSettings
    from primavista.bench.plan import Plan
    from primavista.bench.run import CellState, Executor, Suite
    from primavista.bench.trackers import Tracker

RESULTS = Path("primavista-runs")
TABLE_ROWS = 12  # of the live table
QUIET_SECONDS = 30.0  # between lines, without a terminal


def make_suite(
    plan: Plan, folder: Path, groups: Sequence[str] = (), settings: RunSettings | None = None
) -> Suite:
    """Return the cells of a plan, with a progress bar while new files of the data are read."""
    from primavista.bench.run import Suite

    with progress_bar("reading the data") as bar:
        return Suite(plan, folder, groups, settings, bar)


def run_settings(out: Path | None) -> RunSettings | None:
    """Return how cells are run.

    Plans in the usual folder share the frames that are rendered for them; a folder `out` that the
    user names holds everything itself.
    """
    from primavista.bench.cell import RunSettings

    return RunSettings((RESULTS / "data").resolve()) if out is None else None


def make_executor(on: str, threads: int, per_gpu: int, shared: bool) -> Executor:
    """Return the executor that runs the cells.

    Args:
        on: local, inline, ray, or ray://HOST:PORT.
        threads: CPU threads of this machine to use; 0: one per processor.
        per_gpu: Cells that run at a time on each GPU.
        shared: Whether the nodes of a cluster see the folders of the results.

    Raises:
        InputError: If there is no such place.
    """
    if on == "inline":
        from primavista.bench.local import Inline

        return Inline()
    if on == "local":
        import torch

        from primavista.bench.local import Processes
        from primavista.streams.store.workers import usable_cores

        return Processes(threads or usable_cores(), torch.cuda.device_count(), per_gpu)
    if on == "ray" or on.startswith("ray://"):
        from primavista.bench.ray import RayCluster

        return RayCluster(on if on != "ray" else "", shared, per_gpu)
    raise InputError(f"--on {on}: choose local, inline, ray, or ray://HOST:PORT")


def run_with_progress(
    console: Console, suite: Suite, executor: Executor, trackers: Sequence[Tracker] = ()
) -> list[CellState]:
    """Run a suite with a live table, or with a line now and then if there is no terminal.

    The cells that failed are printed and returned. Ctrl-C ends the command with code 130.
    """
    places = getattr(executor, "places", None)
    at_once = places(suite.states[0].planned.cell) if places and suite.states else 1
    display = ProgressDisplay(console, suite, at_once)
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


def print_failures(console: Console, failed: Sequence[CellState]) -> None:
    """Print the cells that failed, each with its reason."""
    for state in failed:
        told = escape(printable(f"{state.planned.title}: {state.reason}"))
        text = f"[red]failed:[/red] {told}"
        console.print(text, soft_wrap=True)


def format_seconds(seconds: float | None) -> str:
    """Return a duration as a person reads it; "?" if it is unknown.

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
    """The live table of a suite; without a terminal, a line per cell and a few in between."""

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
        """Show how many frames are rendered."""
        self._frames = None if total is None or done >= total else (done, total)
        if not self._live and self._may_print():
            self.console.print(f"drawing frames: {done} of {total}")

    def on_event(self, state: CellState, event: CellEvent) -> None:
        """Show that a cell has got further."""
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
