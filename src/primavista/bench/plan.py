"""A plan: a grid of strategies, options, protocols and runs, as a TOML file; resolved into cells before anything starts."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from primavista.backbones.registry import Precision
from primavista.bench.cell import BackboneSpec, Cell, Option
from primavista.bench.data import Data, Positive, Record, RenderedData, is_core50
from primavista.bench.resolve import all_options, freezes
from primavista.engine.onnx_runtime import Engine
from primavista.errors import InputError
from primavista.learner.learner import choose_device
from primavista.storage.settings import parse_setting

Runs = Positive | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Test = Literal["reduced", "full"]
PROTOCOLS = re.compile(r"ni|nc|nic|nicv2(-\d{1,9})?")
Names = Annotated[list[str], Field(min_length=1)]


class Group(Record):
    """Strategies x variants (sets of options) x protocols x runs; what is not given is the plan's."""

    name: str
    title: str = ""
    strategies: Names
    protocols: Names
    options: dict[str, Option] = Field(default_factory=dict)
    variants: Annotated[list[dict[str, Option]], Field(min_length=1)] = [{}]  # noqa: RUF012 - pydantic copies it
    runs: Runs | None = None
    tests: Annotated[list[Test], Field(min_length=1)] | None = None
    test_every: Positive | None = None
    retrain: Positive | None = (
        None  # Cumulative: so many retrainings, evenly spaced; the others are not concerned
    )


class Plan(Record):
    """Groups, and what they have in common. A "reduced" test set is one frame in `test_thin` of each test session."""

    name: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    title: str = ""
    groups: Annotated[list[Group], Field(min_length=1)]
    runs: Runs = 1
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Positive = 1
    precision: Precision = "float32"
    deterministic: bool = False
    engine: Engine = "torch"  # what computes frozen features on the CPU
    test: Test = "reduced"
    test_thin: Positive = 20
    test_every: Positive = 1
    limit: Positive | None = None
    data: Data = RenderedData()
    backbone: BackboneSpec = BackboneSpec()

    def planned(self) -> list[Planned]:
        """Every cell once, in the order of the groups, run 0 of all before run 1; an error names what cannot be."""
        found: dict[str, Planned] = {}
        for group in self.groups:
            for cell in self._cells(group):
                key = hashlib.sha256(cell.model_dump_json().encode()).hexdigest()
                here = found.setdefault(key, Planned(cell, _folder(cell, key), _title(cell), []))
                here.groups.append(group.name)
        return sorted(found.values(), key=lambda planned: planned.cell.run)

    def base(self) -> dict[str, Any]:
        """What all cells have in common: a folder of results is of one such."""
        keys = {
            "data",
            "backbone",
            "device",
            "threads",
            "precision",
            "deterministic",
            "limit",
            "seed",
        }
        engine = {} if self.engine == "torch" else {"engine": self.engine}
        return {
            **self.model_dump(include=keys),
            **engine,
            "device": choose_device(self.device, here=False).type,
        }

    def _cells(self, group: Group) -> Iterable[Cell]:
        for protocol in group.protocols:
            if not PROTOCOLS.fullmatch(protocol):
                raise InputError(
                    f"group {group.name!r}: no protocol {protocol!r}: there are ni, nc, nic and nicv2-<batches>"
                )
        if self.precision != "float32" and choose_device(self.device, here=False).type == "cpu":
            raise InputError(f"precision {self.precision} is the GPU's: on the CPU it is float32")
        device: Any = choose_device(self.device, here=False).type
        for protocol in group.protocols:
            for strategy in group.strategies:
                retrain = group.retrain if strategy == "cumulative" else None
                for variant in group.variants:
                    options = self._options(group, strategy, protocol, variant, retrain)
                    engine: Engine = (
                        self.engine
                        if self.engine == "torch" or freezes(strategy, options)
                        else "torch"
                    )
                    for test in group.tests or [self.test]:
                        data, thin = self._tested(test)
                        for run in _runs(self.runs if group.runs is None else group.runs):
                            yield Cell(
                                strategy=strategy,
                                options=options,
                                protocol=protocol,
                                run=run,
                                data=data,
                                seed=self.seed + run,
                                test_every=group.test_every or self.test_every,
                                test_thin=thin,
                                retrain=retrain,
                                device=device,
                                backbone=self.backbone,
                                threads=self.threads,
                                precision=self.precision,
                                deterministic=self.deterministic,
                                limit=self.limit,
                                engine=engine,
                            )

    def _options(
        self,
        group: Group,
        strategy: str,
        protocol: str,
        variant: dict[str, Option],
        retrain: int | None,
    ) -> dict[str, Any]:
        given = {**group.options, **variant, **({"every": None} if retrain else {})}
        try:
            return all_options(strategy, protocol, is_core50(self.data), given)
        except InputError as error:
            raise InputError(f"group {group.name!r}, {strategy!r}: {error}") from error

    def _tested(self, test: Test) -> tuple[Data, int]:
        """CORe50 has an official reduced test set; of other data, one frame in so many is taken."""
        if self.data.kind == "core50":
            return self.data if test == "reduced" else self.data.model_copy(
                update={"test": "full"}
            ), 1
        return self.data, 1 if test == "full" else self.test_thin


@dataclass(frozen=True)
class Planned:
    """A cell of a plan: where its results go, what it is called, and which groups have it."""

    cell: Cell
    folder: str
    title: str
    groups: list[str]


def shipped() -> list[str]:
    """The plans that come with the package."""
    return sorted(
        item.name.removesuffix(".toml")
        for item in _plans().iterdir()
        if item.name.endswith(".toml")
    )


def load_plan(name: str, overrides: Sequence[str] = (), **settings: Any) -> Plan:
    """A shipped plan by name, or a TOML file; `overrides` are "key=value" with dots into tables, values as in TOML.

    >>> load_plan("quick", ["data.frames=2", "runs=3"]).data.frames
    2
    """
    if name in shipped():
        raw, where = (_plans() / f"{name}.toml").read_text("utf-8"), name
    else:
        try:
            raw, where = Path(name).expanduser().read_text("utf-8"), name
        except OSError as error:
            raise InputError(
                f"no plan {name!r}: {error.strerror or error}. Give a file, or one of {', '.join(shipped())}"
            ) from error
    try:
        table = tomllib.loads(raw)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{where} is not TOML: {error}") from error
    return make_plan(table, overrides, where, **settings)


def make_plan(
    table: dict[str, Any], overrides: Sequence[str] = (), where: str = "the plan", **settings: Any
) -> Plan:
    """A plan from what a TOML file says; `settings` replace whole keys, `overrides` single ones."""
    table = {**table, **{key: value for key, value in settings.items() if value is not None}}
    pairs = [parse_setting(text, "data.frames=4") for text in overrides]
    if any(keys == ["data", "kind"] for keys, _ in pairs):
        table["data"] = {}  # the settings of another kind of data do not hold
    for keys, value in pairs:
        _put(table, keys, value)
    try:
        return Plan.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{where}: {place}: {first['msg']} (got {first['input']!r:.80})"
        ) from error


def _put(table: dict[str, Any], keys: list[str], value: Any) -> None:
    """What groups may have of their own is set in them too: an override holds everywhere."""
    name = keys[0]
    if len(keys) == 1 and name in Group.model_fields and name not in ("name", "title"):
        for group in table.get("groups", []):
            if name in group:
                group[name] = value
        if name not in Plan.model_fields:
            return
    if name == "options":  # of every strategy, everywhere
        for group in table.get("groups", []):
            group["options"] = {**group.get("options", {}), ".".join(keys[1:]): value}
        return
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise InputError(f"{'.'.join(keys)}: {key} is not a table")
    table[keys[-1]] = value


def _runs(runs: int | list[int]) -> list[int]:
    return list(range(runs)) if isinstance(runs, int) else runs


def _changed(cell: Cell) -> dict[str, Any]:
    """The options that are not the strategy's own on this protocol."""
    usual = all_options(cell.strategy, cell.protocol, is_core50(cell.data), {})
    return {key: value for key, value in cell.options.items() if usual.get(key) != value}


def _title(cell: Cell) -> str:
    changed = "".join(f", {key}={value}" for key, value in _changed(cell).items() if key != "every")
    return f"{cell.strategy}{changed} on {cell.protocol}, run {cell.run}"


def _folder(cell: Cell, key: str) -> str:
    name = cell.strategy.replace("*", "-star").replace("+", "-plus")
    changed = "".join(f"-{key}={value}" for key, value in _changed(cell).items())
    safe = re.sub(r"[^\w.=-]", "_", name + changed)[:80]
    return f"{cell.protocol}/{safe}-run{cell.run}-{key[:8]}"


def _plans() -> Any:
    return resources.files("primavista.bench") / "plans"
