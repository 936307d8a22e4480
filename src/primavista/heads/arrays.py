"""Named arrays with one row per class, in numpy or torch, and the linear algebra that heads need.

Nothing here imports torch: the distribution for the edge contains this module under its own name,
which is why modules that it shares import each other relatively.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array, to_device

from ..errors import InputError
from ..storage.validate import check_shape, check_that, checked_array

Array = Any  # a numpy array or a torch tensor
Arrays = MutableMapping[str, Array]
NumpyArrays = dict[str, np.ndarray[Any, Any]]
SHORTEN_CHUNK = 2**15  # numbers that `shorten` rounds at one time
SOLVE_BLOCK = 96  # rows of a triangle that `solve_rows` inverts


class ClassArrays(ABC):
    """A group of named arrays; those in `row_names` have one row per class.

    The arrays live in a mapping that the group does not own: with numpy that is a part of the
    arrays of a file, with torch the buffers of a module (`heads/buffers.py`). The names in the
    mapping are those in files. Rows beyond the known classes are 0.

    Args:
        arrays: the mapping. Growing replaces its arrays; learning writes into them.
    """

    ON_CPU: ClassVar[tuple[str, ...]] = ()  # counts that are read so often that no GPU holds them

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    @property
    @abstractmethod
    def row_names(self) -> tuple[str, ...]:
        """The names of the arrays that have one row per class."""

    @abstractmethod
    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Refuse arrays that no frames can have given: a file may have been written by anybody.

        Args:
            prefix: what stands before the names of the arrays in error messages, such as `moments.`
            known: the number of classes; rows from there on are 0.
            taught: the rows of classes that were taught, and so have frames.

        Raises:
            InputError: names the first array that is wrong, and says why.
        """

    def check_frames(self, prefix: str, taught: Mapping[int, int]) -> None:  # noqa: B027
        """Refuse counts that contradict the numbers of frames in the manifest of the file.

        A head that counts no frames has nothing to refuse.

        Args:
            prefix: what stands before the names of the arrays in error messages.
            taught: the number of frames of each row of a class that was taught.

        Raises:
            InputError: names the array, if it counts frames and counts others.
        """

    @property
    def rows(self) -> int:
        """The number of rows, used or not."""
        return len(self.arrays[self.row_names[0]])

    @classmethod
    def to_file(cls, arrays: NumpyArrays) -> NumpyArrays:
        """Turn arrays into what files have.

        Args:
            arrays: arrays of such a group.

        Returns:
            The same arrays, unless a group writes fewer bytes.
        """
        return arrays

    @classmethod
    def from_file(cls, prefix: str, arrays: NumpyArrays) -> NumpyArrays:
        """Turn what a file has into arrays of the group: the inverse of `to_file`.

        Args:
            prefix: what stands before the names of the arrays in error messages.
            arrays: what the file has, which anybody may have written.

        Returns:
            The arrays.

        Raises:
            InputError: names the first array that is wrong, and says why.
        """
        return arrays

    def beside(self, later: Self, arrays: NumpyArrays) -> NumpyArrays:
        """Shorten these arrays for a file that holds those of a later state too.

        Args:
            later: the later state, one change away.
            arrays: those of our arrays that differ from it, as a file has them.

        Returns:
            The arrays to store; by default those given.
        """
        return arrays

    def earlier(self, prefix: str, stored: NumpyArrays) -> NumpyArrays:
        """Restore the arrays of an earlier state beside this one: the inverse of `beside`.

        Args:
            prefix: what stands before the names of the arrays in error messages.
            stored: what `beside` gave, from a file that anybody may have written.

        Returns:
            The arrays of the earlier state that differ from these, as a file has them.

        Raises:
            InputError: names the first array that is wrong, and says why.
        """
        return stored

    def expand(self, rows: int) -> None:
        """Append rows of 0 until there are `rows`; there are never fewer than before.

        Args:
            rows: the number of rows wanted.
        """
        for name in self.row_names:
            array = self.arrays[name]
            if rows > len(array):
                added = zeros_like((rows - len(array), *array.shape[1:]), array)
                self.arrays[name] = array_namespace(array).concat([array, added], axis=0)

    def drop(self, row: int) -> None:
        """Take one row out; those below it move up, and a row of 0 is appended.

        Args:
            row: the number of the row.
        """
        for name in self.row_names:
            array = self.arrays[name]
            kept = [array[:row], array[row + 1 :], zeros_like((1, *array.shape[1:]), array)]
            self.arrays[name] = array_namespace(array).concat(kept, axis=0)

    def clear(self) -> None:
        """Return to the state before the first frame: no rows, and 0 in all other arrays."""
        for name, array in self.arrays.items():
            shape = (0, *array.shape[1:]) if name in self.row_names else array.shape
            self.arrays[name] = zeros_like(shape, array)


def stored_beside(
    groups: Mapping[str, ClassArrays], later: Mapping[str, ClassArrays], arrays: NumpyArrays
) -> NumpyArrays:
    """Shorten the arrays of a state for a file that holds a later one too.

    Args:
        groups: the groups of the state by name.
        later: those of the later state.
        arrays: the arrays that differ, by their names in files.

    Returns:
        The arrays to store, by name.
    """
    found = dict(arrays)
    for group, own, prefix in own_arrays(groups, found):
        stored = group.beside(later[prefix[:-1]], own)
        found |= {prefix + name: array for name, array in stored.items()}
    return found


def restored_beside(later: Mapping[str, ClassArrays], stored: NumpyArrays) -> NumpyArrays:
    """Restore the arrays that `stored_beside` has shortened.

    Args:
        later: the groups of the later state by name.
        stored: the arrays of the earlier state in the file, by name.

    Returns:
        Its arrays that differ, by their names in files.

    Raises:
        InputError: names the first array that is wrong, and says why.
    """
    found = dict(stored)
    for group, own, prefix in own_arrays(later, found):
        whole = group.earlier(prefix, own)
        found |= {prefix + name: array for name, array in whole.items()}
    return found


def own_arrays(
    groups: Mapping[str, ClassArrays], arrays: NumpyArrays
) -> Iterator[tuple[ClassArrays, NumpyArrays, str]]:
    """Tell apart the arrays of each group.

    Args:
        groups: the groups by name.
        arrays: arrays by their names in files; those of the groups are taken out of it.

    Yields:
        A group, its arrays by their own names, and the prefix that these have in files.
    """
    for name, group in groups.items():
        prefix = f"{name}."
        mine = [full for full in arrays if full.startswith(prefix)]
        yield group, {full.removeprefix(prefix): arrays.pop(full) for full in mine}, prefix


def rows_beside(ours: NumpyArrays, theirs: NumpyArrays, arrays: NumpyArrays) -> NumpyArrays:
    """Store only those rows of a group that a later state does not have, see `ClassArrays.beside`.

    Args:
        ours: the arrays of the state that have one row per class.
        theirs: those of the later state.
        arrays: what to store whole otherwise.

    Returns:
        `rows` instead of the arrays with rows: for each row, one of the later state that has the
        same bits and belongs to no other row, or -1; and `changed_` arrays, with the rows of -1.
    """
    if not any(name in arrays for name in ours):
        return arrays

    def bits(group: NumpyArrays) -> list[tuple[bytes, ...]]:
        return list(zip(*([row.tobytes() for row in group[name]] for name in ours), strict=True))

    places: dict[tuple[bytes, ...], list[int]] = {}
    for place, row in enumerate(bits(theirs)):
        places.setdefault(row, [-1]).insert(1, place)
    found = [places.get(row, [-1]) for row in bits(ours)]
    rows = np.asarray([free.pop() if len(free) > 1 else -1 for free in found], np.int64)
    others = {name: array for name, array in arrays.items() if name not in ours}
    changed = {f"changed_{name}": array[rows < 0] for name, array in ours.items()}
    return {**others, "rows": rows, **changed}


def rows_earlier(theirs: NumpyArrays, prefix: str, stored: NumpyArrays) -> NumpyArrays:
    """Restore the rows that `rows_beside` left out.

    Args:
        theirs: the arrays of the later state that have one row per class.
        prefix: what stands before the names of the arrays in error messages.
        stored: what the file has.

    Returns:
        The arrays of the earlier state, those with rows in full.

    Raises:
        InputError: names the first array that is wrong, and says why.
    """
    if "rows" not in stored:
        return stored
    found = dict(stored)
    rows = checked_array(found, prefix, "rows", 1)
    del found["rows"]
    new = rows < 0
    places, count = rows[~new], min(map(len, theirs.values()))
    # each row of the later state once at most, so that nothing larger than the file is built
    fits = rows.dtype == np.int64 and len(np.unique(places)) == len(places)
    fits = fits and bool(((rows >= -1) & (rows < count)).all())
    check_that(fits, prefix + "rows", "is not a list of rows of the present state")
    for name, later in theirs.items():
        changed = checked_array(found, prefix, f"changed_{name}", later.ndim)
        check_that(changed.dtype == later.dtype, prefix + f"changed_{name}", "has another type")
        check_shape(prefix + f"changed_{name}", changed, (int(new.sum()), *later.shape[1:]))
        whole = np.empty((len(rows), *later.shape[1:]), later.dtype)
        whole[~new] = later[places]
        whole[new] = changed
        del found[f"changed_{name}"]
        found[name] = whole
    return found


def zeros_like(shape: Sequence[int], array: Array) -> Array:
    """Make an array of 0 with the library, type and device of another.

    Args:
        shape: its shape.
        array: the other array.

    Returns:
        The new array.
    """
    xp = array_namespace(array)
    return xp.zeros(tuple(shape), dtype=array.dtype, device=device(array))


def float64(array: Array) -> Array:
    """Convert an array to float64; one that has this type already is returned as it is.

    Args:
        array: a numpy array or a torch tensor.

    Returns:
        The same numbers in float64.
    """
    xp = array_namespace(array)
    return xp.astype(array, xp.float64, copy=False)


def float32(array: Array) -> Array:
    """Convert an array to float32; one that has this type already is returned as it is.

    Args:
        array: a numpy array or a torch tensor.

    Returns:
        The numbers rounded to float32.
    """
    xp = array_namespace(array)
    return xp.astype(array, xp.float32, copy=False)


def identity(dim: int, like: Array) -> Array:
    """Make the identity matrix, dim x dim, in float64 where the array `like` is.

    Args:
        dim: the number of rows and of columns.
        like: an array of the same library and device.

    Returns:
        The matrix.
    """
    xp = array_namespace(like)
    return xp.eye(dim, dtype=xp.float64, device=device(like))


def to_library_of(array: np.ndarray[Any, Any], like: Array) -> Array:
    """Bring a numpy array to the library and the device of another array.

    Args:
        array: the numbers.
        like: an array of the library and device wanted.

    Returns:
        The same numbers there.
    """
    return array_namespace(like).asarray(array, device=device(like))


def shortened(x: Array) -> Array:
    """Round float64 numbers to 29 significant bits, by Dekker's and Veltkamp's splitting.

    The 24 lowest of the 64 bits are then 0, so that `five_bytes` loses nothing.

    Args:
        x: numbers of at most 1e300, of any shape.

    Returns:
        The nearest such numbers.

    >>> shortened(np.asarray([1 + 2.0**-28, 1 + 2.0**-30])).tolist() == [1 + 2.0**-28, 1.0]
    True
    """
    product = x * (2.0**24 + 1)
    return product - (product - x)


def shorten(x: Array) -> None:
    """Round numbers as `shortened` does, in place, a part at a time: that stays in the cache.

    Args:
        x: N numbers in float64.
    """
    for start in range(0, len(x), SHORTEN_CHUNK):
        part = slice(start, start + SHORTEN_CHUNK)
        x[part] = shortened(x[part])


def five_bytes(x: Array) -> Array:
    """Return the five upper bytes of each number, as files have them.

    Args:
        x: float64 numbers that are `shortened`, in numpy, N.

    Returns:
        Bytes, the least significant first, N x 5.

    >>> five_bytes(np.asarray([1.0, -2.0])).tolist()
    [[0, 0, 0, 240, 63], [0, 0, 0, 0, 192]]
    """
    return np.ascontiguousarray(x, "<f8").view(np.uint8).reshape(-1, 8)[:, 3:]


def from_five_bytes(name: str, given: Array) -> Array:
    """Return the numbers that `five_bytes` has written, exactly.

    Args:
        name: what the array is called in the file.
        given: the bytes, in numpy; anybody may have written them.

    Returns:
        N numbers in float64.

    Raises:
        InputError: if these are not N x 5 bytes, or one is NaN or infinite.
    """
    if given.dtype != np.uint8 or given.ndim != 2 or given.shape[1] != 5:
        kind = f"{given.dtype} of shape {tuple(given.shape)}"
        raise InputError(f"{name} is {kind}, expected five bytes per number (uint8, N x 5)")
    found = np.zeros((len(given), 8), np.uint8)
    for k in range(5):  # byte by byte, which is twice as fast
        found[:, 3 + k] = given[:, k]
    numbers = found.reshape(-1).view("<f8").astype(np.float64, copy=False)
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} contains NaN or infinity")
    return numbers


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Bring an array to numpy; one on the CPU shares its memory.

    Args:
        array: a numpy array or a torch tensor on any device.

    Returns:
        The same numbers.
    """
    return np.asarray(to_device(array, "cpu"))


# Here numpy and torch call different routines. Each library keeps the one that it had when files
# were first written, so that a stream learned again gives the same bits.


def solve_positive_definite(a: Array, b: Array) -> Array:
    """Solve A X = B for a positive definite A: by Cholesky factors in torch, by LU in numpy.

    Args:
        a: D x D.
        b: D x K.

    Returns:
        inv(A) B, D x K.

    Raises:
        LinAlgError: A cannot be factorised; that of the library, see `linear_algebra_error`.
    """
    if not is_torch_array(a):
        return np.linalg.solve(a, b)
    torch = sys.modules["torch"]
    return torch.cholesky_solve(b, torch.linalg.cholesky(a))


def solve_rows(a: Array, b: Array) -> Array:
    """Solve X A = B for a positive definite A = L L^T, block by block.

    All but the small triangles on the diagonal is done by products of matrices, so on one thread it
    takes about two thirds of the time of the library's own factors. A GPU uses those.

    Args:
        a: D x D in float64; what is above the diagonal is not read. It is overwritten.
        b: K x D in float64; it is overwritten with the solution.

    Returns:
        B inv(A), K x D.

    Raises:
        LinAlgError: A cannot be factorised; that of the library, see `linear_algebra_error`.
    """
    xp = array_namespace(a)
    if getattr(a, "is_cuda", False):
        return sys.modules["torch"].cholesky_solve(b.T, xp.linalg.cholesky(a)).T
    blocks = [slice(k, min(k + SOLVE_BLOCK, len(a))) for k in range(0, len(a), SOLVE_BLOCK)]
    inverses = []  # of the triangles of L on its diagonal
    for own in blocks:  # A becomes L and B becomes Y = B inv(L)^T
        before, below = slice(0, own.start), slice(own.stop, len(a))
        if own.start:
            a[own.start :, own] -= a[own.start :, before] @ a[own, before].T
            b[:, own] -= b[:, before] @ a[own, before].T
        inverse = xp.linalg.inv(xp.linalg.cholesky(a[own, own]))
        a[below, own] = a[below, own] @ inverse.T
        b[:, own] = b[:, own] @ inverse.T
        inverses.append(inverse)
    for own, inverse in zip(reversed(blocks), reversed(inverses), strict=True):  # X = Y inv(L)
        below = slice(own.stop, len(a))
        b[:, own] = (b[:, own] - b[:, below] @ a[below, own]) @ inverse
    return b


def invert_positive_definite(a: Array) -> Array:
    """Invert a positive definite A: by Cholesky factors in torch, by LU in numpy.

    Args:
        a: D x D.

    Returns:
        inv(A).
    """
    if not is_torch_array(a):
        return np.linalg.inv(a)
    torch = sys.modules["torch"]
    return torch.cholesky_inverse(torch.linalg.cholesky(a))


def linear_algebra_error(array: Array) -> type[Exception]:
    """Name the exception that the library of an array raises for a matrix it cannot factorise.

    Args:
        array: a numpy array or a torch tensor.

    Returns:
        The class of the exception.
    """
    found: type[Exception] = array_namespace(array).linalg.LinAlgError
    return found
