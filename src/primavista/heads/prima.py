"""The head of prima: one ridge regression per place, weighted by leave-one-out scores.

A place is one depth of the network and one region of the picture. Each place has its own linear
classifier, and their scores are added with weights that depend on how well each place classifies
lessons that it has not seen. Everything is computed from sums over the stream and a small sample of
lessons, so the result does not depend on the order of the lessons.

A lesson is all frames of one class in one batch. Frames of one video are far from independent, so
every lesson has the weight 1, however many frames it has (`LessonStatistics`). A few lessons per
class are kept (`LessonSample`). Each is left out of the regressions in turn (`fit_place`), and its
scores determine the weights of the places (`place_weights`). Everything is written for numpy and
torch arrays alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self

import numpy as np

from primavista.arrays import (
    Array,
    array_namespace,
    float32,
    float64,
    identity,
    to_device,
    to_library_of,
    to_numpy,
)
from primavista.errors import InputError
from primavista.heads.base import (
    Arrays,
    ClassArrays,
    NumpyArrays,
    five_bytes,
    from_five_bytes,
    rows_beside,
    rows_earlier,
    shorten,
)
from primavista.heads.options import HeadOptions
from primavista.heads.place_fit import (
    Lessons,
    PlaceFit,
    fit_place,
    origin_of_scores,
    strange_scores,
)
from primavista.heads.place_weights import (
    USUAL_ALIKENESS,
    PlaceJudgement,
    place_weights,
    prior_exponent,
)
from primavista.heads.statistics import (
    CHUNK,
    AnalyticHead,
    SufficientStatistics,
    add_gram,
    consecutive,
    diagonal,
    low_rank_factor,
    unpack_lower,
)
from primavista.heads.strangers import (
    Floats,
    LessonFamiliarity,
    expected_strangers,
    frame_correlation,
    lessons_lifted,
    middle_shares,
    usual_room,
)
from primavista.storage.validate import MAX_FEATURE, ArrayChecks

MOST_CHANGED = 128  # the most rows of F in a file; with more rows, G itself is stored
CHANGE_PRECISION = 2.0**-26  # relative error allowed in the difference of two G
LESSONS_KEPT = 4  # lessons per class that are kept to judge the places
# The period of keys. Two lessons of a class differ by several periods, two engines by 1e-7.
KEY_PERIOD = 0.002


@dataclass(frozen=True)
class PrimaOptions(HeadOptions):
    """Prima has no options."""

    def make_head(self, sizes: Sequence[int], priors: Sequence[float], seed: int) -> LessonHead:
        """Make the head; see `HeadOptions`."""
        lessons = LessonStatistics.empty(sum(sizes), blocks=sizes)
        return LessonHead(lessons, LessonSample.empty(sizes), priors)


class LessonHead(AnalyticHead):
    """scores = sum_h beta_h (w_h x_h + b_h)

    w_h and b_h are the ridge regression of place h (`fit_place`). The weights beta_h > 0 are those
    that best explain lessons that the regressions have not seen (`place_weights`). The scores are
    logits.

    Args:
        statistics: The sums over lessons, with one Gram matrix per place.
        sample: The lessons by which the regressions are judged.
        priors: The prior weight of each place; only the ratios matter.
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
        """True if the reference of familiarity is set."""
        return bool(self.sample.arrays["centre"].any())

    def set_reference(self, z: Array) -> None:
        """Set the reference of familiarity, which does not depend on what is taught.

        Args:
            z: The features of frames of arbitrary objects, N x D.
        """
        self.sample.set_reference(z)
        self.derived.clear()

    def _learn(self, z: Array, columns: Array, i: int) -> None:
        self.statistics.add(z, columns)
        for row in sorted(set(columns.tolist())):
            self.sample.add(row, float64(z[columns == row]))

    def fits(self, classes: int) -> list[PlaceFit]:
        """Fit the regression of each place.

        Args:
            classes: The number of known classes, at least 1.

        Returns:
            One fit per place.
        """
        lessons = self._to_leave_out(classes)
        n, s, t = self.statistics.n[:classes], self.statistics.s[:classes], self.statistics.frames
        generic = float64(self.sample.arrays["centre"])
        found = []
        for gram, part in self.statistics.squares():
            lower = unpack_lower(gram, part.stop - part.start)
            found.append(fit_place(n, s[:, part], lower, t, lessons.part(part), generic[part]))
        return found

    def judge(self, fits: Sequence[PlaceFit]) -> PlaceJudgement:
        """Judge the regressions by the lessons of the sample that they have not seen.

        Args:
            fits: The fits of the places.

        Returns:
            The weights of the places and how far their scores can be trusted.
        """
        classes = fits[0].w.shape[0]
        left_out = np.stack([np.asarray(to_device(fit.left_out, "cpu")) for fit in fits], axis=2)
        columns = self._to_leave_out(classes).columns
        beta = place_weights(left_out, columns, self.priors_of(classes))
        share = beta / beta.sum()
        own = (left_out @ share)[np.arange(len(columns)), columns]
        trust = max(float(own.mean()), 0.0) if len(own) else 0.0
        return PlaceJudgement([float(b) for b in beta], trust, self._strange(fits, share))

    def priors_of(self, classes: int) -> list[float]:
        """Return the prior weights of the places for what is taught (`prior_exponent`).

        Args:
            classes: The number of known classes.
        """
        exponent = prior_exponent(self.alikeness(classes))
        return [float(prior**exponent) for prior in self.priors]

    def alikeness(self, classes: int) -> float:
        """mean_{c != k} u_c u_k,  u_c = mean_l (z_l - g) / |z_l - g| over the kept lessons l of c

        z_l is the mean of a lesson at a place, and g that of generic frames. The result is the mean
        over the places with the largest prior. The first place reads the whole picture, which shows
        the room; it counts only if no other place has that prior.

        Args:
            classes: The number of known classes.

        Returns:
            The mean cosine similarity of lessons of different classes; `USUAL_ALIKENESS` if there
            are no two classes or no reference.
        """
        if classes < 2 or not self.has_reference:
            return USUAL_ALIKENESS
        columns, means, _ = self.sample.lessons(classes)
        centre = float64(self.sample.arrays["centre"])
        u = unit_vectors(float64(means) - centre, self.sample.places)
        own = np.arange(classes)[:, None] == columns
        u = to_library_of(own / own.sum(1, keepdims=True).clip(1), u) @ u
        last = [h for h, prior in enumerate(self.priors) if prior == max(self.priors)]
        parts = [self.sample.places[h] for h in last if h > 0 or len(last) == 1]
        pairs = 0.0
        for part in parts:
            total = u[:, part].sum(0)
            pairs += float((total * total).sum() - (u[:, part] * u[:, part]).sum())
        return pairs / len(parts) / (classes * (classes - 1))

    def _strange(self, fits: Sequence[PlaceFit], share: Floats) -> Floats:
        """Compute `strange` of a `PlaceJudgement`."""
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
        """Return the lessons of the sample whose class has at least one other lesson."""
        lessons = self.sample.lessons(classes)
        n = np.asarray(to_device(self.statistics.n[:classes], "cpu"))
        again = np.nonzero(n[lessons.columns] > 1)[0]
        at = to_library_of(again, lessons.means)
        return Lessons(lessons.columns[again], lessons.means[at], lessons.frames[at])

    def solve(self, classes: int) -> tuple[Array, Array]:
        """Solve for the weights; see `AnalyticHead.solve`."""
        fits = self.fits(classes)
        judged = self.judge(fits)
        self.derived["judged"] = judged
        xp = array_namespace(fits[0].w)
        beta = judged.beta
        w = xp.concat([share * fit.w for share, fit in zip(beta, fits, strict=True)], axis=1)
        b = xp.stack([share * fit.b for share, fit in zip(beta, fits, strict=True)])
        return w, b.sum(0)

    def _familiarity(self, classes: int) -> LessonFamiliarity:
        w, b = self.solution(classes)
        compute = lambda: self.judge(self.fits(classes))  # noqa: E731
        judged = self.derived.get_or_compute("judged", compute)
        share = middle_shares(judged.beta)
        places, arrays = self.sample.places, self.sample.arrays
        mu, centre = self.statistics.means(classes), float64(arrays["centre"])
        columns, means, frames = self.sample.lessons(classes)
        taught, shown, usually_shown = (
            unit_vectors(float64(z) - centre, places) for z in (mu, frames, means)
        )
        directions = taught * to_library_of(np.repeat(share, self.sample.blocks), mu)
        rooms = taught[:, places[0]] * float(len(places) > 1)
        cosines, usual_cosines, alike, spread = (
            np.asarray(to_device(array, "cpu"))
            for array in (
                shown @ directions.T,
                usually_shown @ directions.T,
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
            1 + judged.trust,
        )
        worth = judged.trust / sum(judged.beta)
        correlation = frame_correlation(cosines, usual_cosines, columns, strangers)
        return LessonFamiliarity(
            directions, centre, places, worth * w, worth * b, rooms, usual, strangers, correlation
        )

    def merge(self, other: Self, columns: Array) -> None:
        """Learn everything that another head has learned; see `AnalyticHead.merge`."""
        self.sample.merge(other.sample, columns)
        super().merge(other, columns)


class LessonStatistics(SufficientStatistics):
    """n_c = sum_l 1,  s_c = sum_l mean_l z  and  G = sum_l mean_l (z z^T) over the lessons l.

    These are the sums of `SufficientStatistics` in which each of the n_l frames of lesson l has the
    weight 1 / n_l, so n_c and t count lessons. A lesson is all frames of a class in one call of
    `add`. The result does not depend on the order of the lessons, on their grouping into calls or
    on merging, but all frames of a lesson must come in the same call.

    The sums are float64. After every change, G is rounded to the five bytes per number that are
    stored in files, so saving and loading in between does not change a bit of the result.
    """

    @classmethod
    def to_file(cls, arrays: NumpyArrays) -> NumpyArrays:
        """Write G with five bytes per number, without loss; see `ClassArrays.to_file`."""
        return {**arrays, "gram": np.ascontiguousarray(five_bytes(to_numpy(arrays["gram"])))}

    @classmethod
    def from_file(cls, prefix: str, arrays: NumpyArrays) -> NumpyArrays:
        """Restore G from five bytes per number; see `ClassArrays.from_file`."""
        ArrayChecks(arrays, prefix).that("gram" in arrays, "gram", "is missing")
        return {**arrays, "gram": from_five_bytes(prefix + "gram", arrays["gram"])}

    def add(self, z: Array, columns: Array) -> None:
        """Add one lesson for each class in the batch.

        Args:
            z: The features of the frames, N x D.
            columns: The row of the class of each frame, on the device of z.
        """
        numbers = array_namespace(z).arange(self.rows, device=z.device)
        frames = float64(columns == numbers[:, None]).sum(1)  # n_l; 0 for an absent class
        n, s = self.n, self.s
        n += float64(frames > 0)
        self.arrays["t"] += float((frames > 0).sum())
        for start in range(0, len(z), CHUNK):
            some = slice(start, start + CHUNK)
            root = frames[columns[some]] ** 0.5
            x = float64(z[some]) / root[:, None]  # the frames z with the weights 1 / n_l
            s += (float64(columns[some] == numbers[:, None]) / root) @ x
            for gram, features in self.squares():
                add_gram(gram, x[:, features])
        self._shorten()

    def check_frames(self, prefix: str, taught: Mapping[int, int]) -> None:
        """Check n_c <= the number of frames of class c: a lesson has at least one frame."""
        enough = all(self.n[row] <= frames for row, frames in taught.items())
        problem = "counts more lessons than the manifest has frames"
        ArrayChecks(self.arrays, prefix).that(enough, "n", problem)

    def merge(self, other: SufficientStatistics, columns: Array) -> None:
        """Add all lessons that `other` has seen; see `SufficientStatistics.merge`."""
        super().merge(other, columns)
        self._shorten()

    def drop(self, row: int) -> None:
        """Forget a class; see `SufficientStatistics.drop`."""
        super().drop(row)
        self._shorten()

    def _shorten(self) -> None:
        shorten(self.gram)

    def beside(self, later: Self, arrays: NumpyArrays) -> NumpyArrays:
        """Store the rows that changed, and the difference of the two G as +-F^T F.

        A lesson of N frames adds F^T F to G, with an F of at most N rows, stored as `added`;
        forgetting a class subtracts F^T F with a single row, stored as `removed`. If F has more
        than `MOST_CHANGED` rows, G itself is stored. G is restored with the precision of float32.
        The arguments are those of `ClassArrays.beside`.
        """
        stored = rows_beside(self._rows(), later._rows(), arrays)
        if "gram" not in stored:
            return stored

        def change(packed: slice) -> Floats:  # of one block at a time, to save memory
            difference: Floats = to_numpy(later.gram[packed]) - to_numpy(self.gram[packed])
            return difference

        grown = sum(float(change(packed).sum()) for packed, _ in self.parts()) >= 0
        sign, name, largest = (1, "added", later) if grown else (-1, "removed", self)
        factors = []
        for packed, features in self.parts():
            squares = diagonal(to_numpy(largest.gram[packed]), features.stop - features.start)
            tolerance = CHANGE_PRECISION * squares + 1e-300
            factor = low_rank_factor(sign * change(packed), tolerance, MOST_CHANGED)
            if factor is None:
                return stored
            factors.append(factor.astype(np.float32))
        most = max(map(len, factors))
        padded = [np.pad(factor, ((0, most - len(factor)), (0, 0))) for factor in factors]
        del stored["gram"]
        return {**stored, name: np.concatenate(padded, axis=1)}

    def earlier(self, prefix: str, stored: NumpyArrays) -> NumpyArrays:
        """Restore the rows and G; see `ClassArrays.earlier`."""
        found = dict(rows_earlier(self._rows(), prefix, stored))
        for name, sign in (("added", 1), ("removed", -1)):
            if name in found:
                checks = ArrayChecks(stored, prefix)
                factor = checks.array(name, (None, self.dim), np.float32)
                checks.that(len(factor) <= MOST_CHANGED, name, f"has shape {factor.shape}")
                checks.at_most(name, MAX_FEATURE, "feature")
                gram = self.gram * 0
                if np.asarray(found.get("t", 1)).any():  # before the first lesson G is 0
                    x = float64(to_library_of(factor, gram))
                    for packed, features in self.parts():
                        add_gram(gram[packed], x[:, features])
                    gram = self.gram - sign * gram
                    shorten(gram)
                found["gram"] = five_bytes(to_numpy(gram))
                del found[name]
        return found

    def _rows(self) -> NumpyArrays:
        return {name: to_numpy(self.arrays[name]) for name in self.row_names}


class LessonSample(ClassArrays):
    """A sample of a few lessons per class: of each the mean, and the features of one frame.

    No picture is kept. The head judges its regressions by these lessons. Every lesson has a
    pseudo-random key, that of its mean (`feature_keys`), and the lessons with the smallest keys are
    kept. The features that are kept are those of the frame with the smallest key. The sample thus
    depends on the lessons only, not on the order of lessons or frames, and merging two samples
    gives the sample of all lessons of both.

    The sample also holds the reference of familiarity, which does not depend on the lessons: the
    centre around which cosines are taken (`LessonFamiliarity`), and the covariances of the cosines
    of arbitrary frames around it (`spread_of_cosines`).

    Args:
        arrays: `key`, classes x kept, ascending, 0 for an empty slot; `mean` and `frame`,
            classes x kept x D, float32; `centre`, D numbers, and `spread`, places x places, both
            float32 and 0 until they are set.
        blocks: The number of features of each place; D is their sum.
    """

    VECTORS: ClassVar[tuple[str, ...]] = ("mean", "frame")
    REFERENCE: ClassVar[tuple[str, ...]] = ("centre", "spread")
    row_names = ("key", *VECTORS)

    def __init__(self, arrays: Arrays, blocks: Sequence[int]) -> None:
        super().__init__(arrays)
        self.blocks = tuple(blocks)
        self.dim = sum(blocks)

    @classmethod
    def empty(cls, blocks: Sequence[int]) -> LessonSample:
        """Make a sample without lessons, in numpy.

        Args:
            blocks: The number of features of each place.

        Returns:
            The empty sample.
        """
        dim, places = sum(blocks), len(blocks)
        arrays = {
            "key": np.zeros((0, LESSONS_KEPT), np.int64),
            "mean": np.zeros((0, LESSONS_KEPT, dim), np.float32),
            "frame": np.zeros((0, LESSONS_KEPT, dim), np.float32),
            "centre": np.zeros(dim, np.float32),
            "spread": np.zeros((places, places), np.float32),
        }
        return cls(arrays, blocks)

    @classmethod
    def to_file(cls, arrays: NumpyArrays) -> NumpyArrays:
        """Write only the slots that hold a lesson, class by class; see `ClassArrays.to_file`.

        In files, `mean` and `frame` are lessons x D, and `key` ends with the last class that has a
        lesson.
        """
        key = to_numpy(arrays["key"])
        key = key[: 1 + max(np.nonzero(key)[0], default=-1)]
        there = {name: to_numpy(arrays[name])[: len(key)][key > 0] for name in cls.VECTORS}
        return {**arrays, "key": key, **there}

    @classmethod
    def from_file(cls, prefix: str, arrays: NumpyArrays) -> NumpyArrays:
        """Put every lesson into the slot of its key; see `ClassArrays.from_file`."""
        checks = ArrayChecks(arrays, prefix)
        key = checks.array("key", (None, LESSONS_KEPT))
        # this bounds the memory used by about the size of the file
        checks.that((key > 0).any(1).all(), "key", "has a class without a lesson")
        found = dict(arrays)
        for name in cls.VECTORS:
            there = checks.array(name, (int((key > 0).sum()), None), np.float32)
            found[name] = np.zeros((*key.shape, there.shape[1]), there.dtype)
            found[name][key > 0] = there
        return found

    def beside(self, later: Self, arrays: NumpyArrays) -> NumpyArrays:
        """Store the lessons of the classes that changed; see `ClassArrays.beside`."""
        return rows_beside(self._rows(), later._rows(), arrays)

    def earlier(self, prefix: str, stored: NumpyArrays) -> NumpyArrays:
        """Restore the lessons of all classes; see `ClassArrays.earlier`."""
        if "rows" not in stored:
            return stored
        return self.to_file(rows_earlier(self._rows(), prefix, stored))

    def _rows(self) -> NumpyArrays:
        """Return the arrays with one row per class, without the empty rows at their end."""
        taught = 1 + max(np.nonzero(to_numpy(self.arrays["key"]))[0], default=-1)
        return {name: to_numpy(self.arrays[name])[:taught] for name in self.row_names}

    def add(self, row: int, frames: Array) -> None:
        """Add a lesson if its key is among the smallest of its class.

        Args:
            row: The row of its class.
            frames: The features of its frames, N x D, in float64.
        """
        mean = float32(frames.mean(0))
        keys = feature_keys(frames)
        chosen = frames[keys.index(min(keys))]
        self._insert(row, feature_keys(mean[None])[0], [mean, float32(chosen)])

    def _insert(self, row: int, key: int, vectors: Sequence[Array]) -> None:
        """Insert a lesson in the order of keys; if there are too many, drop the last one."""
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
            other: A sample of the same features, on any device.
            columns: Our row for each of its classes, in their order; each row once.
        """
        where = self.arrays["mean"].device
        if not self.arrays["centre"].any():
            self.take_reference(other)
        for theirs, row in enumerate(columns.tolist()):
            for slot, key in enumerate(other.arrays["key"][theirs].tolist()):
                if key:
                    vectors = [other.arrays[name][theirs, slot] for name in self.VECTORS]
                    moved = [to_device(vector, where) for vector in vectors]
                    self._insert(int(row), int(key), moved)

    def set_reference(self, z: Array) -> None:
        """Set the centre and the spread from frames of arbitrary objects.

        Args:
            z: The features of at least two such frames, N x D.
        """
        centre = float64(z).mean(0)
        spread = spread_of_cosines(float64(z) - centre, self.places)
        self.restore_reference(float32(centre), float32(spread))

    def restore_reference(self, centre: Array, spread: Array) -> None:
        """Set the centre and the spread to values that `set_reference` computed earlier.

        Args:
            centre: D numbers in float32, on any device.
            spread: Places x places, in float32.
        """
        for name, array in zip(self.REFERENCE, (centre, spread), strict=True):
            self.arrays[name] = to_device(array, self.arrays[name].device) + 0

    def take_reference(self, other: LessonSample) -> None:
        """Set the centre and the spread to those of another sample.

        Args:
            other: A sample of the same features, on any device.
        """
        self.restore_reference(*(other.arrays[name] for name in self.REFERENCE))

    @property
    def places(self) -> tuple[slice, ...]:
        """The slice of the features that belongs to each place."""
        return tuple(consecutive(self.blocks))

    def lessons(self, known: int) -> Lessons:
        """List the lessons that are kept.

        Args:
            known: The number of classes.

        Returns:
            The kept lessons, class by class.
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
        own = ArrayChecks(self.arrays, prefix)
        key = own.array("key", (None, LESSONS_KEPT))
        own.that(len(key) >= known, "key", f"has {len(key)} rows for {known} classes")
        own.array("centre", (self.dim,))
        own.at_most("centre", MAX_FEATURE, "feature")
        own.array("spread", (len(self.blocks), len(self.blocks)))
        own.at_most("spread", 1, "covariance of cosines")
        own.that((key >= 0).all(), "key", "contains a negative key")
        filled = key > 0
        full_first = (filled[:, 1:] <= filled[:, :-1]).all()
        ascending = ((key[:, 1:] >= key[:, :-1]) | ~filled[:, 1:]).all()
        own.that(full_first and ascending, "key", "is not in ascending order")
        own.that(not key[known:].any(), "key", "has lessons of classes not there")
        for name in self.VECTORS:
            array = own.array(name, (*key.shape, self.dim))
            own.that(np.isfinite(array).all(), name, "contains NaN or infinity")
            own.that(not array[~filled].any(), name, "has a lesson without a key")


def feature_keys(z: Array) -> list[int]:
    """key = 1 + 2^53 frac(u z / (KEY_PERIOD |z|)),  u = random signs / sqrt(D)

    A key serves as a random number that is the same whenever the same frame comes again. u z / |z|
    varies over many periods, so the key is uniformly distributed and says nothing about the frame.
    But it changes little if the features change little, so another engine or device, whose features
    differ in the last bits, keeps the same lessons and frames.

    Args:
        z: The features of N frames, or the means of N lessons, N x D.

    Returns:
        N integers from 1 to 2^53.
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
    """x_h / |x_h| for each place h, side by side.

    Args:
        x: Features, N x D.
        places: The slice of the features that belongs to each place.

    Returns:
        The normalised features, N x D.
    """
    parts = [x[:, part] for part in places]
    scaled = [part / (part * part).sum(1).clip(1e-30)[:, None] ** 0.5 for part in parts]
    return array_namespace(x).concat(scaled, axis=1)


def spread_of_cosines(x: Array, places: Sequence[slice]) -> Array:
    """Compute the covariances of the cosine similarities of pairs of frames between places.

    In each place, every pair of different frames has one cosine similarity; the covariances are
    taken over all pairs.

    Args:
        x: The features of two or more frames, minus their mean, N x D.
        places: The slice of the features that belongs to each of the H places.

    Returns:
        The covariance matrix, H x H.
    """
    xp = array_namespace(x)
    unit = unit_vectors(x, places)
    cosines = xp.stack([(unit[:, part] @ unit[:, part].T).reshape(-1) for part in places])
    cosines = cosines[:, identity(len(x), x).reshape(-1) == 0]
    off = cosines - cosines.mean(1)[:, None]
    return off @ off.T / off.shape[1]
