"""A lesson that takes hours holds up nobody: undo, cancelling and Ctrl-C answer in a real server.

One model trains for 300 epochs per lesson, which a file may ask for; another one computes without
ever saying how far it is, so that nothing can interrupt it.
"""

from __future__ import annotations

import json
import signal

import httpx
import pytest
from serve_support import frames
from wire_support import AUTHORISED, LIMITS, PATIENCE, waited_for, wire

from primavista import Learner

pytestmark = pytest.mark.xdist_group("cancelling")  # its services are started once
EPOCHS = {"strategy": "ar1*", "epochs": 300, "epochs_1": 300, "minibatch": 1}
STUCK = """
import threading
learn = Learner.learn
def stuck(self, frames, label, **options):
    if label == "stuck":
        threading.Event().wait()
    return learn(self, frames, label, **options)
Learner.learn = stuck
"""
QUICK = {**LIMITS, "cancel_seconds": 0.5, "stop_seconds": 0.5, "queued_jobs": 3}


def long_lessons(folder, kind, **limits):
    if kind == "trains for long":
        return wire(folder, limits=QUICK, learner=EPOCHS)
    return wire(folder, limits={**QUICK, **limits}, before=STUCK)


@pytest.fixture(scope="module", params=["trains for long", "cannot be interrupted"])
def running(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cancel")
    with long_lessons(folder, request.param, given_up_jobs=20) as service:
        service.folder = folder
        yield service
        assert "Traceback" not in service.log.read_text()


@pytest.fixture
def owner(running):
    address = f"http://127.0.0.1:{running.port}"
    with httpx.Client(base_url=address, headers=AUTHORISED, timeout=PATIENCE) as client:
        yield client
        client.post("/api/undo")


def begun(owner, label="stuck", colour="mug"):
    """Start a lesson that takes hours; return its id when it runs."""
    answer = owner.post("/api/lessons", data={"label": label}, files=frames(colour, 20))
    assert answer.status_code == 202, answer.text
    id = answer.json()["id"]
    assert waited_for(lambda: owner.get(f"/api/lessons/{id}").json()["state"] == "running")
    return id


@pytest.mark.slow
def test_undo_takes_back_a_lesson_that_is_being_learned(running, owner):
    before = (running.folder / "kitchen.pv").read_bytes()
    id = begun(owner)
    assert owner.get("/api/model").json()["can_undo"]
    answer = owner.post("/api/undo")
    assert answer.status_code == 200
    assert answer.json()["objects"] == []
    assert answer.json()["queued"] == 0
    job = owner.get(f"/api/lessons/{id}").json()
    assert (job["state"], job["version"]) == ("failed", None)
    assert "cancelled" in job["error"]
    assert (running.folder / "kitchen.pv").read_bytes() == before


def test_undo_takes_back_the_newest_of_those_that_wait(owner):
    first = begun(owner)
    second = owner.post("/api/lessons", data={"label": "cup"}, files=frames("cup")).json()["id"]
    assert owner.post("/api/undo").json()["queued"] == 1
    assert owner.get(f"/api/lessons/{second}").json()["state"] == "failed"
    assert owner.get(f"/api/lessons/{first}").json()["state"] == "running"
    assert owner.post("/api/undo").json()["queued"] == 0
    assert owner.get(f"/api/lessons/{first}").json()["state"] == "failed"


def test_a_lesson_is_cancelled_by_its_id_and_the_next_change_is_made(running, owner):
    first = begun(owner)
    second = owner.post("/api/lessons", data={"label": "cup"}, files=frames("cup")).json()["id"]
    assert owner.delete(f"/api/lessons/{second}").json()["state"] == "failed"
    answer = owner.delete(f"/api/lessons/{first}")
    assert answer.status_code == 200
    assert answer.json()["state"] == "failed"
    assert owner.delete(f"/api/lessons/{first}").status_code == 409
    assert owner.delete(f"/api/lessons/{'0' * 16}").status_code == 404
    changed = owner.post("/api/threshold", json={"threshold": 0.25})
    assert changed.json()["threshold"] == 0.25
    assert Learner.load(running.folder / "kitchen.pv", device="cpu").threshold == 0.25


def test_nobody_cancels_without_the_token(running, owner):
    id = begun(owner)
    address = f"http://127.0.0.1:{running.port}/api/lessons/{id}"
    assert httpx.delete(address, timeout=PATIENCE).status_code == 401
    foreign = {**AUTHORISED, "Sec-Fetch-Site": "cross-site"}
    assert httpx.delete(address, headers=foreign, timeout=PATIENCE).status_code == 403
    assert owner.get(f"/api/lessons/{id}").json()["state"] == "running"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trains for long", "cannot be interrupted"])
def test_ctrl_c_ends_the_service_while_a_long_lesson_runs(tmp_path, kind):
    with long_lessons(tmp_path, kind) as service:
        before = (tmp_path / "kitchen.pv").read_bytes()
        address = f"http://127.0.0.1:{service.port}"
        with httpx.Client(base_url=address, headers=AUTHORISED, timeout=PATIENCE) as client:
            begun(client)
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(PATIENCE) == 0
        assert (tmp_path / "kitchen.pv").read_bytes() == before
        said = service.log.read_text()
        assert "Traceback" not in said
        assert "cancelled" in said


@pytest.mark.slow
def test_computations_that_never_end_are_bounded_and_undo_still_answers(tmp_path):
    """Each takes a thread for ever; after a few, new lessons are refused and say what to do."""
    with long_lessons(tmp_path, "cannot be interrupted") as service:
        address = f"http://127.0.0.1:{service.port}"
        with httpx.Client(base_url=address, headers=AUTHORISED, timeout=PATIENCE) as client:
            for _ in range(2):
                begun(client)
                assert client.post("/api/undo").status_code == 200
            refused = client.post("/api/lessons", data={"label": "x"}, files=frames("mug"))
            assert refused.status_code == 429
            assert "restart" in json.loads(refused.text)["detail"]
            assert client.get("/api/model").status_code == 200
            assert client.post("/api/threshold", json={"threshold": 0.5}).status_code == 200
