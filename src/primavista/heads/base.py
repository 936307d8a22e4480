"""The contract of a head on frozen features, and of the named arrays that are its state.

A head is written once, for numpy and torch arrays alike, and does not import torch. The strategies
of `strategies/frozen.py` use it on torch tensors, the distribution for the edge on numpy arrays;
that one contains this module under its own name, which is why modules that both share import each
other relatively.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, to_device

from ..caches import Derived
from ..errors import InputError
from ..storage.validate import check_shape, check_that, checked_array

Array = Any  # a numpy array or a torch tensor
Arrays = MutableMapping[str, Array]
NumpyArrays = dict[str, np.ndarray[Any, Any]]
SHORTEN_CHUNK = 2**15  # numbers that `shorten` rounds at one time


class Head(ABC):
    """Learns classes from features, and turns features into class scores.

    The state is in `groups` of named arrays. In files, the name of an array is the name of its
    group followed by its own, such as `moments.n`; in torch each group is a module of that name.
    What is computed from the state is kept in `derived` until the state changes.

    Args:
        groups: the arrays by the name of the group.
    """

    COLUMNS_ON_CPU: ClassVar[bool] = False  # whether `learn` wants the columns on the CPU

    def __init__(self, groups: Mapping[str, ClassArrays]) -> None:
        self.groups = dict(groups)
        self.derived = Derived()

    def features(self, z: Array) -> Array:
        """Turn the features of the backbone into those that the statistics are of.

        Args:
            z: N x D.

        Returns:
            The same features, unless a head does more.
        """
        return z

    def learn(self, z: Array, columns: Array, i: int) -> None:
        """Learn the batch B_i.

        Args:
            z: the features of the backbone, N x D.
            columns: the column of the class of each frame; there is a row for each.
            i: the number of the batch, from 1.
        """
        self._learn(z, columns, i)
        self.derived.clear()

    @abstractmethod
    def _learn(self, z: Array, columns: Array, i: int) -> None:
        """Learn the batch B_i; see `learn`."""

    @abstractmethod
    def scores(self, z: Array, classes: int) -> Array:
        """Score features; the higher, the likelier.

        Args:
            z: the features of the backbone, N x D.
            classes: the number of known classes.

        Returns:
            N x classes.
        """

    def familiarity(self, classes: int) -> Familiarity | None:
        """Make the function that tells how familiar a frame is; it is kept until the next change.

        Args:
            classes: the number of known classes, at least 1.

        Returns:
            A function of `features(z)`, or None if this head cannot tell.
        """
        return None

    def expand(self, classes: int) -> None:
        """Make room for classes.

        Args:
            classes: the number of known classes.
        """
        for group in self.groups.values():
            group.expand(classes)
        self.derived.clear()

    def forget(self, column: int) -> None:
        """Take a class out; the classes behind it move up by one column.

        Args:
            column: the column of the class.
        """
        for group in self.groups.values():
            group.drop(column)
        self.derived.clear()

    def check(self, known: int, taught: Sequence[int]) -> None:
        """Refuse a state that no frames can have given.

        Args:
            known: the number of known classes.
            taught: the columns of classes that were taught.

        Raises:
            InputError: names the array that is wrong.
        """
        for name, group in self.groups.items():
            group.check(f"{name}.", known, taught)

    def named_arrays(self) -> dict[str, Array]:
        """List the state as files have it.

        Returns:
            Every array by its name in files, and in the form that it has there; of numpy arrays.
        """
        return {
            f"{name}.{own}": array
            for name, group in self.groups.items()
            for own, array in group.to_file(dict(group.arrays)).items()
        }


class Familiarity(ABC):
    """Tells how familiar a frame is. It has no scale, so one threshold serves all data."""

    @abstractmethod
    def __call__(self, z: Array, best: Array) -> Array:
        """Compute the familiarity of frames.

        Args:
            z: their features, N x D, in float64.
            best: the column of the highest score of each.

        Returns:
            N numbers: near 1 for a frame like the mean of its class, near 0 for a stranger.
        """

    def single(self) -> Self:
        """Return the same in float32, which is twice as fast: for features in float32.

        Strangers are told as before, to about a millionth.
        """
        arrays = {
            name: array_namespace(value).astype(value, array_namespace(value).float32)
            for name, value in vars(self).items()
            if is_array_api_obj(value)
        }
        return replace(self, **arrays)  # type: ignore[type-var]  # every familiarity is a dataclass

    @property
    @abstractmethod
    def temperature(self) -> float:
        """T of the probabilities softmax(scores / T)."""


class ClassArrays(ABC):
    """A group of named arrays; those in `row_names` have one row per class.

    The arrays live in a mapping that the group does not own: with numpy that is a part of the
    arrays of a file, with torch the buffers of a module (`nn/class_rows.py`). The names in the
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
