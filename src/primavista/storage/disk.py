"""Files that survive a crash: the system calls that write them, atomic writes, and locks.

Everything that must survive a crash is written by the system calls at the top. They are few, so
that tests can fail, tear and reorder each of them, and cut the power between any two. None of them
follows a symbolic link at the end of a path: what a stranger put into a folder of results cannot
lead a write out of it. Atomic writes and locks between processes are built on them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from primavista.errors import CHOOSE_FOLDER, FileError, file_error, file_errors

POLL_SECONDS = 0.05
MAX_HOLDER = 300  # bytes of what a holder writes into the lock file about itself
_HOLDER = re.compile(rb"process \d+ on [^\n]{0,255}\n")
# not every system has all of them
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # a named pipe without a writer would wait for ever


def create(path: Path) -> int:
    """Create a file that does not exist yet, to be written.

    Args:
        path: The file. Its folder must exist.

    Returns:
        The descriptor, which the caller closes.

    Raises:
        OSError: If there is such a file or link already, or if it cannot be created.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o666)


def open_regular(path: Path, *, make: bool = True) -> int:
    """Open an ordinary file to be read and written; its contents are left as they are.

    Args:
        path: The file.
        make: Whether to create it if it does not exist.

    Returns:
        The descriptor, which the caller closes.

    Raises:
        OSError: If it is a symbolic link, a pipe or a device, or if it cannot be opened.
    """
    flags = os.O_RDWR | _SAFE | _NONBLOCK | (os.O_CREAT if make else 0)
    file = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path.name} is not an ordinary file")
    return file


@contextlib.contextmanager
def opened(path: Path, *, make: bool = True) -> Iterator[int]:
    """Open an ordinary file with `open_regular`, and close it after the block.

    Args:
        path: The file.
        make: Whether to create it if it does not exist.

    Yields:
        The descriptor.
    """
    file = open_regular(path, make=make)
    try:
        yield file
    finally:
        os.close(file)


def write(file: int, data: bytes | memoryview) -> None:
    """Write all bytes at the present position of a file.

    Args:
        file: The descriptor.
        data: The bytes.

    Raises:
        OSError: If not all of them can be written; some of them may have been.
    """
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]


def truncate(file: int, size: int) -> None:
    """Cut a file, or extend it with zeros.

    Args:
        file: The descriptor.
        size: The new size in bytes.
    """
    os.ftruncate(file, size)


def sync(file: int) -> None:
    """Wait until what was written to a file is on the disk.

    Args:
        file: The descriptor.
    """
    os.fsync(file)


def replace(source: Path, target: Path) -> None:
    """Rename a file or a folder; a file that is there is replaced in one step.

    Args:
        source: Its name now.
        target: Its name from now on.
    """
    os.replace(source, target)


def remove(path: Path) -> None:
    """Remove a file, if there is one.

    Args:
        path: The file; of a symbolic link, the link itself is removed.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on the disk.

    Not every file system can do it; one that cannot is not an error.

    Args:
        folder: The folder.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_all() -> None:
    """Wait until everything that any program has written is on the disk.

    It takes less time than one `sync` for each of many files. Windows cannot do it; nothing happens
    there.
    """
    if hasattr(os, "sync"):
        os.sync()


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
        file = create(part)
        try:
            _mark_in_use(file)  # so that `remove_leftovers` sees that somebody is writing it
            _copy_access(path, file)
            for data in parts:
                write(file, data)
            sync(file)
        finally:
            os.close(file)
    sync_folder(path.parent)


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
        replace(part, path)
    except BaseException:
        _remove_part(part)
        raise


def user_cache(name: str) -> Path:
    """Return a folder of this package in the user's cache folder, which need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "primavista" / name


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


def _mark_in_use(file: int) -> bool:
    """Lock a temporary file until it is closed, without waiting.

    Return False if another process writes it, or if this file system cannot lock.
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
            with opened(part, make=False) as file:
                if _mark_in_use(file):
                    remove(part)


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
    """Give a file to a group; if that is refused, return a mode without group rights."""
    try:
        os.fchown(file, -1, group)
    except OSError:
        return mode & 0o707
    return mode


def _remove_part(part: Path) -> None:
    if part.is_dir() and not part.is_symlink():
        shutil.rmtree(part, ignore_errors=True)
    with contextlib.suppress(OSError):
        remove(part)


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
            self._file = open_regular(self.path)
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


@contextlib.contextmanager
def file_lock(path: Path, wait: float | None = 3.0) -> Iterator[Path]:
    """Hold the lock of one file that is read, changed and replaced: a hidden file beside it.

    Two spellings of one path have the same lock: symbolic links are resolved. The temporary files
    that killed processes left of their saves are removed once the lock is held. If the guarded file
    does not exist at the end, the lock file is removed.

    Args:
        path: The file to guard, which need not exist.
        wait: How many seconds to wait for another holder; None waits as long as it takes.

    Yields:
        The one absolute path of the file, as `resolved` gives it.

    Raises:
        BusyError: If another process still holds the lock after `wait` seconds.
        FileError: If the lock file cannot be created, is a link, or cannot be locked.
    """
    target = resolved(path)
    lock = FileLock(
        target.with_name(f".{target.name}.lock"),
        wait,
        activity=f"is at work on {target}",
        remove_if=lambda: not target.exists(),
    )
    with lock:
        remove_leftovers(target.parent, target.name)
        yield target


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


def check_inside(root: Path, path: Path) -> None:
    """Refuse a folder below `root` that a symbolic link leads out of it.

    What a stranger put into a folder of results must not decide where files are written.

    Args:
        root: The folder that the user named, which may itself be a link.
        path: A folder below it, which need not exist.

    Raises:
        FileError: If it leads out of `root`.
    """
    if not resolved(path).is_relative_to(resolved(root)):
        raise FileError(
            f"{path} is a link that leads out of {root}, so nothing is written: remove it"
        )


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock file `path` now, and False if there is no such file.

    Args:
        path: The lock file, as given to `FileLock`.
    """
    try:
        with opened(path, make=False) as file:
            return not _try_lock(file)
    except OSError:  # there is no such file, or there are no locks here: nobody can hold one
        return False


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
