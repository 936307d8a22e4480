"""Where objects are in frames: the boxes of a learner, their lines on the terminal, their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from primavista.cli.arguments import printable
from primavista.cli.frames import SampledFrame

if TYPE_CHECKING:
    from PIL import Image

    from primavista.learner.learner import Learner
    from primavista.learner.locating import Located


class Found(NamedTuple):
    """A whole picture, or a frame of a video, and the objects in it, the best first."""

    frame: SampledFrame
    objects: list[Located]


class Locator:
    """Finds objects anywhere in whole pictures, and prints one line per object, or JSON.

    Args:
        learner: The learner.
        as_json: Print JSON for scripts instead of text.
        named: Print the name of the video in each line, because there are several.
    """

    size = None

    def __init__(self, learner: Learner, as_json: bool, named: bool) -> None:
        self.learner, self.as_json, self.named = learner, as_json, named

    def look(self, frame: SampledFrame) -> Found:
        """Search a frame."""
        return Found(frame, self.learner.locate(frame.image))

    def draw(self, picture: Image.Image, found: Found) -> Image.Image:
        """Return a copy of a picture with the boxes drawn into it."""
        from primavista.cli.annotate import draw_boxes

        return draw_boxes(picture, found.objects, self.learner.labels)

    def report(self, found: Found) -> None:
        """Print what was found in one frame; the boxes are in pixels."""
        frame, objects = found
        if self.as_json:
            print(json.dumps(frame.record | {"objects": [asdict(one) for one in objects]}))
            return
        where = Path(frame.source).name
        if frame.seconds is not None:
            time = f"{frame.seconds:.1f} s"
            where = f"{where} {time}" if self.named else time
        if not objects:
            print(f"{printable(where)}: nothing")
        for one in objects:
            box = one.box
            ends = f"({box.left:.0f}, {box.top:.0f}) - ({box.right:.0f}, {box.bottom:.0f})"
            said = f"{one.label} {100 * one.confidence:.0f} % at {ends}"
            print(printable(f"{where}: {said}"))

    def close(self, skipped: int) -> None:
        """Print how many files and frames were skipped."""
        if skipped and not self.as_json:
            print(f"skipped {skipped} that could not be decoded")
