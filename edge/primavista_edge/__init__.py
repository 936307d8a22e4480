"""Recognises objects, and continues to learn them, on small devices.

The files come from `primavista export --format edge`.
"""

from .boxes import Box
from .coach import Advice
from .errors import FileError, InputError, PrimavistaError
from .learner import Learner
from .lesson_report import LessonReport
from .locating import Located
from .prediction import Prediction
from .watch import Watch

__version__ = "0.1.0"
__all__ = [
    "Advice",
    "Box",
    "FileError",
    "InputError",
    "Learner",
    "LessonReport",
    "Located",
    "Prediction",
    "PrimavistaError",
    "Watch",
    "__version__",
]
