"""Checks of the numbers in a file, which may have been written by anybody. Each names the array.

What a group of arrays must satisfy is written beside it (`check` of `heads/statistics.py`,
`heads/dslda.py`, `heads/cwr.py`); this module holds the checks that they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from primavista.errors import InputError

NumpyArray = np.ndarray[Any, Any]

MAX_COUNT = 2.0**53  # integers in float64 are exact up to it
MAX_FEATURE = float(np.finfo(np.float32).max)
ROUNDING = 1e-6  # the share by which sums in float64 may fall short of their lower bound


class ArrayChecks:
    """Checks of arrays that belong together; each raises an `InputError` that names the array.

    Args:
        arrays: Numpy arrays or CPU tensors by name.
        prefix: What stands before the names in error messages, such as `moments.`
    """

    def __init__(self, arrays: Mapping[str, Any], prefix: str = "") -> None:
        self.arrays, self.prefix = arrays, prefix

    def that(self, condition: object, name: str, problem: str) -> None:
        """Check a condition; `problem` continues the sentence that begins with the array's name."""
        if not condition:
            raise InputError(f"{self.prefix}{name} {problem}")

    def array(self, name: str, shape: tuple[int | None, ...], dtype: Any = None) -> NumpyArray:
        """Find an array by its name and check its shape, and its type if one is given.

        Args:
            name: The name in `arrays`.
            shape: The length of each dimension; None for one of any length.
            dtype: The type.
        """
        self.that(name in self.arrays, name, "is missing")
        array = np.asarray(self.arrays[name])
        expected = tuple(
            found if length is None else length
            for found, length in zip_longest(array.shape[: len(shape)], shape, fillvalue=-1)
        )
        self.that(array.shape == expected, name, f"has shape {array.shape}, expected {shape}")
        right = dtype is None or array.dtype == dtype
        self.that(right, name, f"is {array.dtype}, expected {np.dtype(dtype)}")
        return array

    def at_most(self, name: str, bound: Any, what: str) -> None:
        """Check that |array| <= bound everywhere; it would be larger than any `what`."""
        array = np.asarray(self.arrays[name])
        self.that((abs(array) <= bound).all(), name, f"is larger than any {what}")

    def counts(self, name: str, known: int, taught: Sequence[int]) -> NumpyArray:
        """Find counts of frames: integers, positive in the rows `taught`, 0 beyond `known` rows."""
        n = self.array(name, (None,))
        self.that(len(n) >= known, name, f"has {len(n)} rows for {known} classes")
        whole = ((n >= 0) & (n <= MAX_COUNT) & (n == np.floor(n))).all()
        self.that(whole, name, "contains invalid counts (expected integers from 0 to 2^53)")
        enough = (n[list(taught)] > 0).all()
        self.that(enough, name, "counts no frame of a class that was taught")
        self.that(not n[known:].any(), name, "counts frames of classes that are not there")
        return n

    def total(self, name: str, n: NumpyArray) -> float:
        """Find the number of all frames: an integer, not below the sum of the counts n."""
        total, least = float(self.array(name, ())), float(n.sum())
        right = least <= total <= MAX_COUNT and total == int(total)
        self.that(right, name, f"is {total:g}, but its classes have {least:g} frames")
        return total

    def squares(self, name: str, found: NumpyArray, least: NumpyArray, frames: float) -> None:
        """Check sums of squares over frames against lower bounds and the largest feature there is.

        The tolerance is that of the largest bound: after forgetting, nothing but the rounding of
        much larger sums may be left.
        """
        bound = least - ROUNDING * (least.max(initial=0) + frames)
        enough = not least.any() or (found >= bound).all()
        problem = "is not a sum over frames: it is less than the sums of its classes require"
        self.that(enough, name, problem)
        upper = max(frames, 1) * MAX_FEATURE**2
        self.that((found <= upper).all(), name, "is larger than any sum over frames")

    def past(self, name: str) -> NumpyArray:
        """Find the pattern counts of CWR: 0 <= past_c <= 2^53."""
        past = self.array(name, (None,))
        right = (past >= 0).all() and (past <= MAX_COUNT).all()
        self.that(right, name, "contains invalid counts (expected numbers from 0 to 2^53)")
        return past


def check_numbers(arrays: Mapping[str, NumpyArray]) -> None:
    """Check that no array contains NaN or infinity, and no variance or deviation is below 0.

    Args:
        arrays: Numpy arrays by name; those that end in `running_var` and `sigma` are deviations of
            a normalisation layer: below 0, every feature would become NaN.

    Raises:
        InputError: If an array holds such a number.
    """
    checks = ArrayChecks(arrays)
    for name, array in arrays.items():
        finite = array.dtype.kind != "f" or np.isfinite(array).all()
        checks.that(finite, name, "contains NaN or infinity")
        is_deviation = name.endswith((".running_var", ".sigma"))
        checks.that(not is_deviation or (array >= 0).all(), name, "contains numbers below 0")
