"""The learner: a strategy with names, preprocessing, undo and files."""

from primavista.learner.learner import Learner, open_learner
from primavista.learner.lesson import AlreadyTaughtError, Lesson, LessonBuffer, lesson_id
from primavista.learner.prediction import Prediction

__all__ = [
    "AlreadyTaughtError",
    "Learner",
    "Lesson",
    "LessonBuffer",
    "Prediction",
    "lesson_id",
    "open_learner",
]
