"""Access control: the Host and Origin headers, the token, the size of bodies, security headers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import secrets
import socket
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from primavista.errors import InputError
from primavista.serve.limits import ConcurrencyLimit, RefusedError, ServiceLimits
from primavista.serve.prometheus import ServiceMetrics

MIN_TOKEN = 16
# The WebSocket subprotocol. A browser cannot send a header with a WebSocket, so the token comes as
# a second subprotocol.
PROTOCOL = "primavista"
BEARER = "bearer."
# The paths that need no token; nor do those under /page/. They reveal nothing about the learner.
PUBLIC_PATHS = ("/", "/healthz", "/favicon.ico")
CHANGING_METHODS = ("POST", "PUT", "PATCH", "DELETE")
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(self), microphone=(), geolocation=(), display-capture=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Say if only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost")
    (True, True, True)
    >>> is_loopback("0.0.0.0")
    False

    Args:
        host: An IP address or a host name.

    Returns:
        True for a loopback address and for "localhost".
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_token(host: str, token: str | None) -> None:
    """Refuse to listen on an address that others can reach without a token that is hard to guess.

    Args:
        host: The address to listen on.
        token: The token, or None.

    Raises:
        InputError: If the token is missing, too short, or contains blanks or control characters.
    """
    if token is None:
        if is_loopback(host):
            return
        raise InputError(
            f"others can reach {host}, so the service needs a token there.\n"
            f"  right: the same command with --token {secrets.token_hex(24)}\n"
            f"  or, for this machine alone: the same command without --host {host}"
        )
    printable = token.isascii() and token.isprintable() and " " not in token
    if len(token) < MIN_TOKEN or not printable:
        raise InputError(
            f"a token has at least {MIN_TOKEN} letters, digits or punctuation marks, without blanks"
        )


class AccessControl:
    """ASGI middleware around the whole service: it refuses what is not allowed, with the reason.

    Args:
        app: The application to protect.
        host: The address that the server listens on.
        token: The token that requests must carry, or None.
        limits: The limits on requests, sockets and bodies.
        metrics: Counts what was refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        token: str | None,
        limits: ServiceLimits,
        metrics: ServiceMetrics,
    ) -> None:
        self.app = app
        self.token = token
        self.limits = limits
        self.metrics = metrics
        own = socket.gethostname().lower()
        self.hosts = {"localhost", host.lower(), own, f"{own}.local"}
        requests, sockets = limits.concurrent_requests, limits.concurrent_sockets
        self.requests = ConcurrencyLimit(requests, "too many requests at once")
        self.sockets = ConcurrencyLimit(sockets, "too many WebSockets are open")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket, or refuse it.

        Args:
            scope: The ASGI scope of the connection.
            receive: Returns the next message of the client.
            send: Sends a message to the client.
        """
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        exchange = _Exchange(receive, send, self.limits)
        try:
            self._check(scope, headers)
            if scope["type"] == "http":
                await self._serve_request(scope, headers, exchange)
            else:
                with self.sockets:
                    await self.app(scope, receive, send)
        except RefusedError as refused:
            self.metrics.count("refused")
            await exchange.refuse(scope, refused)
        except ClientDisconnect:  # the client has gone away, and nothing was changed
            self.metrics.count("refused")

    async def _serve_request(
        self, scope: Scope, headers: dict[str, str], exchange: _Exchange
    ) -> None:
        with self.requests:
            exchange.check_length(headers.get("content-length"))
            await self.app(scope, exchange.receive, exchange.send)
            exchange.raise_refusal()

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        if not self._is_own(host):
            reason = f"this service is not called {host[:80]!r}"
            raise RefusedError(403, f"{reason}: open it by its address or as localhost")
        changing = scope["type"] == "websocket" or scope["method"] in CHANGING_METHODS
        if changing and not _is_same_site(host, headers):
            raise RefusedError(403, "only this service's own page may ask this from a browser")
        if self.token is not None and not _is_public(scope["path"]):
            self._check_given_token(headers, self.token)

    def _check_given_token(self, headers: dict[str, str], token: str) -> None:
        given = _given_token(headers)
        if given is None or not hmac.compare_digest(given.encode(), token.encode()):
            reason = "this needs the token: send the header 'Authorization: Bearer TOKEN'"
            raise RefusedError(401, reason)

    def _is_own(self, host: str) -> bool:
        """Accept an IP address or a name of this machine.

        A page that makes its own name lead here (DNS rebinding) sends that other name.
        """
        try:
            name = urlsplit(f"//{host}").hostname or ""
            ipaddress.ip_address(name)
        except ValueError:
            name = host.rpartition(":")[0] or host
            return name.lower() in self.hosts
        return True


class _Exchange:
    """One request and its response.

    It counts the bytes of the body, adds the security headers to the response, and replaces the
    response if the body was too large or too slow.
    """

    def __init__(self, receive: Receive, send: Send, limits: ServiceLimits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._received_bytes = 0
        self._body_complete = False
        self._response_started = False
        self._refused: RefusedError | None = None

    def check_length(self, length: str | None) -> None:
        """Refuse by the Content-Length header; what then comes is counted as well."""
        if length is None:
            return
        if not length.isdecimal() or int(length[:20]) > self._limits.body_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        """Receive the next piece of the body."""
        if self._body_complete:
            return await self._receive()
        idle = self._limits.idle_seconds
        try:
            message = await asyncio.wait_for(self._receive(), idle)
        except TimeoutError:
            self._refused = RefusedError(408, f"nothing came for {idle:g} seconds")
            raise self._refused from None
        more = message["type"] == "http.request" and message.get("more_body", False)
        self._body_complete = not more
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._limits.body_bytes:
            self._refused = self._too_large()
            raise self._refused
        return message

    async def send(self, message: Message) -> None:
        """Send the response, unless the body was refused: the reason is sent instead then."""
        if self._refused is not None and not self._response_started:
            return
        if message["type"] == "http.response.start":
            self._response_started = True
            present = {name.lower() for name, _ in message["headers"]}
            added = [pair for pair in _encoded(HEADERS) if pair[0] not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        await self._send(message)

    def raise_refusal(self) -> None:
        """Raise the refusal of the body, if it was refused while it came."""
        if self._refused is not None:
            raise self._refused

    async def refuse(self, scope: Scope, refused: RefusedError) -> None:
        """Answer with the reason of a refusal, as the service itself would."""
        if self._response_started:
            return
        if scope["type"] == "http":
            kind = "http.response"
        elif "websocket.http.response" in scope.get("extensions", {}):
            kind = "websocket.http.response"
        else:
            reason = refused.reason[:120]
            await self._send({"type": "websocket.close", "code": 1008, "reason": reason})
            return
        body = json.dumps({"detail": refused.reason}).encode()
        headers = {**HEADERS, "content-type": "application/json", "content-length": str(len(body))}
        if refused.status == 401:
            headers["www-authenticate"] = "Bearer"
        if refused.status in (408, 413):
            headers["connection"] = "close"  # the rest of the body is not read
        start = {"status": refused.status, "headers": _encoded(headers)}
        await self._send({"type": f"{kind}.start", **start})
        await self._send({"type": f"{kind}.body", "body": body})

    def _too_large(self) -> RefusedError:
        limit = self._limits.body_bytes
        reason = f"a request has at most {limit} bytes: send fewer or smaller frames"
        return RefusedError(413, reason)


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith("/page/")


def _is_same_site(host: str, headers: dict[str, str]) -> bool:
    """Accept requests of our own page, and of programs that are not browsers."""
    origin = headers.get("origin")
    if origin is not None and _network_location(origin) != host.lower():
        return False
    return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _network_location(origin: str) -> str | None:
    """Return the host and port of an origin, or None for an invalid one."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _given_token(headers: dict[str, str]) -> str | None:
    """Return the token from the Authorization header or from a WebSocket subprotocol."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token:
        return token.strip()
    for protocol in headers.get("sec-websocket-protocol", "").split(","):
        if protocol.strip().startswith(BEARER):
            coded = protocol.strip().removeprefix(BEARER)
            try:
                return base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode()
            except (binascii.Error, ValueError):
                return None
    return None
