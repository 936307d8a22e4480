"""Learns to recognise objects from short videos, one small batch at a time, and keeps no frame."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Learner": "learner.learner",
    "Prediction": "learner.prediction",
    "Frames": "frames",
    "build_backbone": "backbones.registry:build",
    "Strategy": "strategies.base",
    "LearnReport": "strategies.base",
    "create": "strategies.registry",
    "check_strategy": "strategies.conformance",
    "open_frames": "streams.video",
    "folder": "streams.folder",
    "rendered": "streams.rendered.dataset",
    "CORe50": "streams.core50.dataset",
    "nicv2": "streams.protocols",
    "evaluate": "bench.evaluate",
    "PrimavistaError": "errors",
    "InputError": "errors",
    "FileError": "errors",
}

__all__ = [
    "CORe50",
    "FileError",
    "Frames",
    "InputError",
    "LearnReport",
    "Learner",
    "Prediction",
    "PrimavistaError",
    "Strategy",
    "__version__",
    "build_backbone",
    "check_strategy",
    "create",
    "evaluate",
    "folder",
    "nicv2",
    "open_frames",
    "rendered",
]

if TYPE_CHECKING:
    from primavista.backbones.registry import build as build_backbone
    from primavista.bench.evaluate import evaluate
    from primavista.errors import FileError, InputError, PrimavistaError
    from primavista.frames import Frames
    from primavista.learner.learner import Learner
    from primavista.learner.prediction import Prediction
    from primavista.strategies.base import LearnReport, Strategy
    from primavista.strategies.conformance import check_strategy
    from primavista.strategies.registry import create
    from primavista.streams.core50.dataset import CORe50
    from primavista.streams.folder import folder
    from primavista.streams.protocols import nicv2
    from primavista.streams.rendered.dataset import rendered
    from primavista.streams.video import open_frames


def __getattr__(name: str) -> Any:
    """Each public name is imported when it is first used: `import primavista` loads no torch."""
    if name not in _WHERE:
        raise AttributeError(f"module 'primavista' has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    value = getattr(import_module(f"primavista.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
