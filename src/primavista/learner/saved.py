"""A learner as a file has it: its arrays and its manifest."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import nn

from primavista.backbones.base import Spec
from primavista.engine.device import choose_device
from primavista.engine.onnx_runtime import Engine, EngineChoice
from primavista.errors import FileError
from primavista.learner.state import (
    UNDO,
    Array,
    History,
    LearnerSettings,
    restore_history,
    state_records,
    strategy_arrays,
    undo_arrays,
)
from primavista.references import is_reference, must_be_registered
from primavista.storage.manifest import (
    FORMAT,
    Manifest,
    check_cost,
    manifest_json,
    parse_manifest,
)
from primavista.strategies.registry import current_names, options_of_file, registered


class RestoredContent(NamedTuple):
    """What a learner is assembled from after its file was read.

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


def file_content(
    settings: LearnerSettings, threshold: float, engine: Engine, history: History
) -> tuple[dict[str, Array], dict[str, object]]:
    """Return the arrays and the manifest of the file of a learner.

    Args:
        settings: Its strategy, options and backbone.
        threshold: Its threshold.
        engine: What computes its frozen features.
        history: Its states.
    """
    state, previous = history
    arrays = strategy_arrays(state.strategy)
    undo = None
    if previous is not None:
        tensors = sorted(previous.strategy.state_dict())
        undo = {**state_records(previous), "tensors": tensors}
        before = undo_arrays(state, previous, arrays)
        arrays |= {UNDO + name: array for name, array in before.items()}
    seed = int(state.strategy.seed)
    raw = {
        "format": FORMAT,
        "strategy": {"name": settings.strategy, "seed": seed, "options": settings.options},
        "backbone": asdict(settings.spec),
        "threshold": threshold,
        "undo": undo,
        "engine": engine,
        **state_records(state),
    }
    # checked by the rules of loading: what is saved can be loaded
    return arrays, manifest_json(parse_manifest(raw, "the learner"))


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
