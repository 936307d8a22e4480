"""What a new learner is made of: the options of its strategy, its backbone and its threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn

from primavista.backbones.base import Backbone
from primavista.backbones.registry import build
from primavista.errors import InputError
from primavista.option_types import UnknownOptionError
from primavista.storage.settings import OptionValue
from primavista.strategies.base import Strategy
from primavista.strategies.open_set import OpenSet
from primavista.strategies.registry import strategy_info

CAPACITY = 64
# the arguments of a learner that are not options of its strategy
ARGUMENTS = ("backbone", "weights", "size", "seed", "device", "engine", "threshold")
CONFIDENCE_THRESHOLD = 0.1  # for strategies that have no familiarity


def strategy_options(
    strategy: str, first_batch: bool, options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return the options of a learner's strategy: given ones before the defaults of learners.

    Args:
        strategy: The name of the strategy.
        first_batch: Whether to learn the first lesson as the paper learns batch 1.
        options: The options that were given.

    Raises:
        InputError: If the strategy is unknown, or has no such first batch.
    """
    info = strategy_info(strategy)
    defaults: dict[str, OptionValue] = {}
    if info.open_set_option:
        defaults["open_set"] = True
    if info.training_options:
        # a learner is not told how many objects will come, and a head whose weights start at 0
        # learns more from one-class batches than one whose weights are drawn
        defaults |= {"capacity": CAPACITY, "first_batch": first_batch, "unseen": "reset"}
    elif first_batch:
        raise InputError(f"{strategy} learns every batch alike: leave out first_batch")
    return {**defaults, **options}


@contextmanager
def misspelt_arguments() -> Iterator[None]:
    """Guard the making of a strategy: a misspelt argument of the learner comes as its option.

    Raises:
        InputError: If the strategy has no such option; the message names the argument that is
            spelt nearly like it, if there is one.
    """
    try:
        yield
    except UnknownOptionError as error:
        for name in error.strange:
            meant = get_close_matches(name, ARGUMENTS, 1)
            if meant:
                raise InputError(f"{error} (did you mean {meant[0]}?)") from error
        raise


def make_backbone(
    backbone: str | nn.Module,
    weights: str | Path | None,
    size: int,
    width: float | None,
    seed: int,
) -> Backbone:
    """Return the backbone of a learner.

    Args:
        backbone: Its name, or a module.
        weights: Where a backbone by name gets its weights from.
        size: The side of the images that it sees, in pixels.
        width: The width multiplier of a backbone by name; None for its own.
        seed: The seed of random weights.

    Raises:
        InputError: If a width is given for a module.
        WeightsError: If the weights cannot be loaded.
    """
    if isinstance(backbone, nn.Module) and width is not None:
        raise InputError("width is for backbones by name: leave it out, or leave out the module")
    if isinstance(backbone, Backbone):
        return backbone
    options: dict[str, Any] = {} if width is None else {"width": width}
    return build(backbone, weights, size=size, seed=seed, **options)


def all_options(strategy: Strategy, given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return all options of a strategy if it names them, else those that were given.

    Args:
        strategy: The strategy.
        given: The options that it was made with.
    """
    options = getattr(strategy, "options", None)
    if is_dataclass(options) and not isinstance(options, type):
        return asdict(options)
    return dict(given)


def default_threshold(strategy: Strategy) -> float:
    """Return the threshold of a learner to which none was given.

    Args:
        strategy: Its strategy, which knows where familiarity begins if it can tell strangers.
    """
    if isinstance(strategy, OpenSet) and strategy.open_set:
        return strategy.known_from
    return CONFIDENCE_THRESHOLD
