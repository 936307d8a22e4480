"""Events: one when the recognised object changes, one when the camera is lost or back."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from primavista.learner.coach import NOTHING
from primavista.learner.locating import Located
from primavista.learner.prediction import Answer, Prediction
from primavista.media.boxes import Box

HOLD = 0.5  # seconds that an answer must last to be an event
RECENT = 1.0  # seconds whose pictures decide together which objects are there


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class ObjectEvent:
    """The recognised object has changed, or the one that is likely.

    Attributes:
        camera: The name of the camera.
        label: The known object, or None: an object that is only likely is not recognised.
        before: The known object before, or None.
        confidence: The probability of the known or likely object among the known names; 0 if there
            is none.
        familiarity: The familiarity of the picture; None if the strategy cannot tell.
        seconds: The time in the video, or since the first frame of the camera.
        time: The time of day, UTC, as ISO 8601.
        likely: The likely object, or None.
        objects: All objects that are there, the best of which is `label`, with boxes as shares of
            the width and the height of the picture; None if they are not located.
        event: "object".
    """

    camera: str
    label: str | None
    before: str | None
    confidence: float
    familiarity: float | None
    seconds: float
    time: str = field(default_factory=_now)
    likely: str | None = None
    objects: tuple[Located, ...] | None = None
    event: Literal["object"] = "object"

    @property
    def answer(self) -> Answer:
        """The answer: "unknown" for strangers and for the background."""
        if self.label is not None:
            return "known"
        return "unknown" if self.likely is None else "likely"

    @property
    def labels(self) -> set[str]:
        """The names of all objects that are there."""
        if self.objects is None:
            return set() if self.label is None else {self.label}
        return {one.label for one in self.objects}

    @property
    def shown(self) -> tuple[frozenset[str], str | None]:
        """The known objects and the likely one: an event comes when they change."""
        return frozenset(self.labels), self.likely


@dataclass(frozen=True)
class CameraEvent:
    """The camera was lost, or gives frames again.

    Attributes:
        camera: The name of the camera.
        state: "offline" or "online".
        reason: The reason why it was lost; empty if it is back.
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
    """Return an event as a JSON object; its kind comes first, objects only if they are located.

    >>> event_record(CameraEvent("door", "online", time="2026-01-01T00:00:00.000Z"))
    {'event': 'camera', 'camera': 'door', 'state': 'online', 'reason': '',
     'time': '2026-01-01T00:00:00.000Z'}
    """
    fields = asdict(event)
    if fields.get("objects", ()) is None:
        del fields["objects"]
    record = {"event": fields.pop("event"), **fields}
    return record | {"answer": event.answer} if isinstance(event, ObjectEvent) else record


class _Detector:
    """Makes an event when something else is shown and has been for some seconds without a break."""

    def __init__(self, camera: str, hold: float = HOLD) -> None:
        self.camera = camera
        self.hold = hold
        self._told: ObjectEvent | None = None  # the last event
        self._candidate: object = None  # what is shown since a change that has begun
        self._since: float | None = None

    def _changed(
        self,
        at: float,
        label: str | None,
        confidence: float,
        familiarity: float | None,
        **more: Any,
    ) -> ObjectEvent | None:
        """Return the event of what is shown now, if it has changed and has lasted."""
        shown = (round(confidence, 4), _rounded(familiarity), round(at, 3))
        event = ObjectEvent(self.camera, label, None, *shown, **more)
        if self._told is not None and event.shown == self._told.shown:
            self._since = None
            return None
        if self._since is None or event.shown != self._candidate:
            self._candidate, self._since = event.shown, at
        if at - self._since < self.hold:
            return None
        before = None if self._told is None else self._told.label
        self._told, self._since = replace(event, before=before), None
        return self._told

    def reset(self) -> None:
        """Forget a change that has begun: the camera was lost in between."""
        self._since = None


class ChangeDetector(_Detector):
    """Turns the answers of a watched camera into events: one per change, none per frame.

    An answer counts when it has lasted for `hold` seconds without interruption. The first event
    tells what is seen at the start. Unknown objects and the background are both None; a likely
    object is in a field of its own.

    Args:
        camera: The name of the camera.
        hold: The time in seconds that an answer must last.

    >>> mug, strange = Prediction("mug", 0.9, "known"), Prediction("mug", 0.4, "unknown")
    >>> detector = ChangeDetector("door", hold=1.0)
    >>> answers = [mug, mug, mug, strange, mug, strange, strange, strange]  # two per second
    >>> for number, answer in enumerate(answers):
    ...     event = detector.update(answer, number / 2)
    ...     if event:
    ...         print(event.seconds, event.before, event.label)
    1.0 None mug
    3.5 mug None
    """

    def update(self, prediction: Prediction, at: float) -> ObjectEvent | None:
        """Take the answer to the newest frame; return an event if the object has changed.

        Args:
            prediction: The answer of `Watch`, for the last second.
            at: The time of the frame in seconds; times do not decrease.
        """
        label = prediction.recognised_object
        is_likely = prediction.answer == "likely" and prediction.label != NOTHING
        likely = prediction.label if is_likely else None
        confidence = 0.0 if label is None and likely is None else prediction.confidence
        return self._changed(at, label, confidence, prediction.familiarity, likely=likely)


class SceneDetector(_Detector):
    """Turns the objects located in the pictures of a camera into events: one per change of the set.

    An object is there if at least half of the pictures of the last second show it. An event comes
    when the set of these objects has changed and has lasted for `hold` seconds. Of two objects with
    one name, the better one counts.

    Args:
        camera: The name of the camera.
        hold: The time in seconds that a set must last.
    """

    def __init__(self, camera: str, hold: float = HOLD) -> None:
        super().__init__(camera, hold)
        self._recent: deque[tuple[float, dict[str, Located]]] = deque()

    def update(
        self, found: Sequence[Located], size: tuple[int, int], at: float
    ) -> ObjectEvent | None:
        """Take the objects of the newest picture; return an event if the set has changed.

        Args:
            found: The objects that were located in it, the best first.
            size: The width and the height of the picture in pixels.
            at: Its time in seconds; times do not decrease.
        """
        best = {one.label: _in_shares(one, *size) for one in reversed(found)}
        self._recent.append((at, best))
        while self._recent[0][0] <= at - RECENT:
            self._recent.popleft()
        objects = self._there()
        if not objects:
            return self._changed(at, None, 0.0, None, objects=())
        first = objects[0]
        return self._changed(at, first.label, first.confidence, first.familiarity, objects=objects)

    def _there(self) -> tuple[Located, ...]:
        """Return the objects that are there, as they were seen last, the best first."""
        counts = Counter(label for _, shown in self._recent for label in shown)
        newest = {label: one for _, shown in self._recent for label, one in shown.items()}
        there = [newest[name] for name in counts if 2 * counts[name] >= len(self._recent)]
        return tuple(sorted(there, key=lambda one: -one.confidence))

    def reset(self) -> None:
        """Forget the last second and a change that has begun: the camera was lost in between."""
        super().reset()
        self._recent.clear()


def _in_shares(one: Located, width: int, height: int) -> Located:
    """Return an object with its box as shares of the sides of the picture, rounded."""
    box = Box(*(round(share, 4) for share in astuple(one.box.in_shares(width, height))))
    familiarity = _rounded(one.familiarity)
    return replace(one, box=box, confidence=round(one.confidence, 4), familiarity=familiarity)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)
