"""Strategies: the paper's, the ones it compares with, and ours."""

from primavista.strategies.base import Batch, LearnReport, Strategy
from primavista.strategies.caffe import as_released
from primavista.strategies.options import Options
from primavista.strategies.registry import create, names

__all__ = ["Batch", "LearnReport", "Options", "Strategy", "as_released", "create", "names"]
