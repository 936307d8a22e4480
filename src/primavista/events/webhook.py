"""Events as HTTP requests: one POST of JSON per event, from a thread of its own."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections import deque
from collections.abc import Callable
from http.client import HTTPException
from threading import Condition, Thread
from typing import Any
from urllib.error import HTTPError, URLError

from primavista import __version__
from primavista.events.event import Event, event_record
from primavista.media.addresses import Address, Backoff, read_address

EXAMPLE = "https://HOST/PATH"
TIMEOUT = 5.0  # seconds for one request
WAITING = 100  # events that wait at most; the oldest are dropped
LASTING = 300.0  # seconds after which an event that could not be delivered is dropped
CLOSING = 3.0  # seconds at the end for the events that still wait
BUSY = (408, 425, 429)  # statuses of a server that will take the event later


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirections: a redirected POST would become a GET without the event."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook:
    """Posts each event as JSON. Recognition never waits for it.

    A request that fails is repeated with longer and longer waits. A server that refuses an event
    (status 400 to 499) is not asked again about it.

    Args:
        text: The address, `http://` or `https://`, or `env:NAME`. A user and a password in it are
            sent as basic authorisation.
        tell: Called with a message when requests begin to fail, and when they work again; not once
            per event.
        timeout: The longest time of a request in seconds.

    Raises:
        InputError: If it is not such an address.
    """

    def __init__(self, text: str, tell: Callable[[str], None], timeout: float = TIMEOUT) -> None:
        self._address = read_address(text, ("http", "https"), EXAMPLE)
        self._tell, self._timeout = tell, timeout
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._waiting: deque[tuple[float, Event]] = deque()
        self._changed = Condition()
        self._closing = False
        self._dropped = 0
        self._problem = ""
        self._thread = Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        """Put an event into the queue; if it is full, the oldest one is dropped.

        Args:
            event: The event.
        """
        with self._changed:
            if len(self._waiting) >= WAITING:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append((time.monotonic(), event))
            self._changed.notify()

    def close(self) -> None:
        """Send the events that still wait, for a few seconds at most, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSING + self._timeout)
        if self._waiting:
            self._tell(f"{self._address.name}: {len(self._waiting)} events were not delivered")

    def _run(self) -> None:
        waits = Backoff()
        while self._next() is not None:
            began, event = self._waiting[0]
            problem, is_final = self._post(event)
            if not problem:
                self._succeeded()
                waits.reset()
            else:
                self._failed(problem)
            expired = time.monotonic() - began > LASTING
            if not problem or is_final or expired:
                self._take(event, lost=bool(problem))
            elif self._waited(waits.next()):
                return

    def _next(self) -> Event | None:
        """Wait for an event; None if there are no more and the end has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            return self._waiting[0][1] if self._waiting else None

    def _take(self, event: Event, lost: bool) -> None:
        """Take an event from the queue, unless it was dropped there meanwhile."""
        with self._changed:
            if self._waiting and self._waiting[0][1] is event:
                self._waiting.popleft()
                self._dropped += lost

    def _waited(self, seconds: float) -> bool:
        """Wait before the next attempt; return True if the end has come."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, seconds)

    def _post(self, event: Event) -> tuple[str, bool]:
        """Post an event; return the problem, if any, and True if it is useless to try again."""
        request = _request(self._address, event)
        try:
            with self._opener.open(request, timeout=self._timeout):
                return "", False
        except HTTPError as error:
            error.close()
            is_final = 300 <= error.code < 500 and error.code not in BUSY
            return f"it answers with the status {error.code}", is_final
        except TimeoutError:
            return f"it does not answer within {self._timeout:g} s", False
        except URLError as error:
            return str(getattr(error.reason, "strerror", None) or error.reason), False
        except (OSError, HTTPException) as error:
            return str(getattr(error, "strerror", None) or type(error).__name__), False

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._tell(
                f"{self._address.name}: {problem}. Recognition goes on; events wait, at most "
                f"{WAITING} of them for {LASTING / 60:g} minutes"
            )

    def _succeeded(self) -> None:
        if self._problem:
            lost = f"; {self._dropped} events were lost" if self._dropped else ""
            self._tell(f"{self._address.name} takes events again{lost}")
            self._problem, self._dropped = "", 0


def _request(address: Address, event: Event) -> urllib.request.Request:
    headers = {"Content-Type": "application/json", "User-Agent": f"primavista/{__version__}"}
    if address.user is not None:
        login = f"{address.user}:{address.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    data = json.dumps(event_record(event)).encode()
    return urllib.request.Request(address.without_login, data, headers, method="POST")
