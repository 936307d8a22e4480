"""The parts of benchmarks/prima.py and prima_plus.py that compute something of their own, against
slow versions.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

from primavista.heads.prima_frames import fit_ridge
from primavista.heads.ridge import regression
from primavista.heads.statistics import SufficientStatistics
from primavista.networks.base import build
from primavista.strategies.prima import Prima


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts import one another by name."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "benchmarks"), *sys.path])


def test_smoothing_stays_within_a_session() -> None:
    z = torch.tensor([[0.0], [1], [2], [3], [4], [5], [100], [102]])
    sessions = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])
    found = importlib.import_module("prima").smooth(z, sessions)
    assert found[:, 0].tolist() == pytest.approx([1, 1.5, 2, 3, 3.5, 4, 101, 101])


def test_discriminants_are_those_of_the_frames() -> None:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    z = torch.randn(60, 5, generator=random, dtype=torch.float64) + labels[:, None] * torch.arange(
        5
    )
    sums = SufficientStatistics.empty(5, like=z)
    sums.expand(3)
    sums.add(z, labels)
    x = regression(sums.n, sums.s, sums.scatter(), 60, 1)
    ridge = fit_ridge(x, 60)
    head = importlib.import_module("prima").discriminants(x, ridge)
    standard = (z - x.mean) / x.std
    means = torch.stack([standard[labels == c].mean(0) for c in range(3)])
    apart = standard - means[labels]
    within = apart.T @ apart / 60 + ridge.rho * torch.eye(5)
    inverse = torch.linalg.inv(within)
    distances = torch.stack([((standard - m) @ inverse * (standard - m)).sum(1) for m in means], 1)
    found = z @ head.w.T + head.b
    # the squares of the frames themselves are the same for all classes
    assert torch.allclose(found - found[:, :1], -(distances - distances[:, :1]) / 2)


def test_a_drift_that_is_the_same_everywhere_is_undone_exactly() -> None:
    random = torch.Generator().manual_seed(0)
    small = build("mobilenet_v1", "random", width=0.25, size=32)
    moved, anew = (Prima(small, rule="frames") for _ in range(2))
    z, shift = (torch.randn(n, moved.backbone.dim, generator=random) for n in (40, 1))
    labels = torch.arange(40) % 4
    moved.learn_embedded(z, labels)
    anew.learn_embedded(z + shift, labels)
    now = torch.randn(6, moved.backbone.dim, generator=random)
    importlib.import_module("prima_plus").drift(moved, now, now + shift)
    one, other = moved.head.statistics, anew.head.statistics
    assert torch.allclose(one.s, other.s, atol=1e-4)
    for (a, _), (b, _) in zip(one.scatters(), other.scatters(), strict=True):
        assert torch.allclose(a, b, atol=1e-3)
    for (a, _), (b, _) in zip(one.squares(), other.squares(), strict=True):
        assert torch.allclose(a, b, atol=1e-2)
