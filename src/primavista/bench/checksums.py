"""Checksums of files and folders of data; those of files that stay the same are kept in a cache."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from primavista.errors import FileError, file_errors
from primavista.progress import Progress
from primavista.storage.disk import write_atomically
from primavista.streams.store.index import INDEX
from primavista.streams.store.reading import is_store

FRESH = 2 * 10**9  # nanoseconds; a file as young as this may change again within one tick

Entry = tuple[int, int, str]  # the size, the time in nanoseconds and the checksum of a file
ENTRIES = TypeAdapter(dict[str, Entry])


def checksum(path: Path) -> str:
    """Return the sha256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(text: str) -> str:
    """Return the sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def data_fingerprint(path: Path, progress: Progress | None = None) -> str | None:
    """Return the hash of a file, or of the names and contents of all files in a folder.

    Files are read once: their checksums are kept in the user's cache folder for as long as their
    sizes and times stay the same. Of a packed store only the index is read, which has the checksums
    of the frames. Hidden files are left out.

    Args:
        path: The file or folder; without it the result is None.
        progress: Called with (done, total) in bytes while files are read.

    Raises:
        FileError: If a file cannot be read.
    """
    if not path.exists():
        return None
    with file_errors("read", path, "Check the path and permissions"):
        if is_store(path):
            return checksum(path / INDEX)
        checksums = _checksums(path, progress)
    return digest(str(sorted(checksums.items())))


def _checksums(path: Path, progress: Progress | None) -> dict[str, str]:
    """Return the checksum of each file by its name, from the cache if size and time are as then."""
    files = {file.relative_to(path).as_posix(): file for file in _files(path)}
    stamps = {name: (file.stat().st_size, file.stat().st_mtime_ns) for name, file in files.items()}
    cache = _cache_file(path)
    kept = {name: entry for name, entry in _cached(cache).items() if entry[:2] == stamps.get(name)}
    missing = [name for name in files if name not in kept]
    done, total = 0, sum(stamps[name][0] for name in missing)
    for name in missing:
        kept[name] = (*stamps[name], checksum(files[name]))
        done += stamps[name][0]
        if progress is not None:
            progress(done, total)
    if missing:
        settled = {name: entry for name, entry in kept.items() if entry[1] < time.time_ns() - FRESH}
        with suppress(OSError, FileError):  # without the cache they are computed again
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cache, json.dumps(settled).encode())
    return {name: entry[2] for name, entry in kept.items()}


def _files(path: Path) -> list[Path]:
    """Return a file itself, or all files in a folder but hidden ones."""
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file())
    return [file for file in found if "/." not in f"/{file.relative_to(path).as_posix()}"]


def _cache_file(path: Path) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "primavista" / "fingerprints" / f"{digest(str(path.resolve()))}.json"


def _cached(cache: Path) -> dict[str, Entry]:
    try:
        return ENTRIES.validate_json(cache.read_bytes())
    except (OSError, ValidationError):
        return {}
