"""Predictions: what a frame or a clip shows, and whether it was ever taught."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prediction:
    """The answer for one frame, or for several frames of one clip together.

    Args:
        label: The likeliest name; None if nothing was taught.
        confidence: Its probability among the known names.
        known: Whether the frame shows something that was taught.
        scores: The probability of each name.
        familiarity: Near 1 if the frame is like what was taught, towards 0 if it is like nothing
            that was taught; with `prima` the share of strangers that look less like it. None if
            the learner cannot tell.
    """

    label: str | None
    confidence: float
    known: bool
    scores: dict[str, float] = field(default_factory=dict)
    familiarity: float | None = None


def is_known(confidence: float, names: int, familiarity: float | None, threshold: float) -> bool:
    """f >= threshold, or without a familiarity (p - 1/K) / (1 - 1/K) >= threshold.

    Args:
        confidence: The probability p of the likeliest name.
        names: The number K of known names.
        familiarity: The familiarity f; None if the learner cannot tell.
        threshold: From 0 to 1.

    Returns:
        Whether the frame or clip counts as known.
    """
    if familiarity is not None:
        return familiarity >= threshold
    return names == 1 or (confidence - 1 / names) / (1 - 1 / names) >= threshold
