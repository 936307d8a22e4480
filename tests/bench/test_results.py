"""The folder of a cell.

What two processes, a full disk, a read-only folder and a damaged file do to it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

from primavista.bench.data import RenderedData
from primavista.bench.folder import (
    CHECKPOINT,
    METRICS,
    CellFolder,
    cell_status,
    claim_folder,
    read_lines,
)
from primavista.bench.local import Inline
from primavista.bench.plan import BackboneSpec, Cell
from primavista.errors import FileError, InputError
from primavista.storage.disk import BusyError, FileLock, is_locked

RUN = Cell(
    strategy="cwr*",
    options={},
    protocol="nicv2",
    run=0,
    data=RenderedData(),
    backbone=BackboneSpec(),
    seed=0,
)


def test_lines_after_the_checkpoint_are_cut(tmp_path):
    with CellFolder(tmp_path / "cell", RUN) as folder:
        assert folder.resume() is None
        for batch in (1, 2):
            folder.append({"batch": batch}, {"batch": batch})
        folder.checkpoint({}, {"position": 2})
        folder.append({"batch": 3}, {"batch": 3})
    with open(tmp_path / "cell" / METRICS, "a") as file:
        file.write('{"batch": 4, "los')  # killed while it wrote
    assert [line["batch"] for line in read_lines(tmp_path / "cell" / METRICS)] == [1, 2, 3]
    with CellFolder(tmp_path / "cell", RUN) as folder:
        assert folder.resume()[1]["position"] == 2
        folder.append({"batch": 3}, {"batch": 3})
    assert (tmp_path / "cell" / METRICS).read_text() == '{"batch": 1}\n{"batch": 2}\n{"batch": 3}\n'


def test_without_a_checkpoint_a_cell_begins_anew(tmp_path):
    with CellFolder(tmp_path, RUN) as folder:
        folder.resume()
        folder.append({"batch": 1}, {"batch": 1})
    with CellFolder(tmp_path, RUN) as folder:
        folder.resume()
    assert (tmp_path / METRICS).read_bytes() == b""


def test_a_folder_of_another_run_is_refused(tmp_path):
    with CellFolder(tmp_path, RUN):
        pass
    with (
        pytest.raises(InputError, match="holds another cell: choose another folder"),
        CellFolder(tmp_path, RUN.model_copy(update={"run": 1})),
    ):
        pass
    assert json.loads((tmp_path / "run.json").read_text()) == RUN.model_dump(mode="json")
    assert not is_locked(tmp_path / ".lock")


def test_a_damaged_checkpoint_is_said(tmp_path):
    with CellFolder(tmp_path, RUN) as folder:
        folder.resume()
        folder.append({"batch": 1}, {"batch": 1})
        folder.checkpoint({}, {"position": 1})
    data = bytearray((tmp_path / CHECKPOINT).read_bytes())
    data[-1] ^= 1
    (tmp_path / CHECKPOINT).write_bytes(data)
    with (
        CellFolder(tmp_path, RUN) as folder,
        pytest.raises(FileError, match=r"or delete .* to restart this cell"),
    ):
        folder.resume()


def test_a_failure_is_kept_until_the_cell_is_run_again(tmp_path):
    with CellFolder(tmp_path, RUN) as folder:
        folder.fail("no memory")
    assert cell_status(tmp_path) == "failed"
    with CellFolder(tmp_path, RUN):
        assert not (tmp_path / "failed.json").exists()
        assert cell_status(tmp_path) == "running"
    assert cell_status(tmp_path) == "stopped"
    assert cell_status(tmp_path / "other") == "waiting"


HOLD = """
import sys
from pathlib import Path
from primavista.storage.disk import FileLock
with FileLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_two_processes_on_one_folder(tmp_path, suite):
    """The second is told who is there, and changes nothing.

    When the first is killed, the folder is free at once.
    """
    one = suite("dslda")
    one.run(Inline())
    before = {
        path: path.read_bytes()
        for path in one.out.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
    for place in (one.out, one.states[0].path):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(place / ".lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(
            BusyError, match=rf"another process \(process {holder.pid} on .*\) is at work in"
        ):
            FileLock(place / ".lock", wait=0.1).__enter__()
        if place == one.out:
            with pytest.raises(BusyError):
                suite("dslda").run(Inline())
        holder.kill()
        holder.communicate()
        with FileLock(place / ".lock", wait=0):
            pass
    assert before == {
        path: path.read_bytes()
        for path in one.out.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.slow
def test_a_cell_that_another_process_is_at_is_listed_and_left_alone(suite):
    one = suite("dslda", "cwr*")
    busy = one.states[0]
    busy.path.mkdir(parents=True)
    with FileLock(busy.path / ".lock"):
        failed = one.run(Inline())
    assert [state.planned.cell.strategy for state in failed] == ["dslda"]
    assert "another process" in failed[0].reason
    assert not (busy.path / "failed.json").exists()
    assert one.states[1].status == "done"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "room"), [(0.0, 5000), (1e9, 2000)], ids=["the checkpoint", "a line"]
)
def test_a_full_disk_loses_nothing(suite, tmp_path, results, seconds, room):
    """Files may not grow beyond a limit.

    The cell fails with a clear reason, and with more room goes on to the same bits.
    """
    suite("cwr*", out=tmp_path / "undisturbed", limit=12).run(Inline())
    full = suite("cwr*", limit=12, seconds=seconds)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    full.out.mkdir()
    claim_folder(full.out, full.plan, full.plan.planned())
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        failed = full.run(Inline())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(failed) == 1
    assert "File too large" in failed[0].reason
    assert "the same command resumes" in failed[0].reason
    assert not list(full.out.rglob("*.part"))
    assert not full.run(Inline())
    assert results(full.out) == results(tmp_path / "undisturbed")


def test_a_read_only_folder_is_said(tmp_path):
    """In a child that is nobody: to root nothing is read-only."""
    place = tmp_path / "locked"
    place.mkdir()
    place.chmod(0o555)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    (tmp_path / "said").write_text("")
    (tmp_path / "said").chmod(0o666)
    child = os.fork()
    if not child:
        if os.getuid() == 0:
            os.setuid(65534)
        for folder in (place, place / "cell"):
            try:
                CellFolder(folder, RUN).__enter__()
            except FileError as error:
                with open(tmp_path / "said", "a") as file:
                    file.write(f"{error}\n")
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "said").read_text().splitlines() == [
        f"cannot write in {place}: Permission denied. Choose a folder that you can write to",
        f"cannot make {place / 'cell'}: Permission denied. Choose a folder that you can write to",
    ]
