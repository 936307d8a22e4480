"""A learner and its file: save, load, and the same with bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from primavista.engine.onnx_runtime import EngineChoice
from primavista.errors import FileError
from primavista.learner.facts import LearnerFacts
from primavista.learner.saved import file_content, restore_content
from primavista.learner.state import Array
from primavista.storage import learner_file


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
