"""The strategies of this package: the title, hyperparameters, cost and look of each, as data."""

from __future__ import annotations

from functools import partial
from typing import Any

from primavista.storage.settings import OptionValue
from primavista.strategies.info import Look, StrategyInfo

_TABLE = "tab:hyper_core50"
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


# Among these values, and its preset, `primavista bench tune` chooses for a strategy that trains.
_GRID = {"lr": (1e-4, 1e-3, 1e-2), "epochs": (2, 8)}

# In class- and domain-incremental streams each batch is as large as B_1, so the rates and the few
# steps of NICv2-391 are too small. Ours: the paper has no such streams. Over domain-incremental
# ones, this point of `_GRID` is the best or nearly so (docs/guides/bench.md, docs/results/presets);
# class-incremental ones have it because their batches are as large.
_LARGE_BATCHES = {
    name: {"lr": 1e-3, "epochs": 8} for name in ("class-incremental", "domain-incremental")
}

_gradient = partial(_builtin, training_options=True, norm="brn", grid=_GRID)
_analytic = partial(_builtin, analytic=True)
_replay = partial(_gradient, rehearsal_free=False)
# The weight of the past in the moments is that of their papers, for every protocol.
_keeps_frames = partial(_gradient, options={"moments_decay": 0.9}, rehearsal_free=False, norm="bn")

# Every legend and table uses this order. The colours are Okabe and Ito's, which colour-blind
# readers can distinguish; the markers distinguish the strategies without colour.
_BUILTIN = (
    _gradient(
        "ar1*",
        "AR1*",
        "ar1:AR1",
        source=f"{_TABLE}, AR1",
        presets=_LARGE_BATCHES,
        look=Look("#d55e00", "o"),
    ),
    _gradient(
        "cwr*",
        "CWR*",
        "cwr:CWR",
        source=f"algo:cwr*; {_TABLE}, CWR*",
        features_option=True,
        open_set_option=True,
        look=Look("#0072b2", "s"),
    ),
    _builtin(
        "dslda",
        "DSLDA",
        "dslda:DSLDA",
        source=f"{_TABLE}, DSLDA",
        training_options=True,
        open_set_option=True,
        look=Look("#009e73", "D"),
    ),
    _gradient(
        "ewc",
        "EWC",
        "ewc:EWC",
        source=f"{_TABLE}, EWC",
        presets=_LARGE_BATCHES,
        look=Look("#cc79a7", "^"),
    ),
    _gradient(
        "lwf",
        "LwF",
        "lwf:LwF",
        source=f"{_TABLE}, LWF",
        presets=_LARGE_BATCHES,
        look=Look("#e69f00", "v"),
    ),
    _gradient(
        "naive",
        "Naive",
        "naive:Naive",
        source=f"{_TABLE}, Naive",
        presets=_LARGE_BATCHES,
        look=Look("#4a4a4a", "X"),
    ),
    _gradient(
        "cumulative",
        "Cumulative",
        "cumulative:Cumulative",
        source="ours: the paper gives no recipe",
        rehearsal_free=False,
        joint=True,
        retrains=True,
        norm="bn",
        grid={},
        look=Look("#3f9fd6", "*"),
    ),
    _gradient(
        "ar1",
        "AR1",
        "ar1:AR1",
        source=f"{_TABLE}, AR1; lambda is EWC's, ours",
        presets=_LARGE_BATCHES,
        options={"head": "cwr+", "guard": "penalty"},
        look=Look("#8a3a00", "P"),
    ),
    _gradient(
        "cwr+",
        "CWR+",
        "cwr:CWR",
        source=f"algo:cwr+; {_TABLE}, CWR*",
        options={"head": "cwr+"},
        features_option=True,
        open_set_option=True,
        look=Look("#00406b", "p"),
    ),
    _analytic(
        "prima",
        "prima",
        "prima:Prima",
        source="ours: nothing to set",
        look=Look("#5c7a29", "<"),
    ),
    _replay(
        "latent-replay",
        "latent replay (rehearses)",
        "rehearsal.latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, on AR1*; NOT rehearsal-free",
        look=Look("#a02c7a", "d"),
    ),
    _replay(
        "latent-replay-2020",
        "latent replay 2020 (rehearses)",
        "rehearsal.latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, AR1*free; NOT rehearsal-free",
        options={"cut": "conv5_4/dw", "moments_decay": 0.99995, **_PUBLISHED_REPLAY},
        look=Look("#7f3c8d", "h"),
    ),
    _replay(
        "rehearsal",
        "native rehearsal (rehearses)",
        "rehearsal.latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, AR1*free with images; NOT rehearsal-free",
        options={"cut": "input", **_PUBLISHED_REPLAY},
        look=Look("#937860", "H"),
    ),
    _keeps_frames(
        "er",
        "ER (rehearses)",
        "rehearsal.er:ExperienceReplay",
        source="Chaudhry et al. 2019, Algorithm 1; NOT rehearsal-free",
        look=Look("#a5402d", ">"),
    ),
    _keeps_frames(
        "der++",
        "DER++ (rehearses)",
        "rehearsal.derpp:DERpp",
        source="Buzzega et al. 2020, equation 6; NOT rehearsal-free",
        look=Look("#3d5a80", "d"),
    ),
    _keeps_frames(
        "gdumb",
        "GDumb (rehearses)",
        "rehearsal.gdumb:GDumb",
        source="Prabhu et al. 2020, Algorithm 1; NOT rehearsal-free",
        retrains=True,
        look=Look("#6b6b00", "8"),
    ),
    _keeps_frames(
        "icarl",
        "iCaRL (rehearses)",
        "rehearsal.icarl:ICaRL",
        source="Rebuffi et al. 2017, Algorithms 1 to 5; NOT rehearsal-free",
        look=Look("#005f60", "p"),
    ),
    _analytic(
        "ncm",
        "ncm",
        "ncm:NCM",
        source="the baseline everybody expects",
        look=Look("#6a5acd", "^"),
    ),
    _analytic(
        "lda",
        "lda",
        "lda:LDA",
        source=f"{_TABLE}, DSLDA, with the exact pooled covariance",
        look=Look("#b8860b", ">"),
    ),
    _analytic(
        "ridge",
        "ridge",
        "ridge:Ridge",
        source="ours: nothing to set",
        look=Look("#c0392b", "H"),
    ),
    _builtin(
        "ranpac",
        "RanPAC",
        "ranpac:RanPAC",
        source="McDonnell et al. 2023, Algorithm 1 without phase 1; M = 10,000",
        look=Look("#1f6f8b", "D"),
    ),
    _builtin(
        "fecam",
        "FeCAM",
        "fecam:FeCAM",
        source="Goswami et al. 2023: Tukey 0.5, gamma_1 = gamma_2 = 1",
        look=Look("#b5651d", "v"),
    ),
    _analytic(
        "klda",
        "KLDA",
        "klda:KLDA",
        source="Momeni et al. 2025: D = 5,000, sigma = 1e-4, one model",
        look=Look("#7a3b69", "X"),
    ),
    _analytic(
        "acil",
        "ACIL",
        "acil:ACIL",
        source="Zhuang et al. 2022: gamma = 0.1, buffer of 8,192",
        look=Look("#4b7f52", "P"),
    ),
    _builtin(
        "fsa",
        "FSA",
        "fsa:FSA",
        source="Panos et al. 2023; 20 epochs at 0.01 as in phase 1 of RanPAC",
        training_options=True,
        norm="brn",
        look=Look("#c2185b", "s"),
    ),
)
STRATEGIES: dict[str, StrategyInfo] = {info.name: info for info in _BUILTIN}

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
