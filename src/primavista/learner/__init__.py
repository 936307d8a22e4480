"""The learner: a strategy with names, preprocessing, undo and files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_WHERE = {
    "Advice": "coach",
    "AlreadyTaughtError": "lesson",
    "Learner": "learner",
    "Lesson": "lesson",
    "LessonBuffer": "lesson",
    "Prediction": "prediction",
    "lesson_id": "lesson",
    "open_learner": "learner",
}

__all__ = [
    "Advice",
    "AlreadyTaughtError",
    "Learner",
    "Lesson",
    "LessonBuffer",
    "Prediction",
    "lesson_id",
    "open_learner",
]

if TYPE_CHECKING:
    from primavista.learner.coach import Advice
    from primavista.learner.learner import Learner, open_learner
    from primavista.learner.lesson import AlreadyTaughtError, Lesson, LessonBuffer, lesson_id
    from primavista.learner.prediction import Prediction


def __getattr__(name: str) -> object:
    """Import a name when it is first used: `coach` alone needs no torch."""
    if name not in _WHERE:
        raise AttributeError(f"module 'primavista.learner' has no attribute {name!r}")
    return getattr(import_module(f"primavista.learner.{_WHERE[name]}"), name)
