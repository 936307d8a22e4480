"""The packed store.

Whole or refused, also after an interruption; one writer, many readers.
"""

import errno
import hashlib
import json
import os
import pickle
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import primavista as pv
from primavista.media.frames import LazyFrames
from primavista.streams import store as packing
from primavista.streams.core50 import CORe50
from primavista.streams.dataset import CORe50Facts, DataSet, Session
from primavista.streams.rendered.renderer import Scene
from primavista.streams.store import (
    CHUNK,
    FRAMES,
    INDEX,
    LOCK,
    StoreIndex,
    damaged_sessions,
    dump_index,
    load_index,
    make_index,
    open_store,
    pack,
)

from .scenes import materialise


def made(count: int = 3 * CHUNK + 17, seed: int = 0, side: int = 4) -> DataSet:
    frames = torch.randint(
        0,
        256,
        (count, side, side, 3),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(seed),
    )
    third = count // 3
    sessions = (
        Session(0, 1, 0, third),
        Session(1, 1, third, 2 * third),
        Session(1, 2, 2 * third, count),
    )
    return DataSet("some", frames, sessions[:2], sessions[2:], ("a", "b"), (0, 1))


def same(a: DataSet, b: DataSet) -> bool:
    every = torch.arange(len(a.frames))
    meta = (a.name, a.train, a.test, a.classes, a.categories) == (
        b.name,
        b.train,
        b.test,
        b.classes,
        b.categories,
    )
    return meta and torch.equal(a.frames[every], b.frames[every])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_packed_data_set_is_the_same_data_set(tmp_path: Path) -> None:
    data, seen = made(), []
    result = pack(data, tmp_path / "s", 1, lambda done, total: seen.append((done, total)))
    assert same(data, result)
    assert same(data, open_store(tmp_path / "s"))
    assert [done for done, _ in seen] == [0, CHUNK, 2 * CHUNK, 3 * CHUNK, 3 * CHUNK + 17]
    assert sorted(contents(tmp_path / "s")) == [FRAMES, INDEX]
    assert np.array_equal(np.load(tmp_path / "s" / FRAMES), data.frames.numpy())  # type: ignore[attr-defined]


def test_any_indices(tmp_path: Path) -> None:
    data = made(40)
    frames = pack(data, tmp_path / "s").frames
    for indices in (
        torch.tensor([39, 0, 0, -1]),
        torch.arange(40) % 3 == 0,
        torch.tensor([], dtype=torch.long),
    ):
        assert torch.equal(frames[indices], data.frames[indices])
    first = frames[torch.tensor([0])]
    first.zero_()  # a copy: nothing happens to the store
    assert torch.equal(frames[torch.tensor([0])], data.frames[torch.tensor([0])])
    with pytest.raises(IndexError):
        frames[torch.tensor([40])]


def test_in_several_threads_the_bytes_are_the_same(tmp_path: Path) -> None:
    from primavista.streams.rendered.dataset import rendered

    scene = Scene(categories=2, objects=1, sessions=3, frames=90, size=8)
    before = torch.get_num_threads()
    pack(rendered(scene), tmp_path / "a", 1)
    pack(rendered(scene), tmp_path / "b", 3)
    pack(materialise(scene), tmp_path / "c", 2)
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")
    assert torch.get_num_threads() == before


def test_frames_that_are_read_one_by_one(tmp_path: Path) -> None:
    data = made(300)
    lazy = LazyFrames(lambda i: data.frames[torch.tensor([i])][0].numpy(), 300)
    assert same(data, pack(replace(data, frames=lazy), tmp_path / "s", 2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_all_frames_on_the_gpu(tmp_path: Path) -> None:
    data = made(600)
    resident = pack(data, tmp_path / "s", 1).to("cuda")
    assert isinstance(resident.frames, torch.Tensor)
    assert resident.frames.is_cuda
    assert torch.equal(resident.frames.cpu(), data.frames[torch.arange(600)])
    assert (resident.train, resident.test, resident.classes) == (
        data.train,
        data.test,
        data.classes,
    )


def test_resident_on_a_device(tmp_path: Path) -> None:
    data = made()
    resident = pack(data, tmp_path / "s").to("cpu")
    assert isinstance(resident.frames, torch.Tensor)
    assert same(data, resident)


def test_opening_a_store_of_the_size_of_core50_takes_less_than_a_second(tmp_path: Path) -> None:
    count, side = 164_866, 128
    sessions = [Session(label, number, 0, 300) for label in range(50) for number in range(1, 12)]
    plan = StoreIndex("core50", ("o",) * 50, (0,) * 50, tuple(sessions), (), count, side, side, "")
    (tmp_path / INDEX).write_bytes(dump_index(plan, ["0" * 64] * plan.chunks))
    with open(tmp_path / FRAMES, "wb") as file:
        file.write(plan.header)
        file.truncate(plan.file_bytes)  # 8 GB of nothing
    began = time.perf_counter()
    data = open_store(tmp_path)
    assert data.frames[torch.tensor([0, 80_000, count - 1])].sum() == 0
    assert time.perf_counter() - began < 1
    assert os.stat(tmp_path / FRAMES).st_blocks * 512 < 2**20


def test_a_damaged_chunk_is_found_and_named(tmp_path: Path) -> None:
    result = pack(made(), tmp_path / "s")
    seen: list[tuple[int, int]] = []
    assert not damaged_sessions(tmp_path / "s", lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3 * CHUNK + 17, 3 * CHUNK + 17)
    with open(tmp_path / "s" / FRAMES, "r+b") as file:
        file.seek(len(result.frames.index.header) + 48 * (CHUNK + 5))  # type: ignore[attr-defined]
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    # frames 256 to 511 of 0-260, 261-521, ...
    assert damaged_sessions(tmp_path / "s") == ["a, session 1", "b, session 1"]


def test_cut_foreign_and_damaged_stores_are_refused(tmp_path: Path) -> None:
    pack(made(40), tmp_path / "s")
    index = (tmp_path / "s" / INDEX).read_bytes()
    with open(tmp_path / "s" / FRAMES, "r+b") as file:
        file.truncate(100)
    with pytest.raises(pv.FileError, match="has 100 bytes"):
        open_store(tmp_path / "s")
    (tmp_path / "s" / FRAMES).unlink()
    with pytest.raises(pv.FileError, match=r"frames\.npy"):
        open_store(tmp_path / "s")
    record = json.loads(index)
    for wrong in (
        index[:50],
        b"[]",
        b"{}",
        b"null",
        index.replace(b'"some"', b'"else"'),
        b"[" * 100_000,
    ):
        (tmp_path / "s" / INDEX).write_bytes(wrong)
        with pytest.raises(pv.FileError, match="damaged or not the index"):
            open_store(tmp_path / "s")
    record["plan"]["format"] = 99
    (tmp_path / "s" / INDEX).write_text(json.dumps(record))
    with pytest.raises(pv.FileError, match="newer primavista"):
        open_store(tmp_path / "s")
    with pytest.raises(pv.FileError, match="is not a packed store"):
        open_store(tmp_path)


def stop_after(frames: int) -> object:
    def progress(done: int, total: int) -> None:
        if done >= frames:
            raise KeyboardInterrupt

    return progress


def test_a_stopped_packing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        pack(made(), tmp_path / "s", 1, stop_after(2 * CHUNK))  # type: ignore[arg-type]
    assert contents(tmp_path / "s") == {}
    with pytest.raises(pv.FileError, match="is not a packed store"):
        open_store(tmp_path / "s")
    assert same(made(seed=1), pack(made(seed=1), tmp_path / "s"))


def test_a_finished_store_is_opened_not_packed_again(tmp_path: Path) -> None:
    data = made(40)
    pack(data, tmp_path / "s")
    before = os.stat(tmp_path / "s" / FRAMES).st_mtime_ns
    assert same(data, pack(data, tmp_path / "s", 1, stop_after(0)))  # type: ignore[arg-type]
    assert os.stat(tmp_path / "s" / FRAMES).st_mtime_ns == before
    with pytest.raises(pv.InputError, match="another data set"):
        pack(made(40, seed=3), tmp_path / "s")


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FRAMES).write_bytes(b"mine")
    with pytest.raises(pv.InputError, match="not empty"):
        pack(made(40), tmp_path)
    assert contents(tmp_path) == {FRAMES: b"mine"}


def test_what_a_killed_packer_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("process 1 on elsewhere\n")
    (tmp_path / f".{FRAMES}.0123456789abcdef.part").write_text("{")
    (tmp_path / INDEX).write_bytes(dump_index(make_index(made(seed=1)), []))  # before the last step
    assert same(made(40), pack(made(40), tmp_path))
    assert sorted(contents(tmp_path)) == [FRAMES, INDEX]


PACKER = """
import sys, time, torch
torch.set_num_threads(1)
from primavista.streams.dataset import DataSet, Session
from primavista.streams.store import pack

class Slow:
    def __len__(self): return 60 * 256
    def __getitem__(self, indices):
        time.sleep(0.02 * (len(indices) > 3))
        rows = torch.as_tensor(indices)[:, None] * torch.arange(1, 193) % 251
        return rows.to(torch.uint8).reshape(-1, 8, 8, 3)

if __name__ == "__main__":
    data = DataSet("slow", Slow(), (Session(0, 1, 0, len(Slow())),), (), ("a",), (0,))
    def progress(done, total):
        print(done, flush=True)
    pack(data, sys.argv[1], int(sys.argv[2]), progress)
"""


def packer(script: Path, target: Path, workers: int) -> subprocess.Popen[str]:
    script.write_text(PACKER)
    return subprocess.Popen(
        [sys.executable, script, target, str(workers)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    process = packer(folder / "script.py", folder / "s", 1)
    assert process.wait(60) == 0, process.communicate()[1]
    process.communicate()
    return contents(folder / "s")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_it_leaves_no_store_and_the_next_call_makes_it(
    tmp_path: Path, undisturbed: dict[str, bytes], workers: int
) -> None:
    process = packer(tmp_path / "script.py", tmp_path / "s", workers)
    assert process.stdout
    process.stdout.readline()
    process.stdout.readline()  # a chunk is done
    time.sleep(random.Random(workers).uniform(0, 0.25))
    process.kill()
    process.communicate()
    with pytest.raises(pv.FileError, match="is not a packed store"):
        open_store(tmp_path / "s")
    process = packer(tmp_path / "script.py", tmp_path / "s", workers)
    assert process.communicate(timeout=60)[1] == ""
    assert contents(tmp_path / "s") == undisturbed


def test_one_writer_at_a_time_and_no_stale_lock(tmp_path: Path) -> None:
    data, target = made(), tmp_path / "s"

    def second(done: int, total: int) -> None:
        with pytest.raises(
            pv.FileError, match=f"another process .process {os.getpid()} on .*is packing"
        ):
            pack(data, target)

    pack(data, target, 1, second)
    other = tmp_path / "t"
    other.mkdir()
    (other / LOCK).write_text("process 1 on elsewhere\n")  # of one that was killed: nobody holds it
    assert same(data, pack(data, other))
    assert not (other / LOCK).exists()


@pytest.mark.slow
def test_readers_in_several_processes(tmp_path: Path) -> None:
    result = pack(made(), tmp_path / "s")
    again = pickle.loads(pickle.dumps(result.frames))
    assert len(pickle.dumps(result.frames)) < 2000
    assert torch.equal(again[torch.arange(10)], result.frames[torch.arange(10)])
    code = "import sys; from primavista.streams.store import damaged_sessions\n"
    code += "assert damaged_sessions(sys.argv[1]) == []"
    processes = [subprocess.Popen([sys.executable, "-c", code, tmp_path / "s"]) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]


@contextmanager
def largest_file(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_found_out_before_anything_is_decoded(tmp_path: Path) -> None:
    data, seen = made(), []
    with (
        largest_file(20_000),
        pytest.raises(pv.FileError, match=r"cannot write the store .*too large.*Choose a folder"),
    ):
        pack(data, tmp_path / "s", 1, lambda done, total: seen.append(done))
    assert seen == []
    assert same(data, pack(data, tmp_path / "s"))


def test_a_disk_that_fills_on_the_way_is_left_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, real = made(), packing._write_chunk

    def full(frames: object, plan: object, path: object, chunk: int) -> str:
        if chunk == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(frames, plan, path, chunk)  # type: ignore[arg-type]

    monkeypatch.setattr(packing, "_write_chunk", full)
    with pytest.raises(pv.FileError, match="No space left on device"):
        pack(data, tmp_path / "s", 1)
    assert contents(tmp_path / "s") == {}
    monkeypatch.undo()
    assert same(data, pack(data, tmp_path / "s", 1))


def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(pv.FileError, match="cannot write the store"):
        pack(made(40), tmp_path / "file" / "s")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    pack(made(40), tmp_path / "done")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(pv.FileError, match=r"Read-only file system.*[Cc]hoose a folder"):
        pack(made(40), tmp_path / "s")
    assert same(made(40), pack(made(40), tmp_path / "done"))  # finished: only read


def test_a_bad_picture_stops_it_by_name(tmp_path: Path) -> None:
    data = made()

    def read(i: int) -> np.ndarray:  # type: ignore[type-arg]
        if i == 2 * CHUNK + 3:
            raise pv.FileError("x/y.png is damaged")
        return data.frames[torch.tensor([i])][0].numpy()

    lazy = DataSet(
        "some",
        LazyFrames(read, len(data.frames)),
        data.train,
        data.test,
        data.classes,
        data.categories,
    )
    with pytest.raises(pv.FileError, match=r"x/y\.png is damaged"):
        pack(lazy, tmp_path / "s", 1)
    assert same(data, pack(data, tmp_path / "s"))


@pytest.mark.parametrize("test", ["reduced", "full"])
def test_a_store_of_core50_says_what_it_holds_whatever_it_is_called(
    core50_folder: Callable[..., Path], tmp_path: Path, test: str
) -> None:
    data = CORe50(core50_folder(), test)  # type: ignore[arg-type]
    facts = CORe50Facts(test, complete=False)  # type: ignore[arg-type]
    store = pack(data, tmp_path / "holidays")
    assert data.core50 == store.core50 == store.to("cpu").core50 == facts
    assert open_store(tmp_path / "holidays").core50 == facts


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the record of an index, with a checksum that is right again."""
    record = json.loads(path.read_text())
    del record["checksum"]
    change(record)
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(record | {"checksum": checksum}))


@pytest.mark.parametrize(
    "facts",
    [
        {"test_set": "half", "complete": True},
        {"test_set": "full", "complete": "yes"},
        {"test_set": ["full"], "complete": True},
        {"test_set": "full"},
        [1],
    ],
)
def test_facts_that_are_not_ours_are_refused(tmp_path: Path, facts: object) -> None:
    pack(made(40), tmp_path / "s")
    rewritten(tmp_path / "s" / INDEX, lambda record: record["plan"].update(core50=facts))
    with pytest.raises(pv.FileError, match="damaged or not the index"):
        load_index(tmp_path / "s" / INDEX)


def test_plans_tell_data_sets_of_equal_shape_apart() -> None:
    assert make_index(made(40)) == make_index(made(40))
    assert make_index(made(40)) != make_index(made(40, seed=1))
    with pytest.raises(pv.InputError, match="workers"):
        pack(made(40), "nowhere", 0)
