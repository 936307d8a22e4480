"""The learner: a strategy with names, preprocessing, undo and files."""

from primavista.frames import lesson_id
from primavista.learner.learner import Learner, open_learner
from primavista.learner.lesson import AlreadyTaughtError, LessonBuffer, LessonFeatures
from primavista.learner.prediction import Prediction
from primavista.learner.watch import Watch
from primavista.streams.video import Lesson

__all__ = [
    "AlreadyTaughtError",
    "Learner",
    "Lesson",
    "LessonBuffer",
    "LessonFeatures",
    "Prediction",
    "Watch",
    "lesson_id",
    "open_learner",
]
