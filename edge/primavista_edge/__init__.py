"""Recognises objects and goes on learning them on small devices, from files that `primavista export --format edge` writes."""

from .errors import FileError, InputError, PrimavistaError
from .learner import Learner, Prediction

__version__ = "0.1.0"
__all__ = ["FileError", "InputError", "Learner", "Prediction", "PrimavistaError", "__version__"]
