"""Hyperparameters from a small grid, chosen on one run of a plan by final accuracy.

The paper chose its own in this way: on run 0, and then kept them for all runs. So the test frames
of that run have a part in the choice; reports say so, and show the means without the run, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

from primavista.bench.plan import Group, OptionValues, Plan
from primavista.bench.run import CellState
from primavista.errors import InputError
from primavista.strategies.registry import strategy_info

RUN = 0
RARELY = 10**6  # batches between two tests: the first and the last batch are tested


def points(strategy: str) -> list[OptionValues]:
    """Return the options of each point of a strategy's grid, its preset first; none without one.

    >>> points("prima"), len(points("naive"))
    ([], 7)
    """
    grid = strategy_info(strategy).grid
    if not grid:
        return []
    return [{}, *(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))]


def grid_plan(plan: Plan) -> Plan:
    """Return the plan that tries every point of the grids on one run.

    Args:
        plan: The plan whose strategies are to be tuned. Options of its groups take part, and their
            variants do not.

    Raises:
        InputError: If none of its strategies has a grid.
    """
    groups = [
        group.model_copy(
            update={
                "name": _name(group, strategy),
                "title": "",
                "strategies": [strategy],
                "variants": points(strategy),
                "runs": [RUN],
                "test_every": RARELY,
            }
        )
        for group, strategy in _tunable(plan)
    ]
    if not groups:
        raise InputError(f"no strategy of the plan {plan.name!r} has hyperparameters to choose")
    return plan.model_copy(update={"name": f"{plan.name}-grid", "groups": groups})


class Choice(NamedTuple):
    """The best point of a grid.

    Args:
        group: The name of the plan's group.
        protocol: The protocol.
        strategy: The name of the strategy.
        options: The values of the options in its grid.
        accuracy: The final accuracy with them, in percent.
    """

    group: str
    protocol: str
    strategy: str
    options: OptionValues
    accuracy: float


def choices(plan: Plan, states: Iterable[CellState]) -> list[Choice]:
    """Return the best point of each grid, for each group and protocol of a plan.

    Args:
        plan: The plan whose strategies were tuned.
        states: The cells of `grid_plan(plan)`.

    Raises:
        InputError: If no cell of a strategy was finished.
    """
    done = [state for state in states if state.status == "done"]
    found = []
    for group, strategy in _tunable(plan):
        for protocol in group.protocols:
            best = _best(done, _name(group, strategy), protocol)
            used = best.planned.cell.options
            options = {name: used[name] for name in strategy_info(strategy).grid}
            found.append(Choice(group.name, protocol, strategy, options, best.accuracy or 0.0))
    return found


def tuned_plan(plan: Plan, chosen: Iterable[Choice]) -> Plan:
    """Return a plan with the chosen options.

    Args:
        plan: The plan whose strategies were tuned; or one on other data, with the same groups.
        chosen: The choices.
    """
    tuned: dict[str, dict[str, dict[str, OptionValues]]] = {}
    for one in chosen:
        tuned.setdefault(one.group, {}).setdefault(one.protocol, {})[one.strategy] = one.options
    groups = [
        group.model_copy(update={"tuned": tuned[group.name]}) if group.name in tuned else group
        for group in plan.groups
    ]
    name = f"{plan.name}-tuned"
    settings = {"name": name, "groups": groups, "hyperparameters_chosen_on_run": RUN}
    return plan.model_copy(update=settings)


def _tunable(plan: Plan) -> Iterator[tuple[Group, str]]:
    for group in plan.groups:
        yield from ((group, strategy) for strategy in group.strategies if points(strategy))


def _name(group: Group, strategy: str) -> str:
    return f"{group.name} {strategy}"


def _best(done: Iterable[CellState], group: str, protocol: str) -> CellState:
    own = [
        state
        for state in done
        if group in state.planned.groups and state.planned.cell.protocol == protocol
    ]
    if not own:
        raise InputError(f"no cell of {group!r} on {protocol} was finished: see the failed ones")
    return max(own, key=lambda state: state.accuracy or 0.0)


def plan_text(plan: Plan) -> str:
    """Return the content of a TOML file for a plan."""
    table = plan.model_dump(mode="json", exclude_unset=True)
    groups = table.pop("groups")
    lines = _lines(table)
    for group in groups:
        lines += ["", "[[groups]]", *_lines(group)]
    return "\n".join(lines) + "\n"


def _lines(table: dict[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]


def _toml(value: Any) -> str:
    """Return a value as it stands in a TOML file, a table in one line."""
    if isinstance(value, dict):
        known = {key: item for key, item in value.items() if item is not None}
        inside = (f"{json.dumps(key)} = {_toml(item)}" for key, item in known.items())
        return f"{{ {', '.join(inside)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
