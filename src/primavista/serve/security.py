"""Access control: the Host and Origin headers, the token, the size of bodies, security headers."""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import re
import socket
import time
from contextlib import nullcontext
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from primavista.errors import InputError
from primavista.serve.connections import mark_authorised
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import Budget, RateLimiter, RefusedError

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
        service: The service, which has the limits on requests, sockets and bodies, the budget of
            bytes that all uploads in progress share, and the count of refusals.
    """

    def __init__(self, app: ASGIApp, host: str, token: str | None, service: LearnerService) -> None:
        self.app = app
        self.token = token
        self.service = service
        own = socket.gethostname().lower()
        self.hosts = {"localhost", host.lower(), own, f"{own}.local"}
        limits, at_most = service.limits, "(the limit is {limit})"
        self.upload_rate = RateLimiter(limits.upload_rate)
        self.requests = Budget(limits.concurrent_requests, f"too many requests at once {at_most}")
        self.sockets = Budget(limits.concurrent_sockets, f"too many WebSockets are open {at_most}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket, or refuse it.

        Args:
            scope: The ASGI scope of the connection.
            receive: Returns the next message of the client.
            send: Sends a message to the client.
        """
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        exchange = _Exchange(self, scope, receive, send)
        try:
            headers = _single_headers(scope)
            self._check(scope, headers)
            if scope["type"] == "http":
                await self._serve_request(scope, headers, exchange)
            else:
                with self.sockets.holding():
                    await self.app(scope, receive, send)
        except RefusedError as refused:
            await exchange.refuse(refused)
        except ClientDisconnect:  # the client has gone away, and nothing was changed
            pass
        finally:
            exchange.release()

    async def _serve_request(self, scope: Scope, headers: Headers, exchange: _Exchange) -> None:
        exchange.check_length(headers)
        # A public path does not count, because anybody may ask for it.
        with nullcontext() if _is_public(scope) else self.requests.holding():
            await self.app(scope, exchange.receive, exchange.send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._is_own(host):
            reason = f"this service is not called {host[:80]!r}"
            raise RefusedError(403, f"{reason}: open it by its address or as localhost")
        if _is_public(scope):
            return
        if not _is_same_site(host, headers):
            raise RefusedError(403, "only this service's own page may ask this from a browser")
        if self.token is not None:
            given = _given_token(headers)
            if given is None or not hmac.compare_digest(given.encode(), self.token.encode()):
                reason = "this needs the token: send the header 'Authorization: Bearer TOKEN'"
                raise RefusedError(401, reason)
        mark_authorised(scope)

    def _is_own(self, host: str) -> bool:
        """Accept an IP address or a name of this machine.

        A page that makes its own name lead here (DNS rebinding) sends that other name.
        """
        name = _host_name(host)
        return name is not None and (_is_address(name) or name in self.hosts)


class _Exchange:
    """One request and its response.

    It limits the bytes and the time of the body, and adds the security headers to the response.
    """

    def __init__(self, control: AccessControl, scope: Scope, receive: Receive, send: Send) -> None:
        service = control.service
        self._rate = control.upload_rate
        self._scope = scope
        self._receive = receive
        self._send = send
        self._limits = service.limits
        self._uploads = service.uploads
        self._most_bytes = self._limits.json_bytes
        self._received_bytes = 0
        self._body_end = time.monotonic() + self._limits.body_seconds
        self._body_complete = False
        self._response_started = False

    def check_length(self, headers: Headers) -> None:
        """Refuse a body whose Content-Length is too large; its bytes are counted as well."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if self._scope["path"] in UPLOAD_PATHS and kind == "multipart/form-data":
            self._most_bytes = self._limits.body_bytes
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self._most_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        """Receive the next piece of the body; `RefusedError` if it is too large or too slow."""
        if self._body_complete:
            return await self._receive()
        message = await self._receive_in_time()
        more = message["type"] == "http.request" and message.get("more_body", False)
        self._body_complete = not more
        await self._count(len(message.get("body", b"")))
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

    async def _count(self, size: int) -> None:
        """Count a piece; read nothing for a while if large uploads are faster than their rate."""
        if self._received_bytes + size > self._most_bytes:
            raise self._too_large()
        self._uploads.take(size)
        self._received_bytes += size
        if self._received_bytes > SMALL_BODY and not self._rate.allow(count=size):
            await asyncio.sleep(self._rate.debt_seconds)

    def release(self) -> None:
        """Return the bytes of the body to the budget of all uploads."""
        self._uploads.give_back(self._received_bytes)
        self._received_bytes = 0

    async def send(self, message: Message) -> None:
        """Send the response, with the security headers."""
        if message["type"].endswith("http.response.start"):
            self._response_started = True
            headers = MutableHeaders(raw=list(message["headers"]))
            for name, value in self._hardening().items():
                headers.setdefault(name, value)
            message = {**message, "headers": headers.raw}
        await self._send(message)

    async def refuse(self, refused: RefusedError) -> None:
        """Answer with the reason of a refusal, as the service itself would."""
        if self._response_started:
            return
        if self._scope["type"] == "websocket" and not self._may_deny():
            reason = refused.reason[:120]
            await self._send({"type": "websocket.close", "code": 1008, "reason": reason})
            return
        headers = {"www-authenticate": "Bearer"} if refused.status_code == 401 else None
        response = JSONResponse({"detail": refused.reason}, refused.status_code, headers)
        await response(self._scope, self._receive, self.send)

    def _may_deny(self) -> bool:
        """Return True if the server can answer a WebSocket's handshake with a response."""
        return "websocket.http.response" in self._scope.get("extensions", {})

    def _hardening(self) -> dict[str, str]:
        """Return the security headers of the response.

        HSTS is left out for localhost, where it would hold for every other service of the machine;
        browsers ignore it for addresses.
        """
        name = _host_name(Headers(scope=self._scope).get("host", ""))
        is_secure = self._scope.get("scheme") in ("https", "wss")
        if not is_secure or name is None or name == "localhost" or _is_address(name):
            return HEADERS
        return {**HEADERS, "strict-transport-security": STRICT_TRANSPORT}

    def _too_large(self) -> RefusedError:
        reason = f"this request has at most {self._most_bytes} bytes"
        return RefusedError(413, f"{reason}: send fewer or smaller frames, as a multipart form")


def _single_headers(scope: Scope) -> Headers:
    """Return the headers; one that decides about the request must not come twice."""
    headers = Headers(scope=scope)
    for name in DECISIVE_HEADERS:
        if len(headers.getlist(name)) > 1:
            raise RefusedError(400, f"the header {name!r} comes twice: send it once")
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


def _is_public(scope: Scope) -> bool:
    path = scope["path"]
    return scope["type"] == "http" and (path in PUBLIC_PATHS or path.startswith("/page/"))


def _is_same_site(host: str, headers: Headers) -> bool:
    """Accept requests of our own page, and of programs that are not browsers."""
    try:
        location = urlsplit(headers.get("origin", f"//{host}")).netloc
    except ValueError:
        return False
    site = headers.get("sec-fetch-site", "same-origin")
    return location.lower() == host.lower() and site in ("same-origin", "none")


def _given_token(headers: Headers) -> str | None:
    """Return the token from the Authorization header or from a WebSocket subprotocol."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token:
        return token.strip()
    for protocol in headers.get("sec-websocket-protocol", "").split(","):
        if protocol.strip().startswith(BEARER):
            coded = protocol.strip().removeprefix(BEARER)
            try:
                return base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode()
            except ValueError:
                return None
    return None
