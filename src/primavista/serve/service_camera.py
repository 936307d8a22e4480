"""The camera of the service itself, for machines whose camera is not in a browser."""

from __future__ import annotations

import io
import logging
from threading import Event, Thread

from PIL import Image

from primavista.errors import InputError
from primavista.media.addresses import is_live
from primavista.media.camera import (
    CameraFrame,
    CameraView,
    steady_frames,
)
from primavista.serve.limits import RefusedError

FPS = 10.0
LONGEST = 1280  # pixels of the longer side of a picture
JPEG_QUALITY = 85
log = logging.getLogger("primavista")


class ServiceCamera:
    """Keeps the newest frame of a camera in memory; a thread reads it and reconnects if it is lost.

    Args:
        source: The camera, as `primavista learn` takes it.

    Raises:
        InputError: If it is not a camera.
    """

    def __init__(self, source: str) -> None:
        if not is_live(source):
            raise InputError(
                f"{source!r:.80} is not a camera: write camera:0, rtsp://HOST/PATH or env:NAME"
            )
        self._view = CameraView(source, size=None, fps=FPS, longest=LONGEST)
        self.name = self._view.name
        self.reason = "it has not given a frame yet"
        self._newest: CameraFrame | None = None
        self._stopped = Event()
        self._thread = Thread(target=self._read, name="camera", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading, without waiting for a camera that stalls."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    @property
    def online(self) -> bool:
        """True if the camera gives frames."""
        return self._newest is not None

    def jpeg(self) -> bytes:
        """Return the newest frame as JPEG.

        Raises:
            RefusedError: If the camera is lost (409).
        """
        frame = self._newest
        if frame is None:
            raise RefusedError(409, f"the camera gives no frame: {self.reason}")
        file = io.BytesIO()
        Image.fromarray(frame.image).save(file, "JPEG", quality=JPEG_QUALITY)
        return file.getvalue()

    def _read(self) -> None:
        frames = steady_frames(self._view, patient=True, stopped=self._stopped, on_lost=self._lost)
        for frame in frames:
            self._newest, self.reason = frame, ""

    def _lost(self, reason: str) -> None:
        self._newest, self.reason = None, reason
        log.warning("%s; trying again until it is back", reason)
