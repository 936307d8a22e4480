"""Locks between processes. The system releases a lock when its holder ends, however that ends."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from primavista.errors import CHOOSE_FOLDER, FileError, file_errors

POLL_SECONDS = 0.05


class BusyError(FileError):
    """Raised if another process holds the lock, which the message names; nothing was changed."""


class FileLock:
    """A lock on a file of its own, held inside a `with` block by one process at a time.

    Args:
        path: The lock file; it is created if it does not exist. Its folder must exist.
        wait: How many seconds to wait for another holder to end; None waits as long as it takes.
        activity: What a holder does, for the message of `BusyError`: "is at work in FOLDER" if
            empty.
        remove_if: Called when the lock is released: whether the lock file is removed. By default it
            stays.

    Raises:
        BusyError: On entry, if another process still holds the lock after `wait` seconds.
        FileError: On entry, if the lock file cannot be created.
    """

    def __init__(
        self,
        path: Path,
        wait: float | None = 3.0,
        activity: str = "",
        remove_if: Callable[[], bool] | None = None,
    ) -> None:
        self.path = path
        self.wait = wait
        self.activity = activity or f"is at work in {path.parent}"
        self.remove_if = remove_if
        self._file = -1

    def __enter__(self) -> FileLock:
        began = time.monotonic()
        self._open()
        while not self._acquire():
            if self.wait is not None and time.monotonic() - began >= self.wait:
                raise self._busy()
            time.sleep(POLL_SECONDS)
        # the holder's name is only for messages, so a full disk does not matter here
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            if self.remove_if is not None and self.remove_if():
                self.path.unlink()
        os.close(self._file)

    def _open(self) -> None:
        with file_errors("write in", self.path.parent, CHOOSE_FOLDER):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)

    def _acquire(self) -> bool:
        if not _try_lock(self._file):
            return False
        if self.remove_if is None or self._is_current():
            return True
        # its last holder removed the file: another process may hold a new one of the same name
        os.close(self._file)
        self._open()
        return False

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _busy(self) -> BusyError:
        holder = os.pread(self._file, 200, 0).decode(errors="replace").strip() or "unknown"
        os.close(self._file)
        return BusyError(
            f"another process ({holder}) {self.activity}: wait for it, or stop it first"
        )


def file_lock(path: Path, wait: float | None = 3.0) -> FileLock:
    """Return the lock of a file that is read, changed and replaced: a hidden file beside it.

    Args:
        path: The file to guard. If it does not exist when the lock is released, the lock file is
            removed.
        wait: How many seconds to wait for another holder; None waits as long as it takes.

    Returns:
        The lock, to be used in a `with` statement.
    """
    hidden = path.with_name(f".{path.name}.lock")
    return FileLock(hidden, wait, f"is at work on {path}", remove_if=lambda: not path.exists())


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock file `path` now, and False if there is no such file.

    Args:
        path: The lock file, as given to `FileLock`.
    """
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(file)
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    """Lock an open file; False if another process holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
