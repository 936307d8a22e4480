"""Half a symmetric matrix against the whole of it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from primavista.errors import InputError
from primavista.heads import statistics
from primavista.heads.base import five_bytes, from_five_bytes, shortened
from primavista.heads.solving import linear_algebra_error, solve_rows
from primavista.heads.statistics import (
    add_gram,
    packed_size,
    subtract_outer,
    unpack,
    unpack_lower,
)


@pytest.fixture(autouse=True)
def block_as_it_was():
    before = statistics.BLOCK
    yield
    statistics.BLOCK = before


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
    statistics.BLOCK = block
    make, random = KINDS[kind], np.random.default_rng(seed)
    z = random.normal(size=(sum(rows), dim))
    packed = make(np.zeros(packed_size(dim)))
    for part in np.split(z, np.cumsum(rows)[:-1]):
        add_gram(packed, make(part))
    subtract_outer(packed, make(z[0]))
    whole = np.asarray(unpack(packed, make(np.full((dim, dim), np.nan))))
    assert np.allclose(whole, z[1:].T @ z[1:], rtol=1e-12, atol=1e-12)
    assert (whole == whole.T).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [1, 2, 7, 8])
def test_the_lower_triangle_alone_in_double_precision(kind, dim):
    z = np.random.default_rng(dim).normal(size=(5, dim)).astype(np.float32)
    packed = KINDS[kind](np.zeros(packed_size(dim), np.float32))
    add_gram(packed, KINDS[kind](z))
    lower = np.asarray(unpack_lower(packed, dim))
    assert lower.dtype == np.float64
    assert np.isfinite(lower).all()
    assert np.allclose(np.tril(lower), np.tril(z.T @ z), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dim", "rows"), [(1, 1), (5, 3), (96, 2), (97, 4), (250, 7), (300, 0)])
def test_solving_reads_the_lower_triangle_alone(kind, dim, rows):
    random = np.random.default_rng(dim)
    z = random.normal(size=(2 * dim, dim))
    a, b = z.T @ z + 0.1 * np.eye(dim), random.normal(size=(rows, dim))
    expected = np.linalg.solve(a, b.T).T
    lower = a + np.triu(np.full((dim, dim), np.nan), 1)
    found = solve_rows(KINDS[kind](lower), KINDS[kind](b.copy()))
    assert np.allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_positive_definite_is_not_solved(kind):
    a = KINDS[kind](-np.eye(200))
    with pytest.raises(linear_algebra_error(a)):
        solve_rows(a, KINDS[kind](np.ones((1, 200))))


@pytest.mark.parametrize("library", [np, torch])
def test_29_bits_are_five_bytes_and_the_nearest_such_number(library):
    exponents = np.random.default_rng(0).integers(-300, 250, 2000)
    x = np.random.default_rng(1).normal(size=2000) * 10.0**exponents
    x[:4] = [0.0, -0.0, 1.0, -3.0]
    short = np.asarray(shortened(library.asarray(x)))
    nearest = [float(Fraction(round(m * 2**29), 2**29)) for m in np.frexp(x)[0].tolist()]
    np.testing.assert_array_equal(short, np.ldexp(nearest, np.frexp(x)[1]))
    stored = five_bytes(short)
    assert (stored.shape, stored.dtype) == ((2000, 5), np.uint8)
    np.testing.assert_array_equal(from_five_bytes("gram", stored), short)
    np.testing.assert_array_equal(np.asarray(shortened(library.asarray(short))), short)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((3, 4), np.uint8),
        np.zeros(5, np.uint8),
        np.zeros((3, 5), np.float32),
        np.full((3, 5), 255, np.uint8),
    ],
)
def test_what_is_not_five_bytes_per_finite_number_is_refused(bad):
    with pytest.raises(InputError, match=r"gram (is|contains)"):
        from_five_bytes("gram", bad)
