"""Strategies by name, with the paper's hyperparameters; third parties add theirs by the entry point `primavista.strategies`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from primavista.backbones.registry import Backbone
from primavista.errors import InputError
from primavista.strategies.base import Batch, LearnReport, Strategy
from primavista.strategies.options import Options, Release

__all__ = [
    "PRESETS",
    "RENORM",
    "Batch",
    "LearnReport",
    "Options",
    "Preset",
    "Release",
    "Strategy",
    "create",
    "names",
]

ENTRY_POINTS = "primavista.strategies"


@dataclass(frozen=True)
class Preset:
    """A strategy with its hyperparameters and where they come from; what is not named here is the class' default."""

    where: str  # module:class
    source: str
    options: dict[str, Any] = field(default_factory=dict)
    analytic: bool = (
        False  # sums over frames, a solve: order-invariant; no capacity, no B_1, no renormalisation
    )


_HERE = "primavista.strategies"
_TABLE = "tab:hyper_core50"

PRESETS: dict[str, Preset] = {
    "naive": Preset(
        f"{_HERE}.naive:Naive",
        f"{_TABLE}, Naive",
        {"epochs_1": 2, "lr_1": 1e-3, "epochs": 2, "lr": 3.5e-5},
    ),
    "lwf": Preset(
        f"{_HERE}.lwf:LwF",
        f"{_TABLE}, LWF",
        {"lam": 0.1, "epochs_1": 2, "lr_1": 1e-3, "epochs": 2, "lr": 5e-5},
    ),
    "ewc": Preset(
        f"{_HERE}.ewc:EWC",
        f"{_TABLE}, EWC",
        {
            "max_f": 1e-3,
            "lam": 2e6,
            "epochs_1": 2,
            "lr_1": 1e-3,
            "epochs": 2,
            "lr": 1e-4,
            "guard": "penalty",
        },
    ),
    "cwr+": Preset(
        f"{_HERE}.cwr:CWR",
        f"algo:cwr+; {_TABLE}, CWR*",
        {"head": "cwr+", "epochs_1": 4, "lr_1": 1e-3, "epochs": 4, "lr": 1e-3},
    ),
    "cwr*": Preset(
        f"{_HERE}.cwr:CWR",
        f"algo:cwr*; {_TABLE}, CWR*",
        {"head": "cwr*", "epochs_1": 4, "lr_1": 1e-3, "epochs": 4, "lr": 1e-3},
    ),
    "ar1": Preset(
        f"{_HERE}.ar1:AR1",
        f"{_TABLE}, AR1; lambda is EWC's, ours",
        {
            "head": "cwr+",
            "guard": "penalty",
            "lam": 2e6,
            "w_1": 0.5,
            "w_i": 0.5,
            "max_f": 1e-3,
            "epochs_1": 4,
            "lr_1": 1e-3,
            "epochs": 4,
            "lr": 1e-4,
            "lr_head": 1e-3,
        },
    ),
    "ar1*": Preset(
        f"{_HERE}.ar1:AR1",
        f"{_TABLE}, AR1",
        {
            "head": "cwr*",
            "guard": "modulate",
            "w_1": 0.5,
            "w_i": 0.5,
            "max_f": 1e-3,
            "epochs_1": 4,
            "lr_1": 1e-3,
            "epochs": 4,
            "lr": 1e-4,
            "lr_head": 1e-3,
        },
    ),
    "latent-replay": Preset(
        f"{_HERE}.latent_replay:LatentReplay",
        "Pellegrini et al. 2020, on AR1*; NOT rehearsal-free",
        {"memory": 1500, "epochs_1": 4, "lr_1": 1e-3, "epochs": 4, "lr": 1e-4, "lr_head": 1e-3},
    ),
    "dslda": Preset(f"{_HERE}.dslda:DSLDA", f"{_TABLE}, DSLDA", {"shrinkage": 1e-4}),
    "ncm": Preset(f"{_HERE}.ncm:NCM", "the baseline everybody expects", analytic=True),
    "lda": Preset(
        f"{_HERE}.lda:LDA", f"{_TABLE}, DSLDA, with the exact pooled covariance", analytic=True
    ),
    "ridge": Preset(f"{_HERE}.ridge:Ridge", "ours: nothing to set", analytic=True),
    "prima": Preset(f"{_HERE}.prima:Prima", "ours: nothing to set", analytic=True),
    "cumulative": Preset(
        f"{_HERE}.cumulative:Cumulative",
        "ours: the paper gives no recipe",
        {"norm": "bn", "freeze": "none", "epochs_1": 4, "lr_1": 0.01, "epochs": 4, "lr": 0.01},
    ),
}

# table:renormpar; on CORe50 batch 1 has 48 iterations of start-up
RENORM: dict[str, dict[str, Any]] = {
    "nicv2-79": {"r_max": 1.25, "d_max": 0.5, "past": 0.9999, "startup": 48},
    "nicv2-196": {"r_max": 1.25, "d_max": 0.5, "past": 0.9999, "startup": 48},
    "nicv2-391": {"r_max": 1.5, "d_max": 2.5, "past": 0.9999, "startup": 48},
}


def names() -> list[str]:
    """Every strategy that `create` knows: ours, then those of installed packages."""
    return [*PRESETS, *sorted(set(_third_parties()) - set(PRESETS))]


def create(
    name: str,
    backbone: Backbone,
    /,
    *,
    protocol: str | None = None,
    seed: int = 0,
    **overrides: Any,
) -> Strategy:
    """The strategy `name` with its preset, the renormalisation of a `protocol` (`table:renormpar`), and your overrides.

    >>> from primavista.backbones.registry import build
    >>> tiny = build("mobilenet_v1", "random", width=0.25, size=32)
    >>> create("ar1*", tiny, protocol="nicv2-79", norm="bn").options.r_max
    1.25
    """
    if protocol is not None and protocol not in RENORM:
        raise InputError(
            f"there are no renormalisation values for {protocol!r}: choose from {', '.join(RENORM)}"
        )
    if name in PRESETS:
        preset = PRESETS[name]
        module, _, attribute = preset.where.partition(":")
        make: Callable[..., Strategy] = getattr(importlib.import_module(module), attribute)
        options = {
            **preset.options,
            **(RENORM[protocol] if protocol and not preset.analytic else {}),
            **overrides,
        }
    elif name in _third_parties():
        make, options = _third_parties()[name].load(), overrides
    else:
        raise InputError(f"there is no strategy {name!r}: choose from {', '.join(names())}")
    _check_options(name, make, options)
    return make(backbone, seed=seed, **options)


def _check_options(name: str, make: Callable[..., Strategy], given: dict[str, Any]) -> None:
    """An error where it has no such option; a constructor that takes any keyword checks them itself."""
    _, *parameters = inspect.signature(make).parameters.values()
    known = sorted(p.name for p in parameters if p.name != "seed")
    strange = sorted(set(given) - set(known))
    if strange and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        choice = f"choose from {', '.join(known)}" if known else f"{name} has none"
        raise InputError(f"there is no option {', '.join(strange)}: {choice}")


@cache
def _third_parties() -> dict[str, EntryPoint]:
    """By name, not loaded yet: one that is broken must not hide the others."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
