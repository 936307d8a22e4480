"""Connections: limits on their number and their times, and which one makes room for a new one.

uvicorn limits the size of headers. It limits neither their time, nor the time in which an answer is
read, nor the number of connections of one address. This module does, before a request exists and
before anything is known about the client. The numbers are in `limits.ServiceLimits`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
import ssl
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from primavista.serve.limits import RateLimiter, ServiceLimits

SWEEP_SECONDS = 0.5  # between two looks at all connections
BACKLOG = 512  # connections that the system holds until they are accepted
SOCKET_BYTES = 8 * 2**20  # read per second from one WebSocket, averaged over two seconds
ALL_SOCKET_BYTES = 16 * 2**20  # the same for all WebSockets: more frames than can be recognised
ACTIVE_SECONDS = 2.0  # since its last bytes a WebSocket has a share of them
COUNT_SECONDS = 1.0  # for which a WebSocket keeps its share: all are looked at to count them
FIRST_SOCKET_BYTES = 2**20  # read at once from a new one, so that reconnecting brings nothing
SOCKET_PIECE = 2**14  # bytes that are parsed before the frames in them are counted
LINGER_BYTES = 2**18  # read of a body after its request was answered; then it is left unread
SOCKET_FRAMES = 500  # per second: messages, pieces of them and control frames
_AUTHORISED = "primavista.authorised"
_WORKING = (h11.IDLE, h11.SEND_RESPONSE, h11.SEND_BODY)  # states of an answer that is not complete


def mark_authorised(scope: Scope) -> None:
    """Note that a request is authorised, so that its connection is not closed for others.

    Args:
        scope: The ASGI scope of the request or of the WebSocket.
    """
    scope.setdefault("state", {})[_AUTHORISED] = True


def network_of(host: str) -> str:
    """Return the part of an address of which one client can hardly have many.

    >>> network_of("192.168.1.7"), network_of("::ffff:192.168.1.7")
    ('192.168.1.7', '192.168.1.7')
    >>> network_of("2001:db8::7:1%eth0")
    '2001:db8::/64'

    Args:
        host: An IP address.

    Returns:
        An IPv4 address, or the /64 network of an IPv6 address.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), 64), strict=False))


class _SlowReaders(asyncio.Protocol):
    """A protocol that notes the time since which its client reads nothing."""

    unread_since: float | None = None
    scope: Any = None

    def pause_writing(self) -> None:
        self.unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.unread_since = None
        super().resume_writing()

    @property
    def is_authorised(self) -> bool:
        """True if the current request, or the last one, was authorised."""
        return bool(self.scope and self.scope["state"].get(_AUTHORISED))

    @property
    def is_busy(self) -> bool:
        """True if the service works on a request, or if a WebSocket is open."""
        return True

    @property
    def phase(self) -> tuple[Hashable, str]:
        """The present exchange of the connection, and the name of its phase."""
        return None, "working"


class BoundedSocketProtocol(_SlowReaders, WebSocketsSansIOProtocol):
    """A WebSocket of uvicorn that notes slow readers; the application closes silent ones.

    Nothing more is read for a while from a client that sends more bytes than its share, so that
    the event loop has time for others. One that floods it with control frames or pieces of messages
    is cut off. The application counts whole messages only.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._bytes = RateLimiter(SOCKET_BYTES, at_first=FIRST_SOCKET_BYTES)
        self._frames = RateLimiter(SOCKET_FRAMES)
        self.heard_at = self._counted_at = -math.inf
        self._rest: asyncio.TimerHandle | None = None  # until its end nothing is read

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client, and rest if there are too many."""
        self.read_paused = True  # uvicorn would pause for each message, and resume: system calls
        for start in range(0, len(data), SOCKET_PIECE):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + SOCKET_PIECE])
        if self.queue.qsize() > 1:
            self.transport.pause_reading()
        self.heard_at = time.monotonic()
        if self.heard_at - self._counted_at > COUNT_SECONDS:
            self._bytes.limit = min(SOCKET_BYTES, ALL_SOCKET_BYTES // self._active())
        if self._bytes.allow(count=len(data)) or self._rest or self.transport.is_closing():
            return
        self.transport.pause_reading()
        self._rest = self.loop.call_later(self._bytes.debt_seconds, self._end_rest)

    def _active(self) -> int:
        """Count the WebSockets that send now, with this one."""
        self._counted_at = self.heard_at
        return sum(
            isinstance(one, BoundedSocketProtocol) and self.heard_at - one.heard_at < ACTIVE_SECONDS
            for one in self.connections
        )

    def _end_rest(self) -> None:
        self._rest = None
        if self.queue.empty() and not self.transport.is_closing():
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """Give the next message to the application; a client that rests goes on resting."""
        message = await super().receive()
        if self._rest and not self.transport.is_closing():
            self.transport.pause_reading()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end of the connection."""
        if self._rest:
            self._rest.cancel()
        super().connection_lost(exc)

    def handle_parser_exception(self) -> None:
        """Close a connection whose bytes are not frames, also before its handshake is answered."""
        if self.conn.close_sent is None:
            self.transport.abort()
        else:
            super().handle_parser_exception()

    def handle_ping(self) -> None:
        """Answer a ping, unless there are too many."""
        if self._allows_frame():
            super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        """Take note of a pong, unless there are too many."""
        if self._allows_frame():
            super().handle_pong(event)

    def handle_cont(self, event: Any) -> None:
        """Append a piece to a message, unless there are too many pieces."""
        if self._allows_frame():
            super().handle_cont(event)

    def handle_text(self, event: Any) -> None:
        """Take a text, or the first piece of one, unless there are too many."""
        if self._allows_frame():
            super().handle_text(event)

    def handle_bytes(self, event: Any) -> None:
        """Take a picture, or the first piece of one, unless there are too many."""
        if self._allows_frame():
            super().handle_bytes(event)

    def _allows_frame(self) -> bool:
        if self.transport.is_closing():
            return False
        if not self._frames.allow():
            self.transport.abort()
            return False
        return True


class BoundedHttpProtocol(_SlowReaders, H11Protocol):
    """A connection of uvicorn that tells its phase.

    It uses h11, which bounds the size of headers; the faster parser of uvicorn does not.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._unwanted = 0  # bytes of a body whose request was answered

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; of the rest of a refused body only the first.

        What is left unread waits in the client until `linger_seconds` are over. Reading it at full
        speed, to throw it away, would keep the event loop from others.
        """
        super().data_received(data)
        if self.phase[1] != "linger":
            self._unwanted = 0
            return
        self._unwanted += len(data)
        if self._unwanted > LINGER_BYTES and not self.transport.is_closing():
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        """Go on to the next request, unless it came before this answer and without authorisation.

        No browser sends requests that way. A few hundred connections with hundreds of requests each
        would keep the owner waiting for seconds; HTTP allows closing them after one answer.
        """
        if self.conn.trailing_data[0] and not self.is_authorised:
            self.transport.close()
        else:
            super().on_response_complete()

    @property
    def is_busy(self) -> bool:
        """True if the service works on a request of this connection."""
        return self.phase[1] == "working"

    @property
    def phase(self) -> tuple[Hashable, str]:
        """The present exchange of the connection, and the name of its phase."""
        exchange = id(self.cycle)
        if self.conn.their_state is h11.IDLE:
            begun = self.cycle is None or self.conn.trailing_data[0]
            return exchange, "header" if begun else "keep_alive"
        if self.conn.our_state in _WORKING:
            return exchange, "working"
        return exchange, "linger"


class _Visit:
    """One accepted connection, from before its TLS handshake until its socket is closed."""

    def __init__(self, connection: socket.socket, network: str) -> None:
        self.connection = connection
        self.network = network
        self.transport: asyncio.Transport | None = None
        self.handshake: asyncio.Task[None] | None = None  # kept, or it might be collected
        self.is_unwanted = False
        self.since = time.monotonic()
        self._phase: tuple[Hashable, str] = (None, "header")

    @property
    def is_open(self) -> bool:
        return self.connection.fileno() >= 0

    @property
    def protocol(self) -> _SlowReaders | None:
        """The protocol in charge: that of HTTP until a WebSocket takes over."""
        protocol = None if self.transport is None else self.transport.get_protocol()
        return protocol if isinstance(protocol, _SlowReaders) else None

    def waits_for(self) -> str:
        """Return the phase of the connection, and note when it began."""
        phase: tuple[Hashable, str] = (None, "header")
        if self.transport is not None and self.transport.is_closing():
            phase = (None, "linger")
        elif self.protocol is not None:
            phase = self.protocol.phase
        if phase != self._phase:
            self._phase, self.since = phase, time.monotonic()
        return phase[1]

    def is_overdue(self, limits: ServiceLimits) -> bool:
        """Return True if the connection has taken longer, or has buffered more, than it may."""
        allowed = {
            "header": limits.header_seconds,
            "keep_alive": limits.keep_alive_seconds,
            "linger": limits.linger_seconds,
        }
        longest = allowed.get(self.waits_for(), math.inf)
        now = time.monotonic()
        if now - self.since > longest:
            return True
        if self.transport is None or self.protocol is None:
            return False
        if self.transport.get_write_buffer_size() > limits.unread_bytes:
            return True
        unread_since = self.protocol.unread_since
        return unread_since is not None and now - unread_since > limits.send_seconds

    def close(self) -> None:
        """Close the connection at once; buffered bytes are lost."""
        self.is_unwanted = True
        if self.transport is not None:
            self.transport.abort()
        else:  # the event loop has the socket: let it see the end of the connection
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


class Door:
    """Accepts connections for a server, closes those that take too long, and makes room.

    If there are too many connections, in all or of one address, the one that has waited longest
    without an authorised request is closed for the new one. A connection with an authorised
    request in progress is never closed for another.

    Args:
        listening: The listening socket.
        protocol: Returns a new protocol for each connection.
        tls: The TLS context, or None for plain HTTP.
        limits: The limits on connections and times.
    """

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        limits: ServiceLimits,
    ) -> None:
        self._listening = listening
        self._protocol = protocol
        self._tls = tls
        self._limits = limits
        self._visits: set[_Visit] = set()
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._tasks = [
            asyncio.get_running_loop().create_task(self._accept()),
            asyncio.get_running_loop().create_task(self._sweep()),
        ]

    def close(self) -> None:
        """Accept nothing more; connections that are open are left to the server."""
        for task in self._tasks:
            task.cancel()
        for visit in self._visits:
            if visit.transport is None:
                visit.close()

    async def wait_closed(self) -> None:
        """Wait until nothing is accepted any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listening)
            except OSError:  # the client is gone already, or the process has no descriptors left
                await asyncio.sleep(SWEEP_SECONDS / 10)
                continue
            visit = _Visit(connection, network_of(address[0]))
            if self._has_room(visit.network):
                self._visits.add(visit)
                visit.handshake = loop.create_task(self._begin(visit))
            else:
                connection.close()

    async def _begin(self, visit: _Visit) -> None:
        """Hand a connection over to its protocol, after the TLS handshake if there is one."""
        seconds = self._limits.header_seconds if self._tls else None
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, visit.connection, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except OSError:  # the handshake failed or took too long, or the door closed it
            return
        visit.transport = transport
        if visit.is_unwanted:
            transport.abort()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._visits = {visit for visit in self._visits if visit.is_open}
            for visit in self._visits:
                if visit.is_overdue(self._limits):
                    visit.close()

    def _has_room(self, network: str) -> bool:
        """Return True if one more connection is allowed; another one may be closed for it."""
        if len(self._visits) < self._limits.address_connections:
            return True
        self._visits = {visit for visit in self._visits if visit.is_open}
        neighbours = [visit for visit in self._visits if visit.network == network]
        if len(neighbours) >= self._limits.address_connections:
            return self._make_room(neighbours)
        if len(self._visits) >= self._limits.connections:
            return self._make_room(list(self._visits))
        return True

    def _make_room(self, visits: list[_Visit]) -> bool:
        """Close the connection that matters least; False if all of them matter."""
        order: list[tuple[bool, float, _Visit]] = []
        for visit in visits:
            visit.waits_for()
            protocol = visit.protocol
            authorised = protocol is not None and protocol.is_authorised
            if not (authorised and protocol is not None and protocol.is_busy):
                order.append((authorised, visit.since, visit))
        if not order:
            return False
        _, _, least = min(order, key=lambda entry: entry[:2])
        least.close()
        self._visits.discard(least)
        return True
