"""The file of a learner: its arrays and its manifest, and how they become a learner again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from primavista.backbones.onnx import GRAPH_ARRAYS
from primavista.backbones.spec import CUSTOM, Spec
from primavista.errors import FileError, InputError
from primavista.heads.base import restored_beside, stored_beside
from primavista.heads.statistics import packed_size
from primavista.learner.coach import from_records
from primavista.learner.history import History, LearnerState
from primavista.learner.making import check_device, restored_strategy
from primavista.learner.strategy import BACKBONE, Arrays, NetworkChoice, Settings, TaughtStrategy
from primavista.storage.learner_file import same_bits
from primavista.storage.manifest import FORMAT, Manifest, UndoRecord, check_cost, parse_manifest
from primavista.storage.references import is_reference, must_be_registered
from primavista.storage.validate import check_numbers
from primavista.strategies.registry import registered

UNDO = "undo/"  # prefix of the arrays of the state before the last change


def file_content(history: History, threshold: float) -> tuple[Arrays, dict[str, object]]:
    """Return the arrays and the manifest of the file of a learner."""
    state, previous = history.states
    strategy = state.strategy
    settings = strategy.settings
    arrays = strategy.arrays()
    undo = None
    if previous is not None:
        names, before = undo_arrays(state, previous, arrays)
        undo = {**state_records(previous), "tensors": names}
        arrays |= {UNDO + name: array for name, array in before.items()}
    arrays |= strategy.graphs()
    manifest: dict[str, object] = {
        "format": FORMAT,
        "strategy": {
            "name": settings.strategy,
            "seed": settings.seed,
            "options": settings.options,
        },
        "backbone": _spec_record(settings.spec),
        "engine": strategy.engine,
        "threshold": float(threshold),
        "undo": undo,
        **state_records(state),
    }
    parse_manifest(manifest, "the learner")  # what is saved can be loaded
    return arrays, manifest


def _spec_record(spec: Spec) -> dict[str, object]:
    """Return the record of a backbone, with floats as after loading, for equal bytes."""
    floats = {"mean": [float(x) for x in spec.mean], "std": [float(x) for x in spec.std]}
    return {**asdict(spec), **floats}


def state_records(state: LearnerState) -> dict[str, Any]:
    """Return the fields of a manifest that describe a state, as JSON."""
    classes = []
    for i, name in state.names.items():
        record: dict[str, Any] = {"id": i, "name": name, "frames": state.counts[i]}
        if state.held_out.get(i):
            record["held_out"] = [[one.model_dump() for one in test] for test in state.held_out[i]]
        classes.append(record)
    return {"classes": classes, "next_id": state.next_id, "lessons": list(state.lessons)}


def undo_arrays(
    state: LearnerState, before: LearnerState, arrays: Mapping[str, Any]
) -> tuple[list[str], Arrays]:
    """Return the names of all arrays of the state before, and what a file needs to restore them.

    Args:
        state: The present state.
        before: The state before it.
        arrays: The arrays of the present state, in the form of files.
    """
    now, then = state.strategy, before.strategy
    same_network = then.features_from is not None and then.features_from == now.features_from
    whole = then.arrays(network=not same_network)
    names = sorted({*whole, *(name for name in arrays if name.startswith(BACKBONE))})
    if before.stored is not None:
        return names, before.stored
    different = {name: a for name, a in whole.items() if not same_bits(a, arrays.get(name))}
    return names, stored_beside(then.groups, now.groups, different)


def restore_content(
    arrays: Mapping[str, Any],
    raw: dict[str, Any],
    name: str,
    asked: NetworkChoice,
    *,
    trusted: bool,
) -> tuple[History, float]:
    """Restore a learner from the content of its file.

    Args:
        arrays: The arrays of the file.
        raw: Its manifest, not checked yet.
        name: What messages call the file.
        asked: What the user wants; with an empty engine, the one that it was saved with.
        trusted: Whether the file may ask for any amount of work; see `check_cost`.

    Returns:
        The history of the learner, and its threshold.

    Raises:
        FileError: If the content is not that of a learner.
        MissingExtraError: If it needs a package that is not installed.
    """
    manifest = parse_manifest(raw, name)
    if not trusted:
        check_cost(manifest, name)
    named = [manifest.strategy.name]
    if asked.backbone is None:
        named.append(manifest.backbone.name)
    missing = [text for text in named if is_reference(text) and text not in registered()]
    if missing:
        raise FileError(f"{name} cannot be loaded: {must_be_registered(*missing)}")
    check_device(asked.device)
    strategy = manifest.strategy
    spec = Spec(**vars(manifest.backbone))
    settings = Settings(strategy.name, strategy.options, spec, strategy.seed)
    if not asked.engine:
        asked = replace(asked, engine="torch" if manifest.engine == "torch" else "auto")
    try:
        if spec.name == CUSTOM and asked.backbone is None and GRAPH_ARRAYS[0] not in arrays:
            raise InputError(
                "this file was made with a backbone of your own: "
                "Learner.load(path, backbone=your_module)"
            )
        history = _history(settings, arrays, manifest, asked)
    except ImportError:  # an extra is missing, which is not the fault of the file
        raise
    # any other exception over a strange file is the fault of the file
    except Exception as error:
        raise FileError(f"{name} cannot be loaded: {error}") from error
    return history, manifest.threshold


def _history(
    settings: Settings, arrays: Mapping[str, Any], manifest: Manifest, asked: NetworkChoice
) -> History:
    """Restore the states of a file: the present one, and the one before the last change."""
    current = {
        name: array
        for name, array in arrays.items()
        if not name.startswith(UNDO) and name not in GRAPH_ARRAYS
    }
    graph = {name: arrays[name] for name in GRAPH_ARRAYS if name in arrays}
    check_sizes(current, manifest)
    check_numbers(current)
    made = restored_strategy(settings, current, graph, asked)
    state = _restored_state(made, current, manifest)
    if manifest.undo is None:
        return History(state)
    stored = {
        name.removeprefix(UNDO): array for name, array in arrays.items() if name.startswith(UNDO)
    }
    check_numbers(stored)
    before = _arrays_before(made, current, stored, manifest.undo.tensors)
    if any(name.startswith(BACKBONE) for name in stored):
        other = restored_strategy(settings, before, graph, asked)
    else:
        other = made.draft()  # a frozen network is shared, as after a lesson
    restored = _restored_state(other, before, manifest.undo)
    return History(state, replace(restored, stored=stored))


def _arrays_before(
    strategy: TaughtStrategy, current: Arrays, stored: Arrays, names: Iterable[str]
) -> Arrays:
    """Return the arrays `names` of the undo state, of which `stored` has those that differ."""
    known = current | restored_beside(strategy.groups, stored)
    for name in names:
        if name not in known:
            raise InputError(f"it lacks {name}")
    return {name: known[name] for name in names}


def _restored_state(
    strategy: TaughtStrategy, arrays: Arrays, record: Manifest | UndoRecord
) -> LearnerState:
    """Load the arrays of a file into a strategy, after checking that they fit it and its names."""
    names = {c.id: c.name for c in record.classes}
    counts = {c.id: c.frames for c in record.classes}
    strategy.restore(arrays, counts)
    held_out = from_records({c.id: c.held_out for c in record.classes})
    lessons = tuple(record.lessons)
    return LearnerState(strategy, names, counts, record.next_id, lessons, held_out)


def check_sizes(arrays: Arrays, manifest: Manifest) -> None:
    """Check that a file holds arrays as large as what its manifest asks to be built.

    Without this check a small hostile file could make the reader allocate any amount of memory.

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
