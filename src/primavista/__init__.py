"""primavista learns to recognise objects from short videos, one small batch at a time, and keeps none of the frames."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Learner": "learner",
    "Prediction": "learner",
    "Frames": "frames",
    "build_backbone": "backbones:build",
    "Strategy": "strategies.base",
    "LearnReport": "strategies.base",
    "create": "strategies",
    "check_strategy": "checks",
    "open_frames": "streams.video",
    "PrimavistaError": "errors",
    "InputError": "errors",
    "FileError": "errors",
}

__all__ = [
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
    "open_frames",
]

if TYPE_CHECKING:
    from primavista.backbones import build as build_backbone
    from primavista.checks import check_strategy
    from primavista.errors import FileError, InputError, PrimavistaError
    from primavista.frames import Frames
    from primavista.learner import Learner, Prediction
    from primavista.strategies import create
    from primavista.strategies.base import LearnReport, Strategy
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
