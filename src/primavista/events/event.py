"""Events: one when the recognised object changes, one when the camera is lost or back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from primavista.coach import NOTHING
from primavista.learner.prediction import Prediction

HOLD = 0.5  # seconds that an answer must last to be an event


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class ObjectEvent:
    """The recognised object has changed.

    Attributes:
        camera: The name of the camera.
        label: The object, or None if nothing that was taught is seen.
        before: The object before, or None.
        confidence: The probability of the object among the known names; 0 if there is none.
        familiarity: How much it is like what was taught; None if the strategy cannot tell.
        seconds: The time in the video, or since the first frame of the camera.
        time: The time of day, UTC, as ISO 8601.
        event: "object".
    """

    camera: str
    label: str | None
    before: str | None
    confidence: float
    familiarity: float | None
    seconds: float
    time: str = field(default_factory=_now)
    event: Literal["object"] = "object"


@dataclass(frozen=True)
class CameraEvent:
    """The camera was lost, or gives frames again.

    Attributes:
        camera: The name of the camera.
        state: "offline" or "online".
        reason: Why it was lost; empty if it is back.
        time: The time of day, UTC, as ISO 8601.
        event: "camera".
    """

    camera: str
    state: Literal["online", "offline"]
    reason: str = ""
    time: str = field(default_factory=_now)
    event: Literal["camera"] = "camera"


Event = ObjectEvent | CameraEvent


def event_record(event: Event) -> dict[str, Any]:
    """Return an event as a JSON object; its kind comes first.

    Args:
        event: The event.

    >>> event_record(CameraEvent("door", "online", time="2026-01-01T00:00:00.000Z"))
    {'event': 'camera', 'camera': 'door', 'state': 'online', 'reason': '',
     'time': '2026-01-01T00:00:00.000Z'}
    """
    fields = asdict(event)
    return {"event": fields.pop("event"), **fields}


class EventSink(Protocol):
    """A place to which events are sent. Neither method blocks for long or raises an error."""

    def send(self, event: Event) -> None:
        """Send an event, now or soon.

        Args:
            event: The event.
        """

    def close(self) -> None:
        """Send what still waits, for a few seconds at most, and end."""


class ChangeDetector:
    """Turns the answers of a watched camera into events: one per change, none per frame.

    An answer counts when it has lasted for `hold` seconds without interruption. The first event
    says what is seen at the start. Unknown objects and the background are both None.

    Args:
        camera: The name of the camera.
        hold: How many seconds an answer must last.

    >>> mug, strange = Prediction("mug", 0.9, True), Prediction("mug", 0.4, False)
    >>> detector = ChangeDetector("door", hold=1.0)
    >>> answers = [mug, mug, mug, strange, mug, strange, strange, strange]  # two per second
    >>> for number, answer in enumerate(answers):
    ...     event = detector.update(answer, number / 2)
    ...     if event:
    ...         print(event.seconds, event.before, event.label)
    1.0 None mug
    3.5 mug None
    """

    def __init__(self, camera: str, hold: float = HOLD) -> None:
        self.camera, self.hold = camera, hold
        self.label: str | None = None  # what the last event said
        self._said = False
        self._candidate: str | None = None
        self._since: float | None = None

    def update(self, prediction: Prediction, at: float) -> ObjectEvent | None:
        """Take the answer to the newest frame; return an event if the object has changed.

        Args:
            prediction: The answer, steadied over the last second by `Watch`.
            at: When the frame was taken, in seconds; times do not decrease.
        """
        seen = prediction.label if prediction.known and prediction.label != NOTHING else None
        if self._said and seen == self.label:
            self._since = None
            return None
        if self._since is None or seen != self._candidate:
            self._candidate, self._since = seen, at
        if at - self._since < self.hold:
            return None
        before, self.label = self.label, seen
        self._said, self._since = True, None
        confidence = 0.0 if seen is None else prediction.confidence
        return ObjectEvent(
            camera=self.camera,
            label=seen,
            before=before,
            confidence=round(confidence, 4),
            familiarity=_rounded(prediction.familiarity),
            seconds=round(at, 3),
        )

    def reset(self) -> None:
        """Forget a change that has begun: the camera was lost in between."""
        self._since = None


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)
