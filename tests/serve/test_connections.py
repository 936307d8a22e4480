"""How much is read from a WebSocket, by a transport that notes whether it is read from."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from primavista.serve import connections, limits
from primavista.serve.connections import BoundedSocketProtocol

SHAKEN = (
    b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
MESSAGE = b"\x82\xfe\x27\x10" + bytes(4 + 10_000)  # 10,000 bytes with an empty mask


class Transport:
    """A connection that notes whether anything is read from it."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


async def opened(state: ServerState) -> BoundedSocketProtocol:
    """A WebSocket of a server, after its handshake; its application reads nothing by itself."""

    async def application(scope, receive, send):
        await asyncio.Event().wait()

    protocol = BoundedSocketProtocol(Config(application), state, {})
    protocol.connection_made(Transport())
    protocol.data_received(SHAKEN)
    assert (await protocol.receive())["type"] == "websocket.connect"
    return protocol


async def emptied(protocol: BoundedSocketProtocol) -> None:
    """Take all messages that wait."""
    while not protocol.queue.empty():
        await protocol.receive()


def test_at_most_two_messages_wait_for_the_application():
    async def run() -> None:
        socket = await opened(ServerState())
        socket.data_received(MESSAGE)
        assert socket.transport.is_read
        socket.data_received(MESSAGE)
        assert not socket.transport.is_read
        assert len((await socket.receive())["bytes"]) == 10_000
        assert not socket.transport.is_read
        await socket.receive()
        assert socket.transport.is_read

    asyncio.run(run())


def test_a_rest_for_too_many_bytes_ends_when_it_is_over_and_no_messages_wait(clock):
    async def run() -> None:
        socket = await opened(ServerState())
        socket.data_received(MESSAGE * 200)  # 2 MB, of which 1 MiB may come at once
        await emptied(socket)
        assert not socket.transport.is_read
        socket.data_received(MESSAGE * 2)
        await asyncio.sleep(0.4)  # it rests for 0.12 s
        assert not socket.transport.is_read
        await emptied(socket)
        assert socket.transport.is_read

    asyncio.run(run())


@pytest.mark.parametrize("others", ["silent", "sending"])
def test_only_sockets_that_send_have_a_share_of_the_bytes(clock, others):
    """Alone a socket may send 16 MiB at once after a while; one of eight, 4 MiB."""

    async def run() -> None:
        state = ServerState()
        first, *rest = [await opened(state) for _ in range(8)]
        for socket in rest:
            socket.data_received(MESSAGE)
        clock.now += 60
        if others == "sending":
            for socket in rest:
                socket.data_received(MESSAGE)
        first.data_received(MESSAGE)  # from now on it has its share
        clock.now += 1
        first.data_received(MESSAGE * 600)
        await emptied(first)
        assert first.transport.is_read == (others == "silent")

    asyncio.run(run())
