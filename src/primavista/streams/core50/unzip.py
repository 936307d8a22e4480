"""Safe unpacking of a downloaded archive: only into its folder, and only to a plausible size."""

from __future__ import annotations

import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from primavista.errors import FileError, file_errors
from primavista.storage.disk import replacing

MAX_TOTAL = 32 * 2**30
MAX_ENTRIES = 500_000
MAX_RATIO = 300  # text compresses up to about 20 times, images hardly
_SMALL = 1 << 20  # files up to this size may have any compression ratio

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error)

DownloadProgress = Callable[[str, int, int | None], None]


def unzip(archive: Path, folder: Path, progress: DownloadProgress | None = None) -> int:
    """Unpack an archive into a folder; nothing is written unless every entry is valid.

    Existing files of the right size are not written again.

    Args:
        archive: The zip file.
        folder: The folder to unpack it into.
        progress: Called with (text, done, total), in entries.

    Returns:
        The number of files.

    Raises:
        FileError: If the archive is damaged or has names that lead out of the folder, links,
            devices, encrypted entries, two entries of one name, or more data than `MAX_TOTAL`,
            `MAX_RATIO` or the disk allow.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            entries = _check_entries(source, archive, folder)
            for count, (info, name) in enumerate(entries, 1):
                _extract(source, info, folder / name)
                if progress is not None and (count % 500 == 0 or count == len(entries)):
                    progress(f"unpacking {archive.name}", count, len(entries))
            return len(entries)
    except _DAMAGE as error:
        raise FileError(
            f"{archive} is damaged ({error}): delete it and download it again"
        ) from error


def _check_entries(
    source: zipfile.ZipFile, archive: Path, folder: Path
) -> list[tuple[zipfile.ZipInfo, str]]:
    """Return the files of an archive with their safe names; raise if any entry is invalid."""
    infos = source.infolist()
    if len(infos) > MAX_ENTRIES:
        raise _refused(archive, f"it has {len(infos):,} entries, over the limit of {MAX_ENTRIES:,}")
    files: list[tuple[zipfile.ZipInfo, str]] = []
    seen: set[str] = set()
    folders: set[str] = set()
    for info in infos:
        name = _safe_name(info, archive)
        if info.is_dir():
            continue
        key = name.casefold()
        if key in seen:
            raise _refused(archive, f"it has two entries named {info.filename[:80]!r}")
        seen.add(key)
        folders.update(str(parent) for parent in PurePosixPath(key).parents)
        _check_ratio(archive, f"{info.filename[:80]!r}", info.file_size, info.compress_size)
        files.append((info, name))
    for info, name in files:
        if name.casefold() in folders:
            raise _refused(archive, f"{info.filename[:80]!r} is a file and a folder")
        _check_place(archive, folder, name)
    total = sum(info.file_size for info, _ in files)
    _check_ratio(archive, "it", total, archive.stat().st_size)
    free = shutil.disk_usage(folder).free
    if total > min(MAX_TOTAL, free):
        raise _refused(
            archive,
            f"it would unpack to {total:,} bytes; the limit is {MAX_TOTAL:,}, "
            f"and {free:,} are free",
        )
    return files


def _check_place(archive: Path, folder: Path, name: str) -> None:
    """Reject an entry whose folder exists already as a link or a file."""
    place = folder
    for part in PurePosixPath(name).parts[:-1]:
        place /= part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise _refused(archive, f"{place} is not a folder, and {name[:80]!r} would go there")


def _check_ratio(archive: Path, what: str, unpacked: int, packed: int) -> None:
    """Reject an entry with an implausible compression ratio (a zip bomb)."""
    if unpacked > _SMALL and unpacked > MAX_RATIO * packed:
        raise _refused(archive, f"{what} would unpack to {unpacked:,} bytes from {packed:,}")


def _safe_name(info: zipfile.ZipInfo, archive: Path) -> str:
    """Return the name of an entry if it lies below the folder on every system."""
    name = info.orig_filename
    parts = PurePosixPath(name).parts
    escapes = name.startswith("/") or ".." in parts or re.search(r"[\x00-\x1f:\\]", name)
    if escapes or not 1 <= len(parts) <= 16 or max(map(len, parts)) > 200:
        raise _refused(archive, f"the name {name[:80]!r} leads out of the folder")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _refused(archive, f"{name[:80]!r} is a link or a device")
    if info.flag_bits & 0x1:
        raise _refused(archive, f"{name[:80]!r} is encrypted")
    return "/".join(parts)


def _is_extracted(target: Path, info: zipfile.ZipInfo) -> bool:
    """Return True if a file is there; after a power cut it may have its size but hold zeros."""
    if target.is_symlink() or not target.is_file() or target.stat().st_size != info.file_size:
        return False
    found = 0
    with target.open("rb") as file:
        while piece := file.read(1 << 20):
            found = zlib.crc32(piece, found)
    return found == info.CRC


def _extract(source: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    if _is_extracted(target, info):
        return
    with file_errors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part, source.open(info) as stream, part.open("xb") as sink:
            shutil.copyfileobj(stream, sink, 1 << 20)


def _refused(archive: Path, why: str) -> FileError:
    return FileError(f"refused to unpack {archive}: {why}. Delete it; it is not CORe50's")
