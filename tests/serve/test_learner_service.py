"""One writer: in order, on disk before it is acknowledged, all or nothing; readers never wait."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import numpy as np
import pytest
from serve_support import Gate, tiny

from primavista import FileError, InputError, Learner
from primavista.serve.journal import ChangeJob
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RefusedError, ServiceLimits
from primavista.serve.server import open_for_teaching, serve


def clip(value: int, count: int = 4) -> np.ndarray:
    return np.full((count, 32, 32, 3), value, np.uint8)


def lesson(service: LearnerService, label: str, value: int = 0):
    def learn(learner: Learner, report_progress) -> None:
        learner.learn(clip(value), label)

    return service.submit(ChangeJob("lesson", learn, label))


@pytest.fixture
def running(tmp_path):
    learner = tiny()
    learner.save(tmp_path / "kitchen.pv")
    service = LearnerService(
        learner, tmp_path / "kitchen.pv", ServiceLimits(queued_jobs=4, finished_jobs=3)
    )
    service.start()
    yield service
    service.stop()


def test_starting_warms_up_and_teaches_nothing(running):
    assert running.learner.labels == []
    assert Learner.load(running.path, device="cpu").to_bytes() == running.learner.to_bytes()


def test_lessons_are_learned_in_the_order_in_which_they_came(running):
    gate = Gate(running)
    jobs = [lesson(running, name) for name in "abc"]
    gate.open()
    for job in jobs:
        job.ended.result(30)
    assert [job.version for job in jobs] == [2, 3, 4]
    assert running.learner.labels == ["a", "b", "c"]


def test_predictions_go_on_from_the_state_before(running):
    lesson(running, "dark", 0).ended.result(30)
    gate = Gate(running)
    waiting = lesson(running, "bright", 255)
    prediction, version = running.predict(clip(255)[0]).result(30)
    assert (prediction.label, version) == ("dark", 1)
    gate.open()
    waiting.ended.result(30)
    prediction, version = running.predict(clip(255)[0]).result(30)
    assert (prediction.label, version) == ("bright", 3)


def test_a_lesson_is_on_disk_before_it_is_known(running, monkeypatch):
    """The lesson is neither acknowledged nor recognised while the file is written."""
    seen = []
    save = Learner.save

    def watched(self, path):
        save(self, path)
        seen.append(
            (running.snapshot.version, Learner.load(path, device="cpu").labels, job[0].state)
        )

    job = []
    gate = Gate(running)
    job.append(lesson(running, "mug"))
    monkeypatch.setattr(Learner, "save", watched)
    gate.open()
    job[0].ended.result(30)
    assert seen[-1] == (1, ["mug"], "running")
    assert running.snapshot.version == 2


@pytest.mark.parametrize("error", [FileError("no space left"), MemoryError(), InputError("bad")])
def test_a_lesson_that_cannot_be_saved_is_not_known(running, monkeypatch, error):
    lesson(running, "mug").ended.result(30)
    before, live = running.path.read_bytes(), running.snapshot

    def fail(self, path):
        raise error

    monkeypatch.setattr(Learner, "save", fail)
    job = lesson(running, "cup")
    job.ended.result(30)
    monkeypatch.undo()
    assert job.state == "failed"
    assert job.error
    assert running.snapshot is live
    assert running.path.read_bytes() == before
    lesson(running, "kettle").ended.result(30)  # and the next one is learned as ever
    assert running.learner.labels == ["mug", "kettle"]


def test_a_full_queue_refuses(running):
    gate = Gate(running)
    for name in "abcd":
        lesson(running, name)
    with pytest.raises(RefusedError, match="4 lessons and changes are waiting"):
        lesson(running, "e")
    gate.open()


def test_a_client_that_goes_away_while_it_waits_cancels_nothing(running):
    gate = Gate(running)
    waiting = lesson(running, "mug")

    async def go_away() -> None:
        waiter = asyncio.create_task(waiting.wait(30))
        await asyncio.sleep(0.05)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert not await waiting.wait(0.01)

    asyncio.run(go_away())
    gate.open()
    waiting.ended.result(30)
    assert (waiting.state, running.learner.labels) == ("done", ["mug"])


def test_old_jobs_are_let_go_of(running):
    jobs = [lesson(running, "a") for _ in range(2)]
    for _ in range(6):
        jobs.append(lesson(running, "a"))
        jobs[-1].ended.result(30)
    with pytest.raises(RefusedError, match="no such job"):
        running.job(jobs[0].id)
    assert running.job(jobs[-1].id) is jobs[-1]


def test_stopping_ends_the_lesson_that_runs_and_refuses_those_that_wait(tmp_path):
    learner = tiny()
    service = LearnerService(learner, tmp_path / "kitchen.pv")
    service.start()
    gate = Gate(service)
    waiting = lesson(service, "mug")
    service._stopping = True
    gate.open()
    waiting.ended.result(30)
    service.stop()
    assert (gate.job.state, waiting.state) == ("done", "failed")
    assert Learner.load(tmp_path / "kitchen.pv", device="cpu").labels == []


def test_two_processes_on_one_model_are_refused_and_options_of_another_model_too(tmp_path):
    tiny().save(tmp_path / "kitchen.pv")
    with (
        open_for_teaching(tmp_path / "kitchen.pv", "cpu"),
        pytest.raises(FileError, match="is at work on"),
    ):
        open_for_teaching(tmp_path / "kitchen.pv", "cpu").__enter__()
    with pytest.raises(InputError, match="was made with size 32, not 64"):
        open_for_teaching(tmp_path / "kitchen.pv", "cpu", size=64).__enter__()
    with open_for_teaching(tmp_path / "new.pv", "cpu", weights="random", width=0.0625, size=32):
        assert not (tmp_path / "new.pv").exists()  # that is made when it can be served
    with pytest.raises(FileError, match="no folder"):
        open_for_teaching(tmp_path / "no" / "new.pv").__enter__()
    with pytest.raises(FileError, match="is a folder"):
        open_for_teaching(tmp_path).__enter__()


def test_a_service_that_cannot_start_leaves_no_file_and_says_what_to_do(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, advice in (
            ({"port": taken.getsockname()[1]}, "--port 0"),
            ({"host": "192.0.2.1", "token": "t" * 16}, "--host is an address of this machine"),
            ({"host": "no such host", "token": "t" * 16}, "--host is an address of this machine"),
            ({"host": "0.0.0.0"}, "the same command without --no-token"),
            (
                {"tls": (tmp_path / "cert.pem", tmp_path / "key.pem")},
                "-addext subjectAltName=DNS:localhost",
            ),
        ):
            with pytest.raises(InputError) as refused:
                serve(tiny(), tmp_path / "kitchen.pv", **options)
            assert advice in str(refused.value)
            assert ("--port 0" in str(refused.value)) == ("port" in options)
    assert not list(tmp_path.iterdir())


def test_what_is_known_is_held_once(tmp_path):
    """A lesson shares the network with the state before it.

    Of the two, only the one that predicts is solved.
    """
    learner = Learner("ridge", weights="random", width=0.0625, size=32, device="cpu")
    service = LearnerService(learner, tmp_path / "kitchen.pv")
    service.start()
    try:
        for value, name in ((0, "dark"), (255, "bright")):
            lesson(service, name, value).ended.result(30)
        now, before = (state.strategy for state in service.learner._history.states)
        assert now.network is before.network
        assert "familiarity" in now.head.derived
        assert not before.head.derived
        assert service.learner.predict(clip(255)[0]).label == "bright"
        service.submit(ChangeJob("undo", lambda draft, _: draft.undo())).ended.result(30)
        assert service.predict(clip(255)[0]).result(30)[0].label == "dark"
    finally:
        service.stop()


def test_large_blocks_go_back_when_they_are_freed():
    """Blocks of 20 MB go back: with glibc's own threshold they would lie in the heap, and stay."""
    code = """
import ctypes
from primavista.serve.server import return_large_blocks
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
print(return_large_blocks())
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def block():
    at = libc.malloc(20 << 20)
    ctypes.memset(at, 1, 20 << 20)
    return at
libc.free(block())
before = resident()
blocks = [block() for _ in range(5)]
last = libc.malloc(1 << 16)  # above them, if they lie in the heap
for at in blocks:
    libc.free(at)
print(round(resident() - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    can, left = done.stdout.split()
    if can == "False":
        pytest.skip("there is no mallopt here")
    assert int(left) < 10, done.stdout


def test_a_file_in_the_place_of_the_model_is_not_overwritten(tmp_path):
    """L10: somebody copies another model over the file while the service runs."""
    learner = Learner("ncm", weights="random", width=0.0625, size=32, device="cpu")
    learner.learn(np.zeros((2, 32, 32, 3), np.uint8), "mug")
    path = tmp_path / "k.pv"
    learner.save(path)
    service = LearnerService(learner, path)
    service.start()
    try:
        rename = service.submit(ChangeJob("rename", lambda one, _: one.rename("mug", "cup")))
        rename.ended.result(60)
        assert rename.state == "done"
        other = tmp_path / "other"
        other.write_bytes(b"somebody's file")
        other.replace(path)
        again = service.submit(ChangeJob("rename", lambda one, _: one.rename("cup", "bowl")))
        again.ended.result(60)
        assert again.state == "failed"
        assert "k.pv was replaced by another program" in str(again.error)
        assert path.read_bytes() == b"somebody's file"
        assert service.learner.labels == ["cup"]
        path.unlink()
        after = service.submit(ChangeJob("rename", lambda one, _: one.rename("cup", "bowl")))
        after.ended.result(60)
        assert Learner.load(path, device="cpu").labels == ["bowl"]
    finally:
        service.stop()


def test_the_trial_lesson_trains_no_network(tmp_path, monkeypatch):
    """M10: a model with thousands of epochs must not keep the service from starting."""
    from primavista.strategies.gradient import GradientStrategy

    learner = Learner("ar1*", weights="random", width=0.0625, size=32, device="cpu", epochs=5000)
    asked = []
    epochs_of = GradientStrategy.epochs_of

    def counted(strategy, i):
        asked.append(epochs_of(strategy, i))
        return asked[-1]

    monkeypatch.setattr(GradientStrategy, "epochs_of", counted)
    service = LearnerService(learner, tmp_path / "k.pv")
    service.start()
    service.stop()
    assert asked == []
    assert learner.options["epochs"] == 5000


def test_a_change_after_which_there_are_no_numbers_is_refused(tmp_path):
    """L1: a network whose features overflow gives NaN; such a model never becomes the current."""
    learner = Learner("ncm", weights="random", width=0.0625, size=32, device="cpu", engine="torch")
    for k, name in enumerate(["mug", "cup"]):
        learner.learn(np.full((2, 32, 32, 3), 100 * k, np.uint8), name)
    evil = Learner.from_bytes(learner.to_bytes(), device="cpu", engine="torch")
    evil.strategy.network.backbone.shift.fill_(np.inf)
    service = LearnerService(learner, tmp_path / "k.pv")
    service.start()
    try:
        job = service.submit(ChangeJob("load", lambda one, _: evil))
        job.ended.result(60)
        assert job.state == "failed"
        assert "no numbers" in str(job.error)
        assert service.learner is learner
    finally:
        service.stop()
