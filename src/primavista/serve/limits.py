"""Limits on requests; anything above a limit is refused with a 4xx status."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from primavista.errors import InputError, PrimavistaError
from primavista.storage.names import checked_name


@dataclass(frozen=True)
class ServiceLimits:
    """All limits of the service in one place; the defaults suit one machine with a few clients.

    Attributes:
        header_bytes: Size of the headers of a request, with its first line.
        body_bytes: Size of an upload (frames, a video, a model); a saved model may have 50 MiB.
        json_bytes: Size of any other body.
        upload_bytes: Size of all uploads in progress, with the frames of lessons that are taught
            over a WebSocket, at model size.
        upload_rate: Bytes per second that are read of all large uploads together; faster ones wait,
            so that the service has time for others. The first MiB of each does not count.
        frame_bytes: Size of one encoded image, in a request or in a WebSocket message.
        frame_pixels: Number of pixels of one image, or of one frame of a video.
        frame_seconds: Time that one image may take to decode.
        decoder_bytes: Memory that decoding may take, beyond the frames that it makes.
        lesson_frames: Number of frames of one lesson or one check.
        image_side: Side, in pixels, of the images that an uploaded model reads.
        messages_per_second: Messages per second on one WebSocket, averaged over two seconds.
        queued_jobs: Lessons and changes that may wait at the same time.
        concurrent_requests: HTTP requests that are served at the same time; the files of the page
            and `/healthz` do not count, because anybody may ask for them.
        concurrent_sockets: WebSockets that are open at the same time.
        connections: Connections that are open at the same time. For a new one above the limit the
            service closes the one that has waited longest without an authorised request.
        address_connections: The same for one address: an IPv4 address or an IPv6 /64 network.
        waiting_frames: Frames that may wait to be recognised.
        finished_jobs: Finished jobs whose status can still be asked for.
        recall_seconds: The longest time for which the service remembers the frames of a stream
            whose client asks for it.
        recall_bytes: Memory for the remembered frames and the clips of all streams together.
        clips: Clips that one stream may keep until its client says what they show.
        removable_lessons: The last lessons and changes of which a lesson can be removed by itself.
        removable_bytes: Memory for the features of those lessons; no frames are kept.
        replaced_models: Files with models that were replaced by an upload.
        header_seconds: Time from the start of a connection or of its next request to the end of
            the headers; the TLS handshake has as much.
        idle_seconds: Time after which a silent body or WebSocket is closed.
        body_seconds: Time that a whole body may take.
        send_seconds: Time in which a client must read what the connection has buffered for it.
        unread_bytes: Bytes that may be buffered for one client that does not read.
        keep_alive_seconds: Time that an unused connection stays open.
        linger_seconds: Time that a connection stays open after its body was refused, for the client
            to see the answer.
        wait_seconds: Time that a request may wait for a job, or that its video or all its images
            may take to decode.
        cancel_seconds: Time that a cancelled job may take to end; then the service goes on
            without it, and its thread ends by itself some day.
        given_up_jobs: Number of such threads from which on lessons are refused.
        stop_seconds: Time that the running job has to end when the service is stopped.
    """

    header_bytes: int = 32 * 2**10
    body_bytes: int = 128 * 2**20
    json_bytes: int = 64 * 2**10
    upload_bytes: int = 512 * 2**20
    upload_rate: int = 32 * 2**20
    frame_bytes: int = 8 * 2**20
    frame_pixels: int = 16_000_000
    frame_seconds: float = 10.0
    decoder_bytes: int = 300 * 2**20
    lesson_frames: int = 600
    image_side: int = 512
    messages_per_second: int = 120
    queued_jobs: int = 8
    concurrent_requests: int = 64
    concurrent_sockets: int = 64
    connections: int = 512
    address_connections: int = 192
    waiting_frames: int = 128
    finished_jobs: int = 200
    recall_seconds: float = 4.0
    recall_bytes: int = 64 * 2**20
    clips: int = 8
    removable_lessons: int = 12
    removable_bytes: int = 64 * 2**20
    replaced_models: int = 20
    header_seconds: float = 20.0
    idle_seconds: float = 60.0
    body_seconds: float = 600.0
    send_seconds: float = 60.0
    unread_bytes: int = 8 * 2**20
    keep_alive_seconds: float = 30.0
    linger_seconds: float = 10.0
    wait_seconds: float = 60.0
    cancel_seconds: float = 2.0
    given_up_jobs: int = 2
    stop_seconds: float = 5.0


class RefusedError(PrimavistaError, HTTPException):
    """A request that the service refuses; FastAPI answers it with its status and reason.

    Args:
        status: The HTTP status, 400 to 499.
        reason: The reason, as a sentence for the client.
    """

    def __init__(self, status: int, reason: str) -> None:
        HTTPException.__init__(self, status, reason)
        self.reason = reason

    def __str__(self) -> str:
        """Return the reason."""
        return self.reason


@contextmanager
def refused_as(status: int, kind: type[PrimavistaError] = InputError) -> Iterator[None]:
    """Turn an error of this kind in the block into a `RefusedError` of this status."""
    try:
        yield
    except kind as error:
        raise RefusedError(status, str(error)) from error


def check_label(text: object, taught: Collection[str] = ()) -> str:
    """Return a label in the form in which it is stored.

    Args:
        text: The label that a client sent; anything but a string is refused.
        taught: The labels that were taught before; one of them is returned as it is.

    Returns:
        The label, stripped and in Unicode normal form C.

    Raises:
        RefusedError: If the label is empty, too long or contains control characters (422).
    """
    try:
        return checked_name(text, taught)
    except InputError as error:
        raise RefusedError(422, str(error).partition("\n")[0]) from error


class RateLimiter:
    """A token bucket: at most `limit` events per second, on average over two seconds.

    Args:
        limit: The allowed number of events per second.
        at_first: The number of events that may come at once at the beginning; as many as in two
            seconds if None.
    """

    def __init__(self, limit: int, at_first: int | None = None) -> None:
        self.limit = limit
        self.tokens = 2.0 * limit if at_first is None else float(at_first)
        self.last = time.monotonic()

    def allow(self, now: float | None = None, count: int = 1) -> bool:
        """Count one event or several; return True if they are within the rate.

        Args:
            now: The time of the event in seconds on the monotonic clock; the current time if None.
            count: The number of events.

        Returns:
            False if there were too many.
        """
        now = time.monotonic() if now is None else now
        refilled = self.tokens + (now - self.last) * self.limit
        self.tokens = min(2.0 * self.limit, refilled) - count
        self.last = now
        return self.tokens >= 0

    @property
    def debt_seconds(self) -> float:
        """The time until the events so far are within the rate; 0 if they are already."""
        return max(0.0, -self.tokens / self.limit)


class Budget:
    """Places or bytes that several holders share; it refuses instead of waiting.

    It is used on the event loop only.

    Args:
        limit: The number that may be taken at the same time.
        reason: The message to a client if there are too few left; "{limit}" stands for the limit.
    """

    def __init__(self, limit: int, reason: str) -> None:
        self.limit = limit
        self.reason = reason
        self.taken = 0

    @property
    def left(self) -> int:
        """The number that may still be taken."""
        return self.limit - self.taken

    def take(self, count: int = 1) -> None:
        """Take some from the budget.

        Args:
            count: How many.

        Raises:
            RefusedError: If that is more than is left (429); nothing is taken then.
        """
        if count > self.left:
            reason = self.reason.format(limit=self.limit)
            raise RefusedError(429, f"{reason}: try again in a moment")
        self.taken += count

    def give_back(self, count: int = 1) -> None:
        """Return some to the budget when they are no longer held.

        Args:
            count: How many, as they were taken.
        """
        self.taken -= count

    @contextmanager
    def holding(self, count: int = 1) -> Iterator[None]:
        """Take some for the time of a block; `RefusedError` as for `take`."""
        self.take(count)
        try:
            yield
        finally:
            self.give_back(count)
