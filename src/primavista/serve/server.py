"""The service as a process: one model, one lock, one socket, until it is stopped."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import math
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from primavista.errors import FileError, InputError
from primavista.learner.learner import Learner, open_learner
from primavista.serve.asgi import create_app
from primavista.serve.connections import BoundedHttpProtocol, BoundedSocketProtocol, Door
from primavista.serve.learner_service import LearnerService, check_rehearsal_free
from primavista.serve.limits import ServiceLimits
from primavista.serve.security import check_token
from primavista.serve.service_camera import ServiceCamera
from primavista.storage.disk import file_lock, resolved

# all addresses; the one for this machine; and one that is elsewhere
WILDCARDS = {"0.0.0.0": ("127.0.0.1", "192.0.2.1"), "::": ("::1", "2001:db8::1")}
DESCRIPTORS = 4096  # open files that the service asks the system for, if it may
M_TRIM_THRESHOLD = -1  # from malloc.h
M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 2 * 2**20  # bytes
Certificate = tuple[Path, Path]  # the certificate and its key


@contextmanager
def open_for_teaching(
    path: Path, device: str = "auto", *, threshold: float | None = None, **options: Any
) -> Iterator[Learner]:
    """Open the learner of a file, or make a new one; no other process can teach it meanwhile.

    A new learner is not saved here but by `serve`, once it is certain that it can be served.

    Args:
        path: The file.
        device: "auto", "cpu" or "cuda".
        threshold: The familiarity from which a frame counts as known. If None, a file keeps its
            own, and a new learner has the default of its strategy.
        **options: Arguments of `Learner` for a new one; None stands for the default. If the file
            exists, they must agree with it.

    Yields:
        The learner.

    Raises:
        InputError: If the file was made with other options, or if the strategy keeps frames.
        FileError: If the path is not usable, or if another process is teaching the file.
    """
    path = resolved(path)
    if path.is_dir():
        raise FileError(f"{path} is a folder: name a file in it, e.g. {path / 'objects.pv'}")
    if not path.parent.is_dir():
        raise FileError(f"there is no folder {path.parent}: make it first (mkdir -p {path.parent})")
    with file_lock(path, wait=0.0):
        is_new = not path.exists()
        given = {name: value for name, value in options.items() if value is not None}
        learner = open_learner(path, device=device, **given)
        if is_new:
            check_rehearsal_free(learner)
        if threshold is not None:
            learner.threshold = threshold
        yield learner


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Args:
        host: The address to listen on.
        port: The port; 0 chooses a free one.

    Returns:
        The socket; the caller closes it.

    Raises:
        InputError: If the address does not belong to this machine, or if the port is taken.
    """
    with ExitStack() as cleanup:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listening = cleanup.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError as error:
            why, advice = error.strerror or error, "To use any free port: --port 0"
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                advice = (
                    "--host is an address of this machine: "
                    "127.0.0.1 for this machine alone, 0.0.0.0 for others too"
                )
            raise InputError(f"cannot listen on {host} port {port}: {why}. {advice}") from error
        cleanup.pop_all()
    return listening


def addresses_of(listening: socket.socket, tls: bool) -> list[str]:
    """Return the URLs of the service, without a path.

    They have the address that is bound, not a name: `localhost` may lead to another address, where
    somebody else listens.

    Args:
        listening: The bound socket.
        tls: True if the service speaks https.

    Returns:
        The URL for this machine, for example "http://127.0.0.1:8765"; then, if the socket listens
        on all addresses, the URL for other machines.
    """
    host, port, *_ = listening.getsockname()
    scheme = "https" if tls else "http"
    hosts = [host]
    if host in WILDCARDS:
        own, elsewhere = WILDCARDS[host]
        hosts = [own, _address_towards(elsewhere, listening.family) or own]
    return [
        f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}" for name in dict.fromkeys(hosts)
    ]


def _address_towards(elsewhere: str, family: int) -> str | None:
    """Return the address of this machine towards another one, to which nothing is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect((elsewhere, 9))
        return str(probe.getsockname()[0])
    return None  # there is no network


def serve(
    learner: Learner,
    path: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    tls: Certificate | None = None,
    limits: ServiceLimits | None = None,
    camera: str | None = None,
    ready: Callable[..., None] = lambda *addresses: None,
) -> None:
    """Serve a learner until the process is interrupted.

    Args:
        learner: The learner to begin with.
        path: The file that every change is saved to; it is created if it does not exist.
        host: The address to listen on; any but a loopback address requires a token.
        port: The port to listen on; 0 chooses a free one.
        token: The token that every request must carry, or None.
        tls: The files of a certificate and its key (PEM), to serve https.
        limits: The limits on requests; the defaults if None.
        camera: The camera of the service itself, as `primavista learn` takes it, or None.
        ready: Called with the URLs as soon as the service answers requests: the one for this
            machine and, if the service listens on all addresses, the one for others.

    Raises:
        InputError: If the service cannot listen there, or if the token or certificate is invalid.
        FileError: If the file cannot be written.
    """
    check_token(host, token)
    if tls:
        _check_certificate(tls)
    limits = limits or ServiceLimits()
    service_camera = None if camera is None else ServiceCamera(camera)
    return_large_blocks()
    _raise_descriptor_limit()
    with listen(host, port) as listening:
        if not path.exists():  # only now is it certain that the learner can be served
            learner.save(path)
        addresses = addresses_of(listening, tls is not None)
        certificate, key = tls or (None, None)
        config = uvicorn.Config(
            create_app(LearnerService(learner, path, limits), host, token, service_camera),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=BoundedHttpProtocol,
            h11_max_incomplete_event_size=limits.header_bytes,
            ws=BoundedSocketProtocol,
            ws_max_size=limits.frame_bytes,
            ws_per_message_deflate=False,  # images do not compress, and bombs do
            timeout_graceful_shutdown=3,
            timeout_keep_alive=math.ceil(limits.keep_alive_seconds),
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        # uvicorn logs a WebSocket that was refused with a reason as one without an answer, and
        # invalid messages of clients as errors of the service
        noise = ("without completing handshake", "Invalid UTF-8 sequence")
        logging.getLogger("uvicorn.error").addFilter(
            lambda record: not any(one in str(record.msg) for one in noise)
        )
        server = _BoundedServer(config, limits, lambda: ready(*addresses))
        with suppress(KeyboardInterrupt):  # the usual way to stop the service
            server.run(sockets=[listening])


class _BoundedServer(uvicorn.Server):
    """A uvicorn server behind a `Door`, which calls a function when it is ready."""

    def __init__(
        self, config: uvicorn.Config, limits: ServiceLimits, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._limits = limits
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen; uvicorn itself would accept any connection."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)

        def protocol() -> BoundedHttpProtocol:
            state = self.lifespan.state
            return BoundedHttpProtocol(self.config, self.server_state, state)

        doors = [Door(one, protocol, self.config.ssl, self._limits) for one in sockets or ()]
        self.servers = cast(list[asyncio.Server], doors)
        self.started = True
        self._ready()


def _raise_descriptor_limit() -> None:
    """Allow more open files; the usual soft limit of 1,024 is soon reached by connections."""
    try:
        import resource
    except ImportError:  # there is no such limit on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def return_large_blocks() -> bool:
    """Make the allocator return each block of 2 MiB or more to the system when it is freed.

    By default glibc raises this threshold to the size of the largest freed block, up to 32 MiB.
    The matrices of a lesson (19 MB each) would then come from the heaps of the threads that
    learned it and leave holes there: more than 1 GB after six lessons.

    Returns:
        True if the allocator accepted the setting; False on systems without `mallopt`, such as
        macOS, Windows and Linux with musl (which does not need it).
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)) and bool(
        mallopt(M_TRIM_THRESHOLD, 4 * LARGE_BLOCK)
    )


def _check_certificate(tls: Certificate) -> None:
    certificate, key = tls
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        names = f"DNS:localhost,DNS:{socket.gethostname()},IP:127.0.0.1"
        raise InputError(
            f"{certificate} and {key} are not a certificate and its key "
            f"({error.strerror or error}). To make one for testing:\n"
            "  openssl req -x509 -newkey rsa:2048 -nodes -days 365 -subj /CN=primavista \\\n"
            f"    -addext subjectAltName={names} -out cert.pem -keyout key.pem"
        ) from error
