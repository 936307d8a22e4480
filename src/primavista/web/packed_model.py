"""The network and a model in a small form for the page; web/learner/packed_model.js unpacks them.

The page has the network already, and it has no use for the last undo. The sums of prima are
rounded: G_ij to 2^-14 of the bound on it, the others to 2^-14 and 2^-24 of the largest number of
their array. This changes scores by less than 0.001. The bytes of each array are sorted by their
position in its numbers, because gzip then finds more that is alike.

What the page unpacks is, to the byte, the file that `Learner.save` writes of the rounded model, and
the page checks it like any other file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from primavista.heads.base import five_bytes, from_five_bytes
from primavista.heads.prima import LessonHead
from primavista.heads.statistics import diagonal, packed_size, unpack_lower
from primavista.learner.head_strategy import HeadStrategy
from primavista.learner.learner import Learner
from primavista.learner.strategy import BACKBONE
from primavista.storage.learner_file import encode, same_bits

NumpyArray = np.ndarray[Any, Any]
BODY = BACKBONE + "body."
GRAM = "moments.gram"
GRAM_BITS = 14
BITS = {"lessons.mean": 14, "lessons.frame": 14, "moments.s": 24}  # of the other rounded arrays


def packed_network(data: bytes) -> bytes:
    """Return a safetensors file with the bytes of each array sorted.

    Args:
        data: The bytes of the file.
    """
    arrays = load_safetensors(data)
    return save_safetensors(
        {name: _sorted(a).view(a.dtype).reshape(a.shape) for name, a in arrays.items()}
    )


def packed_model(learner: Learner, network: bytes) -> bytes:
    """Return a learner as a safetensors file that the page unpacks.

    Args:
        learner: The learner. Its last undo is left out.
        network: The file of the network of the page, which is left out if the learner has the same.
    """
    arrays, manifest = learner.without_undo().content()
    shared = {BODY + name: array for name, array in load_safetensors(network).items()}
    parts: dict[str, NumpyArray] = {}
    head = learner.strategy.head if isinstance(learner.strategy, HeadStrategy) else None
    if isinstance(head, LessonHead):
        blocks = head.statistics.blocks
        arrays[GRAM], steps, exponents = _rounded_gram(arrays[GRAM], blocks)
        parts[f"{GRAM}/steps"] = _sorted(steps)
        parts[f"{GRAM}/exponents"] = exponents
        parts[f"{GRAM}/blocks"] = np.asarray(blocks, np.int64)
        for name, bits in BITS.items():
            step = np.exp2(np.frexp(abs(arrays[name]).max(initial=0))[1] - float(bits))
            steps = np.rint(arrays[name] / step) + 0.0  # no -0, which integers do not have
            arrays[name] = (steps * step).astype(arrays[name].dtype)
            parts[f"{name}/steps"] = _sorted(steps.astype(np.int32))
            parts[f"{name}/step"] = np.asarray([step])
    for name, array in arrays.items():
        if f"{name}/steps" not in parts and not same_bits(array, shared.get(name)):
            parts[name] = _sorted(array).view(array.dtype)
    file = encode(arrays, manifest)
    end = 8 + int.from_bytes(file[:8], "little")
    parts["header"] = np.frombuffer(file[:end], np.uint8)
    return save_safetensors(parts)


def _rounded_gram(
    stored: NumpyArray, blocks: Sequence[int]
) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
    """Round G_ij to a whole number of steps 2^(floor((e_i + e_j) / 2) - GRAM_BITS).

    The exponent e_i is that of G_ii, so a number of steps fits into 16 bits.

    Args:
        stored: G in the form of files.
        blocks: The number of features of each place.

    Returns:
        The rounded G in the form of files, the numbers of steps, and the exponents.
    """
    gram = from_five_bytes(GRAM, stored)
    exponents, counts, end = [], [], 0
    for dim in blocks:
        part = gram[end : end + packed_size(dim)]
        end += len(part)
        e = np.frexp(diagonal(part, dim))[1].astype(np.int64)
        position = unpack_lower(np.arange(len(part), dtype=float), dim).astype(np.int64)
        i, j = np.tril_indices(dim)
        step = np.empty_like(part)
        step[position[i, j]] = np.exp2((e[i] + e[j]) // 2 - float(GRAM_BITS))
        steps = np.rint(part / step) + 0.0
        squares = position.diagonal()  # rounded up: none may fall below what the sums s require
        steps[squares] = np.ceil(part[squares] / step[squares])
        part[:] = steps * step
        exponents.append(e)
        counts.append(steps)
    steps = np.concatenate(counts).astype(np.int16)
    return np.ascontiguousarray(five_bytes(gram)), steps, np.concatenate(exponents)


def _sorted(array: NumpyArray) -> NumpyArray:
    """Return the first bytes of all numbers, then the second ones, and so on, as one row."""
    numbers = np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
    return np.ascontiguousarray(numbers.T).reshape(-1)
