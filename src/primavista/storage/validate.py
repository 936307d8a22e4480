"""What a file says are sums over frames must be able to be some: it may have been written by anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from .packed import diagonal, packed_size

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

MOST = 2.0**53  # whole numbers in float64 are exact up to it
LARGEST = float(np.finfo(np.float32).max)  # of a feature
ROUNDING = 1e-6  # what sums in float64 may lack of what they are at least


def check_moments(
    arrays: Arrays, prefix: str, blocks: Sequence[int], known: int, taught: Sequence[int]
) -> None:
    """n_c whole, t >= sum n,  |s_c| <= n_c F,  q_c >= |s_c|^2 / n_c,  G_jj >= sum_c s_cj^2 / n_c,  |G| <= t F^2

    with F the largest feature there can be; the first `known` rows are classes, those in `taught` have frames, and rows
    beyond are 0. `blocks` are the sizes of G's squares. The error names the array.
    """
    n, s = _array(arrays, prefix + "n", 1), _array(arrays, prefix + "s", 2)
    _check_counts(prefix + "n", n, known, taught)
    _check(
        s.shape == (len(n), sum(blocks)),
        prefix + "s",
        f"has shape {s.shape}, expected {(len(n), sum(blocks))}",
    )
    _check(
        bool((abs(s).max(1, initial=0) <= n * LARGEST).all()),
        prefix + "s",
        "is larger than any sum of so many features",
    )
    root = s / n.clip(1)[:, None] ** 0.5
    if prefix + "gram" not in arrays:
        q = _array(arrays, prefix + "q", 1)
        _check(q.shape == n.shape, prefix + "q", f"has shape {q.shape}, expected {n.shape}")
        _check_least(prefix + "q", q, (root * root).sum(1), float(n.sum()) * sum(blocks))
        return
    t, gram = _array(arrays, prefix + "t"), _array(arrays, prefix + "gram", 1)
    _check_total(prefix + "t", t, n)
    size = sum(map(packed_size, blocks))
    _check(gram.shape == (size,), prefix + "gram", f"has shape {gram.shape}, expected {(size,)}")
    least, at, ends = (root * root).sum(0), 0, np.cumsum(blocks)
    for dim, end in zip(blocks, ends, strict=True):
        square = gram[at : at + packed_size(dim)]
        _check_least(
            prefix + "gram", diagonal(square, dim), least[end - dim : end], float(t.item())
        )
        at += packed_size(dim)
    _check(
        bool(abs(gram).max(initial=0) <= t.item() * LARGEST**2),
        prefix + "gram",
        "is larger than any sum over frames",
    )


def check_scatter(arrays: Arrays, prefix: str, known: int, taught: Sequence[int]) -> None:
    """n_c whole, t >= sum n,  |mu_c| <= F,  diag S >= 0: those of streaming linear discriminant analysis."""
    n, mu, scatter = (
        _array(arrays, prefix + name, dims) for name, dims in (("n", 1), ("mu", 2), ("scatter", 2))
    )
    _check_counts(prefix + "n", n, known, taught)
    _check(
        mu.shape == (len(n), len(scatter)),
        prefix + "mu",
        f"has shape {mu.shape}, expected {(len(n), len(scatter))}",
    )
    _check(bool((abs(mu) <= LARGEST).all()), prefix + "mu", "is larger than any mean of features")
    t = _array(arrays, prefix + "t")
    _check_total(prefix + "t", t, n)
    _check(
        scatter.shape == (len(scatter),) * 2,
        prefix + "scatter",
        f"has shape {scatter.shape}: it is no square",
    )
    _check(
        bool((scatter.diagonal() >= 0).all()),
        prefix + "scatter",
        "is no sum over frames: it has variances below 0",
    )
    most = max(t.item(), 1) * LARGEST**2
    _check(
        bool((abs(scatter) <= most).all()), prefix + "scatter", "is larger than any sum over frames"
    )


def check_past(arrays: Arrays, name: str) -> None:
    """The counts that CWR weighs with: past_c >= 0."""
    past = _array(arrays, name, 1)
    _check(
        bool((past >= 0).all() and (past <= MOST).all()),
        name,
        "holds counts that are none: below 0, or above 2^53",
    )


def check_finite(arrays: Arrays) -> None:
    """No NaN, no infinity."""
    for name, array in arrays.items():
        _check(
            array.dtype.kind != "f" or bool(np.isfinite(array).all()), name, "holds NaN or infinity"
        )


def _array(arrays: Arrays, name: str, dims: int | None = None) -> Array:
    _check(name in arrays, name, "is missing")
    array = arrays[name]
    _check(array.ndim == dims if dims else array.size == 1, name, f"has shape {array.shape}")
    return array


def _check_counts(name: str, n: Array, known: int, taught: Sequence[int]) -> None:
    _check(len(n) >= known, name, f"has {len(n)} rows for {known} classes")
    whole = bool(((n >= 0) & (n <= MOST) & (n == np.floor(n))).all())
    _check(whole, name, "holds counts that are none: whole numbers from 0 to 2^53")
    _check(bool((n[list(taught)] > 0).all()), name, "counts no frame of a class that was taught")
    _check(not n[known:].any(), name, "counts frames of classes that are not there")


def _check_total(name: str, t: Array, n: Array) -> None:
    total, least = float(t.item()), float(n.sum())
    _check(
        least <= total <= MOST and total == int(total),
        name,
        f"is {total:g}, but its classes have {least:g} frames",
    )


def _check_least(name: str, found: Array, least: Array, frames: float) -> None:
    """As much as `least`, but for rounding, which is that of the largest: of what was forgotten nothing else is left."""
    enough = not least.any() or bool((found >= least - ROUNDING * (least.max() + frames)).all())
    _check(enough, name, "is no sum over frames: less than the sums of its classes ask for")
    _check(
        bool((found <= max(frames, 1) * LARGEST**2).all()),
        name,
        "is larger than any sum over frames",
    )


def _check(right: bool, name: str, what: str) -> None:
    if not right:
        raise InputError(f"{name} {what}")
