"""Learns to recognise objects from short videos, one small batch at a time, and keeps no frame."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from primavista.errors import MissingExtraError

__version__ = "0.1.0"

_WHERE = {
    # live learning
    "Learner": "learner.learner",
    "Advice": "learner.coach",
    "Prediction": "learner.prediction",
    "Located": "learner.locating",
    "Box": "media.boxes",
    "Watch": "learner.watch",
    "AlreadyTaughtError": "learner.lesson",
    "LessonReport": "learner.lesson",
    "Evaluation": "learner.evaluation",
    "open_frames": "media.video",
    "Frames": "media.frames",
    "Progress": "progress",
    "TrainingStep": "progress",
    # strategies
    "Strategy": "strategies.base",
    "LearnReport": "strategies.base",
    "StrategyInfo": "strategies.info",
    "Look": "strategies.info",
    "strategy_info": "strategies.registry",
    "create": "strategies.creation",
    "register": "strategies.registry",
    "Memory": "nn.memory",
    "check_strategy": "strategies.conformance",
    "build_backbone": "networks.base:build",
    # data sets and the benchmark
    "DataSet": "streams.dataset",
    "Session": "streams.dataset",
    "Stream": "streams.dataset",
    "open_dataset": "streams.open",
    "open_stream": "streams.open:stream",
    "folder": "streams.folder",
    "rendered": "streams.rendered.dataset",
    "CORe50": "streams.core50",
    "nicv2": "streams.protocols",
    "class_incremental": "streams.protocols",
    "domain_incremental": "streams.protocols",
    "evaluate": "bench.evaluate",
    "Step": "bench.evaluate",
    "load_results": "report.records",
    "plot": "report.plot",
    # errors
    "PrimavistaError": "errors",
    "InputError": "errors",
    "FileError": "errors",
}

__all__ = [
    "Advice",
    "AlreadyTaughtError",
    "Box",
    "CORe50",
    "DataSet",
    "Evaluation",
    "FileError",
    "Frames",
    "InputError",
    "LearnReport",
    "Learner",
    "LessonReport",
    "Located",
    "Look",
    "Memory",
    "Prediction",
    "PrimavistaError",
    "Progress",
    "Session",
    "Step",
    "Strategy",
    "StrategyInfo",
    "Stream",
    "TrainingStep",
    "Watch",
    "__version__",
    "build_backbone",
    "check_strategy",
    "class_incremental",
    "create",
    "domain_incremental",
    "evaluate",
    "folder",
    "load_results",
    "nicv2",
    "open_dataset",
    "open_frames",
    "open_stream",
    "plot",
    "register",
    "rendered",
    "strategy_info",
]

if TYPE_CHECKING:
    from primavista.bench.evaluate import Step, evaluate
    from primavista.errors import FileError, InputError, PrimavistaError
    from primavista.learner.coach import Advice
    from primavista.learner.evaluation import Evaluation
    from primavista.learner.learner import Learner
    from primavista.learner.lesson import AlreadyTaughtError, LessonReport
    from primavista.learner.locating import Located
    from primavista.learner.prediction import Prediction
    from primavista.learner.watch import Watch
    from primavista.media.boxes import Box
    from primavista.media.frames import Frames
    from primavista.media.video import open_frames
    from primavista.networks.base import build as build_backbone
    from primavista.nn.memory import Memory
    from primavista.progress import Progress, TrainingStep
    from primavista.report.plot import plot
    from primavista.report.records import load_results
    from primavista.strategies.base import LearnReport, Strategy
    from primavista.strategies.conformance import check_strategy
    from primavista.strategies.creation import create
    from primavista.strategies.info import Look, StrategyInfo
    from primavista.strategies.registry import register, strategy_info
    from primavista.streams.core50 import CORe50
    from primavista.streams.dataset import DataSet, Session, Stream
    from primavista.streams.folder import folder
    from primavista.streams.open import open_dataset
    from primavista.streams.open import stream as open_stream
    from primavista.streams.protocols import class_incremental, domain_incremental, nicv2
    from primavista.streams.rendered.dataset import rendered


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import primavista` loads no torch."""
    if name not in _WHERE:
        raise AttributeError(f"module 'primavista' has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    try:
        value: object = getattr(import_module(f"primavista.{module}"), attribute or name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(f'{name} needs torch: pip install "primavista[train]"') from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
