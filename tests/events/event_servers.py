"""A real MQTT broker, and a client that hears everything, for the tests."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest


def until(condition: Any, seconds: float = 20) -> Any:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.02)
    return value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Mosquitto:
    """A real broker on a port of its own; it can be stopped and started again.

    Args:
        folder: The folder of its configuration.
        user: The only user that may connect; by default everybody may.
        password: The password of the user.
    """

    def __init__(self, folder: Path, user: str = "", password: str = "") -> None:
        program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        if program is None:
            pytest.skip("mosquitto is not installed (Debian's package mosquitto)")
        self.port = free_port()
        lines = [f"listener {self.port} 127.0.0.1", f"allow_anonymous {str(not user).lower()}"]
        if user:
            passwords = folder / "passwords"
            passwords.write_text(f"{user}:{password}\n")
            passwords.chmod(0o600)
            subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
            passwords.chmod(0o644)
            lines.append(f"password_file {passwords}")
        settings = folder / "mosquitto.conf"
        settings.write_text("\n".join([*lines, "user root", ""]))
        self._command = [program, "-c", str(settings)]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> Mosquitto:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, stdout=quiet, stderr=quiet)
        until(self._answers)
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> Mosquitto:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class Listener:
    """A client of a broker that hears everything, as Home Assistant would."""

    def __init__(self, port: int, login: tuple[str, str] | None = None) -> None:
        from paho.mqtt import client

        self.messages: list[tuple[str, str]] = []
        self.latest: dict[str, str] = {}
        self._ready = threading.Event()
        self._client = client.Client(client.CallbackAPIVersion.VERSION2)
        if login:
            self._client.username_pw_set(*login)
        self._client.on_message = self._hear
        self._client.on_connect = lambda c, *_: c.subscribe("#", 1)
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert self._ready.wait(10)

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events that have come, of all cameras."""
        return [json.loads(text) for topic, text in self.messages if topic.endswith("/event")]

    def _hear(self, client: Any, data: Any, message: Any) -> None:
        self.messages.append((message.topic, message.payload.decode()))
        self.latest[message.topic] = message.payload.decode()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()
