"""Where objects are in frames: the boxes of a learner, their lines on the terminal, their JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from primavista.cli.arguments import printable
from primavista.cli.frames import SampledFrame

if TYPE_CHECKING:
    from PIL import Image

    from primavista.learner.learner import Learner
    from primavista.learner.locating import Located


@dataclass(frozen=True)
class Found:
    """A whole picture, or a frame of a video, and the objects in it, the best first."""

    frame: SampledFrame
    objects: list[Located]

    @property
    def record(self) -> dict[str, Any]:
        """The JSON of the frame: `objects` with their boxes in pixels."""
        return self.frame.record | {"objects": [asdict(one) for one in self.objects]}


class Locator:
    """Finds objects anywhere in whole pictures."""

    size = None

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def look(self, frames: Sequence[SampledFrame]) -> list[Found]:
        """Search frames."""
        return [Found(frame, self.learner.locate(frame.image)) for frame in frames]

    def draw(self, picture: Image.Image, found: Found) -> Image.Image:
        """Return a copy of a picture with the boxes drawn into it."""
        from primavista.cli.annotate import draw_boxes

        return draw_boxes(picture, found.objects, self.learner.labels)


@dataclass
class FoundPrinter:
    """Prints one line per object, or one line of JSON per frame."""

    as_json: bool

    def report(self, found: Found) -> None:
        """Print what was found in one frame."""
        if self.as_json:
            typer.echo(json.dumps(found.record))
            return
        frame = found.frame
        where = Path(frame.source).name if frame.seconds is None else f"{frame.seconds:.1f} s"
        if not found.objects:
            typer.echo(f"{printable(where)}: nothing")
        for one in found.objects:
            box = one.box
            ends = f"({box.left:.0f}, {box.top:.0f}) - ({box.right:.0f}, {box.bottom:.0f})"
            said = f"{printable(one.label)} {100 * one.confidence:.0f} %"
            typer.echo(f"{printable(where)}: {said} at {ends}")

    def close(self, skipped: int) -> None:
        """Print how many files and frames were skipped."""
        if skipped and not self.as_json:
            typer.echo(f"skipped {skipped} that could not be decoded")
