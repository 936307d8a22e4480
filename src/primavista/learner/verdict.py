"""The verdict of a strategy on frames."""

from __future__ import annotations

from dataclasses import dataclass

from primavista.backbones.places import Floats


@dataclass(frozen=True)
class Verdict:
    """The scores and the familiarity of frames, in numpy.

    Args:
        scores: N x K; softmax(scores / temperature) gives probabilities.
        temperature: The calibration of the scores.
        familiarity: One value per frame; None if the strategy does not recognise strangers.
    """

    scores: Floats
    temperature: float
    familiarity: Floats | None
