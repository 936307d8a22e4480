"""Who may ask: Host, Origin, token, sizes; and what the answers tell a browser."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from serve_support import SMALL, frames, picture, tiny
from starlette.testclient import TestClient, WebSocketDenialResponse

from primavista import InputError, serve
from primavista.serve import security
from primavista.serve.asgi import create_app
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RateLimiter, RefusedError, ServiceLimits, check_label
from primavista.serve.security import check_token

PAGE = Path(serve.__file__).parent / "page"
TOKEN = "a-token-that-is-long-enough"
EVIL = {"Origin": "http://evil.example"}


@pytest.fixture
def guarded(tmp_path):
    service = LearnerService(tiny(), tmp_path / "kitchen.pv", SMALL)
    with TestClient(
        create_app(service, "0.0.0.0", TOKEN), base_url="http://192.168.1.7:8765"
    ) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765", "192.168.0.3"]
)
def test_addresses_and_names_of_this_machine_are_answered(shared_client, host):
    assert shared_client.get("/api/model", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[",
    ],
)
def test_other_names_are_refused(shared_client, host):
    """A page whose name is made to lead here (DNS rebinding) asks by its own name."""
    assert shared_client.get("/api/model", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:1",
        "http://[",
        "//",
        "http://localhost.evil",
    ],
)
def test_another_page_changes_nothing(client, service, origin):
    refused = client.post(
        "/api/lessons?wait=9",
        data={"label": "mug"},
        files=frames("mug"),
        headers={"Origin": origin},
    )
    assert refused.status_code == 403
    assert "own page" in refused.json()["detail"]
    assert service.snapshot.version == 0
    with (
        pytest.raises(WebSocketDenialResponse) as denied,
        client.websocket_connect("ws://localhost/api/stream", headers={"Origin": origin}),
    ):
        pass
    assert denied.value.status_code == 403


def test_our_own_page_may(client):
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert (
        client.post(
            "/api/lessons?wait=9", data={"label": "mug"}, files=frames("mug"), headers=own
        ).status_code
        == 200
    )
    with client.websocket_connect("ws://localhost/api/stream", headers=own) as socket:
        socket.send_bytes(picture("mug"))
        assert socket.receive_json()["label"] == "mug"


def test_without_the_token_only_the_page_is_there(guarded):
    assert guarded.get("/").status_code == 200
    assert guarded.get("/page/main.js").status_code == 200
    assert guarded.get("/healthz").status_code == 200
    for path in (
        "/api/model",
        "/api/model/file",
        "/api/openapi.json",
        "/page",
        "/healthz/../api/model",
    ):
        assert guarded.get(path).status_code in (401, 404), path
    refused = guarded.get("/api/model", headers={"Authorization": f"Bearer {TOKEN}x"})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"


def test_with_the_token_all_is_there(guarded):
    assert (
        guarded.get("/api/model", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    )
    coded = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    with guarded.websocket_connect(
        "ws://192.168.1.7:8765/api/stream", subprotocols=["primavista", f"bearer.{coded}"]
    ) as socket:
        socket.send_bytes(picture("mug"))
        assert socket.receive_json()["known"] is False
    for protocols in (["primavista"], ["primavista", "bearer.AAAA"], ["primavista", "bearer.!!!"]):
        with (
            pytest.raises(WebSocketDenialResponse) as denied,
            guarded.websocket_connect("ws://192.168.1.7:8765/api/stream", subprotocols=protocols),
        ):
            pass
        assert denied.value.status_code == 401


def test_where_others_can_reach_a_token_is_needed():
    check_token("127.0.0.1", None)
    check_token("::1", None)
    check_token("0.0.0.0", TOKEN)
    with pytest.raises(InputError, match="PRIMAVISTA_TOKEN="):
        check_token("0.0.0.0", None)
    with pytest.raises(InputError, match="PRIMAVISTA_TOKEN="):
        check_token("192.168.1.7", None)
    with pytest.raises(InputError, match="at least 16"):
        check_token("0.0.0.0", "short")


def test_a_body_over_the_limit_is_refused_by_its_length_and_by_its_bytes(client):
    big = b"x" * (SMALL.body_bytes + 1)
    assert client.post("/api/predict", files={"frame": big}).status_code == 413

    def pieces():
        for _ in range(400):
            yield b"y" * 1000

    refused = client.post(
        "/api/predict",
        content=pieces(),
        headers={"content-type": "multipart/form-data; boundary=x"},
    )
    assert refused.status_code == 413
    assert str(SMALL.body_bytes) in refused.json()["detail"]


def test_every_answer_is_hardened(shared_client):
    for path in ("/", "/api/model", "/nothing", "/page/main.js"):
        headers = shared_client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "camera=(self)" in headers["permissions-policy"]
    assert (
        shared_client.get("/api/model", headers={"Host": "evil.example"}).headers[
            "x-content-type-options"
        ]
        == "nosniff"
    )


def test_no_path_reaches_the_file_system(shared_client):
    for path in (
        "/page/../app.py",
        "/page/..%2fapp.py",
        "/page/%2e%2e%2fapp.py",
        "/page//etc/passwd",
        "/page/%00",
        "/page/app.py",
    ):
        assert shared_client.get(path).status_code == 404


def test_the_page_loads_nothing_from_elsewhere_and_has_no_inline_script():
    html = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=|javascript:", html)
    for source in re.findall(r'(?:src|href)="([^"]+)"', html):
        assert source.startswith("/page/")
        assert (PAGE / source.removeprefix("/page/")).is_file()
    for script in PAGE.glob("*.js"):
        text = script.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), script
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), script


@pytest.mark.parametrize("text", ["", "  ", "x" * 201, "a\nb", "a\0", "\ud800", None, 5, ["mug"]])
def test_names_that_are_refused(text):
    with pytest.raises(RefusedError):
        check_label(text)


def test_names_of_any_language_are_taken():
    assert check_label(" Kännchen 茶碗 <b>☕</b> ") == "Kännchen 茶碗 <b>☕</b>"
    assert check_label("e\u0301") == "é"


def test_a_rate_is_bounded_over_two_seconds():
    rate = RateLimiter(10)
    start = rate.last
    assert [rate.allow(start) for _ in range(21)] == [True] * 20 + [False]
    assert rate.allow(start + 1.0)


def test_too_many_sockets_are_refused(client):
    with (
        client.websocket_connect("ws://localhost/api/stream"),
        client.websocket_connect("ws://localhost/api/stream"),
        pytest.raises(WebSocketDenialResponse) as denied,
        client.websocket_connect("ws://localhost/api/stream"),
    ):
        pass
    assert denied.value.status_code == 429
    with client.websocket_connect("ws://localhost/api/stream") as socket:
        socket.send_bytes(picture("mug"))
        assert "known" in socket.receive_json()


def test_a_socket_that_sends_too_fast_is_closed(client):
    with client.websocket_connect("ws://localhost/api/stream") as socket:
        for _ in range(SMALL.messages_per_second * 2 + 30):
            socket.send_text("x")
        message = {"type": "websocket.send"}
        while message["type"] == "websocket.send":
            message = socket.receive()
    assert message["code"] == 1008


def test_a_refusal_names_the_file_and_not_its_folder(client, service):
    service.path.unlink()
    service.path.mkdir()  # so that nothing can be saved there
    refused = client.post("/api/lessons?wait=30", data={"label": "mug"}, files=frames("mug"))
    assert refused.status_code == 409
    assert "kitchen.pv" in refused.text
    assert str(service.path.parent) not in refused.text


@pytest.mark.parametrize("path", ["predict", "predict/batch", "locate", "check", "lessons"])
def test_every_route_that_takes_pictures_takes_those_of_a_camera(tmp_path, path):
    """A picture of a camera has more bytes than a JSON body may have."""
    service = LearnerService(tiny(), tmp_path / "kitchen.pv")
    noise = np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG")
    assert len(file.getvalue()) > service.limits.json_bytes
    name = "frames" if path in ("lessons", "predict/batch", "check") else "frame"
    with TestClient(create_app(service), base_url="http://localhost") as client:
        answer = client.post(
            f"/api/{path}",
            data={"label": "mug", "labels": "mug"},
            files={name: ("a.png", file.getvalue())},
        )
    assert answer.status_code != 413, answer.text


def test_large_uploads_keep_to_a_rate_and_small_ones_are_not_slowed_down(tmp_path, monkeypatch):
    limits = ServiceLimits(upload_rate=2**20)  # the bytes of two seconds may come at once
    service = LearnerService(tiny(), tmp_path / "kitchen.pv", limits)
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(security, "asyncio", SimpleNamespace(sleep=rest, wait_for=asyncio.wait_for))
    with TestClient(create_app(service), base_url="http://localhost") as client:

        def send(size: int) -> None:
            answer = client.post("/api/predict", files={"frame": ("a.png", bytes(size))})
            assert answer.status_code == 422  # it is no picture

        send(4 * 2**20)
        assert sum(rests) > 1.5  # two of four MiB are over the rate of one per second
        rests.clear()
        send(2**19)
        assert rests == []
        send(3 * 2**20)
        assert rests
