"""The service as a process: one model, one lock, one socket, until it is stopped."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from primavista.errors import FileError, InputError
from primavista.learner.learner import Learner
from primavista.serve.app import create_app
from primavista.serve.engine import Engine, check_keeps_nothing
from primavista.serve.limits import Limits
from primavista.serve.memory import give_back_large_blocks
from primavista.serve.security import check_token, is_loopback
from primavista.storage.lock import file_lock

Tls = tuple[Path, Path]


@contextmanager
def opened(path: Path, device: str = "auto", **options: Any) -> Iterator[Learner]:
    """The learner of a file, or a new one with `options`, which `serve` saves; no other process may teach it meanwhile."""
    path = path.expanduser().absolute()
    if path.is_dir():
        raise FileError(f"{path} is a folder: name a file in it, e.g. {path / 'objects.pv'}")
    if not path.parent.is_dir():
        raise FileError(f"there is no folder {path.parent}: make it first (mkdir -p {path.parent})")
    with file_lock(path, wait=0.0):
        if path.exists():
            learner = Learner.load(path, device=device)
            for name, wanted, found in (
                ("strategy", options.get("strategy"), learner.strategy_name),
                ("size", options.get("size"), learner.size),
            ):
                if wanted not in (None, found):
                    raise InputError(
                        f"{path.name} has {name} {found}, not {wanted}: leave out --{name}, or name another file"
                    )
            if options.get("threshold") is not None:
                learner.threshold = options["threshold"]
        else:
            given = {name: value for name, value in options.items() if value is not None}
            learner = Learner(device=device, **given)
            check_keeps_nothing(learner)
        yield learner


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free."""
    advice = "For any port that is free: --port 0"
    with ExitStack() as undone:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listening = undone.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                advice = "--host is an address of this machine: 127.0.0.1 for itself alone, 0.0.0.0 for others too"
            raise InputError(
                f"cannot listen on {host} port {port}: {error.strerror or error}. {advice}"
            ) from error
        undone.pop_all()
    return listening


def address_of(listening: socket.socket, host: str, tls: bool) -> str:
    """What to type into a browser on this machine."""
    shown = (
        "localhost"
        if is_loopback(host)
        else socket.gethostname()
        if host in ("0.0.0.0", "::")
        else host
    )
    shown = f"[{shown}]" if ":" in shown else shown
    return f"{'https' if tls else 'http'}://{shown}:{listening.getsockname()[1]}"


def serve(
    learner: Learner,
    path: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    tls: Tls | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until interrupted; `ready(address)` is called when the first request can be answered."""
    check_token(host, token)
    if tls:
        _check_tls(tls)
    limits = limits or Limits()
    give_back_large_blocks()
    with listen(host, port) as listening:
        if not path.exists():  # not before it is sure that it can be served
            learner.save(path)
        address = address_of(listening, host, tls is not None)
        config = uvicorn.Config(
            create_app(Engine(learner, path, limits), host, token),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws_max_size=limits.frame,
            ws_max_queue=4,
            timeout_graceful_shutdown=3,
            timeout_keep_alive=30,
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
        )
        # uvicorn takes a WebSocket that was refused with a reason for one that was not answered
        logging.getLogger("uvicorn.error").addFilter(
            lambda record: "without completing handshake" not in str(record.msg)
        )
        with suppress(KeyboardInterrupt):  # the usual way to end it
            _Server(config, lambda: ready(address)).run(sockets=[listening])


class _Server(uvicorn.Server):
    """One that says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _check_tls(tls: Tls) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*tls)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"{tls[0]} and {tls[1]} are no certificate and its key ({error.strerror or error}). One for trying out:\n"
            "  openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=primavista \\\n"
            f"    -addext subjectAltName=DNS:localhost,DNS:{socket.gethostname()},IP:127.0.0.1 -out cert.pem -keyout key.pem"
        ) from error
