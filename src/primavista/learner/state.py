"""The state of a learner at one moment: saved to arrays and a manifest, and restored from them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from primavista.backbones.base import Backbone, Spec
from primavista.backbones.registry import rebuild
from primavista.coach import HeldOutTests, from_records, to_records, with_tests
from primavista.errors import InputError
from primavista.frames import check_labels
from primavista.heads.base import ClassArrays, own_arrays, restored_beside, stored_beside
from primavista.heads.buffers import ArrayBuffers
from primavista.heads.statistics import packed_size
from primavista.nn.class_rows import Rows
from primavista.nn.memory import memories
from primavista.storage.learner_file import GRAPHS, exact_halves, same_bits
from primavista.storage.manifest import MAX_COUNT, Manifest, UndoRecord
from primavista.storage.settings import OptionValue
from primavista.storage.validate import check_deviations, check_finite, check_past
from primavista.strategies.base import Strategy
from primavista.strategies.registry import create

BACKBONE = "backbone."  # prefix of the arrays of the network
UNDO = "undo/"  # prefix of the arrays of the state before the last change
Array: TypeAlias = NDArray[np.generic]
Arrays: TypeAlias = dict[str, Array]


@dataclass(frozen=True)
class LearnerState:
    """Everything that a lesson may change. A change replaces the state and never modifies it.

    Args:
        strategy: The strategy with all that it has learned.
        names: The name of each class id, in the order in which they were first taught.
        counts: How many frames of each class id were learned.
        next_id: The id of the next new name; ids of forgotten names are not used again.
        lessons: The id of each lesson, in order.
        held_out: How the last lessons of each class id were answered before they were learned.
        stored: The arrays that a file has of it, if it was restored as the state before the last
            change; they hold beside that later state alone.
    """

    strategy: Strategy
    names: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    next_id: int = 0
    lessons: tuple[str, ...] = ()
    held_out: HeldOutTests = field(default_factory=dict)
    stored: Arrays | None = None

    def ids(self, names: Iterable[str]) -> dict[str, int]:
        """Return the class id of every known name and of `names`; new ones get ids in their order.

        Args:
            names: Names that are about to be taught, known or new.
        """
        ids = {name: i for i, name in self.names.items()}
        new = [name for name in dict.fromkeys(names) if name not in ids]
        return ids | {name: self.next_id + k for k, name in enumerate(new)}

    def taught(
        self,
        strategy: Strategy,
        ids: Mapping[str, int],
        frames: Mapping[int, int],
        lessons: Iterable[str],
        held_out: HeldOutTests,
    ) -> LearnerState:
        """Return the state after some lessons.

        Args:
            strategy: The strategy that has learned them.
            ids: The class id of every name, as `ids` gives.
            frames: How many frames of each class id were learned.
            lessons: The ids of the lessons.
            held_out: How they were answered before they were learned.
        """
        counts = dict(self.counts)
        for i, count in frames.items():
            counts[i] = counts.get(i, 0) + count
        names = dict(sorted((i, name) for name, i in ids.items()))
        next_id = max(self.next_id, max(names, default=-1) + 1)
        if max(next_id, *counts.values(), 0) >= MAX_COUNT:
            raise InputError("there are more frames or objects than a file can count")
        tests = with_tests(self.held_out, held_out)
        return LearnerState(strategy, names, counts, next_id, (*self.lessons, *lessons), tests)


@dataclass(frozen=True)
class LearnerSettings:
    """The settings that a learner keeps for life.

    Args:
        strategy: The name that `create` knows the strategy by.
        options: What `create` needs to make it again.
        spec: What is needed to build the backbone again, except its weights.
    """

    strategy: str
    options: dict[str, OptionValue]
    spec: Spec


# The state now, and the one before the last change; the pair is replaced in one step.
History: TypeAlias = tuple[LearnerState, LearnerState | None]


def state_records(state: LearnerState) -> dict[str, Any]:
    """Return the fields of a manifest that describe a state, as JSON.

    Args:
        state: The state to be saved.
    """
    classes = [
        {
            "id": i,
            "name": name,
            "frames": state.counts[i],
            "held_out": to_records(state.held_out.get(i, ())),
        }
        for i, name in state.names.items()
    ]
    return {"classes": classes, "next_id": state.next_id, "lessons": list(state.lessons)}


def strategy_arrays(strategy: Strategy, *, network: bool = True) -> Arrays:
    """Return the tensors of a strategy as they go into a file, by their names in `state_dict()`.

    Args:
        strategy: The strategy to be saved. Arrays of one on the CPU share its memory, apart from
            those that a file has in fewer bytes per number.
        network: Whether to return the tensors of the backbone too.
    """
    found = {
        name: tensor.detach().cpu().contiguous().numpy()
        for name, tensor in strategy.state_dict().items()
        if network or not name.startswith(BACKBONE)
    }
    for group, own, prefix in own_arrays(groups_of(strategy), found):
        found |= {prefix + name: array for name, array in group.to_file(own).items()}
    return found | exact_halves({n: a for n, a in found.items() if n.startswith(BACKBONE)})


def undo_arrays(state: LearnerState, before: LearnerState, arrays: Mapping[str, Array]) -> Arrays:
    """Return what a file needs to restore the state before the last change, beside the present one.

    Args:
        state: The present state.
        before: The state before it.
        arrays: The arrays of the present state, as `strategy_arrays` gives them.
    """
    if before.stored is not None:
        return before.stored
    same_network = before.strategy.backbone is state.strategy.backbone
    whole = strategy_arrays(before.strategy, network=not same_network)
    different = {name: a for name, a in whole.items() if not same_bits(a, arrays.get(name))}
    return stored_beside(groups_of(before.strategy), groups_of(state.strategy), different)


def groups_of(strategy: Strategy) -> dict[str, ClassArrays]:
    """Return the groups of arrays of a strategy's head by the names of their modules.

    Args:
        strategy: Any strategy; one whose head has no such groups gives none.
    """
    parts = strategy.named_modules()
    return {name: part.group for name, part in parts if isinstance(part, ArrayBuffers)}


def make_strategy(settings: LearnerSettings, backbone: Backbone, seed: int) -> Strategy:
    """Create the strategy of a learner, which has learned nothing yet.

    Args:
        settings: Its name and options.
        backbone: The network, which is copied.
        seed: The seed of every random choice.
    """
    options: dict[str, Any] = dict(settings.options)
    return create(settings.strategy, backbone, seed=seed, **options)


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
    """The network of a file, without its weights, or a copy of the user's own."""
    if backbone is not None:
        body = backbone.body if isinstance(backbone, Backbone) else backbone
        return Backbone(copy.deepcopy(body), spec)
    prefix = BACKBONE + "body."
    shapes = {n.removeprefix(prefix): a.shape for n, a in arrays.items() if n.startswith(prefix)}
    return rebuild(spec, shapes)


def _arrays_before(
    strategy: Strategy, current: Arrays, stored: Arrays, names: Iterable[str]
) -> Arrays:
    """The arrays `names` of the state before, of which a file has in `stored` what differs."""
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
