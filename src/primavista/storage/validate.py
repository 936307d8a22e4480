"""Checks of the numbers in a file, which may have been written by anybody. Each names the array.

What a group of arrays must satisfy is written beside it (`check` of `heads/statistics.py`,
`heads/dslda.py`, `heads/cwr.py`); this module holds the checks that they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from primavista.errors import InputError

NumpyArray = np.ndarray[Any, Any]

MAX_COUNT = 2.0**53  # integers in float64 are exact up to it
MAX_FEATURE = float(np.finfo(np.float32).max)
ROUNDING = 1e-6  # the share by which sums in float64 may fall short of their lower bound


def check_that(condition: bool, name: str, problem: str) -> None:
    """Raise an error about an array unless a condition holds.

    Args:
        condition: What must hold.
        name: The name of the array.
        problem: What is wrong otherwise; it continues the sentence that begins with the name.

    Raises:
        InputError: If the condition does not hold.
    """
    if not condition:
        raise InputError(f"{name} {problem}")


def checked_array(
    arrays: Mapping[str, Any], prefix: str, name: str, dims: int | None = None
) -> NumpyArray:
    """Find an array by its name and check its number of dimensions.

    Args:
        arrays: Numpy arrays or CPU tensors by name.
        prefix: What stands before the name in error messages.
        name: The name in `arrays`.
        dims: The number of dimensions; None for an array that holds a single number.

    Returns:
        The array, as numpy's.

    Raises:
        InputError: If it is missing, or has another shape.
    """
    check_that(name in arrays, prefix + name, "is missing")
    array = np.asarray(arrays[name])
    right = array.ndim == dims if dims else array.size == 1
    check_that(right, prefix + name, f"has shape {array.shape}")
    return array


def check_shape(name: str, array: NumpyArray, expected: tuple[int, ...]) -> None:
    """Check the shape of an array.

    Args:
        name: Its name.
        array: The array.
        expected: The shape that it must have.

    Raises:
        InputError: If it has another shape.
    """
    problem = f"has shape {array.shape}, expected {expected}"
    check_that(array.shape == expected, name, problem)


def check_at_most(name: str, array: NumpyArray, bound: Any, what: str) -> None:
    """Check that |array| <= bound everywhere.

    Args:
        name: Its name.
        array: The array.
        bound: A number, or an array that broadcasts.
        what: What the numbers would be larger than, for the message.

    Raises:
        InputError: If a number is larger than that.
    """
    check_that(bool((abs(array) <= bound).all()), name, f"is larger than any {what}")


def check_counts(name: str, n: NumpyArray, known: int, taught: Sequence[int]) -> None:
    """Check counts of frames: integers, positive for what was taught, 0 beyond the known classes.

    Args:
        name: The name of the array.
        n: One count per row.
        known: The number of known classes.
        taught: The rows of classes that were taught.

    Raises:
        InputError: If the counts cannot be counts of frames.
    """
    check_that(len(n) >= known, name, f"has {len(n)} rows for {known} classes")
    whole = bool(((n >= 0) & (n <= MAX_COUNT) & (n == np.floor(n))).all())
    check_that(whole, name, "contains invalid counts (expected integers from 0 to 2^53)")
    check_that(
        bool((n[list(taught)] > 0).all()), name, "counts no frame of a class that was taught"
    )
    check_that(not n[known:].any(), name, "counts frames of classes that are not there")


def check_total(name: str, t: NumpyArray, n: NumpyArray) -> None:
    """Check the number of all frames: an integer, not below the sum of the counts of the classes.

    Args:
        name: The name of the array.
        t: The number of all frames.
        n: One count per class.

    Raises:
        InputError: If the total cannot be one of these counts.
    """
    total, least = float(t.item()), float(n.sum())
    right = least <= total <= MAX_COUNT and total == int(total)
    check_that(right, name, f"is {total:g}, but its classes have {least:g} frames")


def check_squares(name: str, found: NumpyArray, least: NumpyArray, frames: float) -> None:
    """Check sums of squares against a lower bound and against the largest feature there can be.

    The tolerance is that of the largest bound: after forgetting, nothing but the rounding of much
    larger sums may be left.

    Args:
        name: The name of the array.
        found: The sums.
        least: The lower bounds, from the sums of the classes.
        frames: The number of frames.

    Raises:
        InputError: If the sums cannot be sums of squares over these frames.
    """
    bound = least - ROUNDING * (least.max(initial=0) + frames)
    enough = not least.any() or bool((found >= bound).all())
    problem = "is not a sum over frames: it is less than the sums of its classes require"
    check_that(enough, name, problem)
    upper = max(frames, 1) * MAX_FEATURE**2
    check_that(bool((found <= upper).all()), name, "is larger than any sum over frames")


def check_past(name: str, past: NumpyArray) -> None:
    """Check the pattern counts of CWR: 0 <= past_c <= 2^53.

    Args:
        name: The name of the array.
        past: One count per class.

    Raises:
        InputError: If a number is below 0 or too large for a count.
    """
    right = bool((past >= 0).all() and (past <= MAX_COUNT).all())
    check_that(right, name, "contains invalid counts (expected numbers from 0 to 2^53)")


def check_finite(arrays: Mapping[str, NumpyArray]) -> None:
    """Check that no array contains NaN or infinity.

    Args:
        arrays: Numpy arrays by name.

    Raises:
        InputError: If an array holds such a number.
    """
    for name, array in arrays.items():
        finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
        check_that(finite, name, "contains NaN or infinity")


def check_deviations(arrays: Mapping[str, NumpyArray]) -> None:
    """Check that no variance or deviation of a normalisation layer is below 0.

    Args:
        arrays: Numpy arrays by name; those that end in `running_var` and `sigma` are checked.

    Raises:
        InputError: If a number is below 0: every feature would become NaN.
    """
    for name, array in arrays.items():
        if name.endswith((".running_var", ".sigma")):
            check_that(bool((array >= 0).all()), name, "contains numbers below 0")
