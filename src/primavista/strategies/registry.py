"""The registry of strategies: all facts about a strategy that the rest of the package needs."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, overload

from primavista.backbones.spec import NETWORK_NAMES, OWN_FUNCTIONS
from primavista.errors import InputError
from primavista.heads.options import UnknownOptionError
from primavista.storage.references import (
    is_reference,
    load_reference,
    must_be_registered,
    reference_to,
)
from primavista.storage.settings import OptionValue
from primavista.strategies.builtin import RENORM, STRATEGIES
from primavista.strategies.info import OTHER_LOOKS, Look, StrategyInfo

if TYPE_CHECKING:
    from primavista.strategies.base import Strategy

ENTRY_POINTS = "primavista.strategies"
_NAME = re.compile(r"[\w.+*-]{1,60}")


Code = Callable[..., Any]  # a class of a strategy, or a function
Made = TypeVar("Made", bound=Code)
_OWN: dict[str, Callable[..., Strategy]] = {}  # the strategies that were registered, by name


@overload
def register(what: str, name: str | None = None) -> Code: ...


@overload
def register(what: Made, name: str | None = None) -> Made: ...


def register(what: str | Code, name: str | None = None) -> Code:
    """Register your own strategy, backbone or protocol under a name.

    From then on `create`, `Learner`, `evaluate` and plans accept it, also in worker processes. It
    can always be named by its reference, `package.module:Name`; the command line registers the
    references that it contains, and `bench run` those of its plan. Saved files can only use code
    that was registered before: a file alone never imports code.

    Args:
        what: A strategy class; a function that returns a module, for a backbone, or batches, for a
            protocol; or a reference to one of these, which is imported.
        name: A short name; by default the name in the `info` of a strategy class, if it has one.

    Returns:
        The class or the function, so that `register` can be a decorator.

    Raises:
        InputError: If it is neither, if it cannot be imported, or if the name is taken.

    >>> from primavista.strategies.base import Strategy
    >>> class Mine(Strategy):
    ...     info = StrategyInfo("my-own", "My own")
    >>> register(Mine) is Mine, strategy_info("my-own").title
    (True, 'My own')
    """
    made = _loaded(what) if isinstance(what, str) else what
    if isinstance(made, type) and not _is_strategy(made) and not _is_module(made):
        raise InputError(
            f"{reference_to(made)} is neither a strategy class nor a function that returns a "
            "torch.nn.Module or batches: name another one"
        )
    known = {reference_to(made), *([what] if isinstance(what, str) else ())}
    short = _name_in_info(made) if name is None else name
    if short is not None:
        _check_name(short, made)
        known.add(short)
    for one in sorted(known):
        if _is_strategy(made):
            _OWN[one] = made
        else:
            OWN_FUNCTIONS[one] = made
    return made


def _is_strategy(made: Code) -> TypeGuard[type[Strategy]]:
    base = sys.modules.get("primavista.strategies.base")  # whoever has a subclass has loaded it
    return base is not None and isinstance(made, type) and issubclass(made, base.Strategy)


def _is_module(made: type) -> bool:
    torch = sys.modules.get("torch")  # likewise
    return torch is not None and issubclass(made, torch.nn.Module)


def _loaded(reference: str) -> Code:
    found = load_reference(reference)
    if not callable(found):
        raise InputError(
            f"{reference} is neither a strategy class nor a function that returns a "
            "torch.nn.Module or batches"
        )
    code: Code = found
    return code


def _name_in_info(made: object) -> str | None:
    info = vars(made).get("info")
    return info.name if isinstance(info, StrategyInfo) else None


def registered() -> dict[str, str]:
    """Return the references of all registered code, by name, for use in other processes."""
    return {name: reference_to(made) for name, made in {**_OWN, **OWN_FUNCTIONS}.items()}


def register_all(references: Mapping[str, str]) -> None:
    """Register in this process the code that its parent process has registered.

    Args:
        references: The result of `registered` in the parent process.

    Raises:
        InputError: If something cannot be imported here, such as a class of a notebook.
    """
    for name, reference in references.items():
        if name not in _OWN and name not in OWN_FUNCTIONS:
            register(reference, None if is_reference(name) else name)


def _check_name(name: str, made: Code) -> None:
    if not _NAME.fullmatch(name):
        raise InputError(f"a name must have 1 to 60 letters, digits and . _ + * -; got {name!r}")
    taken = _OWN.get(name) or OWN_FUNCTIONS.get(name)
    other = taken is not None and reference_to(taken) != reference_to(made)
    if name in STRATEGIES or name in NETWORK_NAMES or other:
        owner = reference_to(taken) if taken is not None else "primavista"
        raise InputError(f"the name {name!r} is taken by {owner}: choose another one")


def names() -> list[str]:
    """Return the names of all strategies: ours, then those of installed packages and your own."""
    others = {*_third_parties(), *_OWN} - set(STRATEGIES)
    return [*STRATEGIES, *sorted(others)]


def own_strategy(name: str) -> Callable[..., Strategy] | None:
    """Return a strategy from outside this package: registered, or of an installed package.

    Args:
        name: The name of the strategy. A reference that was not registered is not imported.

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
        name: The name of a strategy.

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


def protocol_options(info: StrategyInfo, protocol: str) -> dict[str, OptionValue]:
    """Return the options that a strategy has on a protocol, and not on every one.

    They are the column of Table 5, without the values that `options` sets, and the preset for the
    protocol.

    Args:
        info: The facts about a strategy.
        protocol: A protocol, with its parameters if it has any. A protocol without a column
            keeps the defaults, which are those of NICv2-391.
    """
    name = protocol.partition(":")[0]
    column = RENORM.get(name, {}) if info.training_options else {}
    limits = {key: value for key, value in column.items() if key not in info.options}
    return {**limits, **info.presets.get(name, {})}


def look_of(info: StrategyInfo) -> Look:
    """Return the look of a strategy in figures; if it has none, one is chosen by its name.

    Args:
        info: The facts about the strategy.
    """
    if info.look is not None:
        return info.look
    return OTHER_LOOKS[sum(map(ord, info.name)) % len(OTHER_LOOKS)]


def strategy_class(name: str) -> Callable[..., Strategy]:
    """Return the class of a strategy, which is imported; `InputError` if there is none."""
    if name in STRATEGIES:
        module, _, attribute = STRATEGIES[name].where.partition(":")
        found: Callable[..., Strategy] = getattr(importlib.import_module(module), attribute)
        return found
    make = own_strategy(name)
    if make is not None:
        return make
    if name in OWN_FUNCTIONS:
        raise InputError(f"{name} is a function, and not a strategy class")
    if is_reference(name):
        raise InputError(must_be_registered(name))
    raise InputError(
        f"there is no strategy {name!r}: choose from {', '.join(names())}, or name one of your own "
        "by package.module:Class"
    )


def check_option_names(name: str, given: Mapping[str, Any]) -> None:
    """Reject unknown options of a strategy; a constructor that takes any keyword checks them."""
    _, *parameters = inspect.signature(strategy_class(name)).parameters.values()
    known = sorted(p.name for p in parameters if p.name != "seed")
    strange = sorted(set(given) - set(known))
    if strange and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise UnknownOptionError(strange, known, name)


@cache
def _third_parties() -> dict[str, EntryPoint]:
    """Return the strategies of installed packages unloaded, so a broken one cannot hide others."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
