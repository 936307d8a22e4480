"""The learner: a strategy with names, preprocessing, undo and files."""

from primavista.learner.learner import Learner, Prediction

__all__ = ["Learner", "Prediction"]
