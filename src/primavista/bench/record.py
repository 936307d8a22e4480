"""`plan.json`: which plans were run in a folder of results, and which cells are of which of their groups.

Several plans may share a folder, and a plan may be run again with other strategies: what was begun stays in its groups.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from primavista.bench.data import Record
from primavista.bench.plan import Plan, Planned
from primavista.bench.results import RUN, read_json, write_json
from primavista.errors import FileError, InputError

PLAN = "plan.json"


class GroupRecord(Record):
    """A group of a plan and its cells' folders."""

    name: str
    title: str = ""
    plan: str
    cells: list[str]


class FolderRecord(Record):
    """The whole file; `base` is what all cells have in common, `plans` as they were last run, by name."""

    format: Literal[2] = 2
    base: dict[str, Any]
    groups: list[GroupRecord]
    plans: dict[str, dict[str, Any]]


def claim_folder(out: Path, plan: Plan, planned: list[Planned]) -> None:
    """Note that the plan is run here, beside those that were; a folder of another base is refused."""
    found, base = read_record(out), plan.base()
    if found is not None and found.base != base:
        wrong = [key for key in base | found.base if found.base.get(key) != base.get(key)]
        raise InputError(
            f"{out} holds results with another {', '.join(wrong)}: choose another folder with --out, or delete it"
        )
    groups: dict[tuple[str, str], GroupRecord] = {}
    for group in found.groups if found else ():
        begun = [cell for cell in group.cells if (out / cell / RUN).exists()]
        groups[group.plan, group.name] = group.model_copy(update={"cells": begun})
    for own in plan.groups:
        key, cells = (plan.name, own.name), [p.folder for p in planned if own.name in p.groups]
        kept = groups[key].cells if key in groups else []
        cells += [cell for cell in kept if cell not in cells]
        groups[key] = GroupRecord(name=own.name, title=own.title, plan=plan.name, cells=cells)
    plans = {**(found.plans if found else {}), plan.name: plan.model_dump(mode="json")}
    record = FolderRecord(
        base=base, groups=[group for group in groups.values() if group.cells], plans=plans
    )
    if record != found:
        write_json(out / PLAN, record.model_dump(mode="json"))


def saved_plan(out: Path, name: str) -> Plan | None:
    """The plan of this name as it was last run in a folder, with all that was set then."""
    record = read_record(out)
    try:
        return Plan.model_validate(record.plans[name]) if record and name in record.plans else None
    except ValidationError as error:
        raise _damaged(out, error) from error


def read_record(out: Path) -> FolderRecord | None:
    """What `plan.json` says; None where there is none."""
    raw = read_json(out / PLAN)
    try:
        if isinstance(raw, dict) and raw.get("format") == 1:  # of one plan alone
            groups = [{**group, "plan": raw["name"]} for group in raw["groups"]]
            raw = {"base": raw["base"], "groups": groups, "plans": {raw["name"]: raw["plan"]}}
        return None if raw is None else FolderRecord.model_validate(raw)
    except (ValidationError, KeyError, TypeError) as error:
        raise _damaged(out, error) from error


def _damaged(out: Path, error: Exception) -> FileError:
    return FileError(
        f"{out / PLAN} makes no sense ({error}): restore it, or choose another folder with --out"
    )
