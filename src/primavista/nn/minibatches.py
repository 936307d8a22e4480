"""The order of the patterns of an epoch, in torch: seeded generators and shuffled minibatches."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from primavista.heads.shuffling import minibatch_count, seed_of


def generator(*key: int) -> torch.Generator:
    """Return a new CPU generator, seeded by integers such as (seed, batch, epoch)."""
    return torch.Generator().manual_seed(seed_of(*key))


def shuffled_minibatches(
    count: int, size: int, order: torch.Generator | None, device: torch.device | str = "cpu"
) -> Iterator[Tensor]:
    """Shuffle the indices 0 .. count - 1 and split them evenly into minibatches of at most `size`.

    >>> [len(index) for index in shuffled_minibatches(300, 128, generator(0))]
    [100, 100, 100]
    """
    shuffled = torch.randperm(count, generator=order).to(device)
    return iter(shuffled.tensor_split(minibatch_count(count, size)))


def composed_minibatches(
    counts: tuple[int, int],
    sizes: tuple[int, int],
    order: torch.Generator | None,
    device: torch.device | str = "cpu",
) -> Iterator[Tensor]:
    """Compose minibatches of a fixed number of patterns from each of two shuffled groups.

    The indices 0 .. counts[0] - 1 belong to the first group, and the following ones to the second.
    One epoch is one pass over the first group. A group that runs out starts again in the same
    order, so all minibatches have the same composition, however few patterns there are.

    >>> minibatches = list(composed_minibatches((300, 1500), (21, 107), generator(0)))
    >>> len(minibatches), [int((index < 300).sum()) for index in minibatches] == [21] * 15
    (15, True)
    """
    steps = minibatch_count(counts[0], sizes[0])
    groups, start = [], 0
    for count, size in zip(counts, sizes, strict=True):
        shuffled = start + torch.randperm(count, generator=order)
        groups.append(shuffled[torch.arange(steps * size) % count].reshape(steps, size))
        start += count
    return iter(torch.cat(groups, 1).to(device))
