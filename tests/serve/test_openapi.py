"""The OpenAPI document is true: requests that follow it, or do not, are answered as it says.

None is answered with a 5xx status.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from live_parts.process import TINY, service

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
EXAMPLES = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service(tmp_path_factory.mktemp("openapi") / "kitchen.pv", new=TINY) as running:
        yield running


@pytest.mark.slow
@pytest.mark.xdist_group("openapi")  # one service for both
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=str)
def test_the_service_is_as_its_openapi_document_says(running, mode):
    schema = schemathesis.openapi.from_url(f"{running.url}/api/openapi.json")
    refusing = schemathesis.checks.CHECKS.get_one(
        "positive_data_acceptance"
    )  # there once a schema is loaded
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 16
    for operation in operations:

        @EXAMPLES
        @given(case=operation.as_strategy(generation_mode=mode))
        def one(case):
            # No schema can say that bytes must be an image, or that a name must be taught:
            # a request that fits the schema may still be refused.
            case.call_and_validate(excluded_checks=[refusing])

        # an operation without parameters cannot be called wrongly
        with suppress(Unsatisfiable) if mode.is_negative else nullcontext():
            one()
    assert "Traceback" not in running.said()
