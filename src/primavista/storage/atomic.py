"""Atomic writes: a reader finds the whole new file or the whole old one, never a part of one."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

# relative: the distribution for the edge has this module too, under its own name
from . import disk


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write `parts`, one after the other, to `path`, or leave what is there untouched.

    The bytes go to a temporary file in the same folder, are synced to disk, and replace `path` by a
    rename; the folder is synced too, so that the new file survives a power failure. The new file
    has the permissions of the old one, and its owner and group if the system allows that.

    Args:
        path: The file to create or replace. Its folder must exist.
        *parts: The contents; large arrays can be passed as memory views and are not copied.

    Raises:
        OSError: If the file cannot be written. The temporary file is removed.
    """
    with replacing(path) as part:
        file = disk.create(part)
        try:
            try_lock(file)  # so that `remove_leftovers` sees that somebody is writing it
            _copy_access(path, file)
            for data in parts:
                disk.write(file, data)
            disk.sync(file)
        finally:
            os.close(file)
    disk.sync_folder(path.parent)


@contextlib.contextmanager
def replacing(path: Path, *, keep_suffix: bool = False) -> Iterator[Path]:
    """Give a temporary path; what the block writes there is renamed to `path` at the end.

    If the block raises, `path` stays as it was and the temporary file or folder is removed. Nothing
    is synced to disk: use `write_atomically` for files that must survive a power failure.

    Args:
        path: The file to create or replace, or the folder to create. Its parent folder must exist.
        keep_suffix: Whether the temporary name ends like `path` (for writers that choose a format
            by the suffix) instead of in ".part".

    Yields:
        A path that does not exist yet, where the block creates a file or a folder.
    """
    token = secrets.token_hex(8)
    name = (
        f".{path.stem}.{token}.part{path.suffix}" if keep_suffix else f".{path.name}.{token}.part"
    )
    part = path.with_name(name)
    try:
        yield part
        disk.replace(part, path)
    except BaseException:
        _remove(part)
        raise


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files that killed processes left behind; the caller holds the lock.

    A file that is still being written stays, and so does one that cannot be removed.

    Args:
        folder: The folder to look in.
        name: The file that they were to become; None for all files of the folder.
    """
    wanted = r".+" if name is None else re.escape(name)
    pattern = re.compile(rf"\.{wanted}\.[0-9a-f]{{16}}\.part", re.DOTALL)
    with contextlib.suppress(OSError):
        for left in [entry for entry in os.listdir(folder) if pattern.fullmatch(entry)]:
            _remove_if_unused(folder / left)


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed, without waiting.

    Args:
        file: The descriptor.

    Returns:
        False if another process holds the lock, or if this file system cannot lock.
    """
    try:
        import fcntl
    except ImportError:  # Windows, which does not remove open files either
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_if_unused(part: Path) -> None:
    with contextlib.suppress(OSError):
        if not part.is_symlink() and part.is_file():
            file = disk.open_regular(part, make=False)
            try:
                if try_lock(file):
                    disk.remove(part)
            finally:
                os.close(file)


def _copy_access(path: Path, file: int) -> None:
    """Give a new file the owner, the group and the permissions of the one that it will replace."""
    try:
        facts = os.lstat(path)
    except OSError:  # there is none
        return
    if not stat.S_ISREG(facts.st_mode) or not hasattr(os, "fchown"):
        return
    mode = stat.S_IMODE(facts.st_mode) & 0o777
    new = os.fstat(file)
    if (facts.st_uid, facts.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(file, facts.st_uid, facts.st_gid)
        except OSError:
            mode = _in_group(file, facts.st_gid, mode)
    os.fchmod(file, mode)


def _in_group(file: int, group: int, mode: int) -> int:
    """Give a file to a group; if that is refused, return a mode without rights for its own one."""
    try:
        os.fchown(file, -1, group)
    except OSError:
        return mode & 0o707
    return mode


def _remove(part: Path) -> None:
    if part.is_dir() and not part.is_symlink():
        shutil.rmtree(part, ignore_errors=True)
    with contextlib.suppress(OSError):
        disk.remove(part)
