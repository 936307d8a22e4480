"""The facts about a strategy that the rest of the package asks for, without building it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from primavista.storage.settings import OptionValue


@dataclass(frozen=True)
class Look:
    """The look of a strategy in figures.

    Args:
        colour: The colour, as matplotlib takes it.
        marker: The marker, in matplotlib's notation.
    """

    colour: str
    marker: str


# For the user's own strategies without a look; none of these belongs to a strategy of the package.
OTHER_LOOKS = (
    Look("#e7298a", "P"),
    Look("#1b4dff", "X"),
    Look("#00a5b5", "*"),
    Look("#7cae00", "s"),
    Look("#5e2ca5", "D"),
    Look("#ff6f61", "^"),
    Look("#795548", "o"),
    Look("#607d8b", "v"),
)


@dataclass(frozen=True)
class StrategyInfo:
    """Everything that the package needs to know about a strategy without building it.

    Your own strategy class may have a class attribute `info` of this type. Without it, the strategy
    gets the defaults, and a look that depends on its name.

    Args:
        name: The name for `create` and the command line, such as `ar1*`.
        title: The name in figures and tables, such as `AR1*`.
        where: `module:Class`.
        source: The origin of the hyperparameters.
        options: Options that differ from the defaults of the class.
        presets: Options for single protocols, by the name of the protocol. The others are those of
            NICv2 in the strategies of the paper.
        grid: The values of options among which `primavista bench tune` chooses.
        training_options: True if it takes the options of gradient descent: `capacity`,
            `first_batch`, the limits of batch renormalisation.
        analytic: True if it keeps sums over frames, so that learners can be merged.
        rehearsal_free: False if it stores frames or activations.
        open_set_option: True if the option `open_set=True` makes it recognise strangers.
        features_option: True if the option `features="fixed"` keeps the network as it is.
        joint: True if it trains on all data at once, like the upper bound Cumulative.
        retrains: True if it trains from scratch on stored data, so that a plan sets how often.
        norm: Its default normalisation, which reports do not mention; None if it has none.
        look: Its colours and marker in figures.
    """

    name: str
    title: str
    where: str = ""
    source: str = ""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, OptionValue]] = field(default_factory=dict)
    grid: Mapping[str, Sequence[OptionValue]] = field(default_factory=dict)
    training_options: bool = False
    analytic: bool = False
    rehearsal_free: bool = True
    open_set_option: bool = False
    features_option: bool = False
    joint: bool = False
    retrains: bool = False
    norm: Literal["bn", "brn"] | None = None
    look: Look | None = None
