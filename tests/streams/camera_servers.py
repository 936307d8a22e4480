"""Cameras on the network for the tests: MJPEG over HTTP, and RTSP by GStreamer."""

from __future__ import annotations

import base64
import io
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

Draw = Callable[[int], Any]


def jpeg(picture: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=95)
    return file.getvalue()


@contextmanager
def speaker(answer: bytes, again: bytes = b"") -> Iterator[str]:
    """The address of a camera that says this, then the same piece again and again."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):
                self.wfile.write(answer)
                while again:
                    self.wfile.write(again)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/video.mjpg"
        server.shutdown()


class MjpegCamera:
    """A camera that sends JPEGs in parts, as cheap network cameras do.

    Args:
        draw: The picture of each frame.
        fps: How many per second.
        login: The user and the password that it asks for, "ann:secret".
        digest: Ask for them by a digest instead of in clear.
        kind: The content type of its answer.
        dies_after: The number of frames after which it breaks the connection.
        stalls_after: The number of frames after which it sends nothing more.
    """

    def __init__(
        self,
        draw: Draw = lambda i: np.full((48, 64, 3), 120, np.uint8),
        fps: float = 50,
        login: str = "",
        digest: bool = False,
        kind: str = "multipart/x-mixed-replace; boundary=frame",
        dies_after: int | None = None,
        stalls_after: int | None = None,
    ) -> None:
        self.dies_after, self.stalls_after = dies_after, stalls_after
        self.draw, self.fps, self.login, self.digest, self.kind = draw, fps, login, digest, kind
        self.gone = threading.Event()
        self.sent = 0
        self.asked: list[str] = []  # the paths that were asked for
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> MjpegCamera:
        """Listen, on the same port as before if there was one."""
        self.gone.clear()
        camera = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                camera.asked.append(self.path)
                camera.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Break all connections, as a camera whose plug is pulled."""
        self.gone.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> MjpegCamera:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        at = f"{self.login}@" if self.login else ""
        return f"http://{at}127.0.0.1:{self.port}/video.mjpg"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if self.login and not self._may(request.headers.get("Authorization", "")):
            scheme = 'Digest realm="camera", nonce="7", qop="auth"'
            request.send_response(401)
            request.send_header(
                "WWW-Authenticate", scheme if self.digest else 'Basic realm="camera"'
            )
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        request.send_response(200)
        request.send_header("Content-Type", self.kind)
        request.end_headers()
        with suppress(OSError):  # the client has gone
            self._film(request)

    def _may(self, authorization: str) -> bool:
        if self.digest:
            return authorization.startswith("Digest ") and 'username="ann"' in authorization
        return authorization == "Basic " + base64.b64encode(self.login.encode()).decode()

    def _film(self, request: BaseHTTPRequestHandler) -> None:
        number = 0
        if not self.kind.startswith("multipart"):
            request.wfile.write(jpeg(self.draw(0)) if "jpeg" in self.kind else b"<html></html>")
            return
        while not self.gone.is_set() and number != self.dies_after:
            if number != self.stalls_after:
                data = jpeg(self.draw(number))
                head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
                request.wfile.write(head.encode() + data + b"\r\n")
                request.wfile.flush()
                number += 1
                self.sent += 1
            time.sleep(1 / self.fps)


@contextmanager
def rtsp_camera(video: Path, *login: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """GStreamer's RTSP server, which plays a video at rtsp://127.0.0.1:PORT/door."""
    python = "/usr/bin/python3"
    check = "import gi; gi.require_version('GstRtspServer', '1.0')"
    if (
        not shutil.which(python)
        or subprocess.run([python, "-c", check], capture_output=True).returncode
    ):
        pytest.skip("GStreamer's RTSP server is not installed (gir1.2-gst-rtsp-server-1.0)")
    script = Path(__file__).with_name("rtsp_server.py")
    server = subprocess.Popen(
        [python, str(script), str(video), *login],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    with server.stdout:
        port = server.stdout.readline().strip()
        if not port:
            server.wait()
            pytest.skip("GStreamer's RTSP server does not start (gstreamer1.0-plugins-good)")
        try:
            yield int(port), server
        finally:
            server.kill()
            server.wait()
