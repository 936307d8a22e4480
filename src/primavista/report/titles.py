"""Titles of protocols and freezing schemes, the order of strategies, and names for files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from primavista.strategies.builtin import STRATEGIES

# Data sets that have another name in figures and sentences than in files.
DATA_TITLES = {
    "rendered": "rendered objects",
    "core50": "CORe50",
}

# The words for each value of the option `freeze`.
FREEZING = {
    "none": "nothing frozen",
    "depthwise": "depthwise frozen",
    "pointwise": "pointwise frozen",
    "all": "all convolutions frozen",
}


def strategy_order(name: str) -> tuple[int, str]:
    """Return a sorting key: the strategies of the registry in its order, then all others by name.

    >>> sorted(["mine", "naive", "ar1*"], key=strategy_order)
    ['ar1*', 'naive', 'mine']
    """
    if name in STRATEGIES:
        return list(STRATEGIES).index(name), ""
    return len(STRATEGIES), name


def protocol_title(protocol: str) -> str:
    """Return the name of a protocol as the paper writes it; other names stay as they are.

    >>> protocol_title("nicv2-391"), protocol_title("ni"), protocol_title("mine")
    ('NICv2-391', 'NI', 'mine')
    >>> protocol_title("class-incremental:classes_per_batch=10,first=50")
    'class-incremental, classes_per_batch=10, first=50'
    >>> protocol_title("my_module:drifting:speed=2")
    'drifting, speed=2'
    """
    without_module = re.sub(r"^[\w.]+:(?=[\w.]+(:|$))", "", protocol)
    name, _, rest = without_module.partition(":")
    if re.fullmatch(r"nicv2(-\d+)?", name):
        name = name.replace("nicv2", "NICv2")
    name = name.upper() if name in ("ni", "nc", "nic") else name
    return ", ".join([name, *rest.split(",")]) if rest else name


def protocol_order(protocol: str) -> tuple[str, int, str]:
    """Return a sorting key that puts coarse protocols before fine ones.

    `nicv2` without a number has one session per batch, so that no protocol is finer.

    >>> sorted(["nicv2-391", "nicv2", "nicv2-79"], key=protocol_order)
    ['nicv2-79', 'nicv2-391', 'nicv2']
    """
    if protocol == "nicv2":
        return protocol, 10**9, ""
    head, _, last = protocol.rpartition("-")
    if head and last.isdecimal():
        return head, int(last), ""
    return protocol, 0, protocol


def shorten_names(names: Sequence[str], letters: int) -> list[str]:
    """Shorten long names in the middle, so that names that differ still do.

    >>> shorten_names(["36_straight_or_right", "37_straight_or_left", "stop"], 12)
    ['36_str…right', '37_str…_left', 'stop']
    """
    for length in range(max(3, letters), max(map(len, names), default=0)):
        short = [_shorten(name, length) for name in names]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


def _shorten(name: str, length: int) -> str:
    if len(name) <= length:
        return name
    tail = (length - 1) // 2
    return f"{name[: length - 1 - tail]}…{name[-tail:]}"


def slug(*parts: str) -> str:
    """Return a name that is safe for a file and for an anchor, of at most 80 characters.

    >>> slug("fig:results", "AR1* with BN")
    'fig-results-ar1-star-with-bn'
    """
    text = "-".join(parts).lower().replace("*", "-star").replace("+", "-plus")
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:80].strip("-") or "x"


def unique_slugs(names: Sequence[str]) -> list[str]:
    """Return one slug per name; a number is appended where two names would share one.

    >>> unique_slugs(["AR1", "AR1!", "CWR*"])
    ['ar1', 'ar1-2', 'cwr-star']
    """
    taken: dict[str, int] = {}
    found = []
    for name in names:
        stem = slug(name)
        taken[stem] = taken.get(stem, 0) + 1
        found.append(stem if taken[stem] == 1 else f"{stem}-{taken[stem]}")
    return found
