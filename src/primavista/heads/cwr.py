"""CWR* and CWR+: the consolidation step in numpy or torch, and the place of every other line.

| line | Algorithm 1 (CWR*) | in torch, `cwr_head.py` | on fixed features, `frozen_cwr.py` |
|---|---|---|---|
| 2, 3 | cw = 0, past = 0 | `CWRHead` | `ConsolidatedWeights` |
| 6 | expand the output layer for new classes | `CWRHead.grow`, of `Rows` | `FrozenCWRHead.expand` |
| 7 | tw[j] = cw[j] if class j is in B_i, else 0 | `CWRHead.load` | `temporary_weights` |
| 8 to 10 | train tw, in batch 1 Theta too (AR1*: always) | the strategy | `train` |
| 11 to 14 | cw[j] and past_j of the classes in B_i | `consolidate`, below | the same |
| 15 | test by Theta and cw | `CWRHead.scores` | `FrozenCWRHead.scores` |
"""

from __future__ import annotations

from typing import Literal

from primavista.arrays import Array

Consolidation = Literal["cwr+", "cwr*"]
HeadKind = Literal["linear", "cwr+", "cwr*"]
WPast = Literal["sqrt", "ratio"]


def consolidate(
    cw: Array,
    past: Array,
    tw: Array,
    present: Array,
    cur: Array,
    consolidation: Consolidation,
    wpast_rule: WPast,
) -> None:
    """cw[j] = (cw[j] wpast_j + (tw[j] - avg(tw))) / (wpast_j + 1),  wpast_j = sqrt(past_j / cur_j)

    Algorithm 1, lines 11 to 14, for each class j of the batch, then past_j += cur_j. CWR+
    (Algorithm 2, lines 10 and 11) sets cw[j] = tw[j] - avg(tw). avg(tw) is one number, the mean
    over all weights of the classes of the batch.

    Args:
        cw: The consolidated weights, rows x D; updated in place.
        past: The pattern counts, rows; updated in place.
        tw: The temporary weights of the classes of the batch only.
        present: The rows of these classes.
        cur: The number of patterns of each of these classes in the batch.
        consolidation: The algorithm, `cwr*` or `cwr+`.
        wpast_rule: `sqrt`, or `ratio`, which omits the square root.
    """
    shifted = tw - tw.mean()
    if consolidation == "cwr+":
        cw[present] = shifted
    else:
        wpast = past[present] / cur
        if wpast_rule == "sqrt":
            wpast = wpast**0.5
        wpast = wpast[:, None]
        cw[present] = (cw[present] * wpast + shifted) / (wpast + 1)
    past[present] += cur
