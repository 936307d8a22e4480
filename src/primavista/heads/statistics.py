"""The sufficient statistics of every analytic head: sums over frames, so that no order or split of them matters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from primavista.heads.ridge import Algebra, within
from primavista.nn.class_rows import Rows
from primavista.storage.packed import add_gram, packed_size, subtract_outer, unpack

CHUNK = 1024  # frames in one product, and in float64 at once


class Moments(Rows):
    """n_c = sum 1,  s_c = sum z  of each class, and G = sum z z^T over all t frames; in float64.

    With `gram=False` only q_c = sum |z|^2 of each class is kept in place of G. G is half a matrix, D (D + 1) / 2 numbers; of
    features that come in `blocks` of such sizes, half of each square on its diagonal. Adding up is all that learning and
    merging do, so the result is the same for any order and any split, but for the rounding of sums in float64.
    """

    n: Tensor
    s: Tensor
    t: Tensor
    gram: Tensor
    q: Tensor

    def __init__(self, dim: int, gram: bool = True, blocks: Sequence[int] | None = None) -> None:
        super().__init__()
        self.dim, self.has_gram, self.blocks = dim, gram, tuple(blocks or (dim,))
        self.add_rows("n", torch.zeros(0, dtype=torch.float64))
        self.add_rows("s", torch.zeros(0, dim, dtype=torch.float64))
        if gram:
            self.register_buffer("t", torch.zeros((), dtype=torch.float64))
            self.register_buffer(
                "gram", torch.zeros(sum(map(packed_size, self.blocks)), dtype=torch.float64)
            )
        else:
            self.add_rows("q", torch.zeros(0, dtype=torch.float64))

    @torch.no_grad()
    def add(self, z: Tensor, columns: Tensor) -> None:
        """Learn features (N x D) of classes in `columns`."""
        for part, present in zip(z.split(CHUNK), columns.split(CHUNK), strict=True):
            self._add(
                part.double(),
                (present == torch.arange(len(self.n), device=z.device)[:, None]).double(),
            )

    def _add(self, z: Tensor, members: Tensor) -> None:
        self.n += members.sum(1)
        self.s += members @ z  # not index_add_, whose order is not fixed on a GPU
        if self.has_gram:
            self.t += len(z)
            for gram, features in self.squares():
                add_gram(gram, z[:, features])
        else:
            self.q += members @ (z * z).sum(1)

    @torch.no_grad()
    def merge(self, other: Moments, columns: Tensor) -> None:
        """Learn all that `other` did; its class k is our row `columns[k]`."""
        known = len(columns)
        self.n.index_add_(0, columns, other.n[:known].to(self.n.device))
        self.s.index_add_(0, columns, other.s[:known].to(self.s.device))
        if self.has_gram:
            self.t += other.t.to(self.t.device)
            self.gram += other.gram.to(self.gram.device)
        else:
            self.q.index_add_(0, columns, other.q[:known].to(self.q.device))

    @torch.no_grad()
    def drop(self, row: int) -> None:
        """Forget a class: G <- G - s s^T / n, then its row goes. What stays is its scatter around its own mean, in G and t."""
        if self.has_gram and self.n[row] > 0:
            for gram, columns in self.squares():
                subtract_outer(gram, self.s[row, columns] / self.n[row].sqrt())
        super().drop(row)

    @torch.no_grad()
    def scatter(self) -> Tensor:
        """S, D x D: the sum over all frames of (z - mu)(z - mu)^T, mu the mean of the frame's own class; of one block."""
        (scatter,) = (scatter for scatter, _ in self.scatters())
        return scatter

    @torch.no_grad()
    def scatters(self) -> Iterator[tuple[Tensor, slice]]:
        """The scatter of each block, and where in the features the block lies."""
        for gram, columns in self.squares():
            yield self._within(gram, columns), columns

    def _within(self, gram: Tensor, columns: slice) -> Tensor:
        size = columns.stop - columns.start
        out = torch.empty(size, size, dtype=torch.float64, device=gram.device)
        scatter: Tensor = within(self.n, self.s[:, columns], unpack(gram, out))
        return scatter

    def squares(self) -> Iterator[tuple[Tensor, slice]]:
        """The packed G of each block, and where in the features the block lies."""
        at = start = 0
        for size in self.blocks:
            end = at + packed_size(size)
            yield self.gram[at:end], slice(start, start + size)
            at, start = end, start + size

    def spread(self, known: int) -> float:
        """tr S / t: the mean of |z - mu|^2, in the last block; without G over the first `known` classes."""
        if self.has_gram:
            *_, (gram, columns) = self.squares()
            return float(self._within(gram, columns).trace() / self.t)
        n, s = self.n[:known], self.s[:known]
        return float((self.q[:known] - (s * s).sum(1) / n).sum().clip(0) / n.sum())

    @property
    def algebra(self) -> Algebra:
        """torch's, where the statistics are."""
        device = self.n.device
        return Algebra(
            lambda shape: torch.zeros(shape, dtype=torch.float64, device=device),
            torch.linalg.cholesky,
            lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a)),
            torch.linalg.eigh,
            torch.linalg.qr,
            lambda array: torch.from_numpy(array).to(device),
        )
