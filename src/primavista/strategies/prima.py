"""Prima: one ridge regression per place of the network, weighted by lessons.

The benchmark uses this class. A `Learner` joins the same head to its network without torch, in
`learner/head_strategy.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from primavista.backbones.reference import generic_frames
from primavista.heads.open_set import LESSON_THRESHOLD
from primavista.heads.prima import LessonHead, PrimaOptions
from primavista.networks.base import Backbone
from primavista.networks.places import MiddleBackbone, shipped_reference_of
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.frozen import AnalyticStrategy


class Prima(AnalyticStrategy):
    """One ridge regression per place of the backbone, weighted by lessons; see `LessonHead`.

    The places are the backbone's own features and the centre of its maps (`MiddleBackbone`). A
    lesson is all frames of a class in one batch or, if sessions are given, in one session of the
    batch. The result does not depend on the order of the lessons, on their grouping into batches or
    on merging. The state is one Gram matrix per place, 17 MB in float64 for MobileNet v1 (10.5 MB
    in files), and per class 41 kB for the sum and 164 kB for a few lessons.

    Args:
        backbone: The network; a copy of it is kept, and read at seven places.
        given: `seed`, which is kept in files; nothing is random.
    """

    OPTIONS = PrimaOptions
    head: LessonHead
    known_from = LESSON_THRESHOLD

    def __init__(self, backbone: Backbone, **given: Any) -> None:
        super().__init__(MiddleBackbone(backbone), **given)

    @torch.no_grad()
    def learn_batch(self, B: Batch) -> LearnReport:
        """Learn one batch, lesson by lesson.

        Args:
            B: The batch, checked.

        Returns:
            The report.
        """
        if not self.head.has_reference:
            self._set_reference()
        z, columns = self.features(B), B.columns.to(self.device)
        for lesson in _sessions(B):
            own = lesson.to(self.device)
            self.head.learn(z[own], columns[own], B.i)
        return LearnReport(B.i, B.count, B.new)

    def _set_reference(self) -> None:
        """Set the reference of familiarity: the shipped one, or else computed from 48 frames."""
        found = shipped_reference_of(self.backbone)
        if found is not None:
            self.head.sample.restore_reference(*found)
        else:
            frames = torch.from_numpy(generic_frames(self.backbone.spec.size))
            self.head.set_reference(self.representation.features(frames, frozen=True))


def _sessions(B: Batch) -> Iterator[Tensor]:
    """Yield the indices of the frames of each session; of all frames if sessions are unknown."""
    if B.sessions is None:
        yield torch.arange(B.count)
        return
    for session in B.sessions.unique():
        yield (B.sessions == session).nonzero()[:, 0]
