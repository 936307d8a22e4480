"""Products and solutions in the page: its kernel in WebAssembly is the one whose text is there."""

from __future__ import annotations

import numpy as np
import pytest
from web_support import LEARNER, node


@pytest.mark.slow
def test_the_bytes_are_those_of_the_text():
    if not (LEARNER.parent / "node_modules" / "wabt").exists():
        pytest.skip("needs what npm installs: run `make web`")
    found = node("cases.mjs", "kernel")
    assert found["made"] == found["held"], "put `made` into web/learner/linear.js"


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (4, 2, 2), (5, 3, 7), (9, 11, 64), (70, 3, 65)]
)
def test_products_of_every_shape(m, n, k):
    draw = np.random.default_rng(m)
    a, b = draw.normal(size=(m, k)), draw.normal(size=(n, k))
    found = node("cases.mjs", "products", given={"a": a.tolist(), "b": b.tolist()})
    np.testing.assert_allclose(found, a @ b.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "rows"), [(1, 1), (2, 3), (63, 2), (64, 5), (65, 1), (129, 4), (191, 9)]
)
def test_solutions_of_every_size(n, rows):
    draw = np.random.default_rng(n)
    z, u, b = draw.normal(size=(n, n)), draw.normal(size=(n, 3)), draw.normal(size=(rows, n))
    g = z @ z.T
    given = {"g": g.tolist(), "u": u.tolist(), "v": u.tolist(), "shift": 2.0, "b": b.tolist()}
    found = node("cases.mjs", "solved", given=given)
    expected = np.linalg.solve(g + u @ u.T + 2 * np.eye(n), b.T).T
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
