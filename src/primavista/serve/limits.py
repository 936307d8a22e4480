"""How much of anything a client may ask for; whatever is over it is refused with a 4xx status and the reason."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from primavista.errors import InputError, PrimavistaError
from primavista.storage.names import checked_name


@dataclass(frozen=True)
class Limits:
    """All of them, in one place."""

    body: int = 128 * 2**20  # bytes of a request; a model may have 50 MiB
    frame: int = 8 * 2**20  # bytes of one image, in a request or a WebSocket message
    pixels: int = 16_000_000  # of one image
    frames: int = 600  # of a lesson or a check
    size: int = 512  # the side of the images that a model sees, of one that is loaded from a client
    fps: int = 120  # frames a second on one WebSocket
    queue: int = 8  # lessons and changes that wait
    requests: int = 64  # at once
    sockets: int = 64  # at once
    waiting: int = 128  # frames that wait to be recognised
    jobs: int = 200  # finished ones that are remembered
    kept: int = 20  # models from before a load that are kept
    idle: float = 60.0  # seconds after which a silent WebSocket is closed
    wait: float = 60.0  # seconds that a request may wait for a lesson


class RefusedError(PrimavistaError):
    """A request that is not served: a 4xx status, and the reason for whoever sent it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def check_label(text: object, known: Collection[str] = ()) -> str:
    """A name as it is kept, by the rule of `naming`."""
    try:
        return checked_name(text, known)
    except InputError as error:
        raise RefusedError(422, str(error).partition("\n")[0]) from error


class Rate:
    """At most `limit` a second, on average over two seconds."""

    def __init__(self, limit: int) -> None:
        self.limit, self.spare, self.last = limit, 2.0 * limit, time.monotonic()

    def allows(self, now: float | None = None) -> bool:
        """Whether one more may come now."""
        now = time.monotonic() if now is None else now
        self.spare = min(2.0 * self.limit, self.spare + (now - self.last) * self.limit) - 1
        self.last = now
        return self.spare >= 0


class Places:
    """A number of places that are taken and given back, all on the event loop."""

    def __init__(self, limit: int, reason: str) -> None:
        self.limit, self.reason, self.taken = limit, reason, 0

    def __enter__(self) -> Places:
        if self.taken >= self.limit:
            raise RefusedError(
                429, f"{self.reason} (the limit is {self.limit}): try again in a moment"
            )
        self.taken += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.taken -= 1
