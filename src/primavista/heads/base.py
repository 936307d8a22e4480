"""The contract of a head on frozen features, and of the named arrays that are its state.

A head is written once, for numpy and torch arrays alike, and does not import torch. The strategies
of `strategies/frozen.py` use it on torch tensors, learners on numpy arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from primavista.arrays import Array, array_namespace, float32, to_numpy, zeros_like
from primavista.errors import InputError
from primavista.heads.caches import Derived
from primavista.storage.validate import ArrayChecks

Arrays = MutableMapping[str, Array]
NumpyArrays = dict[str, np.ndarray[Any, Any]]
SHORTEN_CHUNK = 2**15  # numbers that `shorten` rounds at one time


class Head(ABC):
    """Learns classes from features, and turns features into class scores.

    The state is in `groups` of named arrays. In files, an array is named by its group and its own
    name, such as `moments.n`; in torch, each group is a module of that name. `derived` caches
    results that are computed from the state until the state changes.

    Args:
        groups: The groups of arrays by name.
    """

    COLUMNS_ON_CPU: ClassVar[bool] = False  # True if `learn` needs the columns on the CPU
    seed: int = 0  # of everything that the head draws

    def __init__(self, groups: Mapping[str, ClassArrays]) -> None:
        self.groups = dict(groups)
        self.derived = Derived()

    def features(self, z: Array) -> Array:
        """Transform the features of the backbone into those that the head learns from.

        Args:
            z: The features of the backbone, N x D.

        Returns:
            The transformed features; by default z itself.
        """
        return z

    def learn(self, z: Array, columns: Array, i: int) -> tuple[float, ...]:
        """Learn the batch B_i, and return the mean loss of each epoch, if there are epochs.

        Args:
            z: The features of the backbone, N x D.
            columns: The column of the class of each frame; `expand` has made room for it.
            i: The number of the batch, from 1.
        """
        losses = self._learn(z, columns, i)
        self.derived.clear()
        return losses or ()

    @abstractmethod
    def _learn(self, z: Array, columns: Array, i: int) -> tuple[float, ...] | None:
        """Learn the batch B_i; see `learn`."""

    @abstractmethod
    def scores(self, z: Array, classes: int) -> Array:
        """Score features; the class with the highest score is the prediction.

        Args:
            z: The features of the backbone, N x D.
            classes: The number of known classes.

        Returns:
            The scores, N x classes.
        """

    def familiarity(self, classes: int) -> Familiarity | None:
        """Return the familiarity function, which is cached until the state changes.

        Args:
            classes: The number of known classes, at least 1.

        Returns:
            A function of `features(z)`, or None if this head does not recognise strangers.
        """
        return self.derived.get_or_compute("familiarity", lambda: self._familiarity(classes))

    def _familiarity(self, classes: int) -> Familiarity | None:
        """Make the familiarity function; see `familiarity`."""
        return None

    def expand(self, classes: int) -> None:
        """Make room for classes.

        Args:
            classes: The number of known classes.
        """
        for group in self.groups.values():
            group.expand(classes)
        self.derived.clear()

    def forget(self, column: int) -> None:
        """Remove a class; the classes after it move up by one column.

        Args:
            column: The column of the class.
        """
        for group in self.groups.values():
            group.drop(column)
        self.derived.clear()

    def check(self, known: int, taught: Sequence[int]) -> None:
        """Reject a state that cannot result from any frames.

        Args:
            known: The number of known classes.
            taught: The columns of classes that were taught.

        Raises:
            InputError: If an array is invalid; the message names it.
        """
        for name, group in self.groups.items():
            group.check(f"{name}.", known, taught)


class Familiarity(ABC):
    """Measures how familiar a frame is, on a scale on which one threshold serves all data."""

    @abstractmethod
    def __call__(self, z: Array, best: Array) -> Array:
        """Compute the familiarity of frames.

        Args:
            z: The features of the frames, N x D, in float64.
            best: The column of the highest score of each frame.

        Returns:
            N numbers: near 1 for a frame like the mean of its class, near 0 for a stranger.
        """

    def single(self) -> Self:
        """Return the same function for features in float32, which is twice as fast.

        The familiarity changes by about a millionth.
        """
        arrays = {
            name: float32(value) for name, value in vars(self).items() if hasattr(value, "dtype")
        }
        return replace(self, **arrays)  # type: ignore[type-var]  # every familiarity is a dataclass

    @property
    @abstractmethod
    def temperature(self) -> float:
        """T of the probabilities softmax(scores / T)."""


@dataclass(frozen=True)
class Judgement:
    """The scores and the familiarity of frames.

    Args:
        scores: N x K; softmax(scores / temperature) gives probabilities.
        temperature: The calibration of the scores.
        familiarity: One value per frame; None if the strategy does not recognise strangers.
    """

    scores: Array
    temperature: float = 1.0
    familiarity: Array | None = None

    def in_numpy(self) -> Judgement:
        """Return the same in numpy, on the CPU."""
        familiarity = None if self.familiarity is None else to_numpy(self.familiarity)
        return Judgement(to_numpy(self.scores), self.temperature, familiarity)


class ClassArrays(ABC):
    """A group of named arrays; those in `row_names` have one row per class.

    The arrays live in a mapping that the group does not own: in numpy a part of the arrays of a
    file, in torch the buffers of a module (`nn/class_rows.py`). The names in the mapping are those
    in files. Rows beyond the known classes are 0.

    Args:
        arrays: The mapping. Growing replaces its arrays; learning writes into them.
    """

    ON_CPU: ClassVar[tuple[str, ...]] = ()  # counts that are read too often to be on a GPU
    row_names: tuple[str, ...]  # the names of the arrays that have one row per class

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    @abstractmethod
    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Reject arrays that cannot result from any frames; files are untrusted.

        Args:
            prefix: The prefix of the names of arrays in error messages, such as `moments.`
            known: The number of classes; the rows beyond it must be 0.
            taught: The rows of classes that were taught, and therefore have frames.

        Raises:
            InputError: If an array is invalid; the message names the first one and the reason.
        """

    def check_frames(self, prefix: str, taught: Mapping[int, int]) -> None:  # noqa: B027
        """Reject counts that contradict the numbers of frames in the manifest of the file.

        By default nothing is checked, because not every head counts frames.

        Args:
            prefix: The prefix of the names of arrays in error messages.
            taught: The number of frames of each taught class, by row.

        Raises:
            InputError: If the counts of frames differ; the message names the array.
        """

    @property
    def rows(self) -> int:
        """The number of rows, used or not."""
        return len(self.arrays[self.row_names[0]])

    @classmethod
    def to_file(cls, arrays: NumpyArrays) -> NumpyArrays:
        """Convert arrays into the form that files store.

        Args:
            arrays: The arrays of a group of this class.

        Returns:
            The converted arrays; by default the same arrays.
        """
        return arrays

    @classmethod
    def from_file(cls, prefix: str, arrays: NumpyArrays) -> NumpyArrays:
        """Convert the arrays of a file into those of the group: the inverse of `to_file`.

        Args:
            prefix: The prefix of the names of arrays in error messages.
            arrays: The arrays of the file, which are untrusted.

        Returns:
            The arrays of the group.

        Raises:
            InputError: If an array is invalid; the message names the first one and the reason.
        """
        return arrays

    def beside(self, later: Self, arrays: NumpyArrays) -> NumpyArrays:
        """Compress these arrays for a file that also holds a later state.

        Args:
            later: The later state, which is one change ahead.
            arrays: The arrays of this state that differ from the later one, in the form of files.

        Returns:
            The arrays to store; by default `arrays`.
        """
        return arrays

    def earlier(self, prefix: str, stored: NumpyArrays) -> NumpyArrays:
        """Restore the arrays of an earlier state from this later one: the inverse of `beside`.

        Args:
            prefix: The prefix of the names of arrays in error messages.
            stored: The result of `beside`, from an untrusted file.

        Returns:
            The arrays of the earlier state that differ from these, in the form of files.

        Raises:
            InputError: If an array is invalid; the message names the first one and the reason.
        """
        return stored

    def expand(self, rows: int) -> None:
        """Append rows of 0 until there are at least `rows` rows.

        Args:
            rows: The number of rows needed.
        """
        for name in self.row_names:
            array = self.arrays[name]
            if rows > len(array):
                added = zeros_like((rows - len(array), *array.shape[1:]), array)
                self.arrays[name] = array_namespace(array).concat([array, added], axis=0)

    def drop(self, row: int) -> None:
        """Delete one row; the rows below it move up, and a row of 0 is appended.

        Args:
            row: The index of the row.
        """
        for name in self.row_names:
            array = self.arrays[name]
            kept = [array[:row], array[row + 1 :], zeros_like((1, *array.shape[1:]), array)]
            self.arrays[name] = array_namespace(array).concat(kept, axis=0)


def stored_beside(
    groups: Mapping[str, ClassArrays], later: Mapping[str, ClassArrays], arrays: NumpyArrays
) -> NumpyArrays:
    """Compress the arrays of a state for a file that also holds a later state.

    Args:
        groups: The groups of the state by name.
        later: The groups of the later state by name.
        arrays: The arrays that differ, by their names in files.

    Returns:
        The arrays to store, by name.
    """
    found = dict(arrays)
    for group, own, prefix in own_arrays(groups, found):
        stored = group.beside(later[prefix[:-1]], own)
        found |= {prefix + name: array for name, array in stored.items()}
    return found


def restored_beside(later: Mapping[str, ClassArrays], stored: NumpyArrays) -> NumpyArrays:
    """Restore the arrays that `stored_beside` has compressed.

    Args:
        later: The groups of the later state by name.
        stored: The arrays of the earlier state in the file, by name.

    Returns:
        The arrays of the earlier state that differ, by their names in files.

    Raises:
        InputError: If an array is invalid; the message names the first one and the reason.
    """
    found = dict(stored)
    for group, own, prefix in own_arrays(later, found):
        whole = group.earlier(prefix, own)
        found |= {prefix + name: array for name, array in whole.items()}
    return found


def own_arrays(
    groups: Mapping[str, ClassArrays], arrays: NumpyArrays
) -> Iterator[tuple[ClassArrays, NumpyArrays, str]]:
    """Split arrays by the group that they belong to.

    Args:
        groups: The groups by name.
        arrays: Arrays by their names in files; those of the groups are removed from it.

    Yields:
        A group, its arrays by their own names, and the prefix of these names in files.
    """
    for name, group in groups.items():
        prefix = f"{name}."
        mine = [full for full in arrays if full.startswith(prefix)]
        yield group, {full.removeprefix(prefix): arrays.pop(full) for full in mine}, prefix


def rows_beside(ours: NumpyArrays, theirs: NumpyArrays, arrays: NumpyArrays) -> NumpyArrays:
    """Store only the rows of a group that a later state does not have; see `ClassArrays.beside`.

    Args:
        ours: The arrays of the state that have one row per class.
        theirs: The same arrays of the later state.
        arrays: The arrays that would be stored in full otherwise.

    Returns:
        Two kinds of arrays instead of those with one row per class. `rows` has one entry per row:
        the index of a row of the later state with the same bits, each at most once, or -1. The
        `changed_` arrays hold the rows marked -1.
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
        theirs: The arrays of the later state that have one row per class.
        prefix: The prefix of the names of arrays in error messages.
        stored: The arrays in the file.

    Returns:
        The arrays of the earlier state, with all their rows.

    Raises:
        InputError: If an array is invalid; the message names the first one and the reason.
    """
    if "rows" not in stored:
        return stored
    found = dict(stored)
    checks = ArrayChecks(stored, prefix)
    rows = checks.array("rows", (None,), np.int64)
    del found["rows"]
    new = rows < 0
    places, count = rows[~new], min(map(len, theirs.values()))
    # each row of the later state may occur only once, so the result is not larger than the file
    fits = len(np.unique(places)) == len(places) and ((rows >= -1) & (rows < count)).all()
    checks.that(fits, "rows", "is not a list of rows of the present state")
    for name, later in theirs.items():
        shape = (int(new.sum()), *later.shape[1:])
        changed = checks.array(f"changed_{name}", shape, later.dtype)
        whole = np.empty((len(rows), *later.shape[1:]), later.dtype)
        whole[~new] = later[places]
        whole[new] = changed
        del found[f"changed_{name}"]
        found[name] = whole
    return found


def shortened(x: Array) -> Array:
    """Round float64 numbers to 29 significant bits, by the splitting of Veltkamp and Dekker.

    The lowest 24 of the 64 bits are then 0, so `five_bytes` loses nothing.

    Args:
        x: Numbers of magnitude at most 1e300, an array of any shape.

    Returns:
        The rounded numbers.

    >>> shortened(np.asarray([1 + 2.0**-28, 1 + 2.0**-30])).tolist() == [1 + 2.0**-28, 1.0]
    True
    """
    product = x * (2.0**24 + 1)
    return product - (product - x)


def shorten(x: Array) -> None:
    """Round numbers in place, as `shortened` does, in chunks that fit into the CPU cache.

    Args:
        x: N numbers in float64.
    """
    for start in range(0, len(x), SHORTEN_CHUNK):
        part = slice(start, start + SHORTEN_CHUNK)
        x[part] = shortened(x[part])


def five_bytes(x: Array) -> Array:
    """Return the upper five bytes of each number, which is the form in files.

    Args:
        x: N float64 numbers from `shortened`, in numpy.

    Returns:
        Bytes, the least significant first, N x 5.

    >>> five_bytes(np.asarray([1.0, -2.0])).tolist()
    [[0, 0, 0, 240, 63], [0, 0, 0, 0, 192]]
    """
    return np.ascontiguousarray(x, "<f8").view(np.uint8).reshape(-1, 8)[:, 3:]


def from_five_bytes(name: str, given: Array) -> Array:
    """Restore exactly the numbers that `five_bytes` has converted.

    Args:
        name: The name of the array in the file.
        given: The bytes, in numpy; they are untrusted.

    Returns:
        N numbers in float64.

    Raises:
        InputError: If the array is not N x 5 bytes, or contains NaN or infinity.
    """
    if given.dtype != np.uint8 or given.ndim != 2 or given.shape[1] != 5:
        kind = f"{given.dtype} of shape {tuple(given.shape)}"
        raise InputError(f"{name} is {kind}, expected five bytes per number (uint8, N x 5)")
    found = np.zeros((len(given), 8), np.uint8)
    for k in range(5):  # a loop over bytes is twice as fast as one copy
        found[:, 3 + k] = given[:, k]
    numbers = found.reshape(-1).view("<f8").astype(np.float64, copy=False)
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} contains NaN or infinity")
    return numbers
