"""Plans and cells: grids of strategies, options, protocols and runs, resolved in full."""

from __future__ import annotations

import copy
import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, Field, ValidationError, model_validator

from primavista.backbones.spec import OWN_FUNCTIONS
from primavista.bench.data import (
    Data,
    Positive,
    RenderedData,
    StoreData,
    StrictModel,
    TestSetName,
    choose_test_set,
)
from primavista.bench.identity import code_fingerprint, data_fingerprint, fingerprint_of
from primavista.engine.frames import read_frames
from primavista.engine.representation import Engine, choose_device
from primavista.errors import InputError
from primavista.media.frames import Frames
from primavista.networks.base import FROM_FUNCTION, Backbone, Precision, build
from primavista.progress import Progress
from primavista.storage import learner_file
from primavista.storage.references import is_reference
from primavista.storage.settings import OptionValue, parse_setting
from primavista.strategies.creation import all_options
from primavista.strategies.registry import registered, strategy_class, strategy_info
from primavista.streams.protocols import name_in, parse_protocol
from primavista.streams.store import open_store

# The fields of a cell that do not change its question.
IDENTITY = frozenset({"hyperparameters_chosen_on_run", "code", "data_sha256", "weights_sha256"})
OptionValues = dict[str, OptionValue]  # of a strategy, by name
PLANS = resources.files("primavista.bench") / "plans"
MOST_DIGITS = 10  # of a number of batches in a name, which may come from a foreign file


class BackboneSpec(StrictModel):
    """A backbone by name; its input has the size of the data's frames.

    Args:
        name: The name of the backbone, as `primavista.networks.base.build` takes it; or a
            function of your own, `package.module:function`, which returns a module.
        weights: `imagenet`, `random`, `timm`, or the path of a file. A function of your own gives
            its module weights itself, which is called `own`, unless this is the path of a file.
        options: Arguments of the backbone, such as `width`.
        seed: The seed of random weights.
    """

    name: str = "mobilenet_v1"
    weights: str = "imagenet"
    options: dict[str, OptionValue] = Field(default_factory=dict)
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _weights_of_function(cls, table: Any) -> Any:
        """Fill in the origin of the weights of a function's module, if the plan names none."""
        if isinstance(table, dict) and "weights" not in table:
            name = table.get("name")
            if isinstance(name, str) and (is_reference(name) or name in OWN_FUNCTIONS):
                return {**table, "weights": FROM_FUNCTION}
        return table

    def build(self, frames: Frames) -> Backbone:
        """Build the network at the size of some frames."""
        return self.build_for(side_of(frames))

    def build_for(self, side: int) -> Backbone:
        """Build the network for frames with a side of so many pixels."""
        options: dict[str, Any] = dict(self.options)
        return build(self.name, self.weights, size=side, seed=self.seed, **options)


def side_of(frames: Frames) -> int:
    """Return the side of frames in pixels."""
    return int(read_frames(frames, torch.tensor([0]), torch.device("cpu")).shape[1])


class Cell(StrictModel):
    """One strategy over one run of a protocol: everything that its numbers depend on.

    Two equal cells on equal machines give equal `metrics.jsonl`. `model_dump` is what `run.json`
    holds, and the sha256 of `model_dump_json` is the cell's key.

    Args:
        format: The version of `run.json`.
        strategy: The name of the strategy.
        options: Every option of the strategy.
        protocol: The protocol with its parameters, as `streams.protocols.Protocol` writes it.
        run: Which random order of the protocol.
        data: The data set.
        backbone: The network as it begins.
        seed: The seed of the strategy.
        device: The device that learns.
        threads: The CPU threads of the process.
        precision: The precision of the backbone on a GPU.
        deterministic: Whether torch may use only deterministic algorithms.
        engine: The engine that computes features of a frozen representation.
        test_every: The number of batches between two tests.
        test_thin: One frame in `test_thin` of each test session is tested; in the full test set of
            CORe50, one in `test_thin` of the whole list.
        retrain: The number of evenly spaced retrainings of Cumulative or GDumb.
        limit: The number of batches to learn in a trial, which is not a result; None for all.
        hyperparameters_chosen_on_run: The run on which the hyperparameters were chosen, if the plan
            says so.
        code: The version of the package and the hash of the user's own code; see `bench.identity`.
        data_sha256: The fingerprint of the files of the data; None if there are none.
        weights_sha256: The checksum of a file of weights that the network begins with, or of the
            weights that a function of your own gave it; None for weights by name.
    """

    format: Literal[1] = 1
    strategy: str
    options: OptionValues
    protocol: str
    run: Annotated[int, Field(ge=0)]
    data: Data
    backbone: BackboneSpec
    seed: int
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Positive = 1
    precision: Precision = "float32"
    deterministic: bool = False
    engine: Engine = "torch"
    test_every: Positive = 1
    test_thin: Positive = 1
    retrain: Positive | None = None
    limit: Positive | None = None
    hyperparameters_chosen_on_run: Annotated[int, Field(ge=0)] | None = None
    code: str | None = None
    data_sha256: str | None = None
    weights_sha256: str | None = None

    @property
    def question(self) -> str:
        """The cell without its fingerprints. Results with the same question replace each other."""
        return self.model_dump_json(exclude={"format", *IDENTITY})

    @property
    def key(self) -> str:
        """The identity of the cell: the sha256 of its JSON, in hexadecimal digits."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def batches(self) -> int | None:
        """The number of batches that the protocol's name and the limit give; None if they do not.

        A stream may be shorter than the limit.
        """
        batches = batches_in_name(self.protocol)
        return batches if self.limit is None else min(self.limit, batches or self.limit)

    @property
    def changed_options(self) -> dict[str, Any]:
        """The options that differ from the strategy's own on this protocol and data."""
        usual = all_options(self.strategy, self.protocol, {})
        return {name: value for name, value in self.options.items() if usual.get(name) != value}

    @property
    def own_names(self) -> tuple[str, str, str]:
        """The names that may stand for code of the user's own."""
        return self.strategy, self.backbone.name, name_in(self.protocol)

    @property
    def title(self) -> str:
        """The cell in words, such as `cwr*, lr=0.5 on nicv2-391, run 0`."""
        return f"{self.series}, run {self.run}"

    @property
    def series(self) -> str:
        """What all runs of the cell share in words, such as `cwr*, lr=0.5 on nicv2-391`."""
        changed = {name: v for name, v in self.changed_options.items() if name != "every"}
        options = "".join(f", {name}={value}" for name, value in changed.items())
        return f"{self.strategy}{options} on {self.protocol}"

    @property
    def folder_name(self) -> str:
        """The cell's folder, relative to the folder of the results."""
        name = self.strategy.replace("*", "-star").replace("+", "-plus")
        changed = self.changed_options
        options = "".join(f"-{option}={value}" for option, value in changed.items())
        safe = re.sub(r"[^\w.=-]", "_", name + options)[:80]
        protocol = re.sub(r"[^\w.=-]", "-", self.protocol)[:80]
        return f"{protocol}/{safe}-run{self.run}-{self.key[:8]}"


Runs = Positive | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Names = Annotated[list[str], Field(min_length=1)]


def _canonical(protocol: str) -> str:
    """Return the canonical text of a protocol."""
    try:
        return str(parse_protocol(protocol))
    except InputError as error:
        raise ValueError(str(error)) from error


ProtocolText = Annotated[str, AfterValidator(_canonical)]
Protocols = Annotated[list[ProtocolText], Field(min_length=1)]
NO_VARIANTS: list[dict[str, OptionValue]] = [{}]


class Group(StrictModel):
    """Strategies x variants x protocols x runs; a setting of None is the plan's.

    Args:
        name: The figure or the claim that the group is for.
        title: The heading in reports.
        strategies: The names of strategies; one of your own may be named by its reference,
            `package.module:Class`.
        protocols: Protocols, such as "nicv2-391" or "class-incremental:first=50"; one of your own
            may be named by its reference, `package.module:function`.
        options: Options of all the strategies.
        tuned: Options by protocol and strategy, as `bench.tune` chooses them.
        variants: Sets of options; each set makes cells of its own.
        runs: How many runs, or which.
        tests: The test sets; each makes cells of its own.
        test_every: The number of batches between two tests.
        retrain: The number of retrainings of Cumulative and GDumb; the others ignore it.
    """

    name: str
    title: str = ""
    strategies: Names
    protocols: Protocols
    options: OptionValues = Field(default_factory=dict)
    tuned: dict[str, dict[str, OptionValues]] = Field(default_factory=dict)
    variants: Annotated[list[OptionValues], Field(min_length=1)] = NO_VARIANTS
    runs: Runs | None = None
    tests: Annotated[list[TestSetName], Field(min_length=1)] | None = None
    test_every: Positive | None = None
    retrain: Positive | None = None


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a plan.

    Args:
        cell: The cell.
        folder: The folder of its results, relative to the folder of the plan's results.
        title: Its name in progress displays.
        groups: The names of the groups that have it.
    """

    cell: Cell
    folder: str
    title: str
    groups: list[str]


class Plan(StrictModel):
    """Groups of cells, and the settings that they have in common.

    Args:
        name: The name of the plan, and of its folder of results.
        title: The heading in reports.
        groups: The groups of cells to run.
        runs: How many runs, or which, unless a group says otherwise.
        seed: The seed of run 0; run r has the seed `seed + r`.
        device: `auto` is a GPU if there is one.
        threads: The CPU threads of each cell.
        precision: The precision of the backbone on a GPU.
        deterministic: Whether torch may use only deterministic algorithms.
        engine: The engine that computes frozen features on the CPU.
        test: "full", the whole test set, or "reduced": the official list of CORe50, packed or not,
            else one frame in `test_thin` of each session. A plan that sets `test_thin` alone means
            the reduced one.
        test_thin: See `test`.
        test_every: The number of batches between two tests.
        limit: The number of batches to learn in a trial, which is not a result; None for all.
        hyperparameters_chosen_on_run: The run on which the user chose the hyperparameters, if any:
            the report then shows the means without it, too.
        data: The data set.
        backbone: The network.
    """

    name: Annotated[str, Field(pattern=r"^[\w-][\w.-]*$", max_length=100)]  # not "." or ".."
    title: str = ""
    groups: Annotated[list[Group], Field(min_length=1)]
    runs: Runs = 1
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Positive = 1
    precision: Precision = "float32"
    deterministic: bool = False
    engine: Engine = "torch"
    test: TestSetName = "full"
    test_thin: Positive = 20
    test_every: Positive = 1
    limit: Positive | None = None
    hyperparameters_chosen_on_run: Annotated[int, Field(ge=0)] | None = None
    data: Data = RenderedData()
    backbone: BackboneSpec = BackboneSpec()

    @model_validator(mode="before")
    @classmethod
    def _thinned(cls, table: Any) -> Any:
        """Take the reduced test set if the plan sets `test_thin` and not `test`."""
        if isinstance(table, dict) and "test_thin" in table and "test" not in table:
            return {**table, "test": "reduced"}
        return table

    @property
    def own_code(self) -> list[str]:
        """The references `package.module:Name` that the plan names and nobody has registered.

        A plan imports nothing: whoever runs it registers them first, with `primavista.register`.
        """
        named = {self.backbone.name}
        for one in self.groups:
            named |= {*one.strategies, *map(name_in, one.protocols)}
        return sorted(name for name in named if is_reference(name) and name not in registered())

    def planned(self, progress: Progress | None = None) -> list[PlannedCell]:
        """Return every cell once, in the order of the groups, run 0 of all before run 1.

        Args:
            progress: Called with (done, total) in bytes while files of the data are read for the
                first time.

        Raises:
            InputError: If a strategy, an option or a protocol does not exist; it names the group.
            FileError: If a file of the data cannot be read.
        """
        found: dict[str, PlannedCell] = {}
        code = cache(code_fingerprint)
        data = fingerprint_of(self.data, progress)
        weights = self._weights_sha256()
        for group in self.groups:
            for bare in self.cells_of(group):
                now = code(*bare.own_names)
                own = {"code": now, "data_sha256": data, "weights_sha256": weights}
                cell = bare.model_copy(update=own)
                key = cell.key
                if key not in found:
                    found[key] = PlannedCell(cell, cell.folder_name, cell.title, [])
                found[key].groups.append(group.name)
        return sorted(found.values(), key=lambda planned: planned.cell.run)

    def base(self) -> dict[str, Any]:
        """Return the settings that all cells share: one folder of results has one base."""
        keys = {"data", "backbone", "threads", "precision", "deterministic", "limit", "seed"}
        name = {"data": {"name"}}  # which only reports use
        shared = self.model_dump(mode="json", include={*keys, "engine"}, exclude=name)
        return {**shared, "device": self._device()}

    def _weights_sha256(self) -> str | None:
        """Return the checksum of a file of weights, or of those that a function of your own gives.

        Weights by name have theirs in the code.
        """
        if self.backbone.weights == FROM_FUNCTION:
            if isinstance(self.data, StoreData):
                side = side_of(open_store(self.data.path).frames)
            else:
                side = self.data.size
            state = self.backbone.build_for(side).state_dict()
            return learner_file.digest({name: x.cpu().numpy() for name, x in state.items()}, {})
        weights = Path(self.backbone.weights).expanduser()
        return data_fingerprint(weights) if weights.is_file() else None

    def _device(self) -> Literal["cpu", "cuda"]:
        return "cuda" if choose_device(self.device, here=False).type == "cuda" else "cpu"

    def cells_of(self, group: Group) -> Iterator[Cell]:
        """Yield the cells of a group without fingerprints, so that no file has to be hashed.

        Args:
            group: A group of this plan.

        Raises:
            InputError: If a strategy, an option or a protocol does not exist; it names the group.
        """
        device = self._device()
        if self.precision != "float32" and device == "cpu":
            raise InputError(
                f"precision {self.precision} needs a GPU: the CPU supports only float32"
            )
        runs = self.runs if group.runs is None else group.runs
        numbers = range(runs) if isinstance(runs, int) else runs
        where = f"group {group.name!r}"
        with _naming(where):
            tests = [
                choose_test_set(self.data, test, self.test_thin)
                for test in group.tests or [self.test]
            ]
        grid = product(group.protocols, group.strategies, group.variants)
        for protocol, strategy, variant in grid:
            with _naming(where):
                parse_protocol(protocol)  # a function of the user's own is registered by now
            retrain = group.retrain if strategy_info(strategy).retrains else None
            tuned = group.tuned.get(protocol, {}).get(strategy, {})
            given = {**group.options, **tuned, **variant}
            if retrain:
                given["every"] = None
            with _naming(f"{where}, {strategy!r}"):
                options = all_options(strategy, protocol, given)
            freezes = getattr(strategy_class(strategy), "freezes", False)
            for (data, thin), run in product(tests, numbers):
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
                    engine=self.engine if freezes else "torch",
                    hyperparameters_chosen_on_run=self.hyperparameters_chosen_on_run,
                )


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Begin the message of an error with the place in the plan."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def batches_in_name(protocol: str) -> int | None:
    """Return the number of batches that the name of a protocol gives; None if it gives none.

    Args:
        protocol: The protocol as a text.

    >>> batches_in_name("nicv2-391"), batches_in_name("nicv2")
    (391, None)
    """
    _, _, last = protocol.partition(":")[0].rpartition("-")
    return int(last) if last.isdecimal() and len(last) < MOST_DIGITS else None


def shipped() -> list[str]:
    """Return the names of the plans that come with the package."""
    names = (item.name for item in PLANS.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_plan(name: str, overrides: Sequence[str] = (), **settings: Any) -> Plan:
    """Read a plan that comes with the package, or a TOML file.

    Args:
        name: The name of a plan of the package, or the path of a TOML file.
        overrides: Texts "key=value" with dots into tables; values are written as in TOML.
        settings: Whole keys of the plan that are replaced; None leaves a key as it is.

    Raises:
        InputError: If there is no such plan, or if it is not a valid one.

    >>> load_plan("quick", ["data.frames=2", "runs=3"]).data.frames
    2
    """
    path = Path(name).expanduser()
    own = name not in shipped()
    try:
        data = path.read_bytes() if own else (PLANS / f"{name}.toml").read_bytes()
    except OSError as error:
        raise InputError(
            f"there is no plan {name!r}: {error.strerror or error}. "
            f"Give a file, or one of {', '.join(shipped())}"
        ) from error
    try:
        table = tomllib.loads(data.decode())
    # besides its own error: an integer of thousands of digits, brackets nested a thousand deep
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not TOML: {error}") from error
    if own and isinstance(table.get("data"), dict):
        _make_paths_absolute(table["data"], path.parent)
    return make_plan(table, overrides, name, **settings)


def _make_paths_absolute(data: dict[str, Any], folder: Path) -> None:
    """Make the paths in a plan's table of data relative to the folder of the plan."""
    for key in ("path", "orders"):
        if isinstance(data.get(key), str):
            data[key] = str((folder / Path(data[key]).expanduser()).resolve())


def make_plan(
    table: Mapping[str, Any],
    overrides: Sequence[str] = (),
    where: str = "the plan",
    **settings: Any,
) -> Plan:
    """Make a plan from the content of a TOML file.

    Args:
        table: The content of the file.
        overrides: Texts "key=value" that set single keys; see `load_plan`.
        where: The name of the file, for messages.
        settings: Whole keys that are replaced; None leaves a key as it is.

    Raises:
        InputError: If a key is unknown or has a wrong value; it names the key.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    content = {**copy.deepcopy(dict(table)), **given}
    pairs = [parse_setting(text, "data.frames=4") for text in overrides]
    if any(keys == ["data", "kind"] for keys, _ in pairs):
        content["data"] = {}  # the settings of another kind of data do not apply
    for keys, value in pairs:
        _override(content, keys, value)
    try:
        plan = Plan.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        strange = first["type"] == "extra_forbidden"
        what = "there is no such key" if strange else first["msg"]
        raise InputError(f"{where}: {place}: {what} (got {first['input']!r:.80})") from error
    return plan


def _override(table: dict[str, Any], keys: list[str], value: Any) -> None:
    """Set one key, in the groups that have it too, so that the override holds everywhere."""
    name = keys[0]
    found = table.get("groups")  # the validation of the plan refuses all but a list of tables
    groups = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    if name == "options":  # of every strategy, everywhere
        for group in groups:
            group["options"] = {**group.get("options", {}), ".".join(keys[1:]): value}
        return
    if len(keys) == 1 and name in Group.model_fields and name not in ("name", "title"):
        for group in groups:
            if name in group:
                group[name] = value
        if name not in Plan.model_fields:
            return
    _set_in(table, keys, value)


def _set_in(table: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise InputError(f"{'.'.join(keys)}: {key} is not a table")
    table[keys[-1]] = value
