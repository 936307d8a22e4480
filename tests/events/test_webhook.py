"""Webhooks, against a real HTTP server that fails in the usual ways."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator

import pytest

from primavista.errors import InputError
from primavista.events import webhook
from primavista.events.event import CameraEvent
from primavista.events.webhook import Webhook

from .event_servers import Receiver, free_port, until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(webhook.Backoff, "next", lambda self: 0.05)
    return


def event(number: int) -> CameraEvent:
    return CameraEvent("door", "online", str(number))


def reasons(receiver: Receiver) -> list[str]:
    return [one["reason"] for one in receiver.events]


def test_events_arrive_in_order_with_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with Receiver() as receiver:
        monkeypatch.setenv("HOOK", receiver.url.replace("//", "//ann:s%40cret@") + "?key=7")
        hook = Webhook("env:HOOK", told.append)
        for number in range(5):
            hook.send(event(number))
        hook.close()
    assert reasons(receiver) == list("01234")
    assert receiver.requests[0]["path"] == "/hook?key=7"
    assert receiver.requests[0]["Content-Type"] == "application/json"
    login = base64.b64encode(b"ann:s@cret").decode()
    assert receiver.requests[0]["Authorization"] == f"Basic {login}"
    assert not told


def test_a_server_that_is_down_gets_the_events_later() -> None:
    told: list[str] = []
    port = free_port()
    hook = Webhook(f"http://127.0.0.1:{port}/hook?key=hidden", told.append)
    began = time.monotonic()
    for number in range(3):
        hook.send(event(number))
    assert time.monotonic() - began < 1  # it never waits
    until(lambda: told)
    with Receiver(port) as receiver:
        until(lambda: len(receiver.events) == 3)
        until(lambda: len(told) == 2)
        hook.close()
    assert reasons(receiver) == list("012")
    assert "refused" in told[0]
    assert "again" in told[1]
    assert "hidden" not in "".join(told)


def test_errors_of_the_server_are_tried_again_and_refusals_are_not() -> None:
    told: list[str] = []
    with Receiver() as receiver:
        receiver.answers = [500, 503, 429, 204, 404, 302, 204]
        hook = Webhook(receiver.url, told.append)
        for number in range(4):
            hook.send(event(number))
        until(lambda: len(receiver.events) == 2)
        hook.close()
    assert reasons(receiver) == ["0", "3"]  # 1 and 2 were refused
    assert len(receiver.requests) == 7


def test_a_server_that_is_slow_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "WAITING", 3)
    monkeypatch.setattr(webhook, "CLOSING", 0.2)
    told: list[str] = []
    with Receiver() as receiver:
        receiver.wait = 1.0
        hook = Webhook(receiver.url, told.append, timeout=0.2)
        began = time.monotonic()
        for number in range(50):
            hook.send(event(number))
        assert time.monotonic() - began < 0.9
        until(lambda: told)
        hook.close()
    assert "does not answer within 0.2 s" in told[0]
    assert told[-1].endswith("3 events were not delivered")


@pytest.mark.parametrize("text", ["mqtt://host", "host:80", "http://", "env:PRIMAVISTA_NOT_SET"])
def test_what_is_not_an_address(text: str) -> None:
    with pytest.raises(InputError, match="https://HOST/PATH"):
        Webhook(text, print)
