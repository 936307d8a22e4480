"""Strategies: those of the paper, those that it compares with, and our own."""

from primavista.strategies.base import Batch, LearnReport, Strategy
from primavista.strategies.options import Options
from primavista.strategies.registry import create, names

__all__ = ["Batch", "LearnReport", "Options", "Strategy", "create", "names"]
