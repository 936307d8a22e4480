"""Locks between processes. The system releases a lock when its holder ends, however that ends."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

from primavista.errors import CHOOSE_FOLDER, FileError, file_error, file_errors
from primavista.storage import disk
from primavista.storage.atomic import remove_leftovers

POLL_SECONDS = 0.05
MAX_HOLDER = 300  # bytes of what a holder writes into the lock file about itself
_HOLDER = re.compile(rb"process \d+ on [^\n]{0,255}\n")


class BusyError(FileError):
    """Raised if another process holds the lock, which the message names; nothing was changed."""


class FileLock:
    """A lock on a file of its own, held inside a `with` block by one process at a time.

    The lock file is never a symbolic link, and one that holds anything but the name of a holder is
    locked but not written: it may be somebody's file.

    Args:
        path: The lock file; it is created if it does not exist. Its folder must exist.
        wait: How many seconds to wait for another holder to end; None waits as long as it takes.
        activity: What a holder does, for the message of `BusyError`: "is at work in FOLDER" if
            empty.
        remove_if: Called when the lock is released: whether the lock file is removed. By default it
            stays.

    Raises:
        BusyError: On entry, if another process still holds the lock after `wait` seconds.
        FileError: On entry, if the lock file cannot be created, is a link, or cannot be locked.
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
            self._write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._write(b"")
            if self.remove_if is not None and self.remove_if():
                self.path.unlink()
        os.close(self._file)

    def _write(self, holder: bytes) -> None:
        """Write who holds the lock, if the file is empty or says who held it before."""
        found = os.pread(self._file, MAX_HOLDER, 0)
        if os.fstat(self._file).st_nlink > 1 or (found and not _HOLDER.fullmatch(found)):
            return
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, holder, 0)

    def _open(self) -> None:
        try:
            self._file = disk.open_regular(self.path)
        except OSError as error:
            if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
                raise FileError(
                    f"{self.path} is not an ordinary file, and nothing was changed: it is the name "
                    "of a lock. Look where it leads, and remove it"
                ) from error
            raise file_error("write in", self.path.parent, error, CHOOSE_FOLDER) from error

    def _acquire(self) -> bool:
        try:
            locked = _try_lock(self._file)
        except OSError as error:
            os.close(self._file)
            advice = "This file system has no locks: choose a folder on another one"
            raise file_error("lock", self.path, error, advice) from error
        if not locked:
            return False
        if self.remove_if is None or self._is_current():
            return True
        # its last holder removed the file: another process may hold a new one of the same name
        os.close(self._file)
        self._open()
        return False

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _busy(self) -> BusyError:
        found = os.pread(self._file, MAX_HOLDER, 0)
        holder = found.decode(errors="replace").strip() if _HOLDER.fullmatch(found) else "unknown"
        os.close(self._file)
        return BusyError(
            f"another process ({holder}) {self.activity}: wait for it, or stop it first"
        )


class ModelLock(FileLock):
    """The lock of one file that is read, changed and replaced: a hidden file beside it.

    Two spellings of one path have the same lock: symbolic links are resolved. What killed
    processes left of their saves is removed once the lock is held.

    Args:
        path: The file to guard. If it does not exist when the lock is released, the lock file is
            removed.
        wait: How many seconds to wait for another holder; None waits as long as it takes.
    """

    def __init__(self, path: Path, wait: float | None = 3.0) -> None:
        self.target = resolved(path)
        hidden = self.target.with_name(f".{self.target.name}.lock")
        activity = f"is at work on {path}"
        super().__init__(hidden, wait, activity, remove_if=lambda: not self.target.exists())

    def __enter__(self) -> ModelLock:
        super().__enter__()
        try:
            remove_leftovers(self.target.parent, self.target.name)
        except BaseException:  # Ctrl-C
            self.__exit__()
            raise
        return self


def file_lock(path: Path, wait: float | None = 3.0) -> ModelLock:
    """Return the lock of a file that is read, changed and replaced.

    Args:
        path: The file to guard, which need not exist.
        wait: How many seconds to wait for another holder; None waits as long as it takes.

    Returns:
        The lock, to be used in a `with` statement.
    """
    return ModelLock(path, wait)


def resolved(path: Path) -> Path:
    """Return the one absolute path of a file, whatever the spelling and the links that lead to it.

    Args:
        path: The file, which need not exist; `~` is the home folder.

    Raises:
        FileError: If its symbolic links lead back to themselves.
    """
    with file_errors("find", path, "Remove the links that lead in a circle"):
        try:
            return path.expanduser().resolve()
        except RuntimeError as error:  # before Python 3.13
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock file `path` now, and False if there is no such file.

    Args:
        path: The lock file, as given to `FileLock`.
    """
    try:
        file = disk.open_regular(path, make=False)
    except OSError:
        return False
    try:
        return not _try_lock(file)
    except OSError:  # no locks here, so nobody can hold one
        return False
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    """Lock an open file; False if another process holds it; OSError if there are no locks."""
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
