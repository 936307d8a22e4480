"""Access control: the Host and Origin headers, the token, the size of bodies, security headers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import re
import socket
import time
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from primavista.errors import InputError
from primavista.serve.connections import mark_authorised
from primavista.serve.limits import (
    ByteBudget,
    ConcurrencyLimit,
    RateLimiter,
    RefusedError,
    ServiceLimits,
)
from primavista.serve.metrics import ServiceMetrics

MIN_TOKEN = 16
SMALL_BODY = 2**20  # bytes, up to which a body is read as fast as it comes
# The WebSocket subprotocol. A browser cannot send a header with a WebSocket, so the token comes as
# a second subprotocol.
PROTOCOL = "primavista"
BEARER = "bearer."
# The paths that need no token; nor do those under /page/. They reveal nothing about the learner.
PUBLIC_PATHS = ("/", "/healthz", "/favicon.ico")
# The paths that frames, videos and models are sent to, as multipart forms.
UPLOAD_PATHS = (
    "/api/lessons",
    "/api/predict",
    "/api/predict/batch",
    "/api/locate",
    "/api/check",
    "/api/model/file",
)
# The headers that decide about a request: each may come once.
DECISIVE_HEADERS = ("host", "origin", "authorization", "sec-fetch-site", "content-type")
HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)
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
# With TLS. One day: it holds for every port of this machine's name.
STRICT_TRANSPORT = "max-age=86400"


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address.

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
            "  right: export PRIMAVISTA_TOKEN=$(openssl rand -hex 24), "
            "then the same command without --no-token\n"
            f"  or, for this machine alone: the same command without --host {host}"
        )
    printable = token.isascii() and token.isprintable() and " " not in token
    if len(token) < MIN_TOKEN or not printable:
        raise InputError(
            f"a token has at least {MIN_TOKEN} letters, digits or punctuation marks, without blanks"
        )


class AccessControl:
    """ASGI middleware around the whole service: it refuses requests that are not allowed.

    Args:
        app: The application to protect.
        host: The address that the server listens on.
        token: The token that requests must carry, or None.
        limits: The limits on requests, sockets and bodies.
        uploads: The budget of bytes that all uploads in progress share.
        metrics: Counts the refusals.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        token: str | None,
        limits: ServiceLimits,
        uploads: ByteBudget,
        metrics: ServiceMetrics,
    ) -> None:
        self.app = app
        self.token = token
        self.limits = limits
        self.uploads = uploads
        self.metrics = metrics
        own = socket.gethostname().lower()
        self.hosts = {"localhost", host.lower(), own, f"{own}.local"}
        requests, sockets = limits.concurrent_requests, limits.concurrent_sockets
        self.upload_rate = RateLimiter(limits.upload_rate)
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
        exchange = _Exchange(scope, receive, send, self.limits, self.uploads, self.upload_rate)
        try:
            headers = _single_headers(scope)
            self._check(scope, headers)
            if scope["type"] == "http":
                await self._serve_request(scope, headers, exchange)
            else:
                with self.sockets:
                    await self.app(scope, receive, send)
        except RefusedError as refused:
            self.metrics.count("refused")
            await exchange.refuse(refused)
        except ClientDisconnect:  # the client has gone away, and nothing was changed
            self.metrics.count("refused")
        finally:
            exchange.release()

    async def _serve_request(
        self, scope: Scope, headers: dict[str, str], exchange: _Exchange
    ) -> None:
        exchange.check_length(headers)
        if _is_public(scope["path"]):  # it does not count, because anybody may ask for it
            await self.app(scope, exchange.receive, exchange.send)
        else:
            with self.requests:
                await self.app(scope, exchange.receive, exchange.send)
        exchange.raise_refusal()

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        if not self._is_own(host):
            reason = f"this service is not called {host[:80]!r}"
            raise RefusedError(403, f"{reason}: open it by its address or as localhost")
        if _is_public(scope["path"]) and scope["type"] == "http":
            return
        if not _is_same_site(host, headers):
            raise RefusedError(403, "only this service's own page may ask this from a browser")
        if self.token is not None:
            self._check_given_token(headers, self.token)
        mark_authorised(scope)

    def _check_given_token(self, headers: dict[str, str], token: str) -> None:
        given = _given_token(headers)
        if given is None or not hmac.compare_digest(given.encode(), token.encode()):
            reason = "this needs the token: send the header 'Authorization: Bearer TOKEN'"
            raise RefusedError(401, reason)

    def _is_own(self, host: str) -> bool:
        """Accept an IP address or a name of this machine.

        A page that makes its own name lead here (DNS rebinding) sends that other name.
        """
        name = _host_name(host)
        return name is not None and (_is_address(name) or name in self.hosts)


class _Exchange:
    """One request and its response.

    It counts the bytes and the time of the body, adds the security headers to the response, and
    replaces the response if the body was too large or too slow.
    """

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        limits: ServiceLimits,
        uploads: ByteBudget,
        rate: RateLimiter,
    ) -> None:
        self._rate = rate
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limits = limits
        self._uploads = uploads
        self._most_bytes = limits.json_bytes
        self._received_bytes = 0
        self._body_end = time.monotonic() + limits.body_seconds
        self._body_complete = False
        self._response_started = False
        self._refused: RefusedError | None = None

    def check_length(self, headers: dict[str, str]) -> None:
        """Refuse a body whose Content-Length is too large; its bytes are counted as well."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if self._scope["path"] in UPLOAD_PATHS and kind == "multipart/form-data":
            self._most_bytes = self._limits.body_bytes
        length = headers.get("content-length")
        if length is None:
            return
        if not length.isdecimal() or int(length[:20]) > self._most_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        """Receive the next piece of the body."""
        if self._body_complete:
            return await self._receive()
        try:
            message = await self._receive_in_time()
            more = message["type"] == "http.request" and message.get("more_body", False)
            self._body_complete = not more
            size = len(message.get("body", b""))
            self._count(size)
            await self._keep_to_rate(size)
        except RefusedError as refused:
            self._refused = refused
            raise
        return message

    async def _receive_in_time(self) -> Message:
        idle, whole = self._limits.idle_seconds, self._limits.body_seconds
        left = self._body_end - time.monotonic()
        try:
            return await asyncio.wait_for(self._receive(), min(idle, left))
        except TimeoutError:
            reason = f"nothing came for {idle:g} seconds"
            if left < idle:
                reason = f"the body took more than {whole:g} seconds: send fewer frames at once"
            raise RefusedError(408, reason) from None

    def _count(self, size: int) -> None:
        if self._received_bytes + size > self._most_bytes:
            raise self._too_large()
        self._uploads.take(size)
        self._received_bytes += size

    async def _keep_to_rate(self, size: int) -> None:
        """Read nothing for a while if large uploads are faster than their rate."""
        if self._received_bytes > SMALL_BODY and not self._rate.allow(count=size):
            await asyncio.sleep(self._rate.debt_seconds)

    def release(self) -> None:
        """Return the bytes of the body to the budget of all uploads."""
        self._uploads.give_back(self._received_bytes)
        self._received_bytes = 0

    async def send(self, message: Message) -> None:
        """Send the response, unless the body was refused; then `refuse` sends the reason."""
        if self._refused is not None and not self._response_started:
            return
        if message["type"] == "http.response.start":
            self._response_started = True
            present = {name.lower() for name, _ in message["headers"]}
            added = [pair for pair in _encoded(self._hardening()) if pair[0] not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        await self._send(message)

    def raise_refusal(self) -> None:
        """Raise the refusal of the body, if it was refused while it came."""
        if self._refused is not None:
            raise self._refused

    async def refuse(self, refused: RefusedError) -> None:
        """Answer with the reason of a refusal, as the service itself would."""
        if self._response_started:
            return
        if self._scope["type"] == "http":
            kind = "http.response"
        elif "websocket.http.response" in self._scope.get("extensions", {}):
            kind = "websocket.http.response"
        else:
            reason = refused.reason[:120]
            await self._send({"type": "websocket.close", "code": 1008, "reason": reason})
            return
        body = json.dumps({"detail": refused.reason}).encode()
        headers = {**self._hardening(), "content-type": "application/json"}
        headers["content-length"] = str(len(body))
        if refused.status == 401:
            headers["www-authenticate"] = "Bearer"
        start = {"status": refused.status, "headers": _encoded(headers)}
        await self._send({"type": f"{kind}.start", **start})
        await self._send({"type": f"{kind}.body", "body": body})

    def _hardening(self) -> dict[str, str]:
        """Return the security headers of the response.

        HSTS is left out for localhost, where it would hold for every other service of the machine;
        browsers ignore it for addresses.
        """
        if self._scope.get("scheme") not in ("https", "wss"):
            return HEADERS
        host = dict(self._scope["headers"]).get(b"host", b"").decode("latin-1")
        name = _host_name(host)
        if name is None or name == "localhost" or _is_address(name):
            return HEADERS
        return {**HEADERS, "strict-transport-security": STRICT_TRANSPORT}

    def _too_large(self) -> RefusedError:
        reason = f"this request has at most {self._most_bytes} bytes"
        return RefusedError(413, f"{reason}: send fewer or smaller frames, as a multipart form")


def _single_headers(scope: Scope) -> dict[str, str]:
    """Return the headers by name; one that decides about the request must not come twice."""
    headers: dict[str, str] = {}
    for key, value in scope["headers"]:
        name = key.decode("latin-1").lower()
        if name in headers and name in DECISIVE_HEADERS:
            raise RefusedError(400, f"the header {name!r} comes twice: send it once")
        headers[name] = value.decode("latin-1")
    if "content-length" in headers and "transfer-encoding" in headers:
        reason = "a body has a length or comes in chunks, not both: a proxy may read it otherwise"
        raise RefusedError(400, reason)
    return headers


def _host_name(host: str) -> str | None:
    """Return the name or address of a Host header in lower case, or None for an invalid one."""
    match = HOST.fullmatch(host)
    return match["name"].lower() if match else None


def _is_address(name: str) -> bool:
    """Return True for an IPv4 address, or an IPv6 address in brackets."""
    try:
        if name.startswith("["):
            ipaddress.IPv6Address(name[1:-1])
        else:
            ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True


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
