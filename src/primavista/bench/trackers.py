"""Experiment trackers that follow a plan: TensorBoard and Weights & Biases.

They only receive copies: `metrics.jsonl` is written whether or not there is a tracker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from primavista.bench.metrics import MEASURES
from primavista.errors import InputError, require_extra

NUMBERS = ("saturated", "state_bytes", "stored_bytes")


class Tracker:
    """Something that follows cells, each by the name of its folder."""

    def __init__(self) -> None:
        self.open: dict[str, Any] = {}  # what a cell that runs writes to, by its name

    def start(self, name: str, run: Mapping[str, Any]) -> None:
        """A cell starts or resumes.

        Args:
            name: The folder of the cell.
            run: The content of its `run.json`.
        """

    def log(self, name: str, line: Mapping[str, Any]) -> None:
        """A batch has been learned.

        Args:
            name: The folder of the cell.
            line: Its line of `metrics.jsonl`.
        """

    def finish(self, name: str, result: Mapping[str, Any] | None) -> None:
        """A cell has ended.

        Args:
            name: The folder of the cell.
            result: The content of its `result.json`; None if it failed.
        """

    def close(self) -> None:
        """The plan has ended: finish the cells that have not."""
        for name in list(self.open):
            self.finish(name, None)


def make_tracker(kind: str, folder: Path, project: str) -> Tracker:
    """Return a tracker.

    Args:
        kind: "tensorboard" or "wandb".
        folder: The folder of the results.
        project: The name of the project for Weights & Biases.

    Raises:
        InputError: If there is no such tracker.
        MissingExtraError: If its package is not installed.
    """
    if kind == "tensorboard":
        return TensorBoard(folder / "tensorboard")
    if kind == "wandb":
        return WandB(project)
    raise InputError(f"there is no tracker {kind!r}: choose from tensorboard and wandb")


class TensorBoard(Tracker):
    """A tracker that writes one TensorBoard run per cell.

    Args:
        folder: The folder of all the runs.
    """

    def __init__(self, folder: Path) -> None:
        require_extra("tensorboard", "trackers")
        super().__init__()
        self.folder = folder

    def start(self, name: str, run: Mapping[str, Any]) -> None:
        """Open the writer of a cell; see `Tracker`."""
        from torch.utils.tensorboard import SummaryWriter

        if name not in self.open:
            self.open[name] = SummaryWriter(str(self.folder / name))

    def log(self, name: str, line: Mapping[str, Any]) -> None:
        """Add a point to each curve; see `Tracker`."""
        for key, value in scalars(line):
            self.open[name].add_scalar(key, value, line["batch"])

    def finish(self, name: str, result: Mapping[str, Any] | None) -> None:
        """Close the writer of a cell; see `Tracker`."""
        if name in self.open:
            self.open.pop(name).close()


class WandB(Tracker):
    """A tracker that makes one Weights & Biases run per cell.

    A cell that resumes continues its run.

    Args:
        project: The name of the project.
    """

    def __init__(self, project: str) -> None:
        super().__init__()
        self._wandb = require_extra("wandb", "trackers")
        self._project = project

    def start(self, name: str, run: Mapping[str, Any]) -> None:
        """Start the run of a cell, or continue it; see `Tracker`."""
        if name not in self.open:
            self.open[name] = self._wandb.init(
                project=self._project,
                name=name,
                id=name.replace("/", "_").replace("=", "_")[-64:],
                config=dict(run),
                resume="allow",
                reinit="create_new",
            )

    def log(self, name: str, line: Mapping[str, Any]) -> None:
        """Add a point to each curve; see `Tracker`."""
        self.open[name].log(dict(scalars(line)), step=line["batch"])

    def finish(self, name: str, result: Mapping[str, Any] | None) -> None:
        """End the run of a cell; see `Tracker`."""
        if name in self.open:
            run = self.open.pop(name)
            if result is not None:
                run.summary.update(_measures(result["final"]))
            run.finish(exit_code=0 if result is not None else 1)


def scalars(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a line of `metrics.jsonl` that make curves, each with its name.

    >>> list(scalars({"measures": {"accuracy": 50.0, "average": None}, "losses": [2.0, 1.0]}))
    [('accuracy', 50.0), ('loss', 1.0)]
    """
    numbers = {**_measures(line["measures"]), **{name: line.get(name) for name in NUMBERS}}
    for name, value in numbers.items():
        if value is not None:
            yield name, value
    if line.get("losses") and line["losses"][-1] is not None:
        yield "loss", line["losses"][-1]


def _measures(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: table.get(name) for name in MEASURES}
