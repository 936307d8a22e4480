from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs the extra `live`")
HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "benchmarks")]

from live_parts.browser import CHROMIUM, FLAGS  # noqa: E402
from serve_support import COLOURS, SMALL, frames, tiny  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402

from primavista.serve.asgi import create_app  # noqa: E402
from primavista.serve.learner_service import LearnerService  # noqa: E402


def small_service(folder: Path) -> LearnerService:
    learner = tiny()
    learner.save(folder / "kitchen.pv")
    return LearnerService(learner, folder / "kitchen.pv", SMALL)


def client_of(service: LearnerService) -> TestClient:
    return TestClient(create_app(service), base_url="http://localhost")


def teach(client: TestClient) -> TestClient:
    for name in COLOURS:
        taught = client.post("/api/lessons?wait=30", data={"label": name}, files=frames(name))
        assert taught.json()["state"] == "done"
    return client


@pytest.fixture
def service(tmp_path) -> LearnerService:
    return small_service(tmp_path)


@pytest.fixture
def client(service):
    with client_of(service) as opened:
        yield opened


@pytest.fixture
def taught(client):
    return teach(client)


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory) -> LearnerService:
    """One for the tests of a module that change nothing; and so are the next two."""
    return small_service(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def shared_client(shared_service):
    with client_of(shared_service) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_taught(shared_client):
    return teach(shared_client)


@pytest.fixture(scope="module")
def playwright():
    """Not for the whole session: its event loop is in the way of tests with one of their own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright):
    """A browser whose pages see what `show_film` shows."""
    made = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
    yield made
    made.close()
