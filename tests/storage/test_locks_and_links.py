"""What happens to the file system around a model: links, permissions, leftovers, locks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from primavista import FileError, Learner
from primavista.bench.folder import CellFolder, claim_folder
from primavista.bench.plan import load_plan
from primavista.storage.disk import BusyError, FileLock, file_lock, is_locked, write_atomically


def frames(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (3, 32, 32, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def taught() -> Learner:
    learner = Learner("ncm", weights="random", width=0.0625, size=32, device="cpu")
    learner.learn(frames(0), "mug")
    learner.learn(frames(1), "cup")
    return learner


# H4: the lock


def test_a_lock_that_is_a_link_is_refused_and_its_target_untouched(tmp_path: Path) -> None:
    victim, model = tmp_path / "victim.txt", tmp_path / "kitchen.pv"
    victim.write_text("mine")
    (tmp_path / ".kitchen.pv.lock").symlink_to(victim)
    with pytest.raises(FileError, match=r"\.kitchen\.pv\.lock is not an ordinary file"):
        file_lock(model).__enter__()
    assert victim.read_text() == "mine"
    assert not is_locked(tmp_path / ".kitchen.pv.lock")


def test_a_lock_that_leads_nowhere_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "new.txt")
    with pytest.raises(FileError, match="not an ordinary file"):
        FileLock(tmp_path / ".lock").__enter__()
    assert not (tmp_path / "new.txt").exists()


def test_a_lock_that_is_a_pipe_or_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileError, match="not an ordinary file"):
            FileLock(tmp_path / name).__enter__()
        assert not is_locked(tmp_path / name)


def test_a_lock_file_with_other_contents_is_locked_but_not_written(tmp_path: Path) -> None:
    """A hard link, or a file that happens to have the name of a lock."""
    foreign = tmp_path / ".lock"
    foreign.write_text("not a lock\n")
    with FileLock(foreign):
        assert is_locked(foreign)
        with pytest.raises(BusyError, match="unknown"):
            FileLock(foreign, wait=0.0).__enter__()
        assert foreign.read_text() == "not a lock\n"
    assert foreign.read_text() == "not a lock\n"
    empty = tmp_path / "empty"
    empty.touch()
    os.link(empty, tmp_path / ".second")
    with FileLock(tmp_path / ".second"):
        assert empty.read_bytes() == b""


def test_a_lock_is_not_inherited_by_programs_that_its_holder_starts(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".lock") as held:
        assert not os.get_inheritable(held._file)


def test_links_in_the_folder_of_a_cell_are_not_followed(tmp_path: Path) -> None:
    """The lines of a cell are cut when it resumes; those of a link's target must not be."""
    planned = load_plan("quick").planned()[0]
    for name in ("metrics.jsonl", "timings.jsonl"):
        victim, folder = tmp_path / f"victim-{name}", tmp_path / f"cell-{name}"
        victim.write_text("mine\n")
        folder.mkdir()
        (folder / name).symlink_to(victim)
        with CellFolder(folder, planned.cell) as cell, pytest.raises(FileError):
            cell.resume()
        assert victim.read_text() == "mine\n"


# L4: locks that do not work


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(file: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(FileError, match=r"cannot lock .*\.k\.pv\.lock: .*file system"):
        file_lock(tmp_path / "k.pv").__enter__()
    (tmp_path / ".other").touch()
    assert not is_locked(tmp_path / ".other")


# M5: permissions


def test_saving_keeps_the_permissions(tmp_path: Path, taught: Learner) -> None:
    path = tmp_path / "k.pv"
    taught.save(path)
    for mode in (0o600, 0o640, 0o664, 0o400):
        path.chmod(mode)
        taught.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_secrets_are_never_readable_by_others_while_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary file has the permissions before it has the contents."""
    from primavista.storage import disk

    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o600)
    modes = []
    write = disk.write

    def looked_at(file: int, data: bytes | memoryview) -> None:
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        write(file, data)

    monkeypatch.setattr(disk, "write", looked_at)
    write_atomically(path, b"new", b"er")
    assert modes == [0o600, 0o600]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away"
)
def test_saving_keeps_owner_and_group(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    os.chown(path, 1234, 2345)
    write_atomically(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_a_group_that_cannot_be_kept_gets_no_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another group must not read what was meant for the first one."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o660)
    real = os.lstat

    def of_somebody_else(name: str | Path) -> os.stat_result:
        found = list(real(name))
        found[stat.ST_GID] += 1
        return os.stat_result(found)

    def refuse(file: int, user: int, group: int) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "lstat", of_somebody_else)
    monkeypatch.setattr(os, "fchown", refuse)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# M6: one file, one lock


def test_all_spellings_of_a_path_have_one_lock(tmp_path: Path) -> None:
    (tmp_path / "nas").mkdir()
    real = tmp_path / "nas" / "real.pv"
    real.write_bytes(b"model")
    (tmp_path / "link.pv").symlink_to(real)
    (tmp_path / "mount").symlink_to(tmp_path / "nas")
    spellings = [
        tmp_path / "link.pv",
        tmp_path / "mount" / "real.pv",
        tmp_path / "nas" / ".." / "nas" / "real.pv",
        Path(os.path.relpath(real)),
    ]
    for first in spellings:
        with file_lock(first) as target:
            assert target == real
            with pytest.raises(BusyError):
                file_lock(real, wait=0.0).__enter__()


def test_links_in_a_circle_say_so(tmp_path: Path) -> None:
    (tmp_path / "a.pv").symlink_to(tmp_path / "b.pv")
    (tmp_path / "b.pv").symlink_to(tmp_path / "a.pv")
    with pytest.raises(FileError, match=r"a\.pv"):
        file_lock(tmp_path / "a.pv").__enter__()


def test_saving_to_a_link_changes_the_file_that_it_leads_to(
    tmp_path: Path, taught: Learner
) -> None:
    (tmp_path / "nas").mkdir()
    real, link = tmp_path / "nas" / "real.pv", tmp_path / "link.pv"
    taught.save(real)
    link.symlink_to(real)
    learner = Learner.load(link, device="cpu")
    learner.rename("mug", "tea mug")
    learner.save(link)
    assert link.is_symlink()
    assert Learner.load(real, device="cpu").labels == ["tea mug", "cup"]


def test_the_service_holds_the_file_behind_a_link(tmp_path: Path, taught: Learner) -> None:
    server = pytest.importorskip("primavista.serve.server")
    (tmp_path / "nas").mkdir()
    real, link = tmp_path / "nas" / "real.pv", tmp_path / "link.pv"
    taught.save(real)
    link.symlink_to(real)
    with server.open_for_teaching(link, "cpu"), pytest.raises(BusyError):
        file_lock(real, wait=0.0).__enter__()


# M8: what killed saves leave


def test_the_lock_removes_what_killed_saves_left(tmp_path: Path) -> None:
    model = tmp_path / "m.pv"
    model.write_bytes(b"model")
    left = tmp_path / f".m.pv.{'0123456789abcdef'}.part"
    others = [
        tmp_path / ".other.pv.0123456789abcdef.part",
        tmp_path / ".m.pv.part",
        tmp_path / "m.pv.0123456789abcdef.part",
    ]
    for one in (left, *others):
        one.write_bytes(b"half")
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    link = tmp_path / ".m.pv.fedcba9876543210.part"
    link.symlink_to(outside)
    with file_lock(model):
        assert not left.exists()
    assert all(one.exists() for one in others)
    assert outside.read_bytes() == b"mine"


def test_what_another_process_is_writing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save without the lock, from Python, while the service starts."""
    from primavista.storage import disk

    model = tmp_path / "m.pv"
    write = disk.write

    def start_the_service_meanwhile(file: int, data: bytes | memoryview) -> None:
        write(file, data)
        with file_lock(model):
            pass

    monkeypatch.setattr(disk, "write", start_the_service_meanwhile)
    write_atomically(model, b"whole")
    assert model.read_bytes() == b"whole"


def test_names_that_are_patterns_are_names(tmp_path: Path) -> None:
    (tmp_path / ".mug.pv.0123456789abcdef.part").write_bytes(b"half")
    with file_lock(tmp_path / "m*.pv"):
        assert (tmp_path / ".mug.pv.0123456789abcdef.part").exists()


def test_a_cell_is_not_run_in_a_folder_that_a_link_leads_elsewhere(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    elsewhere.mkdir()
    plan = load_plan("quick", ["device=cpu", "runs=1"])
    planned = list(plan.planned())
    place = out / planned[0].folder
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere)
    with pytest.raises(FileError, match=r"is a link that leads out of .*results"):
        claim_folder(out, plan, planned)
    assert not list(elsewhere.iterdir())
    assert not (out / "plan.json").exists()
    place.unlink()
    claim_folder(out, plan, planned)
    linked = tmp_path / "linked"  # the folder that the user names may be a link
    linked.symlink_to(out)
    claim_folder(linked, plan, planned)
