"""`primavista watch`: what a camera sees, as events for scripts and home automation."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from primavista.cli import arguments
from primavista.cli.arguments import (
    check_model,
    chosen_region,
    load_learner,
    printable,
    warn_of_password,
)
from primavista.cli.recognise import SampledFrame, sample_frames
from primavista.errors import FileError, InputError
from primavista.media.addresses import is_live, is_video_file
from primavista.storage.learner_file import file_stamp
from primavista.storage.names import checked_name

if TYPE_CHECKING:
    from primavista.events.event import Event, ObjectEvent
    from primavista.events.mqtt import MqttSink
    from primavista.learner.learner import Learner
    from primavista.media.camera import CameraView

FPS = 5.0
RELOADING = 2.0  # seconds of frames between two looks at the model's file
WHOLE_SIDES = 4  # the longest side of a whole picture, in sides of the frames of the network


def watch(
    model: Path,
    source: str,
    name: str | None = None,
    mqtt: str | None = None,
    topic: str = "primavista",
    discovery: str = "homeassistant",
    fps: Annotated[float, typer.Option(min=0.001)] = FPS,
    hold: Annotated[float, typer.Option(min=0, max=3600)] = 0.5,
    stall: Annotated[float, typer.Option(min=0.1, max=3600)] = 10.0,
    seconds: arguments.WatchedSeconds = None,
    region: arguments.RegionText = None,
    locate: bool = False,
    threshold: arguments.Threshold = None,
    device: str = "auto",
    as_json: arguments.AsJson = False,
) -> None:
    """Watch a camera: one line when the recognised object changes, not one per frame.

    `mug` is known; `mug?` is likely, more probably right than not, but worth asking about.

    A camera that is lost is connected again, with longer and longer waits, and so is a broker; both
    are told on standard error, and recognition goes on meanwhile. If the file of the model is
    taught by another command, the new objects are recognised within a few seconds.

    With `--locate` the whole picture is searched, several objects may be there at once, and a line
    comes when others are there than before.

    Examples: `primavista watch kitchen.pv camera:0 --json`,
    `primavista watch kitchen.pv camera:0 --locate --json`,
    `DOOR=rtsp://ann:secret@10.0.0.5/live primavista watch kitchen.pv env:DOOR --name door
    --mqtt mqtt://homeassistant.local`

    Args:
        source: A camera: camera:0, /dev/video0, rtsp://..., http://... (MJPEG), or env:NAME, the
            environment variable with its address. Or a video file.
        name: What events call the camera (default: the name of the model's file).
        mqtt: Publish events to this broker: mqtt://HOST, mqtts://HOST (TLS), or env:NAME with
            mqtt://USER:PASSWORD@HOST.
        topic: What the MQTT topics begin with.
        discovery: Home Assistant's discovery prefix; "" announces nothing to Home Assistant.
        fps: Frames per second to recognise at most.
        hold: Seconds that an answer must last to be an event.
        stall: Seconds without a frame after which the camera is lost.
        locate: Look for objects anywhere in the picture; events have all of them, with boxes.
    """
    from primavista.media.video import BadFiles

    check_model(model, source)
    for text in (source, mqtt):
        warn_of_password(text or "")
    part = chosen_region(region)
    if not is_live(source) and not is_video_file(source):
        raise InputError(
            f"{source} is neither a camera nor a video file: for pictures there is "
            "`primavista predict`"
        )
    camera, path = checked_name(name or model.stem), model.expanduser()
    load = partial(load_learner, path, device, threshold)
    watcher = Watcher(path, load, camera, hold, locate, as_json)
    size = watcher.learner.size
    # services are stopped by SIGTERM; it is taken as Ctrl-C, so that `offline` is still said
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), closing(watcher):
        if mqtt is not None:
            from primavista.events.mqtt import MqttSink

            watcher.mqtt = MqttSink(mqtt, camera, tell, base=topic, prefix=discovery or None)
        if is_live(source):
            from primavista.media.camera import CameraView

            longest = WHOLE_SIDES * size if locate else None
            view = CameraView(source, None if locate else size, fps, part, stall, longest)
            frames = watcher.film(view, seconds)
        else:
            frames = sample_frames(source, None if locate else size, BadFiles(), fps, region=part)
        watcher.run(frames)


def tell(text: str) -> None:
    """Tell the user something on standard error, with the time of day."""
    typer.echo(f"{datetime.now():%H:%M:%S} {printable(text)}", err=True)


def event_text(event: Event) -> str:
    """Return the line of an event."""
    from primavista.events.event import CameraEvent

    if isinstance(event, CameraEvent):
        return f"camera {event.state}"
    if event.likely is not None:
        return printable(f"{event.likely}? {100 * event.confidence:.0f} %")
    if event.label is None:
        return "nothing known"
    found = event.objects or [event]
    return printable(", ".join(f"{one.label} {100 * one.confidence:.0f} %" for one in found))


class Watcher:
    """Recognises frames and sends events; other commands may teach the model's file meanwhile.

    Args:
        path: The file.
        load: Loads it.
        camera: The name of the camera in events.
        hold: The seconds that an answer must last.
        locate: Whether frames are whole pictures in which objects are located.
        as_json: Whether events are printed as JSON.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[], Learner],
        camera: str,
        hold: float,
        locate: bool,
        as_json: bool,
    ) -> None:
        from primavista.events.event import ChangeDetector, SceneDetector

        self.path, self.load, self.camera, self.as_json = path, load, camera, as_json
        self.mqtt: MqttSink | None = None
        self._change = ChangeDetector(camera, hold)
        self._scene = SceneDetector(camera, hold) if locate else None
        self._stamp = file_stamp(self.path)
        self.learner = load()
        self._watch = self.learner.watch()
        self._looked = 0.0  # when the model's file was last looked at

    def film(self, view: CameraView, seconds: float | None) -> Iterator[SampledFrame]:
        """Yield the frames of a camera; send an event when it is lost or gives frames again."""
        from primavista.media.camera import steady_frames

        began = None
        frames = steady_frames(
            view, seconds or math.inf, patient=True, on_lost=self._lost, on_back=self._back
        )
        for at, image in frames:
            if began is None:
                began = at
                self._send_state("online")
            yield SampledFrame(self.camera, at - began, image)

    def run(self, frames: Iterator[SampledFrame]) -> None:
        """Recognise or search all frames, and send an event whenever what is seen has changed."""
        for frame in frames:
            at = frame.seconds or 0.0
            if at - self._looked >= RELOADING:
                self._looked = at
                self._reload()
            event: ObjectEvent | None
            if self._scene is None:
                event = self._change.update(self._watch.predict(frame.image, at), at)
            else:
                height, width = frame.image.shape[:2]
                event = self._scene.update(self.learner.locate(frame.image), (width, height), at)
            if event is not None:
                self._send(event)

    def close(self) -> None:
        """Send the events that still wait for the broker."""
        if self.mqtt is not None:
            self.mqtt.close()

    def _reload(self) -> None:
        """Load the file again if it was changed; one that cannot be read changes nothing."""
        stamp = file_stamp(self.path)
        if stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            learner = self.load()
            if learner.size != self.learner.size:
                raise FileError(f"{self.path} now reads images of another size: start again")
        except FileError as error:
            tell(f"{error}. Going on with the model as it was")
            return
        self.learner, self._watch = learner, learner.watch()
        tell(f"{self.path.name} was changed: it knows {', '.join(learner.labels) or 'nothing'}")

    def _lost(self, reason: str) -> None:
        for one in (self._change, self._scene, self._watch):
            if one is not None:
                one.reset()
        tell(f"{reason}; trying again until it is back")
        self._send_state("offline", reason)

    def _back(self) -> None:
        tell(f"{self.camera}: the camera is back")
        self._send_state("online")

    def _send_state(self, state: Literal["online", "offline"], reason: str = "") -> None:
        from primavista.events.event import CameraEvent

        self._send(CameraEvent(self.camera, state, reason))

    def _send(self, event: Event) -> None:
        from primavista.events.event import event_record

        if self.as_json:
            typer.echo(json.dumps(event_record(event)))
        else:
            typer.echo(f"{datetime.now():%H:%M:%S} {event_text(event)}")
        if self.mqtt is not None:
            self.mqtt.send(event)
