"""The system calls that change files. Everything that must survive a crash is written by these.

They are few, so that tests can fail, tear and reorder each of them, and cut the power between any
two. None of them follows a symbolic link at the end of a path: what a stranger put into a folder
of results cannot lead a write out of it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

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

    It is for many files at once, of which each would take a `sync` of its own. Windows cannot do
    it; nothing happens there.
    """
    if hasattr(os, "sync"):
        os.sync()
