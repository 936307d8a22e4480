"""Loading: a learner from its file or from bytes, and how its states are restored."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from primavista.backbones.spec import Spec
from primavista.engine.frames import check_labels
from primavista.engine.representation import EngineChoice, choose_device
from primavista.errors import FileError, InputError
from primavista.heads.base import own_arrays, restored_beside
from primavista.heads.statistics import packed_size
from primavista.learner.coach import from_records
from primavista.learner.state import (
    BACKBONE,
    UNDO,
    Array,
    Arrays,
    History,
    LearnerSettings,
    LearnerState,
    StatefulLearner,
    groups_of,
    make_strategy,
)
from primavista.networks.base import Backbone, rebuild
from primavista.nn.class_rows import ArrayBuffers, Rows
from primavista.nn.memory import memories
from primavista.storage import learner_file
from primavista.storage.learner_file import GRAPHS
from primavista.storage.manifest import Manifest, UndoRecord, check_cost, parse_manifest
from primavista.storage.references import is_reference, must_be_registered
from primavista.storage.validate import check_deviations, check_finite, check_past
from primavista.strategies.base import Strategy
from primavista.strategies.registry import current_names, options_of_file, registered


class LearnerLoading(StatefulLearner):
    """The part of a learner that reads its file again, exactly as it was saved.

    `Learner` is the class to use.
    """

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        backbone: nn.Module | None = None,
        device: str | torch.device = "auto",
        engine: EngineChoice | None = None,
        trusted: bool = False,
    ) -> Self:
        """Load the learner of a file, exactly as it was saved.

        Args:
            path: The file.
            backbone: The module, if it was made with a module of your own, which is not in the
                file. A strategy or a backbone by reference must have been registered: a file alone
                never imports code (see `register`).
            device: "auto" (the GPU if there is one), "cpu", "cuda" or a torch device.
            engine: What computes frozen features; by default the engine that it was saved with, if
                that is installed.
            trusted: Whether the file may ask for images of more than 512 x 512 pixels and for
                hundreds of epochs in each lesson, which takes gigabytes and hours.

        Raises:
            FileError: If the file is missing, damaged, foreign or of a newer format, or if it asks
                for too much.
        """
        try:
            found = learner_file.read(path)
        except FileError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise FileError(
                    f"{error}. A first lesson makes it: primavista learn {path} --label mug mug.mp4"
                ) from error
            raise
        return cls._checked(*found, str(path), backbone, device, engine, trusted)

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        name: str = "the file",
        *,
        backbone: nn.Module | None = None,
        device: str | torch.device = "auto",
        engine: EngineChoice | None = None,
        trusted: bool = False,
    ) -> Self:
        """Load the learner of the bytes of a file, as `load` does.

        Args:
            data: The bytes, as `to_bytes` gives.
            name: What messages call the file.
            backbone: The module, if it was made with a module of your own.
            device: "auto" (the GPU if there is one), "cpu", "cuda" or a torch device.
            engine: What computes frozen features; by default as it was saved.
            trusted: Whether the file may ask for any amount of work, as for `load`.

        Raises:
            FileError: If they are not the bytes of a learner.
        """
        found = learner_file.decode(data, name)
        return cls._checked(*found, name, backbone, device, engine, trusted)

    @classmethod
    def _checked(
        cls,
        arrays: Mapping[str, Array],
        raw: dict[str, Any],
        name: str,
        backbone: nn.Module | None,
        device: str | torch.device,
        engine: EngineChoice | None,
        trusted: bool,
    ) -> Self:
        restored = restore_content(arrays, raw, name, backbone, device, trusted)
        states = [state for state in restored.history if state is not None]
        # after a lesson on a frozen network both states have the same one
        for one in {id(state.strategy.representation): state for state in states}.values():
            one.strategy.representation.use_engine(engine or restored.engine)
        return cls._assembled(restored.settings, restored.threshold, restored.history, object())


class RestoredContent(NamedTuple):
    """The parts of a learner that were restored from its file.

    Args:
        settings: Its strategy, options and backbone.
        threshold: Its threshold.
        history: Its states.
        engine: The engine to try if the user does not choose one.
    """

    settings: LearnerSettings
    threshold: float
    history: History
    engine: EngineChoice


def restore_content(
    arrays: Mapping[str, Array],
    raw: dict[str, Any],
    name: str,
    backbone: nn.Module | None,
    device: str | torch.device,
    trusted: bool = False,
) -> RestoredContent:
    """Restore a learner from the content of its file.

    Args:
        arrays: The arrays of the file.
        raw: Its manifest, not checked yet.
        name: What messages call the file.
        backbone: The module, if the learner was made with a module of the user's own.
        device: Where to put the strategies.
        trusted: Whether the file may ask for any amount of work; see `check_cost`.

    Raises:
        FileError: If the content is not that of a learner.
    """
    manifest = parse_manifest(raw, name)
    if not trusted:
        check_cost(manifest, name)
    _warn_of_old_names(manifest, name)
    named = [manifest.strategy.name]
    if backbone is None:
        named.append(manifest.backbone.name)
    missing = [text for text in named if is_reference(text) and text not in registered()]
    if missing:
        raise FileError(f"{name} cannot be loaded: {must_be_registered(*missing)}")
    chosen_device = choose_device(device)
    try:
        settings = LearnerSettings(
            manifest.strategy.name,
            options_of_file(manifest.strategy.name, manifest.strategy.options),
            Spec(**vars(manifest.backbone)),
        )
        history = restore_history(settings, arrays, manifest, backbone, chosen_device)
    # any exception that torch raises over a strange file is the fault of the file
    except Exception as error:
        raise FileError(f"{name} cannot be loaded: {error}") from error
    return RestoredContent(settings, manifest.threshold, history, _engine_to_try(manifest))


def _warn_of_old_names(manifest: Manifest, name: str) -> None:
    for old in manifest.strategy.options:
        new = next(iter(current_names({old: None}, warn=False)))
        if new != old:
            message = f"the option {old!r} is now called {new!r}: save {name} again"
            warnings.warn(message, DeprecationWarning, stacklevel=5)


def _engine_to_try(manifest: Manifest) -> EngineChoice:
    """Return the engine that a file was saved with; "auto" is ONNX Runtime if it is installed."""
    return "torch" if manifest.engine == "torch" else "auto"


def restore_history(
    settings: LearnerSettings,
    arrays: Mapping[str, Array],
    manifest: Manifest,
    backbone: nn.Module | None,
    device: torch.device,
) -> History:
    """Restore the states of a file: the present one, and the one before the last change.

    Args:
        settings: The settings of the learner, from the manifest.
        arrays: The arrays of the file.
        manifest: Its manifest.
        backbone: A module of the user's own, which is not in the file.
        device: Where to put the strategies.

    Raises:
        InputError: If the arrays do not fit what the manifest asks for.
    """
    current = {
        name: array
        for name, array in arrays.items()
        if not name.startswith(UNDO) and name not in GRAPHS
    }
    check_sizes(current, manifest)
    network = _network(settings.spec, current, backbone)
    made = make_strategy(settings, network, manifest.strategy.seed)
    state = restore_state(made, current, manifest, device)
    if manifest.undo is None:
        return state, None
    stored = {
        name.removeprefix(UNDO): array for name, array in arrays.items() if name.startswith(UNDO)
    }
    before = _arrays_before(state.strategy, current, stored, manifest.undo.tensors)
    if any(name.startswith(BACKBONE) for name in stored):
        other = make_strategy(settings, network, manifest.strategy.seed)
    else:
        other = state.strategy.draft()  # a frozen network is shared, as after a lesson
    restored = restore_state(other, before, manifest.undo, device)
    return state, replace(restored, stored=stored)


def _network(spec: Spec, arrays: Arrays, backbone: nn.Module | None) -> Backbone:
    """Return the network of a file, without its weights, or a copy of the user's own."""
    if backbone is not None:
        body = backbone.body if isinstance(backbone, Backbone) else backbone
        return Backbone(copy.deepcopy(body), spec)
    prefix = BACKBONE + "body."
    shapes = {n.removeprefix(prefix): a.shape for n, a in arrays.items() if n.startswith(prefix)}
    return rebuild(spec, shapes)


def _arrays_before(
    strategy: Strategy, current: Arrays, stored: Arrays, names: Iterable[str]
) -> Arrays:
    """Return the arrays `names` of the undo state, of which `stored` has those that differ."""
    known = current | restored_beside(groups_of(strategy), stored)
    for name in names:
        if name not in known:
            raise InputError(f"it lacks {name}")
    return {name: known[name] for name in names}


def restore_state(
    strategy: Strategy,
    arrays: Mapping[str, Array],
    record: Manifest | UndoRecord,
    device: torch.device,
) -> LearnerState:
    """Load the tensors of a file into a strategy, after checking that they fit it and its names.

    Args:
        strategy: A strategy that has learned nothing. It is changed and moved to `device`.
        arrays: The arrays of the file.
        record: The names, counts and lessons.
        device: Where to put the strategy.

    Raises:
        InputError: If the arrays or the names do not fit the strategy; the message names the array.
    """
    tensors = _tensors(strategy, arrays)
    check_finite(arrays)
    check_deviations(arrays)
    strategy.load_state_dict(tensors)
    names = {c.id: c.name for c in record.classes}
    classes = check_labels(strategy.classes, len(strategy.classes), "classes").tolist()
    _check_names(names, classes)
    counts = {c.id: c.frames for c in record.classes}
    taught = {column: counts[i] for column, i in enumerate(classes) if i in names}
    _check_statistics(strategy, arrays, taught)
    for name, part in strategy.named_modules():
        if isinstance(part, Rows) and part.has_rows and part.rows < len(classes):
            raise InputError(f"{name} has {part.rows} rows for {len(classes)} classes")
    for memory in memories(strategy):
        memory.check_labels(strategy.classes)
    lessons = tuple(record.lessons)
    held_out = from_records({c.id: c.held_out_counts for c in record.classes})
    return LearnerState(strategy.to(device), names, counts, record.next_id, lessons, held_out)


def check_sizes(arrays: Mapping[str, Array], manifest: Manifest) -> None:
    """Check that a file holds arrays as large as what its manifest asks to be built.

    Without this check a small hostile file could make the reader allocate any amount of memory.
    `rebuild` checks the network in the same way.

    Args:
        arrays: The arrays of the file.
        manifest: Its manifest.

    Raises:
        InputError: If the manifest asks for more than the file holds.
    """
    capacity = manifest.strategy.options.get("capacity")
    rows = [len(array) for name, array in arrays.items() if name.startswith("head.") and array.ndim]
    if rows and isinstance(capacity, int) and capacity > max(rows):
        raise InputError(f"it asks for a capacity of {capacity}, but holds {max(rows)} rows")
    expand = manifest.strategy.options.get("expand")
    gram = arrays.get("moments.gram")  # the statistics of analytic heads, under their name in files
    if isinstance(expand, int) and (gram is None or gram.shape != (packed_size(expand),)):
        raise InputError(
            f"it asks for {expand} random features, but does not hold their statistics"
        )


def _tensors(strategy: Strategy, arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    own, numbers = strategy.state_dict(), dict(arrays)
    for group, saved, prefix in own_arrays(groups_of(strategy), numbers):
        found = group.from_file(prefix, saved)
        numbers |= {prefix + name: array for name, array in found.items()}
    tensors: dict[str, Tensor] = {}
    for name, array in numbers.items():
        tensor = torch.from_numpy(np.array(array))
        expected = own[name].dtype if name in own else tensor.dtype
        if tensor.dtype == torch.float16 and name.startswith(BACKBONE):
            tensor = tensor.to(expected)  # exactly: see `exact_halves`
        if tensor.dtype != expected:
            raise InputError(f"{name} is {tensor.dtype}, expected {expected}")
        tensors[name] = tensor
    return tensors


def _check_names(names: Mapping[int, str], classes: list[int]) -> None:
    if len(set(classes)) < len(classes) or not set(names) <= set(classes):
        raise InputError("its names do not belong to its classes")


def _check_statistics(
    strategy: Strategy, arrays: Mapping[str, Array], taught: Mapping[int, int]
) -> None:
    """Check counts and sums; `taught` are the frames of the columns that have names."""
    known = len(strategy.classes)
    for name, part in strategy.named_modules():
        if isinstance(part, ArrayBuffers):
            part.group.check(f"{name}.", known, list(taught))
            part.group.check_frames(f"{name}.", taught)
    if "head.past" in arrays:
        check_past("head.past", arrays["head.past"])
