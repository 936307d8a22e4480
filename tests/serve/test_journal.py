"""A lesson is removed from the middle: the learner is the one that never had it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from serve_support import COLOURS, SMALL, frames, tiny
from starlette.testclient import TestClient

from primavista import InputError, Learner
from primavista.serve.asgi import create_app
from primavista.serve.learner_service import LearnerService

SHOWN = [("mug", 1), ("kettle", 2), ("mug", 3), ("cup", 4)]


def shown(label: str, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(-30, 30, (7, 32, 32, 3))
    return (np.array(COLOURS[label]) + noise).clip(0, 255).astype(np.uint8)


def buffered(learner: Learner, label: str, seed: int):
    lesson = learner.open_lesson()
    for frame in shown(label, seed):
        lesson.add(frame)
    return lesson


@pytest.mark.parametrize("strategy", ["prima", "dslda", "ncm", "cwr*"])
def test_learned_again_from_features_is_learned_from_frames(strategy):
    """Bit for bit, with the tests of the coach; and no other learner can use the features."""
    made = Learner(strategy, weights="random", width=0.0625, size=32, device="cpu")
    once, again = made.copy(), made.copy()
    for label, seed in SHOWN:
        lesson = buffered(once, label, seed)
        once.learn(lesson, label)
        kept = lesson.without_frames()
        assert len(kept) == 7
        again.learn_again(kept, label)
    assert again.to_bytes() == once.to_bytes()
    with pytest.raises(InputError, match="another learner"):
        Learner.from_bytes(made.to_bytes(), device="cpu").learn_again(kept, "mug")


def test_a_strategy_that_trains_its_network_has_no_features_to_keep():
    learner = Learner("ar1*", weights="random", width=0.0625, size=32, device="cpu")
    assert buffered(learner, "mug", 1).without_frames() is None


def teach(client, label: str, seed: int) -> str:
    sent = [(name, (n, data, kind)) for name, (n, data, kind) in frames(label, 6 + seed)][seed:]
    job = client.post("/api/lessons?wait=30", data={"label": label}, files=sent).json()
    assert job["state"] == "done"
    return str(job["id"])


def listed(client) -> list[tuple[str, str]]:
    return [(one["id"], one["label"]) for one in client.get("/api/model").json()["lessons"]]


def test_a_lesson_is_removed_and_undo_brings_it_back(client, service):
    expected = service.learner.copy()
    ids = {}
    for number, (label, seed) in enumerate(SHOWN):
        ids[number] = teach(client, label, seed)
    assert listed(client) == [(ids[k], label) for k, (label, _) in enumerate(SHOWN)]
    whole = service.learner.to_bytes()
    entries = service.snapshot.journal.entries
    for k in (0, 1, 3):
        expected.learn_again(entries[k].lesson, entries[k].label)
    removed = client.post("/api/remove", json={"lesson": ids[2]}).json()
    assert [one["id"] for one in removed["lessons"]] == [ids[0], ids[1], ids[3]]
    assert {one["label"]: one["frames"] for one in removed["objects"]} == {
        "mug": 6,
        "kettle": 6,
        "cup": 6,
    }
    assert service.learner.to_bytes() == expected.without_undo().to_bytes()
    assert Learner.load(service.path).to_bytes() == expected.without_undo().to_bytes()
    client.post("/api/undo")
    assert service.learner.to_bytes() == whole
    assert len(listed(client)) == 4


def test_the_only_lesson_of_an_object_takes_the_object_along(client, service):
    first = teach(client, "mug", 1)
    teach(client, "kettle", 2)
    client.post("/api/rename", json={"label": "mug", "to": "cup"})
    assert (first, "cup") in listed(client)
    assert client.post("/api/remove", json={"lesson": first}).status_code == 200
    assert service.learner.labels == ["kettle"]
    again = client.post("/api/remove", json={"lesson": first})
    assert again.status_code == 409
    assert "no longer be removed" in again.json()["detail"]


def test_a_removed_lesson_leaves_the_threshold_as_it_is(client, service):
    mug = teach(client, "mug", 1)
    assert service.learner.threshold != 0.75
    client.post("/api/threshold", json={"threshold": 0.75})
    client.post("/api/remove", json={"lesson": mug})
    assert service.learner.threshold == Learner.load(service.path).threshold == 0.75


def test_lessons_of_forgotten_objects_are_not_listed(client, service):
    mug = teach(client, "mug", 1)
    kettle = teach(client, "kettle", 2)
    client.post("/api/forget", json={"label": "mug"})
    assert listed(client) == [(kettle, "kettle")]
    assert client.post("/api/remove", json={"lesson": mug}).status_code == 409
    client.post("/api/undo")
    assert listed(client) == [(mug, "mug"), (kettle, "kettle")]


def test_only_the_last_lessons_are_kept_and_the_oldest_stay_learned(tmp_path):
    learner = tiny()
    learner.save(tmp_path / "kitchen.pv")
    limits = dataclasses.replace(SMALL, removable_lessons=2)
    service = LearnerService(learner, tmp_path / "kitchen.pv", limits)
    with TestClient(create_app(service), base_url="http://localhost") as client:
        ids = [teach(client, label, seed) for label, seed in SHOWN]
        assert [id for id, _ in listed(client)] == ids[2:]
        assert client.post("/api/remove", json={"lesson": ids[0]}).status_code == 409
        assert client.post("/api/remove", json={"lesson": ids[2]}).status_code == 200
        assert service.learner.counts == {"mug": 6, "kettle": 6, "cup": 6}


def test_features_take_no_more_memory_than_allowed(tmp_path):
    learner = tiny()
    learner.save(tmp_path / "kitchen.pv")
    limits = dataclasses.replace(SMALL, removable_bytes=1)
    service = LearnerService(learner, tmp_path / "kitchen.pv", limits)
    with TestClient(create_app(service), base_url="http://localhost") as client:
        teach(client, "mug", 1)
        assert listed(client) == []
        assert service.snapshot.journal.bytes == 0
        assert service.learner.counts == {"mug": 6}


def test_a_lesson_begun_before_another_model_was_loaded_cannot_be_removed(client, service):
    """Its features are of the model before, so it is learned from its frames; others go on."""
    begun = buffered(service.learner, "mug", 1)
    loaded = Learner("dslda", weights="random", width=0.0625, size=32, device="cpu", seed=1)
    assert client.post("/api/model/file", files={"file": loaded.to_bytes()}).status_code == 200
    service.teach(begun, "mug").ended.result(30)
    assert service.learner.counts == {"mug": 7}
    assert listed(client) == []
    kettle = teach(client, "kettle", 2)
    assert listed(client) == [(kettle, "kettle")]
    assert client.post("/api/remove", json={"lesson": kettle}).status_code == 200
    assert service.learner.counts == {"mug": 7}


def test_a_lesson_that_is_not_repeatable_begins_the_journal_anew(tmp_path):
    learner = Learner("ar1*", weights="random", width=0.0625, size=32, device="cpu", epochs=1)
    learner.save(tmp_path / "kitchen.pv")
    service = LearnerService(learner, tmp_path / "kitchen.pv", SMALL)
    with TestClient(create_app(service), base_url="http://localhost") as client:
        teach(client, "mug", 1)
        assert listed(client) == []
