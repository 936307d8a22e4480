"""How CWR+ and CWR* consolidate (paper, Algorithms 1 and 2). Written for numpy and torch arrays alike."""

from __future__ import annotations

from typing import Any, Literal

Array = Any  # a numpy array or a torch tensor: only what both understand is used here
Consolidation = Literal["cwr+", "cwr*"]
WPast = Literal["sqrt", "ratio"]


def consolidate(
    cw: Array, past: Array, tw: Array, columns: Array, cur: Array, kind: Consolidation, wpast: WPast
) -> None:
    """CWR*, lines 11 to 14: cw[j] = (cw[j] wpast_j + (tw[j] - avg(tw))) / (wpast_j + 1),  wpast_j = sqrt(past_j / cur_j)

    for each class j of the batch, then past_j += cur_j. CWR+, lines 10 and 11: cw[j] = tw[j] - avg(tw). avg(tw) is one number:
    the mean over all the weights of the batch's classes. `tw` has their rows only; `wpast="ratio"` leaves the root out.
    """
    shifted = tw - tw.mean()
    if kind == "cwr+":
        cw[columns] = shifted
    else:
        weight = past[columns] / cur
        if wpast == "sqrt":
            weight = weight**0.5
        cw[columns] = (cw[columns] * weight[:, None] + shifted) / (weight[:, None] + 1)
    past[columns] += cur
