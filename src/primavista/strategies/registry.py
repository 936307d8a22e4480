"""The registry of strategies: all facts about a strategy that the rest of the package needs."""

from __future__ import annotations

import copy
import importlib
import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeGuard, TypeVar, overload

from torch import nn

from primavista.backbones.base import NETWORKS, OWN_NETWORKS, Backbone, device_of
from primavista.errors import InputError
from primavista.option_types import UnknownOptionError
from primavista.references import is_reference, load_reference, must_be_registered, reference_to
from primavista.storage.settings import OptionValue
from primavista.strategies.base import Strategy

ENTRY_POINTS = "primavista.strategies"
_NAME = re.compile(r"[\w.+*-]{1,60}")
RENAMED = {"past": "moments_decay"}  # options that had another name before version 0.2
# Options of gradient descent that version 0.1 did not have, with the values that reproduce it.
ADDED: dict[str, OptionValue] = {"moments": "pretrained", "unseen": "reset"}
ADDED_TO_PRIMA: dict[str, OptionValue] = {"rule": "frames"}


@dataclass(frozen=True)
class Look:
    """The look of a strategy in figures.

    Args:
        light: the colour on white paper.
        dark: the colour on a dark page.
        marker: the marker, in matplotlib's notation.
    """

    light: str
    dark: str
    marker: str


# For the user's own strategies without a look; none of these belongs to a strategy of the package.
OTHER_LOOKS = (
    Look("#e7298a", "#ff7dbd", "P"),
    Look("#1b4dff", "#86a0ff", "X"),
    Look("#00a5b5", "#5be0ec", "*"),
    Look("#7cae00", "#b6e34a", "s"),
    Look("#5e2ca5", "#b08ae8", "D"),
    Look("#ff6f61", "#ff9f95", "^"),
    Look("#795548", "#c7a397", "o"),
    Look("#607d8b", "#a9bfca", "v"),
)


@dataclass(frozen=True)
class StrategyInfo:
    """Everything that the package needs to know about a strategy without building it.

    Your own strategy class may have a class attribute `info` of this type. Without it, the strategy
    gets the defaults, and a look that depends on its name and on the strategies registered before.

    Args:
        name: the name for `create` and the command line, such as `ar1*`.
        title: the name in figures and tables, such as `AR1*`.
        where: `module:Class`.
        source: the origin of the hyperparameters.
        options: options that differ from the defaults of the class.
        table: the names of the hyperparameters that tables show.
        training_options: True if it takes the options of gradient descent: `capacity`,
            `first_batch`, the limits of batch renormalisation.
        analytic: True if it keeps sums over frames, so that learners can be merged.
        rehearsal_free: False if it stores frames or activations.
        open_set_option: True if the option `open_set=True` makes it recognise strangers.
        joint: True if it trains on all data at once, like the upper bound Cumulative.
        retrains: True if it trains from scratch on stored data, so that a plan sets how often.
        stackable: True if several runs on one GPU can learn and be tested as one stack.
        norm: its default normalisation, which reports do not mention; None if it has none.
        cost: the time of one batch relative to AR1*, for estimates of the remaining time.
        main: True if `primavista run` includes it when no strategy is named.
        look: its colours and marker in figures.
    """

    name: str
    title: str
    where: str = ""
    source: str = ""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    table: tuple[str, ...] = ()
    training_options: bool = False
    analytic: bool = False
    rehearsal_free: bool = True
    open_set_option: bool = False
    joint: bool = False
    retrains: bool = False
    stackable: bool = False
    norm: Literal["bn", "brn"] | None = None
    cost: float = 1.0
    main: bool = False
    look: Look | None = None

    @property
    def hyperparameters(self) -> dict[str, OptionValue]:
        """The hyperparameters of `table` with their values, and all other `options`."""
        if not self.table:
            return dict(self.options)
        defaults = asdict(load_strategy(self).OPTIONS())
        return {**{name: defaults[name] for name in self.table}, **self.options}

    def limits(self, protocol: str) -> dict[str, OptionValue]:
        """Return the column of Table 5 for a protocol, without the values that `options` sets.

        Args:
            protocol: a protocol, with its parameters if it has any. A protocol without a column
                keeps the defaults, which are those of NICv2-391.
        """
        if not self.training_options:
            return {}
        column = RENORM.get(protocol.partition(":")[0], {})
        return {name: value for name, value in column.items() if name not in self.options}

    @property
    def drawn(self) -> Look:
        """The look; if the strategy has none, one is chosen by its name."""
        if self.look is not None:
            return self.look
        return _OWN_LOOKS.get(self.name) or OTHER_LOOKS[_first_choice(self.name)]


_TABLE = "tab:hyper_core50"
_RATES = ("epochs_1", "lr_1", "epochs", "lr")
_SI = ("w_1", "w_i", "max_f")
_REPLAY: dict[str, Any] = {
    "table": ("memory", *_RATES, "lr_head"),
    "training_options": True,
    "rehearsal_free": False,
    "norm": "brn",
}
_MINIBATCH = ("minibatch", "momentum", "weight_decay")
# The weight of the past in the moments is that of their papers, for every protocol.
_KEEPS_FRAMES: dict[str, Any] = {
    "options": {"moments_decay": 0.9},
    "training_options": True,
    "rehearsal_free": False,
    "norm": "bn",
}
_PUBLISHED_REPLAY: dict[str, OptionValue] = {
    "guard": "none",
    "lr": 3e-4,
    "lr_head": 3e-3,
    "r_max": 1.25,
    "d_max": 0.5,
    "new_patterns": 21,
}


def _builtin(name: str, title: str, where: str, **facts: Any) -> StrategyInfo:
    return StrategyInfo(name, title, f"primavista.strategies.{where}", **facts)


# Every legend and table uses this order. The colours are Okabe and Ito's, which colour-blind
# readers can distinguish; the markers distinguish the strategies without colour.
_OURS = (
    _builtin(
        "ar1*",
        "AR1*",
        "ar1:AR1",
        source=f"{_TABLE}, AR1",
        table=("head", "guard", *_SI, *_RATES, "lr_head"),
        training_options=True,
        norm="brn",
        main=True,
        look=Look("#d55e00", "#ff8a3c", "o"),
    ),
    _builtin(
        "cwr*",
        "CWR*",
        "cwr:CWR",
        source=f"algo:cwr*; {_TABLE}, CWR*",
        table=("head", *_RATES),
        training_options=True,
        open_set_option=True,
        norm="brn",
        cost=0.1,
        main=True,
        look=Look("#0072b2", "#4db2ec", "s"),
    ),
    _builtin(
        "dslda",
        "DSLDA",
        "frozen:DSLDA",
        source=f"{_TABLE}, DSLDA",
        table=("shrinkage",),
        training_options=True,
        open_set_option=True,
        stackable=True,
        cost=0.05,
        main=True,
        look=Look("#009e73", "#2fcb9c", "D"),
    ),
    _builtin(
        "ewc",
        "EWC",
        "ewc:EWC",
        source=f"{_TABLE}, EWC",
        table=("max_f", "lam", *_RATES, "guard"),
        training_options=True,
        norm="brn",
        cost=0.75,
        main=True,
        look=Look("#cc79a7", "#e59ac4", "^"),
    ),
    _builtin(
        "lwf",
        "LwF",
        "lwf:LwF",
        source=f"{_TABLE}, LWF",
        table=("lam", *_RATES),
        training_options=True,
        norm="brn",
        cost=0.6,
        main=True,
        look=Look("#e69f00", "#f5bd45", "v"),
    ),
    _builtin(
        "naive",
        "Naive",
        "naive:Naive",
        source=f"{_TABLE}, Naive",
        table=_RATES,
        training_options=True,
        norm="brn",
        cost=0.5,
        main=True,
        look=Look("#4a4a4a", "#b9c0c8", "X"),
    ),
    _builtin(
        "cumulative",
        "Cumulative",
        "cumulative:Cumulative",
        source="ours: the paper gives no recipe",
        table=("norm", "freeze", *_RATES),
        training_options=True,
        rehearsal_free=False,
        joint=True,
        retrains=True,
        norm="bn",
        look=Look("#3f9fd6", "#8ecdf4", "*"),
    ),
    _builtin(
        "ar1",
        "AR1",
        "ar1:AR1",
        source=f"{_TABLE}, AR1; lambda is EWC's, ours",
        options={"head": "cwr+", "guard": "penalty"},
        table=("head", "guard", "lam", *_SI, *_RATES, "lr_head"),
        training_options=True,
        norm="brn",
        look=Look("#8a3a00", "#d9824a", "P"),
    ),
    _builtin(
        "cwr+",
        "CWR+",
        "cwr:CWR",
        source=f"algo:cwr+; {_TABLE}, CWR*",
        options={"head": "cwr+"},
        table=("head", *_RATES),
        training_options=True,
        open_set_option=True,
        norm="brn",
        cost=0.1,
        look=Look("#00406b", "#7d9fe0", "p"),
    ),
    _builtin(
        "prima",
        "prima",
        "frozen:Prima",
        source="ours: nothing to set",
        analytic=True,
        cost=0.15,
        main=True,
        look=Look("#5c7a29", "#a9c95f", "<"),
    ),
    _builtin(
        "latent-replay",
        "latent replay (rehearses)",
        "latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, on AR1*; NOT rehearsal-free",
        **_REPLAY,
        cost=2.0,
        look=Look("#a02c7a", "#e38cc6", "d"),
    ),
    _builtin(
        "latent-replay-2020",
        "latent replay 2020 (rehearses)",
        "latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, AR1*free; NOT rehearsal-free",
        options={"cut": "conv5_4/dw", "moments_decay": 0.99995, **_PUBLISHED_REPLAY},
        **_REPLAY,
        cost=2.0,
        look=Look("#7f3c8d", "#c58fd3", "h"),
    ),
    _builtin(
        "rehearsal",
        "native rehearsal (rehearses)",
        "latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, AR1*free with images; NOT rehearsal-free",
        options={"cut": "input", **_PUBLISHED_REPLAY},
        **_REPLAY,
        cost=6.0,
        look=Look("#937860", "#d3b8a0", "H"),
    ),
    _builtin(
        "er",
        "ER (rehearses)",
        "er:ExperienceReplay",
        source="Chaudhry et al. 2019, Algorithm 1; NOT rehearsal-free",
        table=("memory", "replayed", *_MINIBATCH, *_RATES),
        **_KEEPS_FRAMES,
        cost=1.0,
        look=Look("#a5402d", "#e08573", ">"),
    ),
    _builtin(
        "der++",
        "DER++ (rehearses)",
        "derpp:DERpp",
        source="Buzzega et al. 2020, equation 6; NOT rehearsal-free",
        table=("memory", "replayed", "alpha", "beta", *_MINIBATCH, *_RATES),
        **_KEEPS_FRAMES,
        cost=2.0,
        look=Look("#3d5a80", "#8fb0da", "d"),
    ),
    _builtin(
        "gdumb",
        "GDumb (rehearses)",
        "gdumb:GDumb",
        source="Prabhu et al. 2020, Algorithm 1; NOT rehearsal-free",
        table=("memory", "cutmix", "clip", "lr_min", "epochs_1", "lr_1", *_MINIBATCH),
        **_KEEPS_FRAMES,
        retrains=True,
        cost=100.0,
        look=Look("#6b6b00", "#c9c94f", "8"),
    ),
    _builtin(
        "icarl",
        "iCaRL (rehearses)",
        "icarl:ICaRL",
        source="Rebuffi et al. 2017, Algorithms 1 to 5; NOT rehearsal-free",
        table=("memory", *_MINIBATCH, *_RATES),
        **_KEEPS_FRAMES,
        cost=4.0,
        look=Look("#005f60", "#4fb8b9", "p"),
    ),
    _builtin(
        "ncm",
        "ncm",
        "frozen:NCM",
        source="the baseline everybody expects",
        analytic=True,
        stackable=True,
        cost=0.04,
        look=Look("#6a5acd", "#a79bf0", "^"),
    ),
    _builtin(
        "lda",
        "lda",
        "frozen:LDA",
        source=f"{_TABLE}, DSLDA, with the exact pooled covariance",
        analytic=True,
        stackable=True,
        cost=0.05,
        look=Look("#b8860b", "#e5c15a", ">"),
    ),
    _builtin(
        "ridge",
        "ridge",
        "frozen:Ridge",
        source="ours: nothing to set",
        analytic=True,
        cost=0.06,
        look=Look("#c0392b", "#f08a7d", "H"),
    ),
)
STRATEGIES: dict[str, StrategyInfo] = {info.name: info for info in _OURS}

# The columns of Table 5 (table:renormpar). The columns of NI, NC, NIC and of the class- and
# domain-incremental protocols are our own: their batches are at least as large as those of
# NICv2-79, so they have the same limits.
RENORM: dict[str, dict[str, Any]] = {
    "nicv2-79": {"r_max": 1.25, "d_max": 0.5, "moments_decay": 0.9999},
    "nicv2-196": {"r_max": 1.25, "d_max": 0.5, "moments_decay": 0.9999},
    "nicv2-391": {"r_max": 1.5, "d_max": 2.5, "moments_decay": 0.9999},
    "ni": {"r_max": 1.25, "d_max": 0.5, "moments_decay": 0.9999},
    "nc": {"r_max": 1.25, "d_max": 0.5, "moments_decay": 0.9999},
    "nic": {"r_max": 1.25, "d_max": 0.5, "moments_decay": 0.9999},
    "class-incremental": {"r_max": 1.25, "d_max": 0.5, "moments_decay": 0.9999},
    "domain-incremental": {"r_max": 1.25, "d_max": 0.5, "moments_decay": 0.9999},
}


Code = Callable[..., nn.Module]  # a class of a strategy, or a function that returns a module
Made = TypeVar("Made", bound=Code)
_OWN: dict[str, Callable[..., Strategy]] = {}  # the strategies that were registered, by name
_OWN_LOOKS: dict[str, Look] = {}


@overload
def register(what: str, name: str | None = None) -> Code: ...


@overload
def register(what: Made, name: str | None = None) -> Made: ...


def register(what: str | Code, name: str | None = None) -> Code:
    """Register your own strategy or backbone under a name.

    From then on `create`, `Learner`, `evaluate` and plans accept it, also in worker processes. It
    can always be named by its reference, `package.module:Name`; the command line and plans register
    the references that they contain. Saved files can only use code that was registered before: a
    file alone never imports code.

    Args:
        what: a strategy class; a function that returns a module, for a backbone; or a reference to
            one of these, which is imported.
        name: a short name; by default the name in the `info` of a strategy class, if it has one.

    Returns:
        The class or the function, so that `register` can be a decorator.

    Raises:
        InputError: if it is neither, if it cannot be imported, or if the name is taken.

    >>> class Mine(Strategy):
    ...     info = StrategyInfo("my-own", "My own")
    >>> register(Mine) is Mine, strategy_info("my-own").title
    (True, 'My own')
    """
    made = _loaded(what) if isinstance(what, str) else what
    known = {reference_to(made), *([what] if isinstance(what, str) else ())}
    short = _name_in_info(made) if name is None else name
    if short is not None:
        _check_name(short, made)
        known.add(short)
    for one in sorted(known):
        if _is_strategy(made):
            _OWN[one] = made
            _OWN_LOOKS.setdefault(one, _free_look(one, made))
        else:
            OWN_NETWORKS[one] = made
    return made


def _is_strategy(made: Code) -> TypeGuard[type[Strategy]]:
    return isinstance(made, type) and issubclass(made, Strategy)


def _loaded(reference: str) -> Code:
    found = load_reference(reference)
    if not callable(found):
        raise InputError(
            f"{reference} is neither a strategy class nor a function that returns a torch.nn.Module"
        )
    code: Code = found
    return code


def _name_in_info(made: object) -> str | None:
    info = vars(made).get("info")
    return info.name if isinstance(info, StrategyInfo) else None


def registered() -> dict[str, str]:
    """Return the references of all registered code, by name, for use in other processes."""
    return {name: reference_to(made) for name, made in {**_OWN, **OWN_NETWORKS}.items()}


def register_all(references: Mapping[str, str]) -> None:
    """Register in this process the code that its parent process has registered.

    Args:
        references: the result of `registered` in the parent process.

    Raises:
        InputError: if something cannot be imported here, such as a class of a notebook.
    """
    for name, reference in references.items():
        if name not in _OWN and name not in OWN_NETWORKS:
            register(reference, None if is_reference(name) else name)


def _check_name(name: str, made: Code) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(f"a name must have 1 to 60 letters, digits and . _ + * -; got {name!r}")
    taken = _OWN.get(name) or OWN_NETWORKS.get(name)
    other = taken is not None and reference_to(taken) != reference_to(made)
    if name in STRATEGIES or name in NETWORKS or other:
        owner = reference_to(taken) if taken is not None else "primavista"
        raise InputError(f"the name {name!r} is taken by {owner}: choose another one")


def _first_choice(name: str) -> int:
    return sum(map(ord, name)) % len(OTHER_LOOKS)


def _free_look(name: str, made: Code) -> Look:
    """Return the look of the same strategy under another name, or a look that is not used yet."""
    for known, own in _OWN.items():
        if own is made and known in _OWN_LOOKS:
            return _OWN_LOOKS[known]
    first = _first_choice(name)
    order = (*OTHER_LOOKS[first:], *OTHER_LOOKS[:first])
    return next((look for look in order if look not in _OWN_LOOKS.values()), order[0])


def names() -> list[str]:
    """Return the names of all strategies: ours, then those of installed packages and your own."""
    others = {*_third_parties(), *_OWN} - set(STRATEGIES)
    return [*STRATEGIES, *sorted(others)]


def own_strategy(name: str) -> Callable[..., Strategy] | None:
    """Return a strategy from outside this package: registered, or of an installed package.

    Args:
        name: the name of the strategy. A reference that was not registered is not imported.

    Returns:
        The class of the strategy; None if there is no such strategy.
    """
    if name in _OWN:
        return _OWN[name]
    point = _third_parties().get(name)
    if point is None:
        return None
    found: Callable[..., Strategy] = point.load()
    return found


def strategy_info(name: str) -> StrategyInfo:
    """Return the facts about a strategy.

    A strategy of another package is imported. If the import fails, or if there is no such strategy
    (a report may name one that is no longer installed), the defaults are returned.

    Args:
        name: the name of a strategy.

    >>> strategy_info("ar1*").title, strategy_info("my_package:Nearest").title
    ('AR1*', 'Nearest')
    """
    if name in STRATEGIES:
        return STRATEGIES[name]
    try:
        made = own_strategy(name)
    except Exception:  # a broken package must not break the report of the others
        made = None
    own = vars(made).get("info") if made is not None else None
    if isinstance(own, StrategyInfo):
        return own
    free = True if made is None else getattr(made, "rehearsal_free", True)
    title = name.rpartition(":")[2] if is_reference(name) else name
    return StrategyInfo(name, title if free else f"{title} (rehearses)", rehearsal_free=free)


def load_strategy(info: StrategyInfo) -> Any:
    """Import the class of a strategy of this package.

    Args:
        info: an entry of `STRATEGIES`.
    """
    module, _, attribute = info.where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def create(
    name: str,
    backbone: Backbone,
    /,
    *,
    protocol: str | None = None,
    seed: int = 0,
    **overrides: OptionValue,
) -> Strategy:
    """Create a strategy with the paper's hyperparameters.

    Args:
        name: one of `names()`.
        backbone: the network; the strategy works on a copy of it, on the same device.
        protocol: take the limits of batch renormalisation from this column of Table 5.
        seed: the seed of every random choice.
        overrides: options of the strategy that replace its hyperparameters.

    >>> from primavista.backbones.base import build
    >>> tiny = build("mobilenet_v1", "random", width=0.25, size=32)
    >>> create("ar1*", tiny, protocol="nicv2-79", norm="bn").options.r_max
    1.25
    """
    if protocol is not None and protocol not in RENORM:
        choice = ", ".join(RENORM)
        raise InputError(
            f"there are no renormalisation limits for {protocol!r}: choose from {choice}"
        )
    overrides = current_names(overrides)
    if name in STRATEGIES:
        info = STRATEGIES[name]
        make: Callable[..., Strategy] = load_strategy(info)
        limits = info.limits(protocol) if protocol else {}
        options = {**info.options, **limits, **overrides}
    else:
        make = _own_or_refused(name)
        options = {**strategy_info(name).options, **overrides}
    _check_options(name, make, options)
    device = device_of(backbone)
    if device.type == "cpu":
        return make(backbone, seed=seed, **options)
    # strategies are made on the CPU, so that their numbers do not depend on the device, then moved
    return make(copy.deepcopy(backbone).cpu(), seed=seed, **options).to(device)


def _own_or_refused(name: str) -> Callable[..., Strategy]:
    make = own_strategy(name)
    if make is not None:
        return make
    if is_reference(name):
        raise InputError(must_be_registered(name))
    raise InputError(
        f"there is no strategy {name!r}: choose from {', '.join(names())}, or name one of your own "
        "by package.module:Class"
    )


def current_names(options: Mapping[str, Any], *, warn: bool = True) -> dict[str, Any]:
    """Return options under their present names.

    Args:
        options: options of a strategy, possibly under their names of version 0.1.
        warn: True to warn about old names.

    >>> current_names({"past": 0.99, "lr": 0.1}, warn=False)
    {'moments_decay': 0.99, 'lr': 0.1}
    """
    found = {}
    for name, value in options.items():
        if name in RENAMED:
            new = RENAMED[name]
            if new in options:
                raise InputError(f"{name} and {new} are the same option: give {new} alone")
            if warn:
                message = f"the option {name!r} is now called {new!r}"
                warnings.warn(message, DeprecationWarning, stacklevel=3)
        found[RENAMED.get(name, name)] = value
    return found


def options_of_file(strategy: str, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return the options in a saved file as the present version understands them.

    Args:
        strategy: the name of the strategy.
        options: its options in the file. Options that version 0.1 did not have get the values with
            which the strategy continues as before.

    >>> options_of_file("naive", {"lr": 0.1})
    {'moments': 'pretrained', 'unseen': 'reset', 'lr': 0.1}
    """
    return {**_added_options(strategy), **current_names(options, warn=False)}


def rules_of_version_0_1(
    strategy: str, options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return the options by which a file of version 0.1 differs from the present rules.

    Args:
        strategy: the name of the strategy.
        options: its options in the file.

    Returns:
        The options that the file lacks, with the values that reproduce version 0.1; empty for a
        file of the present version or of a strategy of another package.

    >>> rules_of_version_0_1("prima", {"balance": 1.0})
    {'rule': 'frames'}
    >>> rules_of_version_0_1("prima", {"balance": 1.0, "rule": "lessons"})
    {}
    """
    added = _added_options(strategy) if strategy in STRATEGIES else {}
    return {name: value for name, value in added.items() if name not in options}


def _added_options(strategy: str) -> Mapping[str, OptionValue]:
    """Return the options that version 0.1 did not have, with the values that reproduce it."""
    if strategy == "prima":
        return ADDED_TO_PRIMA
    return ADDED if strategy_info(strategy).training_options else {}


def _check_options(name: str, make: Callable[..., Strategy], given: dict[str, Any]) -> None:
    """Reject unknown options; a constructor that takes any keyword checks them itself."""
    _, *parameters = inspect.signature(make).parameters.values()
    known = sorted(p.name for p in parameters if p.name != "seed")
    strange = sorted(set(given) - set(known))
    if strange and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise UnknownOptionError(strange, known, name)


@cache
def _third_parties() -> dict[str, EntryPoint]:
    """Return the strategies of installed packages unloaded, so a broken one cannot hide others."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
