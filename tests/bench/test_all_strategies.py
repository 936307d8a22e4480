"""Every strategy of the package in a plan over a protocol that has values of its own for some of
them.
"""

from __future__ import annotations

import pytest

from primavista.bench.local import Inline
from primavista.bench.plan import make_plan
from primavista.bench.run import Suite, counts
from primavista.errors import InputError
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.creation import create


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["nicv2-391", "nicv2-79"])
def test_a_plan_may_name_any_strategy_with_any_protocol(protocol):
    group = {"name": "all", "strategies": list(STRATEGIES), "protocols": [protocol]}
    planned = make_plan({"name": "all", "device": "cpu", "groups": [group]}, []).planned()
    assert [p.cell.strategy for p in planned] == list(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_create_takes_the_values_of_a_protocol_for_any_strategy(name, tiny_backbone):
    create(name, tiny_backbone, protocol="nicv2-79")


@pytest.mark.slow
def test_the_analytic_ones_run(tmp_path):
    group = {"name": "all", "strategies": ["prima", "ridge", "lda", "ncm"], "protocols": ["nicv2"]}
    data = {
        "kind": "rendered",
        "categories": 2,
        "objects": 2,
        "sessions": 4,
        "frames": 3,
        "size": 32,
    }
    backbone = {"name": "mobilenet_v1", "weights": "random", "options": {"width": 0.125}}
    plan = make_plan(
        {"name": "all", "device": "cpu", "groups": [group], "data": data, "backbone": backbone}, []
    )
    suite = Suite(plan, tmp_path)
    assert not suite.run(Inline())
    assert counts(suite.states)["done"] == 4


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_precision_of_the_gpu_is_refused_before_anything_starts(precision):
    group = {"name": "all", "strategies": ["naive"], "protocols": ["nicv2"]}
    plan = make_plan(
        {"name": "all", "device": "cpu", "precision": precision, "groups": [group]}, []
    )
    with pytest.raises(InputError, match=f"precision {precision} needs a GPU"):
        plan.planned()
