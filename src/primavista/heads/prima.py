"""The head of prima: ridge regressions of places, weighed by lessons that they have not seen.

The unit of independence is the lesson: the frames of one class that come in one batch. Every lesson
has the weight 1, however many frames it has (`LessonStatistics`). Of each class a few lessons are
kept (`LessonSample`); each is left out of the regressions in turn (`fit_place`), and what they then
say of it decides how much each place counts (`place_weights`). Everything is written for numpy and
torch arrays alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace, device, to_device

from ..errors import InputError
from ..storage.validate import (
    MAX_FEATURE,
    check_at_most,
    check_shape,
    check_that,
    checked_array,
)
from .base import (
    Array,
    Arrays,
    ClassArrays,
    NumpyArrays,
    five_bytes,
    float32,
    float64,
    from_five_bytes,
    identity,
    rows_beside,
    rows_earlier,
    shorten,
    to_library_of,
    to_numpy,
)
from .place_fit import Lessons, PlaceFit, fit_place, origin_of_scores, strange_scores
from .place_weights import PlaceJudgement, place_weights
from .statistics import (
    CHUNK,
    AnalyticHead,
    SufficientStatistics,
    add_gram,
    diagonal,
    low_rank_factor,
    unpack_lower,
)
from .strangers import (
    Floats,
    LessonFamiliarity,
    expected_strangers,
    lessons_lifted,
    middle_shares,
    usual_room,
)

MOST_CHANGED = 128  # rows of the difference of two G in a file; more are not worth it
CHANGE_PRECISION = 2.0**-26  # what that difference may be off by, as a share of G
LESSONS_KEPT = 4  # lessons per class that are kept to judge the places by
KEY_PERIOD = 0.002  # of keys: lessons of a class are several times as far apart, engines 1e-7


class LessonHead(AnalyticHead):
    """scores = sum_h beta_h (w_h x_h + b_h)

    with a ridge regression w_h for each place h (`fit_place`) and weights beta_h > 0 that explain
    best the lessons that the regressions have not seen (`place_weights`). The scores are logits.

    Args:
        statistics: the sums over lessons, with one Gram matrix per place.
        sample: the lessons to judge by.
        priors: the weight of each place before any lesson has judged it; only their ratios count.
    """

    statistics: LessonStatistics

    def __init__(
        self, statistics: LessonStatistics, sample: LessonSample, priors: Sequence[float]
    ) -> None:
        super().__init__(statistics)
        if len(priors) != len(statistics.blocks):
            raise InputError(
                f"there are {len(statistics.blocks)} places, but {len(priors)} prior weights"
            )
        if not all(0 < prior < math.inf for prior in priors):
            raise InputError(f"the prior weights of places are positive numbers; got {priors}")
        self.groups["lessons"] = sample
        self.sample = sample
        self.priors = tuple(priors)

    @property
    def has_reference(self) -> bool:
        """True once what familiarity compares with is set."""
        return bool(self.sample.arrays["centre"].any())

    def set_reference(self, z: Array) -> None:
        """Set what familiarity compares with, which does not depend on what is taught.

        Args:
            z: the features of frames of objects of any kind, N x D.
        """
        self.sample.set_reference(z)
        self.derived.clear()

    def take_reference(self, other: LessonHead) -> None:
        """Compare with the same as another head.

        Args:
            other: a head on the same backbone.
        """
        self.sample.take_reference(other.sample)
        self.derived.clear()

    def _learn(self, z: Array, columns: Array, i: int) -> None:
        self.statistics.add(z, columns)
        for row in array_namespace(z).unique_values(columns).tolist():
            self.sample.add(int(row), float64(z[columns == row]))

    def fits(self, classes: int) -> list[PlaceFit]:
        """Fit the regression of each place.

        Args:
            classes: the number of known classes, at least 1.

        Returns:
            One fit per place.
        """
        lessons = self._to_leave_out(classes)
        n, s, t = self.statistics.n[:classes], self.statistics.s[:classes], self.statistics.frames
        generic = float64(self.sample.arrays["centre"])
        return [
            fit_place(n, s[:, features], gram, t, lessons.part(features), generic[features])
            for gram, features in self.statistics.lower_grams()
        ]

    def judge(self, fits: Sequence[PlaceFit]) -> PlaceJudgement:
        """Judge the regressions by the lessons of the sample.

        Args:
            fits: the fits of the places.

        Returns:
            The judgement.
        """
        classes = fits[0].w.shape[0]
        left_out = np.stack([np.asarray(to_device(fit.left_out, "cpu")) for fit in fits], axis=2)
        columns = self._to_leave_out(classes).columns
        beta = place_weights(left_out, columns, self.priors)
        share = beta / beta.sum()
        own = (left_out @ share)[np.arange(len(columns)), columns]
        trust = max(float(own.mean()), 0.0) if len(own) else 0.0
        return PlaceJudgement([float(b) for b in beta], trust, self._strange(fits, share))

    def _strange(self, fits: Sequence[PlaceFit], share: Floats) -> Floats:
        """`strange` of a `PlaceJudgement`."""
        classes = fits[0].w.shape[0]
        lessons, mu = self.sample.lessons(classes), self.statistics.means(classes)
        m, n = mu.mean(0), self.statistics.n[:classes]
        o, kappa = origin_of_scores(n, m, float64(self.sample.arrays["centre"]))
        columns, found = to_library_of(lessons.columns, mu), 0.0
        for weight, fit, part in zip(share.tolist(), fits, self.sample.places, strict=True):
            z = float64(lessons.frames[:, part]) - o[part]
            found = found + weight * strange_scores(fit.w, (mu - m)[:, part], columns, z, kappa)
        return np.asarray(to_device(found, "cpu"))

    def _to_leave_out(self, classes: int) -> Lessons:
        """The lessons of the sample whose class has another one, so that something is left."""
        lessons = self.sample.lessons(classes)
        n = np.asarray(to_device(self.statistics.n[:classes], "cpu"))
        again = np.nonzero(n[lessons.columns] > 1)[0]
        at = to_library_of(again, lessons.means)
        return Lessons(lessons.columns[again], lessons.means[at], lessons.frames[at])

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights, as `AnalyticHead.solve` says."""
        fits = self.fits(classes)
        judged = self.judge(fits)
        self.derived["judged"] = judged
        xp = array_namespace(fits[0].w)
        beta = judged.beta
        w = xp.concat([share * fit.w for share, fit in zip(beta, fits, strict=True)], axis=1)
        b = xp.stack([share * fit.b for share, fit in zip(beta, fits, strict=True)])
        return w, b.sum(0)

    def _familiarity(self, w: Array, classes: int) -> LessonFamiliarity:
        compute = lambda: self.judge(self.fits(classes))  # noqa: E731
        judged = self.derived.get_or_compute("judged", compute)
        share = middle_shares(judged.beta)
        places, arrays = self.sample.places, self.sample.arrays
        mu, centre = self.statistics.means(classes), float64(arrays["centre"])
        columns, _, frames = self.sample.lessons(classes)
        taught, shown = (unit_vectors(z - centre, places) for z in (mu, float64(frames)))
        directions = taught * to_library_of(np.repeat(share, self.sample.blocks), mu)
        rooms = taught[:, places[0]] * float(len(places) > 1)
        cosines, alike, spread = (
            np.asarray(to_device(array, "cpu"))
            for array in (
                shown @ directions.T,
                shown[:, places[0]] @ rooms.T,
                float64(arrays["spread"]),
            )
        )
        usual = usual_room(alike, columns)
        likeness = cosines + judged.trust * judged.strange
        strangers = expected_strangers(
            lessons_lifted(likeness, alike, columns, usual),
            columns,
            max(float(share @ spread @ share), 0.0) ** 0.5,
        )
        worth = judged.trust / sum(judged.beta)
        _, b = self.solution(classes)
        return LessonFamiliarity(
            directions, centre, places, worth * w, worth * b, rooms, usual, strangers
        )

    def merge(self, other: Self, columns: Array) -> None:
        """Learn all that another head has learned, as `AnalyticHead.merge` says."""
        self.sample.merge(other.sample, columns)
        super().merge(other, columns)

    def clear(self) -> None:
        """Return to the state before the first batch."""
        self.sample.clear()
        super().clear()


class LessonStatistics(SufficientStatistics):
    """n_c = sum_l 1,  s_c = sum_l mean_l z  and  G = sum_l mean_l (z z^T) over the lessons l.

    These are the sums of `SufficientStatistics` with the weight 1 / n_l for each of the n_l frames
    of a lesson, so n_c and t count lessons. A lesson is all frames of a class in one call of
    `add`: the order of lessons, their grouping into calls and merging do not matter, but the frames
    of one lesson must come together.

    The sums are float64. After every change G is rounded to the five bytes per number that files
    have, so a learner that was saved and loaded in between goes on to the same bits.
    """

    @classmethod
    def to_file(cls, arrays: NumpyArrays) -> NumpyArrays:
        """Turn G into five bytes per number, which loses nothing; see `ClassArrays.to_file`."""
        return {**arrays, "gram": np.ascontiguousarray(five_bytes(to_numpy(arrays["gram"])))}

    @classmethod
    def from_file(cls, prefix: str, arrays: NumpyArrays) -> NumpyArrays:
        """Return the numbers of G, as `ClassArrays.from_file` says."""
        check_that("gram" in arrays, prefix + "gram", "is missing")
        return {**arrays, "gram": from_five_bytes(prefix + "gram", arrays["gram"])}

    def add(self, z: Array, columns: Array) -> None:
        """Add one lesson per class in the batch.

        Args:
            z: the features of its frames, N x D.
            columns: the row of the class of each, on the device of z.
        """
        numbers = array_namespace(z).arange(self.rows, device=device(z))
        frames = float64(columns == numbers[:, None]).sum(1)  # n_l, 0 of a class without a lesson
        n = self.n
        n += float64(frames > 0)
        self.arrays["t"] += float((frames > 0).sum())
        for start in range(0, len(z), CHUNK):
            some = slice(start, start + CHUNK)
            root = frames[columns[some]] ** 0.5
            self._add_weighted(float64(z[some]) / root[:, None], columns[some], root)
        self._shorten()

    def check_frames(self, prefix: str, taught: Mapping[int, int]) -> None:
        """Check n_c <= the frames of class c: a lesson has one at least."""
        n = checked_array(self.arrays, prefix, "n", 1)
        enough = all(n[row] <= frames for row, frames in taught.items())
        check_that(enough, prefix + "n", "counts more lessons than the manifest has frames")

    def merge(self, other: SufficientStatistics, columns: Array) -> None:
        """Add all lessons that `other` has seen, as `SufficientStatistics.merge` says."""
        super().merge(other, columns)
        self._shorten()

    def drop(self, row: int) -> None:
        """Forget a class, as `SufficientStatistics.drop` says."""
        super().drop(row)
        self._shorten()

    def _shorten(self) -> None:
        shorten(self.gram)

    def _add_weighted(self, x: Array, columns: Array, root: Array) -> None:
        """Add frames x = z / root, each with the root of the number of frames of its lesson."""
        numbers = array_namespace(x).arange(self.rows, device=device(x))
        members = float64(columns == numbers[:, None])
        s = self.s
        s += (members / root) @ x
        for gram, features in self.squares():
            add_gram(gram, x[:, features])

    def beside(self, later: Self, arrays: NumpyArrays) -> NumpyArrays:
        """Store the rows that changed, and the difference of G from the later one as F^T F.

        A lesson of N frames adds an F of at most N rows to G, in `added`; forgetting a class takes
        a single row from it, in `removed`. An F of more than `MOST_CHANGED` rows is not worth it.
        G is restored to the precision of float32. The arguments are those of `ClassArrays.beside`.
        """
        stored = rows_beside(self._rows(), later._rows(), arrays)
        if "gram" not in stored:
            return stored
        difference = to_numpy(later.gram) - to_numpy(self.gram)
        sign, name = (1, "added") if difference.sum() >= 0 else (-1, "removed")
        largest = later.gram if sign == 1 else self.gram
        factors = []
        for packed, features in self._packed_parts():
            squares = diagonal(to_numpy(largest)[packed], features.stop - features.start)
            tolerance = CHANGE_PRECISION * squares + 1e-300
            factor = low_rank_factor(sign * difference[packed], tolerance, MOST_CHANGED)
            if factor is None:
                return stored
            factors.append(factor.astype(np.float32))
        most = max(map(len, factors))
        padded = [np.pad(factor, ((0, most - len(factor)), (0, 0))) for factor in factors]
        del stored["gram"]
        return {**stored, name: np.concatenate(padded, axis=1)}

    def earlier(self, prefix: str, stored: NumpyArrays) -> NumpyArrays:
        """Restore the rows and G, as `ClassArrays.earlier` says."""
        found = dict(rows_earlier(self._rows(), prefix, stored))
        for name, sign in (("added", 1), ("removed", -1)):
            if name in found:
                factor = checked_array(found, prefix, name, 2)
                check_that(factor.dtype == np.float32, prefix + name, "is not float32")
                fits = len(factor) <= MOST_CHANGED and factor.shape[1] == self.dim
                check_that(fits, prefix + name, f"has shape {factor.shape}")
                check_at_most(prefix + name, factor, MAX_FEATURE, "feature")
                gram = self.gram * 0
                if np.asarray(found.get("t", 1)).any():  # before the first lesson G is 0
                    x = float64(to_library_of(factor, gram))
                    for packed, features in self._packed_parts():
                        add_gram(gram[packed], x[:, features])
                    gram = self.gram - sign * gram
                    shorten(gram)
                found["gram"] = five_bytes(to_numpy(gram))
                del found[name]
        return found

    def _rows(self) -> NumpyArrays:
        return {name: to_numpy(self.arrays[name]) for name in self.row_names}

    def _packed_parts(self) -> Iterator[tuple[slice, slice]]:
        """Where each block lies in G, and where in the features."""
        end = 0
        for gram, features in self.squares():
            end += len(gram)
            yield slice(end - len(gram), end), features

    def lower_grams(self) -> Iterator[tuple[Array, slice]]:
        """G of each block, of which the lower triangle alone means something.

        Yields:
            G of a block, a new array, and where in the features the block lies.
        """
        for gram, features in self.squares():
            yield unpack_lower(gram, features.stop - features.start), features


class LessonSample(ClassArrays):
    """A few lessons of each class, to judge by: the mean of each, and the features of one frame.

    Those with the smallest keys are kept. The key of a lesson is that of its mean, and its frame is
    the one with the smallest key (`feature_keys`). So the sample depends on the lessons alone, not
    on the order of lessons or frames, and that of a merged learner is the sample of the lessons of
    both.

    Beside the lessons there is what is known of the backbone without them: the centre that they are
    compared around (`LessonFamiliarity`), and how the likeness of any frames spreads around it
    (`spread_of_cosines`).

    Args:
        arrays: `key`, classes x kept, 0 for none, ascending; `mean` and `frame`,
            classes x kept x D, float32; `centre`, D numbers, and `spread`, places x places, both
            float32, 0 until they are set.
        blocks: the number of features of each place; D is their sum.
    """

    VECTORS: ClassVar[tuple[str, ...]] = ("mean", "frame")
    REFERENCE: ClassVar[tuple[str, ...]] = ("centre", "spread")

    def __init__(self, arrays: Arrays, blocks: Sequence[int]) -> None:
        super().__init__(arrays)
        self.blocks = tuple(blocks)
        self.dim = sum(blocks)

    @classmethod
    def empty(cls, blocks: Sequence[int], *, like: Array | None = None) -> LessonSample:
        """Make the sample of no lessons.

        Args:
            blocks: the number of features of each place.
            like: an array whose library and device to use; None for numpy.

        Returns:
            The sample.
        """
        one = np.zeros(()) if like is None else like
        xp, where = array_namespace(one), device(one)
        key = xp.zeros((0, LESSONS_KEPT), dtype=xp.int64, device=where)
        shape = (0, LESSONS_KEPT, sum(blocks))
        vectors = {name: xp.zeros(shape, dtype=xp.float32, device=where) for name in cls.VECTORS}
        centre = xp.zeros((sum(blocks),), dtype=xp.float32, device=where)
        spread = xp.zeros((len(blocks), len(blocks)), dtype=xp.float32, device=where)
        return cls({"key": key, **vectors, "centre": centre, "spread": spread}, blocks)

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of the arrays that have one row per class."""
        return ("key", *self.VECTORS)

    @classmethod
    def to_file(cls, arrays: NumpyArrays) -> NumpyArrays:
        """Write the lessons that there are, class by class, instead of room for more.

        `mean` and `frame` are lessons x D in files, and `key` has no rows without a lesson; see
        `ClassArrays.to_file`.
        """
        key = to_numpy(arrays["key"])
        key = key[: 1 + max(np.nonzero(key)[0], default=-1)]
        there = {name: to_numpy(arrays[name])[: len(key)][key > 0] for name in cls.VECTORS}
        return {**arrays, "key": key, **there}

    @classmethod
    def from_file(cls, prefix: str, arrays: NumpyArrays) -> NumpyArrays:
        """Put every lesson where its key is, as `ClassArrays.from_file` says."""
        key = checked_array(arrays, prefix, "key", 2)
        check_shape(prefix + "key", key, (len(key), LESSONS_KEPT))
        # so that little more than the file is built
        check_that(bool((key > 0).any(1).all()), prefix + "key", "has a class without a lesson")
        found = dict(arrays)
        for name in cls.VECTORS:
            there = checked_array(arrays, prefix, name, 2)
            check_that(there.dtype == np.float32, prefix + name, "is not float32")
            check_shape(prefix + name, there, (int((key > 0).sum()), there.shape[1]))
            found[name] = np.zeros((*key.shape, there.shape[1]), there.dtype)
            found[name][key > 0] = there
        return found

    def beside(self, later: Self, arrays: NumpyArrays) -> NumpyArrays:
        """Store the lessons of classes that changed, as `ClassArrays.beside` says."""
        return rows_beside(self._rows(), later._rows(), arrays)

    def earlier(self, prefix: str, stored: NumpyArrays) -> NumpyArrays:
        """Restore the lessons of all classes, as `ClassArrays.earlier` says."""
        if "rows" not in stored:
            return stored
        return self.to_file(rows_earlier(self._rows(), prefix, stored))

    def _rows(self) -> NumpyArrays:
        """The arrays with one row per class, without the empty rows at their end."""
        taught = 1 + max(np.nonzero(to_numpy(self.arrays["key"]))[0], default=-1)
        return {name: to_numpy(self.arrays[name])[:taught] for name in self.row_names}

    def add(self, row: int, frames: Array) -> None:
        """Add a lesson, if its key is among the smallest of its class.

        Args:
            row: the row of its class.
            frames: the features of its frames, N x D, in float64.
        """
        mean = float32(frames.mean(0))
        keys = feature_keys(frames)
        chosen = frames[keys.index(min(keys))]
        self._insert(row, feature_keys(mean[None])[0], [mean, float32(chosen)])

    def _insert(self, row: int, key: int, vectors: Sequence[Array]) -> None:
        """Insert a lesson where its key belongs; of one too many the last goes."""
        keys = [*self.arrays["key"][row].tolist(), key]
        order = sorted(range(len(keys)), key=lambda slot: keys[slot] or 2**63)[:LESSONS_KEPT]
        kept = np.asarray([keys[slot] for slot in order], dtype=np.int64)
        self.arrays["key"][row] = to_library_of(kept, self.arrays["key"])
        for name, vector in zip(self.VECTORS, vectors, strict=True):
            array = self.arrays[name]
            together = array_namespace(array).concat([array[row], vector[None]], axis=0)
            array[row] = together[to_library_of(np.asarray(order), array)]

    def merge(self, other: LessonSample, columns: Array) -> None:
        """Add the lessons of another sample.

        Args:
            other: a sample of the same features, on any device.
            columns: our row for each of its classes, in their order; each row once.
        """
        where = device(self.arrays["mean"])
        if not self.arrays["centre"].any():
            self.take_reference(other)
        for theirs, row in enumerate(columns.tolist()):
            for slot, key in enumerate(other.arrays["key"][theirs].tolist()):
                if key:
                    vectors = [other.arrays[name][theirs, slot] for name in self.VECTORS]
                    moved = [to_device(vector, where) for vector in vectors]
                    self._insert(int(row), int(key), moved)

    def set_reference(self, z: Array) -> None:
        """Set the centre and the spread.

        Args:
            z: the features of frames of objects of any kind, two or more, N x D.
        """
        centre = float64(z).mean(0)
        spread = spread_of_cosines(float64(z) - centre, self.places)
        self.restore_reference(float32(centre), float32(spread))

    def restore_reference(self, centre: Array, spread: Array) -> None:
        """Set the centre and the spread to what `set_reference` has made of such frames before.

        Args:
            centre: D numbers in float32, on any device.
            spread: places x places, in float32.
        """
        for name, array in zip(self.REFERENCE, (centre, spread), strict=True):
            self.arrays[name] = to_device(array, device(self.arrays[name])) + 0

    def take_reference(self, other: LessonSample) -> None:
        """Set the centre and the spread to those of another sample.

        Args:
            other: a sample of the same features, on any device.
        """
        self.restore_reference(*(other.arrays[name] for name in self.REFERENCE))

    @property
    def places(self) -> tuple[slice, ...]:
        """Where in the features each place lies."""
        stops = np.cumsum(self.blocks).tolist()
        return tuple(slice(a, b) for a, b in zip([0, *stops], stops, strict=False))

    def clear(self) -> None:
        """Return to the state before the first lesson; centre and spread stay for the next one."""
        kept = {name: self.arrays[name] for name in self.REFERENCE}
        super().clear()
        self.arrays.update(kept)

    def lessons(self, known: int) -> Lessons:
        """List the lessons that are kept.

        Args:
            known: the number of classes.

        Returns:
            The lessons, class by class.
        """
        keys = np.asarray(to_device(self.arrays["key"][:known], "cpu"))
        columns, slots = np.nonzero(keys)
        mean, frame = (self.arrays[name][:known] for name in self.VECTORS)
        at = to_library_of(columns * LESSONS_KEPT + slots, mean)
        dim = mean.shape[2]
        return Lessons(columns, mean.reshape(-1, dim)[at], frame.reshape(-1, dim)[at])

    def check(self, prefix: str, known: int, taught: Sequence[int]) -> None:
        """Check that keys are positive and ascending, and that the means are finite.

        The arguments are those of `ClassArrays.check`.
        """
        key = checked_array(self.arrays, prefix, "key", 2)
        mean, frame = (checked_array(self.arrays, prefix, name, 3) for name in self.VECTORS)
        check_that(len(key) >= known, prefix + "key", f"has {len(key)} rows for {known} classes")
        check_shape(prefix + "key", key, (len(key), LESSONS_KEPT))
        check_shape(prefix + "mean", mean, (*key.shape, self.dim))
        check_shape(prefix + "frame", frame, mean.shape)
        centre = checked_array(self.arrays, prefix, "centre", 1)
        check_shape(prefix + "centre", centre, (self.dim,))
        check_at_most(prefix + "centre", centre, MAX_FEATURE, "feature")
        spread = checked_array(self.arrays, prefix, "spread", 2)
        check_shape(prefix + "spread", spread, (len(self.blocks), len(self.blocks)))
        check_at_most(prefix + "spread", spread, 1, "covariance of cosines")
        check_that(bool((key >= 0).all()), prefix + "key", "contains a negative key")
        filled = key > 0
        full_first = bool((filled[:, 1:] <= filled[:, :-1]).all())
        ascending = bool(((key[:, 1:] >= key[:, :-1]) | ~filled[:, 1:]).all())
        check_that(full_first and ascending, prefix + "key", "is not in ascending order")
        check_that(not key[known:].any(), prefix + "key", "has lessons of classes not there")
        for name, array in (("mean", mean), ("frame", frame)):
            finite = bool(np.isfinite(array).all())
            check_that(finite, prefix + name, "contains NaN or infinity")
            check_that(not array[~filled].any(), prefix + name, "has a lesson without a key")


def feature_keys(z: Array) -> list[int]:
    """key = 1 + 2^53 frac(u z / (KEY_PERIOD |z|)) for a direction u of random signs.

    A key is spread evenly over many periods, so it tells nothing about the frame; but it moves only
    a little with the features, so that another engine or device, whose features differ in the last
    bits, keeps the same lessons and frames.

    Args:
        z: N x D.

    Returns:
        N numbers from 1 to 2^53.
    """
    x = float64(z)
    along = x @ to_library_of(random_signs(z.shape[1]), x) / (x * x).sum(1).clip(1e-30) ** 0.5
    periods = np.asarray(to_device(along, "cpu")) / KEY_PERIOD
    return [1 + int(share * 2**53) for share in periods - np.floor(periods)]


@cache
def random_signs(dim: int) -> Floats:
    """Return the direction of `feature_keys`: +-1 / sqrt(D), the same in every version.

    Args:
        dim: D, the number of features.
    """
    drawn = hashlib.shake_256(b"lessons").digest(dim // 8 + 1)
    bits = np.unpackbits(np.frombuffer(drawn, np.uint8))[:dim]
    signs: Floats = (2.0 * bits - 1) / dim**0.5
    return signs


def unit_vectors(x: Array, places: Sequence[slice]) -> Array:
    """x_h / |x_h| of each place h, side by side.

    Args:
        x: N x D.
        places: where in the features each place lies.

    Returns:
        N x D.
    """
    parts = [x[:, part] for part in places]
    scaled = [part / (part * part).sum(1).clip(1e-30)[:, None] ** 0.5 for part in parts]
    return array_namespace(x).concat(scaled, axis=1)


def spread_of_cosines(x: Array, places: Sequence[slice]) -> Array:
    """Compute the covariances, over pairs of frames, of the cosines between them in each place.

    Args:
        x: the features of two frames or more, less their mean, N x D.
        places: where in the features each of the H places lies.

    Returns:
        H x H.
    """
    xp = array_namespace(x)
    unit = unit_vectors(x, places)
    cosines = xp.stack([(unit[:, part] @ unit[:, part].T).reshape(-1) for part in places])
    cosines = cosines[:, identity(len(x), x).reshape(-1) == 0]
    off = cosines - cosines.mean(1)[:, None]
    return off @ off.T / off.shape[1]
