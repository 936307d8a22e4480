"""Promises about connections and requests, held by the real server in a process of its own.

The limits are small, so that they are reached soon; no test measures a time.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import httpx
import pytest
from serve_support import picture
from wire_support import (
    AUTHORISED,
    LIMITS,
    PATIENCE,
    TOKEN,
    cut_off_while_it_sends,
    head,
    is_open,
    until_closed,
    waited_for,
    wire,
)

from primavista.serve.connections import FIRST_SOCKET_BYTES, SOCKET_BYTES
from primavista.serve.server import addresses_of, listen

HALF = b"GET /api/model HTTP/1.1\r\nHost: localhost\r\nX: "
MULTIPART = "Content-Type: multipart/form-data; boundary=b"
FORM = b'--b\r\nContent-Disposition: form-data; name="frame"; filename="a.png"\r\n\r\n'
UPGRADE = (
    "Host: localhost",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
pytestmark = pytest.mark.xdist_group("wire")  # its services are started once
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and 127.0.0.2")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with wire(tmp_path_factory.mktemp("wire")) as service:
        yield service
        assert "Traceback" not in service.log.read_text()


@pytest.mark.slow
@linux
@pytest.mark.parametrize("piece", [b"a\r\nX: ", b"a"], ids=["many headers", "one header"])
def test_headers_are_bounded_before_the_token_is_looked_at(running, piece):
    before = running.memory()
    block = piece * (2**20 // len(piece))
    sent = 0
    with running.plain() as opened:
        try:
            opened.sendall(HALF)
            for _ in range(30):
                opened.sendall(block)
                sent += 1
        except OSError:
            pass
    assert sent < 15, "the connection was not cut off"
    assert running.memory() - before < 20
    assert running.owner() == 200


def test_headers_of_an_ordinary_size_are_answered(running):
    assert running.owner(Cookie="x" * 16_000) == 200


@linux
def test_slow_readers_without_a_token_take_no_places_and_are_cut_off(running):
    with ExitStack() as cleanup:
        slow = [
            cleanup.enter_context(running.plain("127.0.0.2", receive_buffer=2048))
            for _ in range(2 * LIMITS["concurrent_requests"])
        ]
        for opened in slow:
            opened.sendall(b"GET /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 800)
        time.sleep(0.5)
        assert running.owner() == 200
        assert running.owner("/healthz") == 200
        assert waited_for(lambda: held(running, "127.0.0.2") == 0)


@pytest.mark.parametrize(("token", "answers"), [(False, 1), (True, 3)])
def test_requests_that_are_sent_ahead_need_a_token(running, token, answers):
    """Hundreds of requests on each of hundreds of connections would keep the owner waiting."""
    one = head("GET", "/api/model", "Host: localhost", token=token)
    with running.plain() as opened:
        opened.sendall(one * 3)
        opened.settimeout(PATIENCE)
        received = b""
        while received.count(b"HTTP/1.1 ") < 3:
            piece = opened.recv(65536)
            if not piece:
                break
            received += piece
    assert received.count(b"HTTP/1.1 ") == answers
    assert received.startswith(b"HTTP/1.1 200" if token else b"HTTP/1.1 401")


def held(running, source: str) -> int:
    """The number of connections of an address; reading from them would let them go on."""
    remote = "".join(f"{int(part):02X}" for part in reversed(source.split(".")))
    established = "01"
    number = 0
    with open("/proc/net/tcp") as table:
        for line in table.readlines()[1:]:
            _, local, peer, state, *_ = line.split()
            served = local.endswith(f":{running.port:04X}") and peer.startswith(remote)
            number += served and state == established
    return number


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", HALF], ids=["silent", "half a request"])
def test_headers_have_a_deadline(running, said):
    with running.plain() as opened:
        opened.sendall(said)
        assert until_closed(opened) == b""


def test_headers_that_drip_have_a_deadline_and_so_has_the_next_request(running):
    with running.plain() as opened:
        opened.sendall(head("GET", "/api/model", "Host: localhost"))
        assert opened.recv(65536).startswith(b"HTTP/1.1 200")
        opened.sendall(HALF)
        assert cut_off_while_it_sends(opened)


def test_one_address_cannot_hold_all_connections_and_its_newcomers_are_answered(running):
    """The connections that have waited longest make room; the owner at that address gets in."""
    with ExitStack() as cleanup:
        silent = []
        for _ in range(3 * LIMITS["address_connections"]):
            silent.append(cleanup.enter_context(running.plain()))
            silent[-1].sendall(HALF)
        assert running.owner() == 200
        assert waited_for(lambda: sum(map(is_open, silent)) < LIMITS["address_connections"])


@linux
def test_many_addresses_cannot_hold_all_connections(running):
    with ExitStack() as cleanup:
        for number in range(2, 7):
            for _ in range(LIMITS["address_connections"] - 2):
                opened = cleanup.enter_context(running.plain(f"127.0.0.{number}"))
                opened.sendall(HALF)
        assert running.owner() == 200


def test_an_authorised_request_is_not_cut_off_for_newcomers(running):
    with ExitStack() as cleanup:
        mine = cleanup.enter_context(running.plain())
        body = FORM + picture("mug") + b"\r\n--b--\r\n"
        mine.sendall(
            head(
                "POST", "/api/predict", "Host: localhost", MULTIPART, f"Content-Length: {len(body)}"
            )
            + body[:100]
        )
        time.sleep(0.2)
        for _ in range(2 * LIMITS["connections"]):
            cleanup.enter_context(running.plain()).sendall(HALF)
        mine.sendall(body[100:])
        assert mine.recv(65536).startswith(b"HTTP/1.1 200")


def upload(length: int) -> bytes:
    return head("POST", "/api/predict", "Host: localhost", MULTIPART, f"Content-Length: {length}")


@pytest.mark.slow
def test_a_silent_body_is_refused_with_408(running):
    assert running.raw(upload(1000) + FORM).startswith(b"HTTP/1.1 408")


@pytest.mark.slow
def test_a_body_that_drips_has_a_deadline(running):
    with running.plain() as opened:
        opened.sendall(upload(100_000) + FORM)
        opened.settimeout(0.2)
        end = time.monotonic() + PATIENCE
        said = b""
        while time.monotonic() < end and not said:
            opened.sendall(b"a")
            try:
                said = opened.recv(65536)
            except TimeoutError:
                continue
        opened.settimeout(PATIENCE)
        said += until_closed(opened)
    assert said.startswith(b"HTTP/1.1 408")
    assert b"4 seconds" in said


def test_the_rest_of_a_refused_body_is_not_read_for_long(running):
    refused = head("POST", "/api/predict", "Host: localhost", "Content-Length: 900", token=False)
    with running.plain() as opened:
        opened.sendall(refused)
        assert opened.recv(65536).startswith(b"HTTP/1.1 401")
        assert cut_off_while_it_sends(opened)


@pytest.mark.parametrize("path", ["/api/lessons", "/healthz"])
def test_of_a_refused_body_only_the_first_bytes_are_read(running, path):
    """N1 of the second review: 60 senders at full speed kept others waiting for seconds."""
    most, sent = 2**26, 0
    with running.plain() as opened:
        opened.settimeout(3)  # longer than the rest of a refused body is waited for
        opened.sendall(
            head("POST", path, "Host: localhost", f"Content-Length: {most}", token=False)
        )
        assert opened.recv(12).startswith(b"HTTP/1.1 4")
        with suppress(OSError):  # it is closed at the end
            while sent < most:
                sent += opened.send(bytes(2**16))
    assert sent < 2**24  # what the buffers of the system hold
    assert running.owner() == 200


@pytest.mark.parametrize("path", ["/api/rename", "/api/undo", "/", "/api/nothing"])
@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=b"])
def test_only_uploads_may_be_large(running, path, kind):
    body = json.dumps({"label": [[]] * 17_000, "to": "x"}).encode()
    assert 64 * 1024 < len(body) < LIMITS["body_bytes"]
    assert running.ask(path, {**AUTHORISED, "Content-Type": kind}, body)[0] == 413
    pieces = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    chunked = ("Host: localhost", f"Content-Type: {kind}", "Transfer-Encoding: chunked")
    said = running.raw(head("POST", path, *chunked, "Connection: close") + pieces)
    assert said.startswith((b"HTTP/1.1 413", b"HTTP/1.1 405", b"HTTP/1.1 404"))


def test_a_form_that_is_not_multipart_is_not_an_upload(running):
    kind = "application/x-www-form-urlencoded"
    body = b"label=" + b"a" * 100_000
    assert running.ask("/api/lessons", {**AUTHORISED, "Content-Type": kind}, body)[0] == 413


@pytest.mark.slow
def test_uploads_in_progress_share_a_budget(running):
    body = FORM + b"x" * 250_000
    with running.plain() as first:
        first.sendall(upload(290_000) + body)
        time.sleep(0.5)
        second = running.raw(upload(290_000) + body)
        assert second.startswith(b"HTTP/1.1 429")
        assert b"400000 bytes" in second
        assert until_closed(first).startswith(b"HTTP/1.1 408")
    good = FORM + picture("mug") + b"\r\n--b--\r\n"
    headers = {**AUTHORISED, "Content-Type": "multipart/form-data; boundary=b"}
    assert running.ask("/api/predict", headers, good)[0] == 200


def test_too_many_requests_at_once_are_refused_with_429(running):
    with ExitStack() as cleanup:
        for _ in range(LIMITS["concurrent_requests"]):
            cleanup.enter_context(running.plain()).sendall(upload(1000) + FORM)
        assert waited_for(lambda: running.owner() == 429)
        assert running.ask("/healthz")[0] == 200
        assert running.ask("/")[0] == 200
    assert waited_for(lambda: running.owner() == 200)


def upgrade(path: str, *lines: str) -> bytes:
    return head("GET", path, *UPGRADE, *lines)


def test_sockets_are_not_compressed(running):
    with running.plain() as opened:
        opened.sendall(upgrade("/api/stream", "Sec-WebSocket-Extensions: permessage-deflate"))
        said = opened.recv(65536).lower()
    assert said.startswith(b"http/1.1 101")
    assert b"permessage-deflate" not in said


def test_a_silent_socket_is_closed_with_1001(running):
    with running.plain() as opened:
        opened.sendall(upgrade("/api/stream"))
        said = opened.recv(65536)
        assert said.startswith(b"HTTP/1.1 101")
        while (frame := said.partition(b"\r\n\r\n")[2]) == b"":
            said += opened.recv(65536)
    assert frame[0] == 0x88  # a close frame
    assert int.from_bytes(frame[2:4]) == 1001


def test_too_many_sockets_are_refused_with_429(running):
    with ExitStack() as cleanup:
        for _ in range(LIMITS["concurrent_sockets"]):
            opened = cleanup.enter_context(running.plain())
            opened.sendall(upgrade("/api/stream"))
            assert opened.recv(65536).startswith(b"HTTP/1.1 101")
        assert running.raw(upgrade("/api/stream")).startswith(b"HTTP/1.1 429")


@pytest.mark.parametrize("path", ["/api/model", "/api/model/file", "/api/export?format=edge"])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_other_pages_cannot_make_it_work(running, path, site):
    assert running.owner(path, **{"Sec-Fetch-Site": site}) == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_its_own_page_and_typed_addresses_are_answered(running, site):
    assert running.owner(**{"Sec-Fetch-Site": site}) == 200
    assert running.ask("/", {"Sec-Fetch-Site": "cross-site"})[0] == 200  # a link to the page


@pytest.mark.parametrize(
    "lines",
    [
        ("Host: localhost", "Host: localhost"),
        ("Host: evil.example", "Host: localhost"),
        ("Host: localhost", "Origin: http://evil.example", "Origin: http://localhost"),
        ("Host: localhost", "Authorization: Bearer wrong-wrong-wrong"),
        ("Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-origin"),
    ],
)
def test_a_header_that_decides_comes_once(running, lines):
    said = running.raw(head("GET", "/api/model", *lines, "Connection: close"))
    assert said.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "host",
    [
        "localhost:evil",
        "localhost:",
        "localhost:123456",
        "localhost:80:80",
        "evil@127.0.0.1",
        "127.0.0.1/evil",
        "127.1",
        "0x7f000001",
        "[::1",
        "[::1]evil",
        "[localhost]",
    ],
)
def test_an_odd_host_is_refused(running, host):
    said = running.raw(head("GET", "/api/model", f"Host: {host}", "Connection: close"))
    assert said.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8765"])
def test_its_own_names_are_answered(running, host):
    said = running.raw(head("GET", "/api/model", f"Host: {host}", "Connection: close"))
    assert said.startswith(b"HTTP/1.1 200")


def test_without_the_token_only_the_page_is_there(running):
    assert running.ask("/")[0] == 200
    assert running.ask("/api/model")[0] == 401
    coded = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    protocols = f"Sec-WebSocket-Protocol: primavista, bearer.{coded}"
    for lines, status in (((), b"401"), ((protocols,), b"101")):
        with running.plain() as opened:
            opened.sendall(head("GET", "/api/stream", *UPGRADE, *lines, token=False))
            assert opened.recv(65536).startswith(b"HTTP/1.1 " + status)


def test_the_address_that_it_names_is_the_one_that_is_bound(running):
    assert running.address == f"http://127.0.0.1:{running.port}"
    with socket.create_connection(("127.0.0.1", running.port)):
        pass


@pytest.mark.slow
def test_the_command_has_a_token_by_default_and_links_to_the_address_that_it_binds(tmp_path):
    command = [sys.executable, "-m", "primavista", "teach", str(tmp_path / "kitchen.pv")]
    command += ["--no-browser", "--port", "0", "--strategy", "ncm", "--size", "32"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    environment.pop("PRIMAVISTA_TOKEN", None)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            link = next(line.strip() for line in process.stdout if "://" in line)
            address, _, token = link.partition("/#token=")
            asked = {"url": f"{address}/api/model", "timeout": PATIENCE}
            assert address.startswith("http://127.0.0.1:")
            assert len(token) >= 32
            assert httpx.get(**asked).status_code == 401
            assert httpx.get(**asked, headers={"Authorization": f"Bearer {token}"}).is_success
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("host", "address"), [("0.0.0.0", "127.0.0.1"), ("localhost", None), ("127.0.0.3", "127.0.0.3")]
)
def test_every_address_that_is_printed_reaches_the_service(host, address):
    with listen(host, 0) as listening:
        listening.listen()
        said = addresses_of(listening, tls=False)
        assert len(said) == 1 or host == "0.0.0.0"
        for one in said:
            name, _, port = one.removeprefix("http://").rpartition(":")
            ipaddress.ip_address(name.strip("[]"))  # no name, which may lead to another address
            with socket.create_connection((name.strip("[]"), int(port)), PATIENCE) as opened:
                other, _ = listening.accept()
                assert other.getpeername() == opened.getsockname()
                other.close()
        assert address is None or said[0].startswith(f"http://{address}:")


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=primavista"
    names = f"subjectAltName=DNS:localhost,DNS:{socket.gethostname()},IP:127.0.0.1"
    files = ["-addext", names, "-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*made.split(), *files], check=True, capture_output=True)
    with wire(folder, certificate, tls=[str(certificate), str(key)]) as service:
        yield service
        assert "Traceback" not in service.log.read_text()


@pytest.mark.slow
@linux
def test_connections_that_never_finish_the_handshake_make_room_and_have_a_deadline(encrypted):
    descriptors = f"/proc/{encrypted.process.pid}/fd"
    assert encrypted.owner() == 200
    before = len(os.listdir(descriptors))
    with ExitStack() as cleanup:
        silent = [
            cleanup.enter_context(encrypted.plain())
            for _ in range(3 * LIMITS["address_connections"])
        ]
        assert encrypted.owner() == 200
        assert waited_for(lambda: sum(map(is_open, silent)) < LIMITS["address_connections"])
        assert waited_for(lambda: not any(map(is_open, silent)))
        assert waited_for(lambda: len(os.listdir(descriptors)) <= before + 1)
    assert encrypted.owner() == 200


def test_browsers_are_told_to_keep_to_https_where_that_harms_no_other_service(encrypted):
    port = encrypted.port
    told = encrypted.ask("/", {"Host": f"{socket.gethostname()}:{port}"})[1]
    assert told["strict-transport-security"] == "max-age=86400"
    for host in ("localhost", "127.0.0.1", "[::1]"):
        answer = encrypted.ask("/", {"Host": f"{host}:{port}"})[1]
        assert "strict-transport-security" not in answer
        assert answer["x-content-type-options"] == "nosniff"


def socket_frame(code: int, data: bytes = b"", *, last: bool = True) -> bytes:
    """A frame of a WebSocket with an empty mask."""
    short = len(data) < 126
    length = bytes([0x80 | len(data)]) if short else b"\xff" + len(data).to_bytes(8)
    return bytes([0x80 * last | code]) + length + bytes(4) + data


@pytest.mark.parametrize(
    "flood",
    [
        socket_frame(9, b"ping") * 20_000,
        socket_frame(10, b"pong") * 20_000,
        socket_frame(2, last=False) + socket_frame(0, last=False) * 20_000,
        socket_frame(1, b"x") * 20_000,
    ],
    ids=["pings", "pongs", "pieces", "texts"],
)
def test_a_socket_that_is_flooded_with_frames_is_cut_off(running, flood):
    """The application sees whole messages only; these kept the event loop busy for seconds."""
    with running.plain() as opened:
        opened.sendall(upgrade("/api/stream"))
        assert opened.recv(65536).startswith(b"HTTP/1.1 101")
        with suppress(OSError):
            opened.sendall(flood)
        said = until_closed(opened)
    assert said.count(b"\x8a\x04ping") < 5000
    assert waited_for(lambda: running.owner() == 200)


@pytest.mark.slow
def test_a_socket_that_sends_too_many_bytes_is_slowed_down_and_not_cut_off(running):
    """Before, it was cut off, and clients that came back at once kept others waiting."""
    message = socket_frame(2, bytes(300_000))
    count, buffers = 80, 2**24  # those of the system
    with running.plain() as opened:
        opened.sendall(upgrade("/api/stream"))
        assert opened.recv(65536).startswith(b"HTTP/1.1 101")
        began = time.monotonic()
        for _ in range(count):
            opened.sendall(message)
        seconds = time.monotonic() - began
        late = count * len(message) - FIRST_SOCKET_BYTES - buffers
        assert late > 0
        assert seconds >= late / SOCKET_BYTES
        opened.sendall(socket_frame(2, picture("mug")))
        said = b""
        while b'"frame":%d,"label"' % (count + 1) not in said:
            said += opened.recv(65536)
    assert running.owner() == 200


def test_frames_of_streams_share_the_budget_of_uploads(running):
    with running.plain() as opened:
        opened.sendall(upgrade("/api/stream"))
        assert opened.recv(65536).startswith(b"HTTP/1.1 101")
        said = b""
        for number in (1, 2, 3):
            opened.sendall(socket_frame(2, bytes(LIMITS["upload_bytes"] + 1)))
            while b'"frame":%d,' % number not in said:
                said += opened.recv(65536)
        assert said.count(b"all uploads in progress have at most 400000 bytes") == 3
        opened.sendall(socket_frame(2, picture("mug")))
        while b'"frame":4,"label"' not in said:
            said += opened.recv(65536)


def test_a_few_pings_are_answered(running):
    with running.plain() as opened:
        opened.sendall(upgrade("/api/stream"))
        assert opened.recv(65536).startswith(b"HTTP/1.1 101")
        opened.sendall(socket_frame(9, b"ping") * 3)
        said = b""
        while said.count(b"\x8a\x04ping") < 3:
            said += opened.recv(65536)


def test_text_that_is_none_closes_the_socket_and_leaves_no_traceback(running):
    with running.plain() as opened:
        opened.sendall(upgrade("/api/stream"))
        assert opened.recv(65536).startswith(b"HTTP/1.1 101")
        opened.sendall(socket_frame(1, b"\xff\xfe"))
        until_closed(opened)
    assert "Traceback" not in running.log.read_text()


@pytest.mark.parametrize("token", [True, False])
def test_frames_ahead_of_the_handshake_close_the_socket_and_leave_no_traceback(running, token):
    """Anybody could fill the log with them."""
    for _ in range(10):  # some of them come before the answer
        with running.plain() as opened:
            opened.sendall(head("GET", "/api/stream", *UPGRADE, token=token))
            with suppress(OSError):
                opened.sendall(b"\xff" * 100)
                opened.recv(65536)
    assert running.owner() == 200
    assert "Traceback" not in running.log.read_text()


def test_a_body_with_a_length_and_in_chunks_is_refused(running):
    """One server would take for a body what another one takes for a second request."""
    lines = ("Host: localhost", "Content-Length: 5", "Transfer-Encoding: chunked")
    second = head("GET", "/api/model", "Host: localhost")
    said = running.raw(
        head("POST", "/api/undo", *lines, "Connection: close") + b"0\r\n\r\n" + second
    )
    assert said.startswith(b"HTTP/1.1 400")
    assert said.count(b"HTTP/1.1 ") == 1
