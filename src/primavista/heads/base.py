"""The contract of a head on frozen features, and what all heads that keep sums over frames share.

A head is written once, for numpy and torch arrays alike, and does not import torch. The strategies
of `strategies/frozen.py` use it on torch tensors, the distribution for the edge on numpy arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from ..caches import Derived
from ..errors import InputError
from .arrays import Array, ClassArrays, float64, linear_algebra_error, zeros_like
from .open_set import Familiarity, mahalanobis_familiarity
from .statistics import SufficientStatistics


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
        """Learn the batch B_i, as `learn` says."""

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


class AnalyticHead(Head):
    """scores = w phi(z) + b, with w and b solved from the sums of phi(z) over all frames

    when scores are first asked for. The scores are float64, and the same for any order and split of
    the frames, or of the lessons if the sums are over lessons. `forget` takes the count, the sum
    and so the mean of a class out exactly; its scatter around that mean stays in the pooled one.

    Args:
        statistics: the sums.
    """

    def __init__(self, statistics: SufficientStatistics) -> None:
        super().__init__({"moments": statistics})  # so called in files; they are the statistics
        self.statistics = statistics

    @abstractmethod
    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights.

        Args:
            classes: the number of known classes, at least 1.

        Returns:
            w (classes x D) and b (classes).
        """

    def precision(self, classes: int) -> Array | None:
        """Invert the regularised covariance that was solved with.

        Args:
            classes: the number of known classes.

        Returns:
            P of `MahalanobisFamiliarity`, D x D; None for the identity.
        """
        return None

    def _learn(self, z: Array, columns: Array, i: int) -> None:
        self.statistics.add(self.features(z), columns)

    def scores(self, z: Array, classes: int) -> Array:
        """Score features by w phi(z) + b, as `Head.scores` says."""
        if not classes:
            return zeros_like((len(z), 0), z)
        w, b = self.solution(classes)
        return float64(self.features(z)) @ w.T + b

    def solution(self, classes: int) -> tuple[Array, Array]:
        """Return w and b, solved at most once per state.

        Args:
            classes: the number of known classes, at least 1.

        Returns:
            w (classes x D) and b (classes).

        Raises:
            InputError: the equations cannot be solved.
        """
        try:
            return self.derived.get_or_compute("solution", lambda: self.solve(classes))
        except linear_algebra_error(self.statistics.s) as error:
            raise InputError(
                f"the saved statistics are inconsistent ({error}); the file may be corrupted"
            ) from error

    def familiarity(self, classes: int) -> Familiarity:
        """Make the function that tells how familiar a frame is, as `Head.familiarity` says."""
        w, _ = self.solution(classes)
        compute = lambda: self._familiarity(w, classes)  # noqa: E731
        return self.derived.get_or_compute("familiarity", compute)

    def _familiarity(self, w: Array, classes: int) -> Familiarity:
        """Return the familiarity by the Mahalanobis distance, unless a head knows better."""
        own = self.statistics
        spread = own.covariance() if own.has_gram else own.mean_square_deviation(classes)
        means = own.means(classes)
        return mahalanobis_familiarity(w, means, self.precision(classes), spread, own.frames)

    def merge(self, other: Self, columns: Array) -> None:
        """Learn all that another head has learned.

        Args:
            other: a head of the same kind, with the same options.
            columns: our column for each of its classes.
        """
        self.statistics.merge(other.statistics, columns)
        self.derived.clear()

    def clear(self) -> None:
        """Return to the state before the first batch."""
        self.statistics.clear()
        self.derived.clear()
