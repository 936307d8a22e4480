"""Half a symmetric matrix against the whole of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.heads import packed as packing
from primavista.heads.packed import add_gram, packed_size, subtract_outer, unpack


@pytest.fixture(autouse=True)
def block_as_it_was():
    before = packing.BLOCK
    yield
    packing.BLOCK = before


KINDS = {"numpy": np.asarray, "torch": torch.as_tensor}


@pytest.mark.parametrize("kind", KINDS)
def test_by_hand(kind):
    # z = (1, 2, 3), (0, 1, -1): z^T z = [[1, 2, 3], [2, 5, 5], [3, 5, 10]]
    # less that of (1, 0, 2): [[0, 2, 1], [2, 5, 5], [1, 5, 6]]
    make = KINDS[kind]
    packed = make(np.zeros(6))
    add_gram(packed, make(np.array([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]])))
    # B = (2, 3), then the fold: the lower triangle of C = [[5, 5], [5, 10]],
    # and A = 1 in its upper right corner
    assert packed.tolist() == [2, 3, 5, 1, 5, 10]
    subtract_outer(packed, make(np.array([1.0, 0.0, 2.0])))
    assert unpack(packed, make(np.empty((3, 3)))).tolist() == [[0, 2, 1], [2, 5, 5], [1, 5, 6]]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    dim=st.integers(1, 23),
    rows=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    block=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_any_size_block_and_split_give_the_whole(kind, dim, rows, block, seed):
    packing.BLOCK = block
    make, random = KINDS[kind], np.random.default_rng(seed)
    z = random.normal(size=(sum(rows), dim))
    packed = make(np.zeros(packed_size(dim)))
    for part in np.split(z, np.cumsum(rows)[:-1]):
        add_gram(packed, make(part))
    subtract_outer(packed, make(z[0]))
    whole = np.asarray(unpack(packed, make(np.full((dim, dim), np.nan))))
    assert np.allclose(whole, z[1:].T @ z[1:], rtol=1e-12, atol=1e-12)
    assert (whole == whole.T).all()
