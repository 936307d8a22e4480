"""Documented promises, held by the real command in a process of its own: `primavista teach`.

The model is reached through a symbolic link, and temporary files have a folder of their own.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest
from live_parts.process import TINY, Service, drawn, jpeg, memory_of
from serve_support import frames
from wire_support import AUTHORISED, PATIENCE, head, waited_for, wire

from primavista import FileError, Learner
from primavista.storage import learner_file
from primavista.storage.disk import file_lock, resolved

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.xdist_group("promises"),  # its service is started once
]
TOKEN = "a-token-that-is-long-enough"


@pytest.fixture(scope="module")
def teaching(tmp_path_factory):
    folder = tmp_path_factory.mktemp("promises")
    for name in ("real", "temporary", "elsewhere"):
        (folder / name).mkdir()
    made = Learner(weights="random", width=0.0625, size=32, device="cpu")
    made.save(folder / "real" / "k.pv")
    (folder / "real" / "k.pv").chmod(0o600)
    (folder / "link.pv").symlink_to("real/k.pv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder / "temporary"))
        running = Service(folder / "link.pv", "--token", TOKEN, new=TINY)
    running.folder = folder
    yield running
    if running.process.poll() is None:
        running.stop()
    assert "Traceback" not in running.said()


@pytest.fixture
def owner(teaching):
    with httpx.Client(base_url=teaching.url, headers=AUTHORISED, timeout=PATIENCE) as client:
        yield client


@pytest.mark.slow
def test_a_lesson_goes_through_a_link_and_keeps_the_mode(teaching, owner):
    owner.post(
        "/api/lessons?wait=30", data={"label": "mug"}, files=frames("mug")
    ).raise_for_status()
    real = teaching.folder / "real" / "k.pv"
    assert (teaching.folder / "link.pv").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert Learner.load(real, device="cpu").labels == ["mug"]
    assert sorted(path.name for path in real.parent.iterdir()) == [".k.pv.lock", "k.pv"]


@pytest.mark.parametrize("spelling", ["real/k.pv", "elsewhere/other.pv"])
def test_a_second_process_is_refused_however_the_file_is_called(teaching, spelling):
    other = teaching.folder / "elsewhere" / "other.pv"
    if not other.is_symlink():
        other.symlink_to("../link.pv")
    with (
        pytest.raises(FileError, match="is at work on"),
        file_lock(resolved(teaching.folder / spelling), wait=0.0),
    ):
        pass


def held_files(pid: int, folder: Path) -> list[str]:
    """The files of a folder that a process has open, those without a name too."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found


def test_no_upload_lies_in_a_file_while_it_comes(teaching, owner):
    """Also none without a name: its bytes would be on the disk all the same."""
    temporary = teaching.folder / "temporary"
    seen = []
    before = set(temporary.iterdir())  # libraries may leave notes of their own there

    def body():
        yield b'--b\r\nContent-Disposition: form-data; name="label"\r\n\r\nmug\r\n'
        yield b'--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n'
        for _ in range(40):
            yield b"x" * 2**17
            seen.append(held_files(teaching.process.pid, temporary))
            seen.append(set(temporary.iterdir()) - before)
        yield b"\r\n--b--\r\n"

    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = owner.post("/api/lessons", content=body(), headers=kind)
    assert answer.status_code == 422  # five MiB of x are not a video
    assert [one for one in seen if one] == []


def test_a_model_that_declares_an_absurd_size_costs_nothing(teaching, owner):
    data = owner.get("/api/model/file").content
    arrays, manifest = learner_file.decode(data, "k.pv")
    manifest["backbone"]["size"] = 2048
    before = memory_of(teaching.process.pid)
    answer = owner.post("/api/model/file", files={"file": learner_file.encode(arrays, manifest)})
    assert answer.status_code in (413, 422)
    assert "2048" in answer.json()["detail"]
    assert memory_of(teaching.process.pid) - before < 50


def test_the_token_is_in_no_address_no_log_and_no_answer(teaching, owner):
    """The page reads it after the #, which browsers neither send nor put into Referer."""
    answers = [owner.get(path) for path in ("/", "/api/model", "/api/openapi.json")]
    refused = httpx.get(f"{teaching.url}/api/model?token={TOKEN}", timeout=PATIENCE)
    assert refused.status_code == 401
    for answer in [*answers, refused]:
        assert TOKEN not in answer.text
        assert TOKEN not in str(answer.headers)
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert teaching.said().count(TOKEN) == 1  # the link


def test_nothing_of_a_video_is_left_after_a_kill(teaching, owner):
    """The last test of this service: it is killed while it takes an upload."""
    path = teaching.folder / "temporary"
    before = set(path.iterdir())
    host, _, port = teaching.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as opened:
        kind = "Content-Type: multipart/form-data; boundary=b"
        opened.sendall(
            head("POST", "/api/lessons", "Host: localhost", kind, "Content-Length: 9999999")
        )
        opened.sendall(b'--b\r\nContent-Disposition: form-data; name="video"; filename="a"\r\n\r\n')
        opened.sendall(jpeg(drawn(41, frames=1)[0]) * 300)
        teaching.process.send_signal(signal.SIGKILL)
        teaching.process.wait(PATIENCE)
    assert set(path.iterdir()) == before
    assert waited_for(lambda: _children_of_the_dead(teaching.folder) == [])


def _children_of_the_dead(folder: Path) -> list[str]:
    """Decoders that go on although their service is gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", entry.name):
            try:
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"TMPDIR={folder / 'temporary'}".encode() in environment and b"decoder" in command:
                found.append(entry.name)
    return found


JOURNAL = """
from primavista.storage import disk
def noting(name, real):
    def call(*given, **named):
        done = real(*given, **named)
        with open(sys.argv[1] + ".calls", "a") as calls:
            print(name, file=calls)
        return done
    return call
for name in ("create", "write", "sync", "replace", "sync_folder"):
    setattr(disk, name, noting(name, getattr(disk, name)))
"""


@pytest.mark.slow
def test_a_lesson_is_synced_and_has_its_name_before_it_is_acknowledged(tmp_path):
    """The order that a power cut needs: the bytes, then the name, then the folder."""
    with wire(tmp_path, before=JOURNAL) as running:
        address = f"http://127.0.0.1:{running.port}/api/lessons?wait=30"
        calls = tmp_path / "kitchen.pv.calls"
        first = calls.read_text()
        answer = httpx.post(
            address, headers=AUTHORISED, data={"label": "mug"}, files=frames("mug"), timeout=60
        )
        said = calls.read_text().removeprefix(first).split()
    assert answer.json()["state"] == "done"
    assert [name for name, before in zip(said, ["", *said], strict=False) if name != before] == [
        "create",
        "write",
        "sync",
        "replace",
        "sync_folder",
    ]
