from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from primavista.bench.cell import RunSettings
from primavista.bench.plan import Plan, make_plan
from primavista.bench.run import Suite
from primavista.networks.base import Backbone, build
from primavista.streams.dataset import DataSet
from primavista.streams.rendered.renderer import Scene

from ..streams.scenes import materialise

TINY = {
    "name": "tiny",
    "device": "cpu",
    "test_thin": 1,
    "limit": 7,
    "data": {"kind": "rendered", "categories": 3, "objects": 2, "frames": 2, "size": 32},
    "backbone": {"weights": "random", "options": {"width": 0.0625}},
}
Results = dict[str, tuple[bytes, str]]


@pytest.fixture(scope="session")
def tiny_backbone() -> Backbone:
    return build("mobilenet_v1", "random", width=0.0625, size=32)


@pytest.fixture(scope="session")
def tiny_data() -> DataSet:
    return materialise(Scene(categories=3, objects=2, frames=2, size=32))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames that are drawn once for all tests: processes side by side share the folder."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "drawn"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def plan() -> Callable[..., Plan]:
    def make(
        *strategies: str,
        protocol: str = "nicv2",
        group: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Plan:
        own = {
            "name": "all",
            "strategies": list(strategies),
            "protocols": [protocol],
            **(group or {}),
        }
        return make_plan({**TINY, "groups": [own], **settings})

    return make


@pytest.fixture
def suite(plan: Callable[..., Plan], cache: Path, tmp_path: Path) -> Callable[..., Suite]:
    def make(
        *strategies: str, out: Path | None = None, seconds: float = 1e9, **settings: Any
    ) -> Suite:
        settings_of_run = RunSettings(cache, checkpoint_seconds=seconds)
        return Suite(
            plan(*strategies, **settings), out or tmp_path / "out", settings=settings_of_run
        )

    return make


@pytest.fixture
def results() -> Callable[[Path], Results]:
    """`metrics.jsonl` of every cell under a folder, and the checksum of its final weights."""

    def read(out: Path) -> Results:
        found = {}
        for place in sorted(out.glob("**/result.json")):
            weights = json.loads(place.read_text())["state_sha256"]
            found[str(place.parent.relative_to(out))] = (
                (place.parent / "metrics.jsonl").read_bytes(),
                weights,
            )
        return found

    return read
