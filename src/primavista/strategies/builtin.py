"""The strategies of this package: the title, hyperparameters, cost and look of each, as data."""

from __future__ import annotations

from typing import Any

from primavista.storage.settings import OptionValue
from primavista.strategies.info import Look, StrategyInfo

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
_BUILTIN = (
    _builtin(
        "ar1*",
        "AR1*",
        "ar1:AR1",
        source=f"{_TABLE}, AR1",
        table=("head", "guard", *_SI, *_RATES, "lr_head"),
        training_options=True,
        norm="brn",
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
        look=Look("#0072b2", "#4db2ec", "s"),
    ),
    _builtin(
        "dslda",
        "DSLDA",
        "dslda:DSLDA",
        source=f"{_TABLE}, DSLDA",
        table=("shrinkage",),
        training_options=True,
        open_set_option=True,
        cost=0.05,
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
        "prima:Prima",
        source="ours: nothing to set",
        analytic=True,
        cost=0.15,
        look=Look("#5c7a29", "#a9c95f", "<"),
    ),
    _builtin(
        "latent-replay",
        "latent replay (rehearses)",
        "rehearsal.latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, on AR1*; NOT rehearsal-free",
        **_REPLAY,
        cost=2.0,
        look=Look("#a02c7a", "#e38cc6", "d"),
    ),
    _builtin(
        "latent-replay-2020",
        "latent replay 2020 (rehearses)",
        "rehearsal.latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, AR1*free; NOT rehearsal-free",
        options={"cut": "conv5_4/dw", "moments_decay": 0.99995, **_PUBLISHED_REPLAY},
        **_REPLAY,
        cost=2.0,
        look=Look("#7f3c8d", "#c58fd3", "h"),
    ),
    _builtin(
        "rehearsal",
        "native rehearsal (rehearses)",
        "rehearsal.latent_replay:LatentReplay",
        source="Pellegrini et al. 2020, AR1*free with images; NOT rehearsal-free",
        options={"cut": "input", **_PUBLISHED_REPLAY},
        **_REPLAY,
        cost=6.0,
        look=Look("#937860", "#d3b8a0", "H"),
    ),
    _builtin(
        "er",
        "ER (rehearses)",
        "rehearsal.er:ExperienceReplay",
        source="Chaudhry et al. 2019, Algorithm 1; NOT rehearsal-free",
        table=("memory", "replayed", *_MINIBATCH, *_RATES),
        **_KEEPS_FRAMES,
        cost=1.0,
        look=Look("#a5402d", "#e08573", ">"),
    ),
    _builtin(
        "der++",
        "DER++ (rehearses)",
        "rehearsal.derpp:DERpp",
        source="Buzzega et al. 2020, equation 6; NOT rehearsal-free",
        table=("memory", "replayed", "alpha", "beta", *_MINIBATCH, *_RATES),
        **_KEEPS_FRAMES,
        cost=2.0,
        look=Look("#3d5a80", "#8fb0da", "d"),
    ),
    _builtin(
        "gdumb",
        "GDumb (rehearses)",
        "rehearsal.gdumb:GDumb",
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
        "rehearsal.icarl:ICaRL",
        source="Rebuffi et al. 2017, Algorithms 1 to 5; NOT rehearsal-free",
        table=("memory", *_MINIBATCH, *_RATES),
        **_KEEPS_FRAMES,
        cost=4.0,
        look=Look("#005f60", "#4fb8b9", "p"),
    ),
    _builtin(
        "ncm",
        "ncm",
        "ncm:NCM",
        source="the baseline everybody expects",
        analytic=True,
        cost=0.04,
        look=Look("#6a5acd", "#a79bf0", "^"),
    ),
    _builtin(
        "lda",
        "lda",
        "lda:LDA",
        source=f"{_TABLE}, DSLDA, with the exact pooled covariance",
        analytic=True,
        cost=0.05,
        look=Look("#b8860b", "#e5c15a", ">"),
    ),
    _builtin(
        "ridge",
        "ridge",
        "ridge:Ridge",
        source="ours: nothing to set",
        analytic=True,
        cost=0.06,
        look=Look("#c0392b", "#f08a7d", "H"),
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
