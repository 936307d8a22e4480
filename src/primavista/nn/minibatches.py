"""Minibatches: seeded generators, and shuffled indices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from primavista.shuffling import minibatch_count, seed_of


def generator(*key: int) -> torch.Generator:
    """Return a CPU generator seeded by integers: no random state is ever stored.

    Args:
        key: for example (seed, batch, epoch).
    """
    return torch.Generator().manual_seed(seed_of(*key))


def shuffled_minibatches(
    count: int, size: int, order: torch.Generator | None, device: torch.device | str = "cpu"
) -> Iterator[Tensor]:
    """Shuffle the indices 0 .. count - 1 and split them into minibatches of nearly equal size.

    Args:
        count: the number of patterns.
        size: the largest number of patterns in a minibatch.
        order: the generator of the permutation, the same on every device.
        device: where the indices go.

    >>> [len(index) for index in shuffled_minibatches(300, 128, generator(0))]
    [100, 100, 100]
    """
    shuffled = torch.randperm(count, generator=order).to(device)
    return iter(shuffled.tensor_split(minibatch_count(count, size)))
