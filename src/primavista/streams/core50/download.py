"""Downloads of CORe50 from its official hosts; no other module of `streams` uses the network.

The hosts publish no checksums. The first download over https is therefore trusted if it is complete
and has the right structure; its sha256 is written to `core50.sha256.json` in the same folder, and
every later call checks it. The images are offered over plain http only, where an attacker on the
network could replace them; they need a sha256 from the user, or the user's consent.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from primavista.errors import FileError, file_errors
from primavista.storage import disk
from primavista.storage.disk import write_atomically

_IMAGES = "http://bias.csr.unibo.it/maltoni/download/core50/"
_LISTS = "https://vlomonaco.github.io/core50/data/"
FILES = {
    "batches_filelists.zip": _LISTS + "batches_filelists.zip",
    "batches_filelists_NICv2.zip": _LISTS + "batches_filelists_NICv2.zip",
    "core50_128x128.zip": _IMAGES + "core50_128x128.zip",
}
RECORD = "core50.sha256.json"
ATTEMPTS = 6  # without a byte of progress
TIMEOUT = 60.0
MAX_UNPACKED = 32 * 2**30  # bytes
_CHUNK = 1 << 20
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error)
_NET = (urllib.error.URLError, http.client.HTTPException, OSError, EOFError)

# Called with a text, what is done, and the total if it is known.
DownloadProgress = Callable[[str, int, int | None], None]


def download(
    folder: str | Path,
    progress: DownloadProgress = lambda *news: None,
    *,
    urls: Mapping[str, str] = FILES,
    sha256: Mapping[str, str] | None = None,
    insecure: bool = False,
    pause: float = 1.0,
) -> None:
    """Download CORe50 and unpack its archives; the same call resumes an interrupted download.

    Files that exist already are compared with their checksums.

    Args:
        folder: The folder of the files; it is made if it does not exist.
        progress: Called with (name, done, total), in bytes; total is None if the server does not
            report it. While an archive is unpacked, entries are counted instead.
        urls: The address of each archive; by default those of the images and the official lists.
        sha256: The hashes that files must have, by name, e.g. from the record of another machine.
        insecure: True to download files without a known hash over plain http.
        pause: Seconds to wait after a lost connection, doubled each time.

    Raises:
        FileError: If a file cannot be downloaded, does not belong to CORe50, has another hash, has
            changed since the first download, or has no known hash and comes over plain http.
    """
    target = Path(folder).expanduser()
    with file_errors("make the folder", target):
        target.mkdir(parents=True, exist_ok=True)
    hashes = sha256 or {}
    if not insecure:
        for name, url in urls.items():
            if name not in hashes and not (target / name).exists():
                _check_secure(name, url, _record(target))
    for name, url in urls.items():
        _obtain(target, name, url, hashes.get(name), progress, pause)


def _check_secure(name: str, url: str, record: Mapping[str, Any]) -> None:
    """Reject plain http from another machine, unless the hash was recorded earlier."""
    parts = urllib.parse.urlsplit(url)
    here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not here and name not in record:
        raise FileError(
            f"{url} comes over plain http, and its host publishes no checksum: anybody on the way "
            f"could exchange it. Give the hash of a copy that you trust (--sha256 {name}=HASH, the "
            f"one in {RECORD} of another machine), or take the risk (--insecure-http)"
        )


class OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirections, but never from https to plain http."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Return the request to the new address; see `urllib`.

        Args:
            req: The request that was answered.
            fp: The answer.
            code: Its status.
            msg: Its reason.
            headers: Its headers.
            newurl: The address that it leads to.

        Raises:
            FileError: If the old address is encrypted and the new one is not.
        """
        if req.type == "https" and not newurl.startswith("https://"):
            raise FileError(f"{req.full_url} leads to {newurl}, which is not encrypted: refused")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _obtain(
    folder: Path, name: str, url: str, wanted: str | None, progress: DownloadProgress, pause: float
) -> None:
    """Download one archive unless it exists, check it, and unpack it."""
    known, path = _record(folder).get(name), folder / name
    if known and not path.exists():
        return  # the archive was deleted after it was unpacked, to save space
    if not path.exists():
        part = folder / f"{name}.part"
        _fetch(part, name, url, progress, pause)
        _version_file(part).unlink(missing_ok=True)  # complete, or to be restarted
        _check_structure(part, name)
        with file_errors("write", path):
            disk.replace(part, path)
            disk.sync_folder(folder)
    digest = sha256_of(path)
    if wanted is not None and digest != wanted.lower():
        raise FileError(
            f"the sha256 of {path} is {digest}, not {wanted}: it is damaged, or not the file that "
            "you trust. Delete it to download it again"
        )
    if known and digest != known["sha256"]:
        raise FileError(
            f"{path} is not what was first downloaded: its sha256 differs from the one in "
            f"{folder / RECORD}. Delete it, since it was unpacked before; to download it again, "
            f"delete the entry '{name}' there too"
        )
    if not known:
        _check_structure(path, name)
        unpack_archive(path, folder, progress)
        disk.sync_all()  # the pictures must be on the disk before the record
        entry = {"url": url, "bytes": path.stat().st_size, "sha256": digest}
        _write_record(folder, _record(folder) | {name: entry})


def sha256_of(path: Path) -> str:
    """Compute the sha256 of a file, reading it in pieces.

    Args:
        path: The file.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(part: Path, name: str, url: str, progress: DownloadProgress, pause: float) -> None:
    """Download a whole file, in as many requests as necessary."""
    idle, most, reason = 0, _size(part), ""
    while idle < ATTEMPTS:
        try:
            if _request(part, name, url, progress):
                return
            reason = "the connection was cut"
        except urllib.error.HTTPError as error:
            if error.code in (400, 401, 403, 404, 410, 451):
                raise FileError(
                    f"{url} answered {error.code} {error.reason}: "
                    "see https://vlomonaco.github.io/core50"
                ) from error
            reason = f"{error.code} {error.reason}"
        except FileError:
            raise
        except _NET as error:
            reason = str(error) or type(error).__name__
        idle = 0 if _size(part) > most else idle + 1
        most = max(most, _size(part))  # it only grows, so this ends
        time.sleep(min(60.0, pause * 2**idle) if pause else 0)
    raise FileError(
        f"could not download {url} ({reason}). The part received is in {part}: "
        "the same command resumes from there"
    )


def _size(part: Path) -> int:
    """The number of bytes of a partial download; 0 if there is none."""
    return part.stat().st_size if part.exists() else 0


def _version_file(part: Path) -> Path:
    """The file with the ETag or date of a partial download, which tells versions apart."""
    return part.with_name(part.name + ".version")


def _request(part: Path, name: str, url: str, progress: DownloadProgress) -> bool:
    """Request the missing bytes and append them to the part; return True if it is complete now."""
    version = _version_file(part).read_text() if _version_file(part).exists() else ""
    # Without a version, the rest might belong to another file.
    have = _size(part) if version else 0
    headers = {"User-Agent": "primavista", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    request = urllib.request.Request(url, headers=headers)
    try:
        answer = urllib.request.build_opener(OnlyHttps).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:
            raise
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
            return True  # the part was complete already
        part.unlink(missing_ok=True)
        return False
    with answer:
        done, total = _extent(answer, have, url)
        free = shutil.disk_usage(part.parent).free
        if total is not None and total - done > free:
            raise FileError(
                f"{part} needs {total - done:,} bytes more and {free:,} are free: "
                "make room, or choose another folder"
            )
        etag = answer.headers.get("ETag", "W/")
        version = answer.headers.get("Last-Modified", "") if etag.startswith("W/") else etag
        write_atomically(_version_file(part), version.encode())
        for size in _append(answer, part, done):
            done += size
            progress(name, done, total)
    return total is None or done == total


def _extent(answer: Any, have: int, url: str) -> tuple[int, int | None]:
    """The position of the answer's first byte, and the size of the whole file if it is known."""
    if answer.status == 206:
        extent = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        if not extent or int(extent[1]) != have:
            raise FileError(
                f"{url} answered with another part of the file than was asked for: try again later"
            )
        return have, int(extent[2])
    length = answer.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _append(answer: Any, part: Path, start: int) -> Iterator[int]:
    """Write the bytes of the answer from `start` on; yield the size of each piece."""
    with disk.opened(part) as sink:
        disk.truncate(sink, start)
        os.lseek(sink, start, os.SEEK_SET)
        try:
            while chunk := answer.read(_CHUNK):
                disk.write(sink, chunk)
                yield len(chunk)
        finally:
            disk.sync(sink)


def _check_structure(path: Path, name: str) -> None:
    """Reject a complete file of another kind, such as the error page of a server."""
    if not zipfile.is_zipfile(path):
        raise FileError(
            f"{path} is not the {name} of CORe50. "
            "Try again later, and delete the file if the error persists"
        )


def unpack_archive(
    archive: Path, folder: Path, progress: DownloadProgress = lambda *news: None
) -> None:
    """Unpack an archive into a folder; nothing is written if a name leads out of it.

    `zipfile` creates no links, and no entry gets longer than it says.
    """
    try:
        with file_errors("write in", folder), zipfile.ZipFile(archive) as source:
            entries = source.infolist()
            _check_entries(archive, folder, entries)
            for count, entry in enumerate(entries, 1):
                source.extract(entry, folder)
                if count % 500 == 0 or count == len(entries):
                    progress(f"unpacking {archive.name}", count, len(entries))
    except _DAMAGE as error:
        raise FileError(
            f"{archive} is damaged ({error}): delete it and download it again"
        ) from error


def _check_entries(archive: Path, folder: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    for entry in entries:
        name = entry.orig_filename
        if name.startswith("/") or ".." in name.split("/") or re.search(r"[\x00-\x1f:\\]", name):
            raise FileError(
                f"refused to unpack {archive}: the name {name[:80]!r} leads out of the folder. "
                "Delete it; it is not CORe50's"
            )
    total = sum(entry.file_size for entry in entries)
    limit = min(MAX_UNPACKED, shutil.disk_usage(folder).free)
    if total > limit:
        raise FileError(
            f"refused to unpack {archive}: it would unpack to {total:,} bytes; CORe50 has fewer "
            f"than {MAX_UNPACKED:,}, and {limit:,} are possible here"
        )


def _record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    try:
        record = json.loads(path.read_text()) if path.exists() else {}
        if not isinstance(record, dict) or any("sha256" not in entry for entry in record.values()):
            raise ValueError("it holds no checksums")
    except (OSError, ValueError, TypeError) as error:
        raise FileError(
            f"cannot read {path} ({error}): delete it to trust the files that are there"
        ) from error
    return record


def _write_record(folder: Path, record: dict[str, Any]) -> None:
    write_atomically(folder / RECORD, json.dumps(record, indent=1, sort_keys=True).encode())
