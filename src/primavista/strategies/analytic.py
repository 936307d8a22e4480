"""What every analytic strategy shares: sums over frames, and a solve that waits until scores are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.errors import InputError
from primavista.heads.open_set import KNOWN, Familiarity, familiarity
from primavista.heads.statistics import Moments
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.merging import MergeableStrategy


class AnalyticStrategy(MergeableStrategy):
    """scores = w phi(z) + b, with w and b solved from `Moments` of phi(z): the same for any order and split of the frames.

    The features are those of the backbone as it is given; phi is the identity unless a strategy says otherwise. Scores are
    float64. `forget` takes the count, the sum and so the mean of a class out, exactly; its scatter around that mean, which
    is not kept for each class, stays in the pooled one.
    """

    known_from: ClassVar[float] = KNOWN
    GRAM: ClassVar[bool] = True  # whether G is needed

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        dim: int | None = None,
        blocks: Sequence[int] | None = None,
    ) -> None:
        super().__init__(backbone, seed=seed)
        self.moments = Moments(dim or self.backbone.dim, gram=self.GRAM, blocks=blocks)
        self._solved: tuple[Tensor, Tensor] | None = None
        self._familiar: Familiarity | None = None

    def phi(self, z: Tensor) -> Tensor:
        return z

    @property
    def open_set(self) -> bool:
        """Always."""
        return True

    @property
    def embeds(self) -> bool:
        """Always."""
        return True

    @property
    def sums(self) -> tuple[Tensor, Tensor]:
        """n and s of the known classes."""
        known = len(self.classes)
        return self.moments.n[:known], self.moments.s[:known]

    @property
    def means(self) -> Tensor:
        """mu = s / n of the known classes."""
        n, s = self.sums
        return s / n[:, None]

    @abstractmethod
    def solve(self) -> tuple[Tensor, Tensor]:
        """w (classes x D) and b (classes) from the moments of at least one class."""

    def precision(self) -> Tensor | None:
        """P of `parts/familiar.py`: the inverse of the regularised covariance that was solved with, D x D; None is I."""
        return None

    @torch.no_grad()
    def learn_batch(self, batch: Batch) -> LearnReport:
        self.moments.add(
            self.phi(self.features(batch)), batch.columns.to(self.device, non_blocking=True)
        )
        self._solved = None
        return LearnReport(batch.i, batch.count, batch.new)

    @torch.no_grad()
    def score_features(self, z: Tensor) -> Tensor:
        if not len(self.classes):
            return z.new_zeros(len(z), 0)
        w, b = self._solution()
        return self.phi(z).double() @ w.T + b

    def familiar(self) -> Familiarity:
        w, _ = self._solution()
        found = self._familiar
        if found is None:
            found = self._familiar = self.familiarity(w)
        return found

    def rest(self) -> None:
        self._solved = self._familiar = None

    def __getstate__(self) -> dict[str, Any]:
        """For copies: they are made to be changed, and solve anew."""
        return {**self.__dict__, "_solved": None, "_familiar": None}

    def familiarity(self, w: Tensor) -> Familiarity:
        """By how far a frame strays, unless a strategy knows better."""
        m = self.moments
        within = m.scatter() / m.t if self.GRAM else m.spread(len(self.classes))
        return familiarity(
            w, self.means, self.precision(), within, float(m.t if self.GRAM else m.n.sum())
        )

    def _solution(self) -> tuple[Tensor, Tensor]:
        found = self._solved  # read once: another thread may `rest`
        if found is None:
            try:
                found = self.solve()
                self._solved, self._familiar = found, None
            except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
                raise InputError(
                    f"the statistics are no sums over frames: {error}. Was the file altered?"
                ) from error
        return found

    def _merge(self, other: Self, columns: Tensor) -> None:
        self.moments.merge(other.moments, columns)
        self._solved = None

    def _forgot(self, label: int) -> None:
        self._solved = None

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._solved = None

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._solved = None  # it stays where it was; the moments may move
        return super()._apply(*args, **kwargs)
