"""Trackers that follow along, if they are asked for: TensorBoard and Weights & Biases, behind one small protocol.

Files are ours alone: `metrics.jsonl` is written whether or not a tracker listens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from primavista.errors import InputError, require_extra

NUMBERS = (
    "accuracy",
    "average",
    "forgetting",
    "forward_transfer",
    "saturated",
    "state_bytes",
    "stored_bytes",
)


class Logger(Protocol):
    """Hears of each cell by name: its `run.json`, each line of `metrics.jsonl`, its `result.json` (None where it failed)."""

    def start(self, name: str, run: Mapping[str, Any]) -> None:
        """A cell begins, or goes on."""

    def log(self, name: str, line: Mapping[str, Any]) -> None:
        """A batch has been learned."""

    def finish(self, name: str, result: Mapping[str, Any] | None) -> None:
        """A cell has ended."""

    def close(self) -> None:
        """There will be no more."""


def make_logger(kind: str, folder: Path, project: str) -> Logger:
    """ "tensorboard" or "wandb"."""
    if kind == "tensorboard":
        return TensorBoard(folder / "tensorboard")
    if kind == "wandb":
        return WandB(project)
    raise InputError(f"no tracker {kind!r}: there are tensorboard and wandb")


class TensorBoard:
    """A TensorBoard run a cell, under one folder."""

    def __init__(self, folder: Path) -> None:
        require_extra("tensorboard", "trackers")
        self.folder = folder
        self._writers: dict[str, Any] = {}

    def start(self, name: str, run: Mapping[str, Any]) -> None:
        """Open its writer."""
        from torch.utils.tensorboard import SummaryWriter

        if name not in self._writers:
            self._writers[name] = SummaryWriter(str(self.folder / name))

    def log(self, name: str, line: Mapping[str, Any]) -> None:
        """A point of each curve."""
        for key, value in scalars(line):
            self._writers[name].add_scalar(key, value, line["batch"])

    def finish(self, name: str, result: Mapping[str, Any] | None) -> None:
        """Close its writer."""
        if name in self._writers:
            self._writers.pop(name).close()

    def close(self) -> None:
        """Close what is open."""
        for name in list(self._writers):
            self.finish(name, None)


class WandB:
    """A Weights & Biases run a cell, named by its folder: going on after a stop goes on with the same run."""

    def __init__(self, project: str) -> None:
        self._wandb, self._project = require_extra("wandb", "trackers"), project
        self._runs: dict[str, Any] = {}

    def start(self, name: str, run: Mapping[str, Any]) -> None:
        """Begin its run, or go on with it."""
        if name not in self._runs:
            self._runs[name] = self._wandb.init(
                project=self._project,
                name=name,
                id=name.replace("/", "_").replace("=", "_")[-64:],
                config=dict(run),
                resume="allow",
                reinit="create_new",
            )

    def log(self, name: str, line: Mapping[str, Any]) -> None:
        """A point of each curve."""
        self._runs[name].log(dict(scalars(line)), step=line["batch"])

    def finish(self, name: str, result: Mapping[str, Any] | None) -> None:
        """End its run."""
        if name in self._runs:
            run = self._runs.pop(name)
            if result is not None:
                run.summary.update(result["final"])
            run.finish(exit_code=0 if result is not None else 1)

    def close(self) -> None:
        """End what is open."""
        for name in list(self._runs):
            self.finish(name, None)


def scalars(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a line of `metrics.jsonl` that make curves.

    >>> list(scalars({"batch": 3, "accuracy": 50.0, "average": None, "losses": [2.0, 1.0]}))
    [('accuracy', 50.0), ('loss', 1.0)]
    """
    for key in NUMBERS:
        if line.get(key) is not None:
            yield key, line[key]
    if line.get("losses") and line["losses"][-1] is not None:
        yield "loss", line["losses"][-1]
