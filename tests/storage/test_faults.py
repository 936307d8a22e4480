"""Faults at every step of what is written: errors, torn writes, and power cuts.

Everything that must survive a crash is written through `storage/disk.py`. These tests replace its
functions by those of a simulated disk: run once, it counts the steps of an operation; then the
operation is run again for every step, which fails, is torn, or is the last one before the power is
cut. After a power cut the folder is rebuilt as a real disk may have it: only synced bytes and
synced names are certain, and every other change may have reached the disk or not, in any order.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from primavista import Learner
from primavista.bench.data import RenderedData
from primavista.bench.folder import CHECKPOINT, METRICS, RESULT, CellFolder
from primavista.bench.plan import BackboneSpec, Cell
from primavista.storage import disk, learner_file
from primavista.storage.disk import file_lock, write_atomically
from primavista.streams.dataset import DataSet, Session
from primavista.streams.store import damaged_sessions, open_store, pack

from .fault_support import Operation

# a learner: a lesson, an undo, a merge


def clip(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (3, 32, 32, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def learners() -> dict[str, Learner]:
    """A learner before and after each change, and another one to merge."""
    before = Learner("ncm", weights="random", width=0.0625, size=32, device="cpu", engine="torch")
    for seed, name in enumerate(["mug", "cup"]):
        before.learn(clip(seed), name)
    lesson, undo, merge = before.copy(), before.copy(), before.copy()
    lesson.learn(clip(2), "bowl")
    undo.undo()
    other = before.untaught()
    other.learn(clip(3), "pan")
    merge.merge(other)
    return {"before": before, "lesson": lesson, "undo": undo, "merge": merge, "other": other}


@pytest.mark.slow
@pytest.mark.parametrize("change", ["lesson", "undo", "merge"])
def test_a_model_is_the_old_or_the_new_one_after_every_fault(
    tmp_path, learners, change, monkeypatch
):
    """The whole operation under the lock, as the commands do it."""
    old, new = learners["before"].to_bytes(), learners[change].to_bytes()
    assert old != new

    def in_three(path: Path, data: bytes) -> None:
        """Three writes instead of one, so that faults fall between them."""
        write_atomically(path, data[:1000], data[1000:5000], data[5000:])

    monkeypatch.setattr(learner_file, "write_atomically", in_three)

    def prepare(root: Path) -> None:
        (root / "k.pv").write_bytes(old)
        (root / ".k.pv.0123456789abcdef.part").write_bytes(b"of a killed save")

    def work(root: Path) -> None:
        with file_lock(root / "k.pv"):
            learner = learners["before"].copy()
            if change == "lesson":
                learner.learn(clip(2), "bowl")
            elif change == "undo":
                learner.undo()
            else:
                learner.merge(learners["other"])
            learner.save(root / "k.pv")

    def check_whole(root: Path) -> None:
        assert (root / "k.pv").read_bytes() in (old, new)

    def check_done(root: Path) -> None:
        assert (root / "k.pv").read_bytes() == new

    tried = Operation(prepare, work, check_whole, check_done).try_all(tmp_path / "root")
    assert tried > 50


# the cell of a benchmark

CELL = Cell(
    strategy="cwr*",
    options={},
    protocol="nicv2",
    run=0,
    data=RenderedData(),
    backbone=BackboneSpec(),
    seed=0,
)
BATCHES = 2
LINES = [json.dumps({"batch": batch, "accuracy": batch / 7}) for batch in range(1, BATCHES + 1)]


def run_cell(root: Path) -> None:
    """What `bench.cell` does with its folder: resume, append, checkpoint, finish."""
    with CellFolder(root / "cell", CELL) as folder:
        if folder.done:
            return
        state = folder.resume()
        weights = np.zeros(4) if state is None else state[0]["weights"]
        start = 0 if state is None else state[1]["position"]
        assert weights.tolist() == [start] * 4
        for batch in range(start + 1, BATCHES + 1):
            weights = weights + 1
            line = json.loads(LINES[batch - 1])
            folder.append(line, {"batch": batch, "learn_seconds": 0.1})
            if batch < BATCHES:
                folder.checkpoint({"weights": weights}, {"position": batch})
        folder.finish({"batches": BATCHES, "state_sha256": str(weights.tolist())})


def test_a_cell_resumes_to_the_same_result_after_every_fault(tmp_path):
    def check_whole(root: Path) -> None:
        """A result means that the cell is done, with every line."""
        if (root / "cell" / RESULT).exists():
            check_result(root)

    def check_result(root: Path) -> None:
        found = json.loads((root / "cell" / RESULT).read_bytes())
        assert found["state_sha256"] == str([float(BATCHES)] * 4)
        assert (root / "cell" / METRICS).read_text().splitlines() == LINES

    def work(root: Path) -> None:
        run_cell(root)

    def prepare(root: Path) -> None:
        (root / "cell").mkdir()

    tried = Operation(prepare, work, check_whole, check_result).try_all(tmp_path / "root")
    assert tried > 100
    assert not (tmp_path / "root" / "cell" / CHECKPOINT).exists()


# a packed store


def data_set() -> DataSet:
    frames = torch.arange(300 * 2 * 2 * 3).remainder(251).to(torch.uint8).reshape(300, 2, 2, 3)
    sessions = (Session(0, 1, 0, 200), Session(1, 1, 200, 280), Session(1, 2, 280, 300))
    return DataSet("some", frames, sessions[:2], sessions[2:], ("a", "b"), (0, 1))


def test_a_packed_store_is_complete_or_made_again_after_every_fault(tmp_path):
    data = data_set()

    def prepare(root: Path) -> None:
        (root / "store").mkdir()

    def work(root: Path) -> None:
        pack(data, root / "store", workers=1)

    def check_done(root: Path) -> None:
        store = open_store(root / "store")
        assert not damaged_sessions(root / "store")
        assert torch.equal(store.frames[torch.arange(300)], data.frames)

    def check_whole(root: Path) -> None:
        if all((root / "store" / name).exists() for name in ("index.json", "frames.npy")):
            check_done(root)

    tried = Operation(prepare, work, check_whole, check_done).try_all(tmp_path / "root")
    assert tried > 100


# the tests themselves


def test_a_save_that_does_not_sync_is_found(tmp_path):
    """The simulated disk must be able to fail: without fsync the new name has no contents."""

    def save(path: Path, data: bytes) -> None:
        part = path.with_name("new")
        disk.remove(part)
        descriptor = disk.create(part)
        disk.write(descriptor, data)
        os.close(descriptor)
        disk.replace(part, path)
        disk.sync_folder(path.parent)

    def check_whole(root: Path) -> None:
        assert (root / "a").read_bytes() in (b"old file", b"new file")

    def check_done(root: Path) -> None:
        assert (root / "a").read_bytes() == b"new file"

    careless = Operation(
        lambda root: (root / "a").write_bytes(b"old file") and None,
        lambda root: save(root / "a", b"new file"),
        check_whole,
        check_done,
    )
    cuts = [careless._run(tmp_path / "root", at, "power") for at in range(1, 7)]
    found = {state[cut.root / "a"] for cut in cuts for state in cut.states_after_power_cut()}
    assert b"" in found
    assert bytes(8) in found
