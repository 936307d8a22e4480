"""A service in a process of its own with small limits, and clients that speak to it byte by byte.

Nothing here goes through the application object: these are uvicorn, its parser and its sockets.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from live_parts.process import memory_of

TOKEN = "a-token-that-is-long-enough"
AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}
PATIENCE = 30.0  # seconds until a test gives up; no test measures time against it
LIMITS = {
    "body_bytes": 300_000,
    "upload_bytes": 400_000,
    "concurrent_requests": 4,
    "concurrent_sockets": 2,
    "connections": 24,
    "address_connections": 12,
    "header_seconds": 1.5,
    "idle_seconds": 1.5,
    "body_seconds": 4.0,
    "send_seconds": 2.0,
    "linger_seconds": 1.0,
}
SCRIPT = """
import json, sys
from pathlib import Path
from primavista import Learner
from primavista.serve.limits import ServiceLimits
from primavista.serve.server import serve
options = json.loads(sys.argv[2])
limits = ServiceLimits(**options.pop("limits"))
made = {"strategy": "ncm", **options.pop("learner", {})}
learner = Learner(weights="random", width=0.0625, size=32, device="cpu", **made)
exec(options.pop("before", ""))
def ready(*addresses):
    print(*addresses, flush=True)
serve(learner, Path(sys.argv[1]), port=0, limits=limits, ready=ready, **options)
"""


@dataclass
class Wire:
    """A running service and what is needed to reach it."""

    process: subprocess.Popen[str]
    address: str
    log: Path
    certificate: Path | None = None

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def memory(self) -> float:
        """MiB of its process."""
        return memory_of(self.process.pid)

    def plain(self, source: str = "127.0.0.1", receive_buffer: int = 0) -> socket.socket:
        """A TCP connection to the service."""
        opened = socket.socket()
        if receive_buffer:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        opened.bind((source, 0))
        opened.settimeout(PATIENCE)
        opened.connect(("127.0.0.1", self.port))
        return opened

    def ask(
        self, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one request on a connection of its own."""
        if self.certificate is None:
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        else:
            trusted = ssl.create_default_context(cafile=str(self.certificate))
            client = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=PATIENCE, context=trusted
            )
        try:
            method = "GET" if body is None else "POST"
            client.request(method, path, body, headers or {})
            answer = client.getresponse()
            said = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, said, answer.read()
        finally:
            client.close()

    def owner(self, path: str = "/api/model", **headers: str) -> int:
        """The status that the owner, who has the token, is answered with."""
        return self.ask(path, {**AUTHORISED, **headers})[0]

    def raw(self, request: bytes) -> bytes:
        """All that the service says to these bytes until it closes or falls silent."""
        with self.plain() as opened:
            opened.sendall(request)
            return until_closed(opened)


def head(method: str, path: str, *lines: str, token: bool = True) -> bytes:
    """The first line and the headers of a request."""
    given = [f"Authorization: Bearer {TOKEN}"] if token else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", *given, *lines, "", ""]).encode()


def until_closed(opened: socket.socket) -> bytes:
    """Read until the service closes the connection, as it must."""
    said = b""
    try:
        while piece := opened.recv(65536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def is_open(opened: socket.socket) -> bool:
    """Say if the service has left a connection open; what it sent is not read."""
    opened.setblocking(False)
    try:
        return opened.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def cut_off_while_it_sends(opened: socket.socket) -> bool:
    """Send a byte now and then until the service cuts the connection off."""
    end = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end:
            opened.sendall(b"a")
            time.sleep(0.1)
    except OSError:
        return True
    return False


def waited_for(condition: Any) -> bool:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def wire(folder: Path, certificate: Path | None = None, **options: Any) -> Iterator[Wire]:
    """Run a service with small limits.

    Options are those of `serve`; `learner` has arguments of the learner, and `before` is code that
    runs in the process before it serves.
    """
    log = folder / "log"
    given = {"limits": LIMITS, "token": TOKEN, **options}
    command = [sys.executable, "-c", SCRIPT, str(folder / "kitchen.pv"), json.dumps(given)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(log, "w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
    assert process.stdout is not None
    try:
        said = process.stdout.readline().split()
        assert said, log.read_text()
        yield Wire(process, said[0], log, certificate)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()
