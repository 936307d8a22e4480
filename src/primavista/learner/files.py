"""A learner and its file: save, load, the same with bytes, and what the file holds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import nn

from primavista.backbones.base import Spec
from primavista.engine.representation import Engine, EngineChoice, choose_device
from primavista.errors import FileError
from primavista.learner.facts import LearnerFacts
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
from primavista.storage import learner_file
from primavista.storage.manifest import (
    FORMAT,
    Manifest,
    check_cost,
    manifest_json,
    parse_manifest,
)
from primavista.strategies.registry import current_names, options_of_file, registered


class LearnerFiles(LearnerFacts):
    """The part of a learner that writes its file and reads it again, exactly as it was.

    `Learner` is the class to use.
    """

    def save(self, path: str | Path) -> None:
        """Write everything into one file, whole or not at all; equal learners give equal bytes.

        Args:
            path: The file, by convention with the suffix .pv. Its folder must exist. Of a symbolic
                link, the file that it leads to is written, and keeps its permissions.

        Raises:
            FileError: If the file cannot be written; what was there before is untouched.
        """
        learner_file.write(os.path.realpath(path), *self.content())

    def to_bytes(self) -> bytes:
        """Return the bytes of the file that `save` writes."""
        return b"".join(self.to_buffers())

    def to_buffers(self) -> list[bytes | memoryview]:
        """Return the bytes of the file as consecutive buffers, which share the learner's memory."""
        return learner_file.encoded(*self.content())

    def content(self) -> tuple[dict[str, Array], dict[str, object]]:
        """Return the arrays and the manifest of the file that `save` writes."""
        return file_content(self._settings, self.threshold, self.engine, self._history)

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
