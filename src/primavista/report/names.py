"""One name, one colour and one marker for each strategy, in every figure and table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """A strategy's name and how it is drawn: its colour on white paper, on a dark page, and its marker."""

    name: str
    light: str
    dark: str
    marker: str


# Okabe and Ito's colours, which colour-blind readers tell apart; the markers tell them apart without any colour.
LOOKS: dict[str, Look] = {
    "ar1*": Look("AR1*", "#d55e00", "#ff8a3c", "o"),
    "cwr*": Look("CWR*", "#0072b2", "#4db2ec", "s"),
    "dslda": Look("DSLDA", "#009e73", "#2fcb9c", "D"),
    "ewc": Look("EWC", "#cc79a7", "#e59ac4", "^"),
    "lwf": Look("LwF", "#e69f00", "#f5bd45", "v"),
    "naive": Look("Naive", "#4a4a4a", "#b9c0c8", "X"),
    "cumulative": Look("Cumulative", "#3f9fd6", "#8ecdf4", "*"),
    "ar1": Look("AR1", "#8a3a00", "#d9824a", "P"),
    "cwr+": Look("CWR+", "#00406b", "#7d9fe0", "p"),
    "prima": Look("prima", "#5c7a29", "#a9c95f", "<"),
}
OTHERS = (
    Look("", "#7f3c8d", "#c58fd3", "h"),
    Look("", "#937860", "#d3b8a0", "H"),
    Look("", "#a5402d", "#e08573", ">"),
    Look("", "#3d5a80", "#8fb0da", "d"),
)

FREEZING = {
    "none": Look("nothing frozen", "#4a4a4a", "#b9c0c8", "X"),
    "depthwise": Look("depthwise frozen", "#d55e00", "#ff8a3c", "o"),
    "pointwise": Look("pointwise frozen", "#0072b2", "#4db2ec", "s"),
    "all": Look("all convolutions frozen", "#009e73", "#2fcb9c", "D"),
}

INK, FAINT, GRID = "#1f2329", "#5b636d", "#dfe3e8"
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = (
    "-",
    (0, (5, 2)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (2, 1.2)),
)


def look(strategy: str) -> Look:
    """How a strategy is drawn; an unknown one gets a look that depends on its name alone."""
    if strategy in LOOKS:
        return LOOKS[strategy]
    other = OTHERS[sum(map(ord, strategy)) % len(OTHERS)]
    return Look(strategy, other.light, other.dark, other.marker)


def rank(strategy: str) -> tuple[int, str]:
    """The order of strategies in every legend and table."""
    return (list(LOOKS).index(strategy), "") if strategy in LOOKS else (len(LOOKS), strategy)


def protocol_name(protocol: str) -> str:
    """As the paper writes it.

    >>> protocol_name("nicv2-391"), protocol_name("ni"), protocol_name("mine")
    ('NICv2-391', 'NI', 'mine')
    """
    if re.fullmatch(r"nicv2(-\d+)?", protocol):
        return protocol.replace("nicv2", "NICv2")
    return protocol.upper() if protocol in ("ni", "nc", "nic") else protocol


def protocol_rank(protocol: str) -> tuple[str, int, str]:
    """Coarse protocols before fine ones; `nicv2` alone has one session a batch, so nothing is finer."""
    if protocol == "nicv2":
        return protocol, 10**9, ""
    head, _, last = protocol.rpartition("-")
    return (head, int(last), "") if head and last.isdecimal() else (protocol, 0, protocol)


def slug(*parts: str) -> str:
    """A name for a file.

    >>> slug("fig:results", "AR1* with BN")
    'fig-results-ar1-star-with-bn'
    """
    text = "-".join(parts).lower().replace("*", "-star").replace("+", "-plus")
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:80].strip("-") or "x"


def unique_slugs(names: Sequence[str]) -> list[str]:
    """Slugs that differ even where only what they leave out differs."""
    taken: dict[str, int] = {}
    found = []
    for name in names:
        stem = slug(name)
        taken[stem] = taken.get(stem, 0) + 1
        found.append(stem if taken[stem] == 1 else f"{stem}-{taken[stem]}")
    return found
