"""One process at a time: a lock that the system lets go of when its holder ends, however that ends."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from primavista.errors import FileError


class BusyError(FileError):
    """Another process is at work there."""


class FolderLock:
    """Held while in the `with` block. `wait` so many seconds for another holder to end; None: as long as it takes.

    `what` is for the message. The file stays, unless it is `of` one that is not there in the end.
    """

    def __init__(
        self, path: Path, wait: float | None = 3.0, what: str = "", of: Path | None = None
    ) -> None:
        self.path, self.wait, self.what, self.of = path, wait, what or f"in {path.parent}", of
        self._file = -1

    def __enter__(self) -> FolderLock:
        began = time.monotonic()
        self._open()
        while not self._grab():
            if self.wait is not None and time.monotonic() - began >= self.wait:
                who = os.pread(self._file, 200, 0).decode(errors="replace").strip()
                os.close(self._file)
                raise BusyError(
                    f"another process ({who or 'unknown'}) is at work {self.what}: wait for it, or stop it first"
                )
            time.sleep(0.05)
        with contextlib.suppress(
            OSError
        ):  # who holds it is for the message only: a full disk does not matter here
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, 0)
            if self.of is not None and not self.of.exists():
                self.path.unlink()
        os.close(self._file)

    def _open(self) -> None:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FileError(
                f"cannot write in {self.path.parent}: {error.strerror or error}. Choose a folder that you may write"
            ) from error

    def _grab(self) -> bool:
        if not grab(self._file):
            return False
        if self.of is None or (
            self.path.exists() and os.path.samestat(os.fstat(self._file), os.stat(self.path))
        ):
            return True
        os.close(
            self._file
        )  # its last holder took it away: another process may hold a new one of the same name
        self._open()
        return False


def file_lock(path: Path, wait: float | None = 3.0) -> FolderLock:
    """The lock of one file that is read, changed and replaced: a hidden file beside it."""
    return FolderLock(path.with_name(f".{path.name}.lock"), wait, f"on {path}", of=path)


def held(path: Path) -> bool:
    """Whether a process holds the lock now."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not grab(file)
    finally:
        os.close(file)


def grab(file: int) -> bool:
    """Lock an open file, or say that another holds it."""
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
