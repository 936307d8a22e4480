"""The short form of benchmarks/growth.py.

What a batch costs does not depend on how many came before.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from primavista.strategies.creation import create
from primavista.strategies.registry import names

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


growth = script("growth")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in names() if create(name, growth.backbone()).rehearsal_free]
)
def test_operations_and_bytes_of_a_batch_stay_the_same(name: str) -> None:
    found = growth.follow(name, batches=70, classes=100, repeats=1)
    assert found["classes"] == 100
    assert min(found["counted"]) == 11
    assert max(found["counted"]) == 70
    assert found["equal"], found["counted"]
    least, most = min(found["scoring"]), max(found["scoring"])
    assert most <= (1.5 * least if name == "ridge" else least), found["scoring"]
