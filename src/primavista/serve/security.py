"""Who may ask, and from where: Host, Origin, token, body size, and headers that let a page do no more than ours does."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect

from primavista.errors import InputError
from primavista.serve.limits import Limits, Places, RefusedError
from primavista.serve.metrics import Metrics

MIN_TOKEN = 16
PROTOCOL = "primavista"  # of WebSockets; a browser cannot send a header with one, so the token comes beside it
BEARER = "bearer."
OPEN = (
    "/",
    "/healthz",
    "/favicon.ico",
)  # paths without a token, and everything under /page/: nothing of the learner
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(self), microphone=(), geolocation=(), display-capture=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_token(host: str, token: str | None) -> None:
    """Refuse to listen where others can reach without a token that cannot be guessed."""
    if token is None and not is_loopback(host):
        raise InputError(
            f"others can reach {host}, so the service needs a token there.\n"
            f"  right: the same command with --token {secrets.token_hex(24)}\n"
            f"  or, for this machine alone: the same command without --host {host}"
        )
    if token is not None and (
        len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise InputError(
            f"a token has at least {MIN_TOKEN} letters, digits or signs, without blanks"
        )


class Guard:
    """ASGI middleware around the whole service."""

    def __init__(
        self, app: App, host: str, token: str | None, limits: Limits, metrics: Metrics
    ) -> None:
        self.app, self.token, self.limits, self.metrics = app, token, limits, metrics
        own = socket.gethostname().lower()
        self.hosts = {"localhost", host.lower(), own, f"{own}.local"}
        self.requests = Places(limits.requests, "too many requests at once")
        self.sockets = Places(limits.sockets, "too many WebSockets are open")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve what is allowed; refuse the rest with its reason."""
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        is_http = scope["type"] == "http"
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        exchange = _Exchange(receive, send, self.limits, hardened=is_http)
        try:
            self._check(scope, headers)
            with self.requests if is_http else self.sockets:
                if is_http:
                    exchange.check_length(headers.get("content-length"))
                    await self.app(scope, exchange.receive, exchange.send)
                    exchange.check_end()
                else:
                    await self.app(scope, receive, send)
        except RefusedError as refused:
            self.metrics.count("refused")
            await exchange.refuse(scope, refused)
        except ClientDisconnect:  # whoever asked has gone, and nothing was changed
            self.metrics.count("refused")

    def _check(self, scope: Message, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise RefusedError(
                403,
                f"this service is not called {host[:80]!r}: open it by its address or by localhost",
            )
        changing = scope["type"] == "websocket" or scope["method"] in CHANGING
        origin = headers.get("origin")
        if changing and origin is not None and _place(origin) != host.lower():
            raise RefusedError(403, "only this service's own page may ask this from a browser")
        if changing and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RefusedError(403, "only this service's own page may ask this from a browser")
        path = scope["path"]
        if self.token is not None and path not in OPEN and not path.startswith("/page/"):
            given = _given_token(headers)
            if given is None or not hmac.compare_digest(given.encode(), self.token.encode()):
                raise RefusedError(
                    401, "this needs the token: send the header 'Authorization: Bearer TOKEN'"
                )

    def _is_ours(self, host: str) -> bool:
        """An address, or a name of this machine: a page that makes its own name lead here (DNS rebinding) has another."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            ipaddress.ip_address(name)
        except ValueError:
            name = host.rpartition(":")[0] or host
            return name.lower() in self.hosts
        return True


class _Exchange:
    """One request: its body counted, its response hardened, and replaced where the body was too large or too slow."""

    def __init__(self, receive: Receive, send: Send, limits: Limits, hardened: bool) -> None:
        self._receive, self._send, self._limits, self._hardened = receive, send, limits, hardened
        self._got, self._complete, self._began = 0, False, False
        self._refused: RefusedError | None = None

    def check_length(self, length: str | None) -> None:
        """By what the client says; what it then sends is counted too."""
        if length is not None and (not length.isdecimal() or int(length[:20]) > self._limits.body):
            raise self._too_large()

    async def receive(self) -> Message:
        """The next piece of the body."""
        if self._complete:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._limits.idle)
        except TimeoutError:
            self._refused = RefusedError(408, f"nothing came for {self._limits.idle:g} seconds")
            raise self._refused from None
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        self._got += len(message.get("body", b""))
        if self._got > self._limits.body:
            self._refused = self._too_large()
            raise self._refused
        return message

    async def send(self, message: Message) -> None:
        """What the service answers; whatever it made of a broken-off body gives way to the real reason."""
        if self._refused is not None and not self._began:
            return
        if message["type"] == "http.response.start":
            self._began = True
            present = {name.lower() for name, _ in message["headers"]}
            added = [
                (n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in present
            ]
            message = {**message, "headers": [*message["headers"], *added]}
        await self._send(message)

    def check_end(self) -> None:
        """Say the reason if the body was refused while it came."""
        if self._refused is not None:
            raise self._refused

    async def refuse(self, scope: Message, refused: RefusedError) -> None:
        """Answer with the reason, as the service itself would."""
        if self._began:
            return
        body = json.dumps({"detail": refused.reason}).encode()
        headers = {**HEADERS, "content-type": "application/json", "content-length": str(len(body))}
        if refused.status == 401:
            headers["www-authenticate"] = "Bearer"
        if refused.status in (408, 413):
            headers["connection"] = "close"  # the rest of the body is not read
        coded = [(name.encode(), value.encode()) for name, value in headers.items()]
        if scope["type"] == "websocket" and "websocket.http.response" not in scope.get(
            "extensions", {}
        ):
            await self._send(
                {"type": "websocket.close", "code": 1008, "reason": refused.reason[:120]}
            )
            return
        kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
        await self._send({"type": f"{kind}.start", "status": refused.status, "headers": coded})
        await self._send({"type": f"{kind}.body", "body": body})

    def _too_large(self) -> RefusedError:
        return RefusedError(
            413, f"a request has at most {self._limits.body} bytes: send fewer or smaller frames"
        )


def _place(origin: str) -> str | None:
    """The host and port of an origin; None for one that makes no sense."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _given_token(headers: dict[str, str]) -> str | None:
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
