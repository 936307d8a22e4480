"""Unpacks a downloaded archive into a folder, and nowhere else, and no more than is plausible."""

from __future__ import annotations

import os
import re
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from primavista.errors import FileError

MAX_TOTAL = 32 * 2**30
MAX_ENTRIES = 500_000
MAX_RATIO = 300  # text compresses up to about 20 times, images hardly
_SMALL = 1 << 20  # a file list of this size may compress as well as it likes

Progress = Callable[[str, int, int | None], None]


def unzip(archive: Path, folder: Path, progress: Progress | None = None) -> int:
    """Unpack `archive` into `folder` and return the number of files; nothing is written unless every entry is in order.

    Refused: names that lead out of the folder, links and devices, encrypted entries, two entries of one name, and more data
    than `MAX_TOTAL`, `MAX_RATIO` or the disk allow. Files that are there with the right size are left.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            entries = _checked(source, archive, folder)
            for count, (info, name) in enumerate(entries, 1):
                _extract(source, info, folder / name)
                if progress is not None and (count % 500 == 0 or count == len(entries)):
                    progress(f"unpacking {archive.name}", count, len(entries))
            return len(entries)
    except zipfile.BadZipFile as error:
        raise FileError(
            f"{archive} is damaged ({error}): delete it and download it again"
        ) from error
    except (NotImplementedError, RuntimeError) as error:
        raise FileError(
            f"{archive} cannot be unpacked ({error}): delete it and download it again"
        ) from error


def _checked(
    source: zipfile.ZipFile, archive: Path, folder: Path
) -> list[tuple[zipfile.ZipInfo, str]]:
    infos = source.infolist()
    if len(infos) > MAX_ENTRIES:
        raise _refused(archive, f"it has {len(infos):,} entries, over the limit of {MAX_ENTRIES:,}")
    files, seen, total = [], set(), 0
    for info in infos:
        name = safe_name(info, archive)
        if info.is_dir():
            continue
        key = name.casefold()
        if key in seen:
            raise _refused(archive, f"it has two entries named {info.filename[:80]!r}")
        seen.add(key)
        total += info.file_size
        if info.file_size > _SMALL and info.file_size > MAX_RATIO * info.compress_size:
            raise _refused(
                archive,
                f"{info.filename[:80]!r} would unpack to {info.file_size:,} from {info.compress_size:,} bytes",
            )
        files.append((info, name))
    if total > _SMALL and total > MAX_RATIO * archive.stat().st_size:
        raise _refused(
            archive, f"it would unpack to {total:,} bytes from {archive.stat().st_size:,}"
        )
    free = shutil.disk_usage(folder).free
    if total > min(MAX_TOTAL, free):
        raise _refused(
            archive,
            f"it would unpack to {total:,} bytes; the limit is {MAX_TOTAL:,}, and {free:,} are free",
        )
    return files


def safe_name(info: zipfile.ZipInfo, archive: Path) -> str:
    """The entry's name, if it lies below the folder on every system."""
    name = info.orig_filename
    parts = PurePosixPath(name).parts
    bad = (
        not parts
        or name.startswith("/")
        or ".." in parts
        or "\\" in name
        or re.search(r"[\x00-\x1f:]", name)
    )
    if bad or any(part in (".", "") or len(part) > 200 for part in parts) or len(parts) > 16:
        raise _refused(archive, f"the name {name[:80]!r} leads out of the folder")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _refused(archive, f"{name[:80]!r} is a link or a device")
    if info.flag_bits & 0x1:
        raise _refused(archive, f"{name[:80]!r} is encrypted")
    return "/".join(parts)


def _extract(source: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    if target.is_file() and not target.is_symlink() and target.stat().st_size == info.file_size:
        return
    part = target.with_name(f".{target.name}.unpacking")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open(info) as stream, part.open("wb") as sink:
            shutil.copyfileobj(stream, sink, 1 << 20)
        os.replace(part, target)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _refused(archive: Path, why: str) -> FileError:
    return FileError(f"refused to unpack {archive}: {why}. Delete it; it is not CORe50's")
