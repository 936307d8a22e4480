"""DSLDA: deep streaming linear discriminant analysis (Hayes & Kanan 2020) on fixed features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.heads.dslda import lda_update, oas_covariance, offsets, shrunk
from primavista.heads.linear import LinearHead
from primavista.heads.open_set import KNOWN, Familiarity, lda_familiarity
from primavista.nn.class_rows import Rows
from primavista.strategies.base import Batch, LearnReport
from primavista.strategies.embedding import EmbeddingStrategy
from primavista.strategies.gradient import GradientStrategy
from primavista.strategies.options import Options


@dataclass(frozen=True)
class DSLDAOptions(Options):
    """`tab:hyper_core50`, DSLDA: shrinkage 1e-4, plastic covariance. Features are ImageNet's unless `tune`."""

    shrinkage: float = 1e-4
    tune: bool = False  # train the representation on batch 1 first, with a linear head that is then thrown away
    base_init: bool = False  # begin with the OAS covariance of batch 1, as its authors do
    open_set: bool = False  # tell what was never taught, and calibrate the shares


class Statistics(Rows):
    """The mean mu and the count n of each class, and S = t Sigma; in float64. n and t stay on the CPU."""

    mu: Tensor
    n: Tensor
    scatter: Tensor
    t: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.add_rows("mu", torch.zeros(0, dim, dtype=torch.float64))
        self.add_rows("n", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("scatter", torch.zeros(dim, dim, dtype=torch.float64))
        self.register_buffer("t", torch.zeros((), dtype=torch.int64))

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        counts = {"n": self.n, "t": self.t}
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._buffers.update(counts)
        return self


class DSLDA(EmbeddingStrategy, GradientStrategy):
    """scores = w z + b,  w = Lambda mu,  b = -mu^T Lambda mu / 2,  Lambda = inv((1 - eps) Sigma + eps I)

    with one covariance Sigma for all classes, updated with every sample. A batch is one matrix product, and the Cholesky solve
    waits until scores are asked for. What `forget` leaves is a class' share in Sigma.
    """

    IN_RELEASE = False
    known_from: ClassVar[float] = KNOWN
    OPTIONS = DSLDAOptions
    options: DSLDAOptions

    def __init__(
        self,
        backbone: Backbone,
        *,
        seed: int = 0,
        options: Options | None = None,
        **overrides: object,
    ) -> None:
        super().__init__(backbone, seed=seed, options=options, **overrides)
        del self.head  # tuning makes one for its batch
        self.statistics = Statistics(self.backbone.dim)
        self._solved: tuple[Tensor, Tensor] | None = None
        self._familiar: Familiarity | None = None

    def phi(self, z: Tensor) -> Tensor:
        return z

    @property
    def open_set(self) -> bool:
        return self.options.open_set

    @property
    def embeds(self) -> bool:
        """Always, unless batch 1 tunes the representation."""
        return not (self.options.tune and self.i == 1)

    def _rows_for(self, classes: int) -> int:
        return classes

    @torch.no_grad()
    def learn_batch(self, batch: Batch) -> LearnReport:
        losses: tuple[float, ...] = ()
        if self.options.tune and batch.i == 1:
            losses = self._tune(batch)
        z = self.features(batch).double()
        y, s = batch.columns, self.statistics
        if self.options.base_init and int(s.t) == 0:
            self._base_init(z, y)
        else:
            s.t.fill_(lda_update(s.mu, s.n, s.scatter, int(s.t), z, y))
        self._solved = None
        return LearnReport(batch.i, batch.count, batch.new, losses)

    def score_features(self, z: Tensor) -> Tensor:
        w, b = self._solution()
        return z @ w.T + b

    def familiar(self) -> Familiarity | None:
        """See `lda_familiarity`."""
        if not self.open_set:
            return None
        self._solution()
        found = self._familiar  # read once: another thread may solve
        if found is None:
            s, one = (
                self.statistics,
                torch.eye(self.backbone.dim, dtype=torch.float64, device=self.device),
            )
            mu, t = s.mu[: len(self.classes)], max(int(s.t), 1)
            found = self._familiar = lda_familiarity(
                mu, s.scatter, t, self.options.shrinkage, one, _cholesky_solve
            )
        return found

    def _solution(self) -> tuple[Tensor, Tensor]:
        if (system := self.system()) is not None:
            self.solved(_cholesky_solve(system[0], system[1].T).T)
        assert self._solved is not None
        return self._solved

    def system(self) -> tuple[Tensor, Tensor] | None:
        if self._solved is not None:
            return None
        s = self.statistics
        return shrunk(s.scatter, int(s.t), self.options.shrinkage), s.mu[: len(self.classes)]

    def solved(self, w: Tensor) -> None:
        b = offsets(w, self.statistics.mu[: len(self.classes)])
        self._solved, self._familiar = (w.float(), b.float()), None

    def _forgot(self, label: int) -> None:
        super()._forgot(label)
        self._solved = None

    def _load_from_state_dict(self, *args: object) -> None:
        super()._load_from_state_dict(*args)
        self._solved = None

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._solved = None  # it stays where it was; the statistics may move
        return super()._apply(*args, **kwargs)

    def _tune(self, batch: Batch) -> tuple[float, ...]:
        self.head = LinearHead(self.backbone.dim, self.options.capacity).to(self.device)
        self.head.grow(len(self.classes))
        with torch.enable_grad():
            losses = self._sgd(batch, self._weights(batch.i))
        del self.head
        return tuple(losses.tolist())

    def _base_init(self, z: Tensor, y: Tensor) -> None:
        s = self.statistics
        for j in y.unique().tolist():
            own = z[y == j]
            s.mu[j], s.n[j] = own.mean(0), len(own)
        s.scatter.copy_(oas_covariance(z - s.mu[y]) * len(z))
        s.t.fill_(len(z))


def _cholesky_solve(a: Tensor, b: Tensor) -> Tensor:
    return torch.cholesky_solve(b, torch.linalg.cholesky(a))
