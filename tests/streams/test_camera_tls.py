"""The certificate of an encrypted network camera is checked before anything is sent."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

pytest.importorskip("av")

from primavista import FileError
from primavista.media.camera import CameraView, camera_frames


class Listener:
    """A camera with a certificate of its own, which keeps what it is sent and never answers."""

    def __init__(self, folder: Path) -> None:
        self.certificate, key = folder / "cert.pem", folder / "key.pem"
        made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
        names = ["-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-out", str(self.certificate), "-keyout", str(key)]
        subprocess.run([*made.split(), *names, *files], check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.received = b""
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        while True:
            try:
                plain, _ = self.socket.accept()
            except OSError:
                return  # closed at the end of the test
            try:
                with self.context.wrap_socket(plain, server_side=True) as client:
                    self.received += client.recv(4096)
            except OSError:
                plain.close()


@pytest.fixture
def listener(tmp_path: Path) -> Listener:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate")
    return Listener(tmp_path)


def ask(scheme: str, port: int) -> str:
    address = f"{scheme}://ann:s3cret@127.0.0.1:{port}/live"
    with pytest.raises(FileError) as refused:
        next(camera_frames(CameraView(address, 32, stall=5), seconds=1))
    return str(refused.value)


@pytest.mark.parametrize("scheme", ["rtsps", "https"])
def test_an_unknown_certificate_is_refused_before_anything_is_sent(
    scheme: str, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    message = ask(scheme, listener.port)
    assert listener.received == b""
    assert "SSL_CERT_FILE" in message
    assert "s3cret" not in message


@pytest.mark.parametrize(
    ("scheme", "begins"), [("rtsps", b"OPTIONS rtsp"), ("https", b"GET /live")]
)
def test_a_certificate_of_its_own_is_taken_if_it_is_named(
    scheme: str, begins: bytes, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(listener.certificate))
    ask(scheme, listener.port)
    assert listener.received.startswith(begins)
    assert b"s3cret" not in listener.received
