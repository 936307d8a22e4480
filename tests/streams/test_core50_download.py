"""Downloads from a host of our own on 127.0.0.1 that ignores ranges, cuts connections, fails, lies
and changes its files.
"""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from primavista.errors import FileError
from primavista.streams.core50 import download as fetch
from primavista.streams.core50.download import download


def zipped(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        target.writestr(name, b"s1/o1/C_01_01_000.png 0\n")
    return buffer.getvalue()


class Server(http.server.ThreadingHTTPServer):
    """A host with files, which may ignore ranges, cut connections after some bytes, or fail at
    first.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.ranges, self.cut_after, self.failures, self.length = True, 0, 0, True
        self.validator = True
        self.cap, self.shift = 0, 0  # of a 206: its most bytes, and how much too late it starts
        self.requests: list[str] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, data = self.server, self.server.files.get(self.path[1:])
        asked = self.headers.get("Range", "")
        server.requests.append(asked)
        if server.failures:
            server.failures -= 1
            self.send_error(503)
            return
        if data is None:
            self.send_error(404)
            return
        etag = f'"{hash(data)}"'
        start = (
            int(asked[6:-1])
            if asked and server.ranges and self.headers.get("If-Range") == etag
            else 0
        )
        if start >= len(data) and start:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        end = len(data)
        if start:
            start += server.shift
            end = min(end, start + server.cap) if server.cap else end
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        if server.length:
            self.send_header("Content-Length", str(end - start))
        if server.validator:
            self.send_header("ETag", etag)
        self.end_headers()
        stop = start + server.cut_after if server.cut_after else end
        self.wfile.write(data[start:stop])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as host:
        thread = threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as target:
            target.writestr(
                "NIC_v2_79/run0/train_batch_00_filelist.txt", b"s1/o1/C_01_01_000.png 0\n"
            )
            target.writestr("filler.bin", os.urandom(300_000))
        host.files = {
            "lists.zip": buffer.getvalue(),
            "more.zip": zipped("NI_inc/run0/train_batch_00_filelist.txt"),
        }
        yield host
        host.shutdown()
        thread.join()


def get(
    server: Server, folder: Path, *names: str, **options: Any
) -> list[tuple[str, int, int | None]]:
    heard: list[tuple[str, int, int | None]] = []
    urls = {name: server.url(name) for name in names or server.files}
    download(
        folder,
        lambda *news: heard.append(news),
        urls=urls,
        pause=0,
        **options,
    )
    return heard


def test_a_download_is_whole_unpacked_and_recorded(server: Server, tmp_path: Path) -> None:
    heard = get(server, tmp_path / "new")
    size = len(server.files["lists.zip"])
    assert ("lists.zip", size, size) in heard
    assert ("unpacking lists.zip", 2, 2) in heard
    assert (
        tmp_path / "new" / "NIC_v2_79" / "run0" / "train_batch_00_filelist.txt"
    ).read_text() == "s1/o1/C_01_01_000.png 0\n"
    record = json.loads((tmp_path / "new" / "core50.sha256.json").read_text())
    assert record["lists.zip"]["bytes"] == size
    assert record["lists.zip"]["sha256"] == fetch.sha256_of(tmp_path / "new" / "lists.zip")
    assert not list((tmp_path / "new").glob("*.part*"))
    before = len(server.requests)
    get(server, tmp_path / "new")
    assert len(server.requests) == before  # nothing to do, nothing asked
    (tmp_path / "new" / "lists.zip").unlink()
    get(server, tmp_path / "new")
    assert len(server.requests) == before  # unpacked; the archive may go


def test_a_cut_connection_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    server.cut_after = 70_000
    get(server, tmp_path, "lists.zip")
    assert (tmp_path / "lists.zip").read_bytes() == server.files["lists.zip"]
    assert server.requests == ["", *(f"bytes={70_000 * i}-" for i in range(1, 5))]


def begun(server: Server, folder: Path) -> Path:
    """Leave the first 1,000 bytes of a download."""
    part = folder / "lists.zip.part"
    part.write_bytes(server.files["lists.zip"][:1000])
    (folder / "lists.zip.part.version").write_text(f'"{hash(server.files["lists.zip"])}"')
    return part


def test_a_server_that_sends_less_than_was_asked_for(server: Server, tmp_path: Path) -> None:
    begun(server, tmp_path)
    server.cap = 150_000
    get(server, tmp_path, "lists.zip")
    assert (tmp_path / "lists.zip").read_bytes() == server.files["lists.zip"]
    assert server.requests[:2] == ["bytes=1000-", "bytes=151000-"]


def test_another_part_than_was_asked_for_is_refused(server: Server, tmp_path: Path) -> None:
    part = begun(server, tmp_path)
    server.shift = 10
    with pytest.raises(FileError, match="another part of the file than was asked for"):
        get(server, tmp_path, "lists.zip")
    assert part.read_bytes() == server.files["lists.zip"][:1000]


def test_a_file_that_the_disk_cannot_hold_is_not_begun(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(FileError, match="bytes more and 1,000 are free: make room"):
        get(server, tmp_path, "lists.zip")
    assert not (tmp_path / "lists.zip.part").exists()


def test_a_later_call_goes_on_too_and_a_changed_file_begins_anew(
    server: Server, tmp_path: Path
) -> None:
    server.cut_after = 50_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "ATTEMPTS", 0)
        with pytest.raises(FileError, match="resumes from there"):
            get(server, tmp_path, "lists.zip")
        patch.setattr(fetch, "ATTEMPTS", 1)
        server.ranges = False
        with pytest.raises(FileError, match="resumes from there"):
            get(server, tmp_path, "lists.zip")
    assert (tmp_path / "lists.zip.part").stat().st_size == 50_000
    server.cut_after, server.ranges = 0, True
    get(server, tmp_path, "lists.zip")
    assert server.requests[-1] == "bytes=50000-"
    whole = server.files["lists.zip"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lists.zip.part").write_bytes(b"of an older version")
    (tmp_path / "other" / "lists.zip.part.version").write_text('"older"')
    get(server, tmp_path / "other", "lists.zip")
    assert (tmp_path / "other" / "lists.zip").read_bytes() == whole


def test_a_server_without_ranges(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cut_after = 100_000
    with pytest.raises(FileError, match="connection was cut"):
        get(server, tmp_path, "lists.zip")
    assert len(server.requests) == 1 + fetch.ATTEMPTS  # it ends
    server.cut_after = 0
    get(server, tmp_path, "lists.zip")
    assert (tmp_path / "lists.zip").read_bytes() == server.files["lists.zip"]


@pytest.mark.parametrize("validator", [True, False])
def test_a_server_without_lengths_or_validators(
    server: Server, tmp_path: Path, validator: bool
) -> None:
    server.length, server.validator = False, validator
    heard = get(server, tmp_path, "lists.zip")
    assert heard[0][2] is None
    server.cut_after = 1000
    with pytest.raises(FileError, match=r"not the lists\.zip"):
        get(server, tmp_path / "cut", "lists.zip")
    server.cut_after = 0
    get(server, tmp_path / "cut", "lists.zip")
    assert (tmp_path / "cut" / "lists.zip").read_bytes() == server.files["lists.zip"]


def test_a_part_that_was_whole_already(server: Server, tmp_path: Path) -> None:
    whole = server.files["lists.zip"]
    (tmp_path / "lists.zip.part").write_bytes(whole)
    (tmp_path / "lists.zip.part.version").write_text(f'"{hash(whole)}"')
    get(server, tmp_path, "lists.zip")
    assert (tmp_path / "lists.zip").read_bytes() == whole
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "lists.zip.part").write_bytes(whole + b"more")
    (tmp_path / "x" / "lists.zip.part.version").write_text(f'"{hash(whole)}"')
    get(server, tmp_path / "x", "lists.zip")
    assert (tmp_path / "x" / "lists.zip").read_bytes() == whole


def test_passing_failures_are_tried_again_and_lasting_ones_named(
    server: Server, tmp_path: Path
) -> None:
    server.failures = 3
    get(server, tmp_path, "more.zip")
    with pytest.raises(FileError, match="answered 404"):
        get(server, tmp_path, "missing.zip")
    server.failures = 100
    with pytest.raises(FileError, match="503"):
        get(server, tmp_path / "b", "more.zip")
    with pytest.raises(FileError, match="could not download"):
        download(tmp_path / "c", urls={"x.zip": "http://127.0.0.1:9/x.zip"}, pause=0)


def test_what_is_not_core50_is_not_kept(server: Server, tmp_path: Path) -> None:
    server.files["lists.zip"] = b"<html>sorry</html>"
    with pytest.raises(FileError, match=r"not the lists\.zip"):
        get(server, tmp_path, "lists.zip")
    assert not (tmp_path / "lists.zip").exists()
    assert not (tmp_path / "core50.sha256.json").exists()


def test_a_file_that_changed_after_the_first_download(server: Server, tmp_path: Path) -> None:
    get(server, tmp_path)
    (tmp_path / "more.zip").write_bytes(zipped("other"))
    with pytest.raises(FileError, match="not what was first downloaded"):
        get(server, tmp_path)
    (tmp_path / "more.zip").unlink()
    record = json.loads((tmp_path / "core50.sha256.json").read_text())
    del record["more.zip"]
    (tmp_path / "core50.sha256.json").write_text(json.dumps(record))
    server.files["more.zip"] = zipped("another")
    get(server, tmp_path)
    assert (tmp_path / "another").exists()
    (tmp_path / "core50.sha256.json").write_text("[]")
    with pytest.raises(FileError, match=r"core50\.sha256\.json"):
        get(server, tmp_path)


def test_an_archive_that_was_not_unpacked_wholly_is_unpacked_again(
    server: Server, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "unpack_archive", lambda *args: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            get(server, tmp_path, "more.zip")
    get(server, tmp_path, "more.zip")
    assert list(tmp_path.rglob("train_batch_00_filelist.txt"))
    assert len(server.requests) == 1


def test_a_hostile_archive_is_refused_after_the_download(server: Server, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as target:
        target.writestr("../escaped.txt", b"x")
    server.files["lists.zip"] = (tmp_path / "bad.zip").read_bytes()
    with pytest.raises(FileError, match="leads out"):
        get(server, tmp_path / "in", "lists.zip")
    assert not (tmp_path / "escaped.txt").exists()


HTTP = "http://data.example/lists.zip"


def test_plain_http_needs_a_hash_or_consent(tmp_path: Path, monkeypatch) -> None:
    """Nothing is sent before that."""
    monkeypatch.setattr(fetch, "_request", lambda *args: pytest.fail("a request was sent"))
    with pytest.raises(FileError, match=r"plain http.*--sha256 lists.zip=.*--insecure-http"):
        download(tmp_path, urls={"lists.zip": HTTP}, pause=0)
    assert list(tmp_path.iterdir()) == []
    for allowed in ({"insecure": True}, {"sha256": {"lists.zip": "0" * 64}}):
        with pytest.raises(pytest.fail.Exception, match="a request was sent"):
            download(tmp_path, urls={"lists.zip": HTTP}, pause=0, **allowed)


def test_the_official_lists_come_over_https_and_the_images_need_a_hash() -> None:
    assert {name for name, url in fetch.FILES.items() if not url.startswith("https://")} == {
        "core50_128x128.zip",
    }


def test_a_given_hash_is_checked_before_anything_is_unpacked(
    server: Server, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match="sha256"):
        get(server, tmp_path / "bad", "lists.zip", sha256={"lists.zip": "0" * 64})
    assert not list((tmp_path / "bad").rglob("*.txt"))
    assert not (tmp_path / "bad" / fetch.RECORD).exists()
    right = hashlib.sha256(server.files["lists.zip"]).hexdigest()
    get(server, tmp_path / "good", "lists.zip", sha256={"lists.zip": right})
    assert list((tmp_path / "good").rglob("*.txt"))


def test_a_redirection_from_https_to_http_is_refused() -> None:
    asked = urllib.request.Request("https://data.example/lists.zip")
    handler = fetch.OnlyHttps()
    with pytest.raises(FileError, match=r"leads to http://data.example/x"):
        handler.redirect_request(asked, None, 302, "Found", {}, "http://data.example/x")
    assert handler.redirect_request(
        asked, None, 302, "Found", {}, "https://data.example/x"
    ).full_url.endswith("/x")
