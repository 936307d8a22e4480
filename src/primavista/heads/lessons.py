"""Ridge regressions of several places, weighed by lessons that they have not seen.

The unit of independence is the lesson (`LessonStatistics`). Of each class a few lessons are kept
(`LessonSample`); each is left out of the regressions in turn (`fit_place`), and what they then say
of it decides how much each place counts (`place_weights`). Everything is written for numpy and
torch arrays alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from array_api_compat import array_namespace, to_device

from ..errors import InputError
from .arrays import Array, float64, to_library_of
from .base import AnalyticHead
from .lesson_sample import Lessons, LessonSample
from .lesson_statistics import LessonStatistics
from .place_fit import PlaceFit, fit_place, origin_of_scores, strange_scores
from .place_weights import place_weights
from .strangers import (
    Floats,
    LessonFamiliarity,
    expected_strangers,
    lessons_lifted,
    middle_shares,
    unit_vectors,
    usual_room,
)


class PlaceJudgement(NamedTuple):
    """What lessons that were not seen say of the regressions.

    Args:
        beta: the weight of each place, see `place_weights`.
        trust: the mean score of such a lesson for its own class, as a share of that of a lesson
            that was seen, 0 if there is none: what scores are worth in another place.
        strange: the scores of a frame of each lesson by the regressions without its class, L x K,
            as shares.
    """

    beta: list[float]
    trust: float
    strange: Floats


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
