"""Atomic writes: a reader finds the whole new file or the whole old one, never a part of one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Write `parts`, one after the other, to `path`, or leave what is there untouched.

    The bytes go to a temporary file in the same folder, are synced to disk, and replace `path` by a
    rename; the folder is synced too, so that the new file survives a power failure.

    Args:
        path: The file to create or replace. Its folder must exist.
        *parts: The contents; large arrays can be passed as memory views and are not copied.

    Raises:
        OSError: If the file cannot be written. The temporary file is removed.
    """
    with replacing(path) as part, open(part, "xb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


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
        os.replace(part, path)
    except BaseException:
        _remove(part)
        raise


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    with contextlib.suppress(OSError):
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # not every file system can sync a folder; the file itself is synced
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
