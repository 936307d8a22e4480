"""Statistics with one Gram matrix per block of features."""

from __future__ import annotations

import numpy as np
import torch

from primavista.heads.statistics import SufficientStatistics, unpack, within_class_scatter
from primavista.nn.class_rows import ArrayBuffers


def data(frames, dim, classes, seed):
    random = np.random.default_rng(seed)
    labels = np.arange(frames) % classes
    z = random.normal(size=(frames, dim)) @ random.normal(size=(dim, dim)) + 3
    return z + 4 * random.normal(size=(classes, dim))[labels], labels


def scatters(sums):
    """The scatter within classes of each block, with the slice of its features."""
    found = []
    for gram, features in sums.squares():
        size = features.stop - features.start
        square = torch.empty((size, size), dtype=torch.float64)
        scatter = within_class_scatter(sums.n, sums.s[:, features], unpack(gram, square))
        found.append((scatter, features))
    return found


def test_blocks_of_statistics_are_the_squares_of_the_whole():
    z, labels = data(50, 12, 3, seed=9)
    whole = SufficientStatistics.empty(12)
    parts, both = (SufficientStatistics.empty(12, blocks=(5, 3, 4)) for _ in range(2))
    for sums in (whole, parts, both):
        ArrayBuffers(sums)  # in torch
    for sums in (whole, parts):
        sums.expand(3)
        sums.add(torch.from_numpy(z), torch.from_numpy(labels))
        sums.drop(1)
    assert parts.gram.numel() == 15 + 6 + 10
    found = scatters(parts)
    assert [columns for _, columns in found] == [slice(0, 5), slice(5, 8), slice(8, 12)]
    for scatter, columns in found:
        assert torch.allclose(scatter, whole.scatter()[columns, columns], rtol=1e-10)
    both.expand(3)
    for _ in range(2):
        both.merge(parts, torch.tensor([0, 1]))
    for (double, _), (single, _) in zip(scatters(both), found, strict=True):
        assert torch.allclose(double, 2 * single, rtol=1e-10)
