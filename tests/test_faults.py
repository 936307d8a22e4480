"""Faults at every step of what is written: errors, torn writes, and power cuts.

Everything that must survive a crash is written through `storage/disk.py`. These tests replace its
functions by those of a simulated disk: run once, it counts the steps of an operation; then the
operation is run again for every step, which fails, is torn, or is the last one before the power is
cut. After a power cut the folder is rebuilt as a real disk may have it: only synced bytes and
synced names are certain, and every other change may have reached the disk or not, in any order.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from primavista import FileError, Learner
from primavista.bench.data import RenderedData
from primavista.bench.folder import CHECKPOINT, METRICS, RESULT, CellFolder
from primavista.bench.plan import BackboneSpec, Cell
from primavista.storage import disk, learner_file
from primavista.storage.lock import file_lock
from primavista.streams.dataset import DataSet, Session
from primavista.streams.store import open_store, pack, verify


class PowerCut(BaseException):
    """The machine stops: nothing that the program does from here on reaches the disk."""


@dataclass(eq=False)
class SimulatedFile:
    """What a file holds now, and what of it is certain to be on the disk."""

    live: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


class SimulatedDisk:
    """The functions of `disk`, with a fault at one step.

    Args:
        root: The folder that is simulated, with what lies in it.
        at: The number of the step that goes wrong; 0 for none.
        fault: "error", "torn" (half of a write, then an error) or "power".
    """

    def __init__(self, root: Path, at: int = 0, fault: str = "error") -> None:
        self.root, self.at, self.fault = root, at, fault
        self.steps = 0
        self.dead = False
        self.open: dict[int, SimulatedFile] = {}
        self.names: dict[Path, SimulatedFile] = {}
        for path in root.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                self.names[path] = SimulatedFile(bytearray(data), data)
        self.synced_names = dict(self.names)
        self.real = {name: getattr(disk, name) for name in FUNCTIONS}

    @contextmanager
    def installed(self) -> Iterator[SimulatedDisk]:
        with pytest.MonkeyPatch.context() as patch:
            for name in FUNCTIONS:
                patch.setattr(disk, name, getattr(self, name))
            yield self

    def step(self) -> bool:
        """Count a step; True if it goes wrong now."""
        if self.dead:
            raise PowerCut
        self.steps += 1
        return self.steps == self.at

    def go_wrong(self) -> None:
        if self.fault == "power":
            self.dead = True
            raise PowerCut
        raise OSError(errno.EIO, "Input/output error")

    def create(self, path: Path) -> int:
        if self.step():
            self.go_wrong()
        descriptor = self.real["create"](path)
        self.names[path] = self.open[descriptor] = SimulatedFile()
        return descriptor

    def open_regular(self, path: Path, *, make: bool = True) -> int:
        if self.step():
            self.go_wrong()
        descriptor = self.real["open_regular"](path, make=make)
        self.open[descriptor] = self.names.setdefault(path, SimulatedFile())
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> None:
        wrong = self.step()
        some = bytes(data)[: len(data) // 2] if wrong and self.fault != "error" else bytes(data)
        if not wrong or self.fault != "error":
            position = os.lseek(descriptor, 0, os.SEEK_CUR)
            self.real["write"](descriptor, some)
            live = self.open[descriptor].live
            live.extend(bytes(max(0, position - len(live))))
            live[position : position + len(some)] = some
        if wrong:
            self.go_wrong()

    def truncate(self, descriptor: int, size: int) -> None:
        if self.step():
            self.go_wrong()
        self.real["truncate"](descriptor, size)
        live = self.open[descriptor].live
        del live[size:]
        live.extend(bytes(size - len(live)))

    def sync(self, descriptor: int) -> None:
        if self.step():
            self.go_wrong()
        found = self.open[descriptor]
        found.synced = bytes(found.live)

    def replace(self, source: Path, target: Path) -> None:
        if self.step():
            self.go_wrong()
        self.real["replace"](source, target)
        self.names[target] = self.names.pop(source)

    def remove(self, path: Path) -> None:
        if self.step():
            self.go_wrong()
        self.real["remove"](path)
        self.names.pop(path, None)

    def sync_folder(self, folder: Path) -> None:
        if self.step():
            if self.fault != "power":
                return  # a file system that cannot do it is not an error
            self.go_wrong()
        for names, others in ((self.names, self.synced_names), (self.synced_names, self.names)):
            for path in [path for path in names if path.parent == folder]:
                if path in self.names:
                    self.synced_names[path] = self.names[path]
                elif path not in others:
                    del self.synced_names[path]

    def states_after_power_cut(self) -> Iterator[dict[Path, bytes]]:
        """What the disk may hold: each unsynced name and content has got there, or has not."""
        paths = sorted(
            path for path in {*self.names, *self.synced_names} if not path.name.endswith("lock")
        )
        seen = set()
        moved = [p for p in paths if self.names.get(p) is not self.synced_names.get(p)]
        for arrived in itertools.product((False, True), repeat=len(moved)):
            names = dict(self.synced_names)
            for path, new in zip(moved, arrived, strict=True):
                if new:
                    names.pop(path, None)
                    if path in self.names:
                        names[path] = self.names[path]
            for content in CONTENTS.values():
                state = {path: content(file) for path, file in names.items() if path in paths}
                if (key := frozenset(state.items())) not in seen:
                    seen.add(key)
                    yield state

    def restore(self, state: dict[Path, bytes]) -> None:
        folders = [path for path in self.root.rglob("*") if path.is_dir()]
        shutil.rmtree(self.root)
        for folder in (self.root, *folders):
            folder.mkdir(parents=True, exist_ok=True)
        for path, data in state.items():
            path.write_bytes(data)


def _zeros(file: SimulatedFile) -> bytes:
    """The new size with the old bytes: a journal of names and sizes, and zeros for the rest."""
    return (file.synced + bytes(len(file.live)))[: max(len(file.live), len(file.synced))]


FUNCTIONS = (
    *("create", "open_regular", "write", "truncate"),
    *("sync", "replace", "remove", "sync_folder"),
)
CONTENTS: dict[str, Callable[[SimulatedFile], bytes]] = {
    "synced": lambda file: file.synced,
    "all": lambda file: bytes(file.live),
    "zeros": lambda file: file.synced if file.synced == file.live else _zeros(file),
    "torn": lambda file: bytes(file.live)[: (len(file.live) + len(file.synced)) // 2],
}
# a synced file is the same in every one of them
assert all(c(SimulatedFile(bytearray(b"abc"), b"abc")) == b"abc" for c in CONTENTS.values())


@dataclass
class Operation:
    """Something that writes: how to prepare a folder, what to do, and what must hold afterwards.

    Args:
        prepare: Fills an empty folder.
        work: The operation, which may be repeated after it was interrupted.
        check_whole: Holds after every fault: what is there is whole.
        check_done: Holds after the work has returned, whatever happens then.
    """

    prepare: Callable[[Path], None]
    work: Callable[[Path], None]
    check_whole: Callable[[Path], None]
    check_done: Callable[[Path], None]

    def try_all(self, root: Path) -> int:
        """Try every fault at every step; return the number of faults and power cuts tried."""
        steps = self._run(root, 0, "error").steps
        assert steps > 4
        tried = 0
        for fault in ("error", "torn"):
            for at in range(1, steps + 1):
                self._run(root, at, fault)
                self.check_whole(root)
                self._repeat(root)
                tried += 1
        for at in range(1, steps + 2):
            cut = self._run(root, at, "power")
            for state in cut.states_after_power_cut():
                cut.restore(state)
                self.check_whole(root)
                if not cut.dead:  # it had returned before the power was cut
                    self.check_done(root)
                self._repeat(root)
                tried += 1
        return tried

    def _run(self, root: Path, at: int, fault: str) -> SimulatedDisk:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        self.prepare(root)
        with SimulatedDisk(root, at, fault).installed() as simulated:
            try:
                self.work(root)
            except PowerCut:
                assert fault == "power"
            except FileError:
                assert fault != "power"
            else:
                assert not simulated.dead
        if not simulated.dead and at == 0:
            self.check_done(root)
        return simulated

    def _repeat(self, root: Path) -> None:
        """The same operation again ends as it would have, and leaves nothing behind."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: None)  # for speed alone
            self.work(root)
        self.check_done(root)
        left = [path.name for path in root.rglob("*") if path.name.endswith(".part")]
        assert left == []


# a learner: a lesson, an undo, a merge


def clip(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (3, 32, 32, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def learners() -> dict[str, Learner]:
    """A learner before and after each change."""
    before = Learner("ncm", weights="random", width=0.0625, size=32, device="cpu", engine="torch")
    for seed, name in enumerate(["mug", "cup"]):
        before.learn(clip(seed), name)
    lesson, undo, merge = before.copy(), before.copy(), before.copy()
    lesson.learn(clip(2), "bowl")
    undo.undo()
    other = before.untaught()
    other.learn(clip(3), "pan")
    merge.merge(other)
    return {"before": before, "lesson": lesson, "undo": undo, "merge": merge}


@pytest.mark.parametrize("change", ["lesson", "undo", "merge"])
def test_a_model_is_the_old_or_the_new_one_after_every_fault(
    tmp_path, learners, change, monkeypatch
):
    old, new = learners["before"].to_bytes(), learners[change].to_bytes()
    assert old != new
    # in three writes instead of one per array, for speed
    parts = [new[:1000], new[1000:5000], new[5000:]]
    monkeypatch.setattr(learner_file, "encoded", lambda *content: parts)

    def prepare(root: Path) -> None:
        (root / "k.pv").write_bytes(old)
        (root / ".k.pv.0123456789abcdef.part").write_bytes(b"of a killed save")

    def work(root: Path) -> None:
        with file_lock(root / "k.pv"):
            learners[change].save(root / "k.pv")

    def check_whole(root: Path) -> None:
        assert (root / "k.pv").read_bytes() in (old, new)

    def check_done(root: Path) -> None:
        assert (root / "k.pv").read_bytes() == new

    tried = Operation(prepare, work, check_whole, check_done).try_all(tmp_path / "root")
    assert tried > 40


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
        folder.finish({"format": 2, "batches": BATCHES, "weights_sha256": str(weights.tolist())})


def test_a_cell_resumes_to_the_same_result_after_every_fault(tmp_path):
    def check_whole(root: Path) -> None:
        """A result means that the cell is done, with every line."""
        if (root / "cell" / RESULT).exists():
            check_result(root)

    def check_result(root: Path) -> None:
        found = json.loads((root / "cell" / RESULT).read_bytes())
        assert found["weights_sha256"] == str([float(BATCHES)] * 4)
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


def test_a_packed_store_is_complete_or_resumes_after_every_fault(tmp_path):
    data = data_set()

    def prepare(root: Path) -> None:
        (root / "store").mkdir()

    def work(root: Path) -> None:
        pack(data, root / "store", workers=1)

    def check_done(root: Path) -> None:
        store = open_store(root / "store")
        verify(root / "store")
        assert torch.equal(store.frames[torch.arange(300)], data.frames)

    def check_whole(root: Path) -> None:
        if (root / "store" / "index.json").exists():
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
