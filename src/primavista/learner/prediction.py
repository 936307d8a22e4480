"""Predictions: what a frame or a clip shows, and whether it was ever taught."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from primavista.arrays import softmax
from primavista.heads.base import Judgement
from primavista.learner.coach import NOTHING
from primavista.storage.names import UNKNOWN

CONFIDENCE_THRESHOLD = 0.1  # for strategies that have no familiarity
LIKELY_FROM = 0.65  # the familiarity from which on a name is worth a question, if it is a rank
LIKELY_CONFIDENCE = 0.5

Answer: TypeAlias = Literal["known", "likely", "unknown"]


@dataclass(frozen=True, repr=False)
class Prediction:
    """The answer of a learner to one frame, or to several frames of one clip together.

    Args:
        label: The most likely name, or None if nothing has been taught yet.
        confidence: The probability of `label` among the known names, from 0 to 1.
        answer: "known" if the frame shows something that was taught: its familiarity (or, for
            strategies without one, its confidence) reaches the threshold of the learner; "likely"
            if `label` is more probably right than not, but worth asking about; else "unknown".
        scores: The probability of each known name; they sum to 1.
        familiarity: Near 1 if the frame is like what was taught, towards 0 if it is like nothing
            that was taught; with `prima` the share of strangers that look less like it. None if
            the strategy cannot tell.
    """

    label: str | None
    confidence: float
    answer: Answer
    scores: dict[str, float] = field(default_factory=dict)
    familiarity: float | None = None

    @property
    def known(self) -> bool:
        """Whether the answer is "known"."""
        return self.answer == "known"

    @property
    def said(self) -> str:
        """The answer as a word: "mug", "mug?" if it is only likely, or "unknown".

        >>> [Prediction("mug", 0.9, answer).said for answer in ("known", "likely", "unknown")]
        ['mug', 'mug?', 'unknown']
        """
        if self.label is None or self.answer == "unknown":
            return UNKNOWN
        return self.label if self.known else f"{self.label}?"

    @property
    def recognised_object(self) -> str | None:
        """The name of the known object, or None: if it is unknown, or if it is the background.

        The background is what lessons named "nothing" show; it is never a known object.

        >>> answers = [Prediction("mug", 0.9, "known"), Prediction("mug", 0.4, "unknown")]
        >>> [one.recognised_object for one in [*answers, Prediction("nothing", 0.9, "known")]]
        ['mug', None, None]
        """
        return self.label if self.known and self.label != NOTHING else None

    def __repr__(self) -> str:
        facts = [
            f"label={self.label!r}",
            f"confidence={self.confidence:.3g}",
            f"answer={self.answer!r}",
        ]
        if self.familiarity is not None:
            facts.append(f"familiarity={self.familiarity:.3g}")
        return f"Prediction({', '.join(facts)})"


def is_known(confidence: float, names: int, familiarity: float | None, threshold: float) -> bool:
    """f >= threshold, or without a familiarity (p - 1/K) / (1 - 1/K) >= threshold.

    Return True if a frame counts as known.

    Args:
        confidence: The probability p of the most likely name.
        names: The number K of known names. With one name and no familiarity every frame is known.
        familiarity: The familiarity f, or None if the strategy cannot tell; then p decides, by how
            far it has gone from an even share, 1/K, to certainty.
        threshold: From 0 to 1.

    >>> is_known(0.5, 2, None, 0.1), is_known(0.6, 2, None, 0.1), is_known(0.5, 2, 0.4, 0.3)
    (False, True, True)
    """
    if familiarity is not None:
        return familiarity >= threshold
    return names == 1 or (confidence - 1 / names) / (1 - 1 / names) >= threshold


@dataclass(frozen=True)
class AnswerRule:
    """When an answer is known, likely or unknown.

    An answer is known if the frame looks more like what was taught than the share `threshold` of
    strangers does. Otherwise it is likely if the frame looks more like it than `LIKELY_FROM` of
    them and the name has a probability of at least `LIKELY_CONFIDENCE`. docs/lab/unknown.md says
    how many of these names are right.

    Args:
        threshold: The threshold of the learner, from 0 to 1.
        ranked: Whether the familiarity is a rank among strangers, so that 1 - `threshold` is the
            share of strangers that are called known. Without it, no answer is likely.
        correlation: The correlation of the familiarity of two frames of one clip, for `fuse`.
    """

    threshold: float
    ranked: bool = False
    correlation: float = 1.0

    def answer(self, confidence: float, names: int, familiarity: float | None) -> Answer:
        """Return the answer to a frame or a clip; the arguments are those of `is_known`.

        >>> rule = AnswerRule(0.9, ranked=True)
        >>> [rule.answer(0.8, 5, familiarity) for familiarity in (0.9, 0.7, 0.5)]
        ['known', 'likely', 'unknown']
        """
        if is_known(confidence, names, familiarity, self.threshold):
            return "known"
        if not self.ranked or familiarity is None:
            return "unknown"
        likely = familiarity >= LIKELY_FROM and confidence >= LIKELY_CONFIDENCE
        return "likely" if likely else "unknown"


def named_predictions(
    columns: Sequence[str | None], judged: Judgement, rule: AnswerRule
) -> list[Prediction]:
    """Turn scores and familiarity into predictions by name.

    Args:
        columns: The name of each column of the scores; None for one that was not taught yet.
        judged: The scores of the frames, and their familiarity if the strategy can tell.
        rule: That of the learner.
    """
    taught = [j for j, name in enumerate(columns) if name is not None]
    labels = [name for name in columns if name is not None]
    shares = softmax(judged.scores[:, taught].astype(np.float64) / judged.temperature).tolist()
    familiarities: list[float | None] = [None] * len(shares)
    if judged.familiarity is not None:
        familiarities = judged.familiarity.tolist()
    found = []
    for row, familiarity in zip(shares, familiarities, strict=True):
        confidence = max(row)
        answer = rule.answer(confidence, len(labels), familiarity)
        label = labels[row.index(confidence)]
        by_name = dict(zip(labels, row, strict=True))
        found.append(Prediction(label, confidence, answer, by_name, familiarity))
    return found
