"""Cells as they lie on disk: finished, in progress, failed, or damaged."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from primavista.errors import FileError

FORMAT = 1
CLAIM = "claim:"  # begins the names of groups that test a claim
CLAIMS = "claims"  # the plan whose groups all do
Json = dict[str, Any]
Status = Literal["done", "in progress", "failed"]


@dataclass(frozen=True)
class Group:
    """The figure or the claim that a plan made cells for; a cell may be of several."""

    name: str
    title: str = ""
    claim: bool = False


@dataclass(frozen=True, eq=False)
class Cell:
    """One strategy over one run of a protocol; `steps` are the lines of `metrics.jsonl` as far as they go."""

    path: str
    plan: Json
    steps: tuple[Json, ...] = ()
    result: Json | None = None
    reason: str | None = None  # why it failed
    groups: tuple[Group, ...] = ()
    options: Json = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", mapping(self.plan.get("options")))

    @property
    def status(self) -> Status:
        """`result.json` means done, `failed.json` failed."""
        if self.result is not None:
            return "done"
        return "failed" if self.reason is not None else "in progress"

    @property
    def strategy(self) -> str:
        """The strategy's name, as `create` knows it."""
        return str(self.plan.get("strategy", "?"))

    @property
    def protocol(self) -> str:
        """The protocol's name, such as nicv2-391."""
        return str(self.plan.get("protocol", "?"))

    @property
    def run(self) -> int:
        """Which order of the protocol."""
        return whole(self.plan.get("run")) or 0

    @property
    def data(self) -> Json:
        """The data set in full."""
        data = self.plan.get("data")
        return data if isinstance(data, dict) else {"name": str(data or "?")}

    @property
    def data_name(self) -> str:
        """The data set's name alone."""
        return str(self.data.get("name", "?"))

    @property
    def on_core50(self) -> bool:
        """Whether its accuracies can be compared with the paper's."""
        return self.data.get("kind", "core50") in (
            "core50",
            "store",
        ) and self.data_name.lower().startswith("core50")

    @property
    def label(self) -> str | None:
        """The name that the plan gives to its curve."""
        label = self.plan.get("label")
        return str(label) if label else None

    @cached_property
    def curve(self) -> dict[int, float]:
        """Accuracy in percent after each batch that was tested."""
        pairs = ((whole(step.get("batch")), number(step.get("accuracy"))) for step in self.steps)
        return {
            batch: accuracy
            for batch, accuracy in pairs
            if batch is not None and accuracy is not None
        }

    @property
    def reached(self) -> int:
        """The last batch learned so far."""
        return max((whole(step.get("batch")) or 0 for step in self.steps), default=0)

    @property
    def batches(self) -> int | None:
        """How many batches there are, where it is known: from the result, else from the protocol's name."""
        if self.result and (count := whole(self.result.get("batches"))):
            return count
        _, _, last = self.protocol.rpartition("-")
        whole_run = int(last) if last.isdecimal() and len(last) < 10 else None
        limit = whole(self.plan.get("limit"))
        return whole_run if limit is None else min(limit, whole_run or limit)

    def final(self, metric: str = "accuracy") -> float | None:
        """A closing number; None while the cell is not done."""
        return number(mapping(self.result.get("final")).get(metric)) if self.result else None

    @property
    def seconds(self) -> float | None:
        """For learning and testing together, of a finished cell."""
        if self.result is None:
            return None
        parts = [number(self.result.get(key)) for key in ("learn_seconds", "test_seconds")]
        return (
            sum(part for part in parts if part is not None)
            if any(part is not None for part in parts)
            else None
        )


def number(value: object) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def whole(value: object) -> int | None:
    """A whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def mapping(value: object) -> Json:
    """A JSON object, else an empty one."""
    return dict(value) if isinstance(value, Mapping) else {}


@dataclass(frozen=True)
class Results:
    """The cells of a folder, and how many more its plans have that nobody began."""

    cells: list[Cell]
    waiting: int = 0


def read_results(folder: Path) -> Results:
    """Every cell under `folder`, in the order of their paths; a damaged one counts as failed, with the reason."""
    if not folder.is_dir():
        raise FileError(
            f"there is no results folder {folder}: give the folder that `primavista bench run` wrote"
        )
    places = sorted(_places(folder, "run.json"))
    groups = _planned(folder)
    cells = [
        _read(place, place.relative_to(folder).as_posix(), groups.pop(place, ()))
        for place in places
    ]
    if not cells:
        raise FileError(
            f"no results in {folder}: no folder in it holds a run.json. Run `primavista bench run` first"
        )
    return Results(cells, len(groups))


def _places(folder: Path, name: str) -> Iterator[Path]:
    for place, _, files in os.walk(folder):
        if name in files:
            yield Path(place)


def _planned(folder: Path) -> dict[Path, tuple[Group, ...]]:
    """The groups of each cell, from every plan.json: what it says of folders is relative to its own."""
    found: dict[Path, tuple[Group, ...]] = {}
    for place in sorted(_places(folder, "plan.json")):
        try:
            plan = _object(place / "plan.json")
        except FileError:
            continue
        for group in filter(None, map(mapping, plan.get("groups") or [])):
            name, title = str(group.get("name", "?")), str(group.get("title") or "")
            claim = name.startswith(CLAIM) or group.get("plan", plan.get("name")) == CLAIMS
            known = Group(name.removeprefix(CLAIM).strip(), title, claim)
            for cell in group.get("cells") or []:
                found[place / str(cell)] = (*found.get(place / str(cell), ()), known)
    return found


def _own_group(plan: Json) -> tuple[Group, ...]:
    name = str(plan.get("group") or "")
    return (Group(name.removeprefix(CLAIM).strip(), claim=name.startswith(CLAIM)),) if name else ()


def _read(place: Path, path: str, groups: tuple[Group, ...]) -> Cell:
    try:
        plan = _object(place / "run.json")
    except FileError as error:
        return Cell(path, {}, reason=str(error))
    if plan.get("format") != FORMAT:
        reason = f"run.json has format {plan.get('format')!r}; this version reads {FORMAT}"
        return Cell(path, plan, reason=reason)
    steps = _lines(place / "metrics.jsonl")
    result: Json | None = None
    trouble: str | None = None
    try:
        if (place / "result.json").is_file():
            result = _object(place / "result.json")
        elif (place / "failed.json").is_file():
            trouble = str(_object(place / "failed.json").get("reason") or "no reason was given")
    except FileError as error:
        trouble = str(error)
    return Cell(path, plan, steps, result, trouble, _own_group(plan) + groups)


def _object(path: Path) -> Json:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise FileError(f"{path.name} cannot be read: it holds no JSON object")
    return value


def _lines(path: Path) -> tuple[Json, ...]:
    """The JSON objects of a file that may still be growing: it ends where a line is torn."""
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return ()
    found: list[Json] = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict):
            break
        found.append(value)
    return tuple(found)
