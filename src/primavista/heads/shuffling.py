"""The random order of the patterns of an epoch, which is the same with and without torch."""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Any

import numpy as np


def seed_of(*key: int) -> int:
    """Compute a seed from several integers.

    Args:
        key: The integers, for example (seed, batch, epoch).
    """
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little") >> 1


def minibatch_count(count: int, size: int) -> int:
    """Return the number of minibatches that a batch is split into, at least 1.

    Args:
        count: The number of patterns.
        size: The largest number of patterns in a minibatch.
    """
    return max(1, math.ceil(count / size))


def permutation(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Return the result of `torch.randperm(count)` for a CPU generator with this seed.

    The algorithm is a Fisher-Yates shuffle with the Mersenne twister.

    Args:
        count: The number of patterns.
        seed: The seed of the generator.

    >>> permutation(5, 0).tolist()
    [4, 0, 1, 3, 2]
    """
    draws = np.random.RandomState(seed % 2**32).randint(0, 2**32, count, dtype=np.uint32)
    order = np.arange(count)
    for i, draw in enumerate(draws.tolist()):
        j = i + draw % (count - i)
        order[i], order[j] = order[j], order[i]
    return order
