"""What frames show: the predictions of a learner, their lines on the terminal and their JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from primavista.cli.arguments import printable
from primavista.cli.frames import SampledFrame
from primavista.media.addresses import is_live
from primavista.storage.names import UNKNOWN

if TYPE_CHECKING:
    from PIL import Image

    from primavista.learner.learner import Learner
    from primavista.learner.prediction import Prediction

BAR_WIDTH = 12  # characters
FIELDS = ("label", "answer", "known", "confidence", "familiarity", "scores")


@dataclass(frozen=True)
class Sighting:
    """A frame and what it shows.

    Attributes:
        frame: The frame.
        alone: What it shows by itself.
        recent: What the last second of its video or camera shows; the same as `alone` for an image.
    """

    frame: SampledFrame
    alone: Prediction
    recent: Prediction

    @property
    def record(self) -> dict[str, Any]:
        """The JSON of the frame: what it shows and, in a video or of a camera, `recent`."""
        record = self.frame.record | as_fields(self.alone)
        if self.frame.seconds is None:
            return record
        return record | {"recent": as_fields(self.recent)}


class Recogniser:
    """Recognises frames, alone and together with the frames of the second before them.

    It prints one line per frame, and at the end one per video, or the majority vote.

    Args:
        learner: The learner.
        top: The number of the most likely names in a line.
        as_json: Print JSON for scripts instead of text.
        quiet: Print no line per frame unless `as_json` is set.
        named: Print the name of the video in each line, because there are several.
    """

    def __init__(
        self,
        learner: Learner,
        top: int = 3,
        as_json: bool = False,
        quiet: bool = False,
        named: bool = False,
    ) -> None:
        self.learner, self.size = learner, learner.size
        self.top, self.as_json, self.quiet, self.named = top, as_json, quiet, named
        self.width = max(len(name) for name in [*learner.labels, UNKNOWN])  # aligns the columns
        self.votes: Counter[str | None] = Counter()  # frames by what they show alone
        self.videos: dict[str, list[Prediction]] = {}  # what the frames of each video file show
        self.console = Console(highlight=False)
        self._source, self._watch = "", learner.watch()

    def look(self, frames: Sequence[SampledFrame]) -> list[Sighting]:
        """Recognise the next frames."""
        import numpy as np

        predictions = self.learner.predict(np.stack([frame.image for frame in frames]))
        return [self._seen(*pair) for pair in zip(frames, predictions, strict=True)]

    def _seen(self, frame: SampledFrame, alone: Prediction) -> Sighting:
        if frame.seconds is None:
            return Sighting(frame, alone, alone)
        if frame.source != self._source:
            self._source, self._watch = frame.source, self.learner.watch()
        return Sighting(frame, alone, self._watch.add(frame.image, alone, frame.seconds))

    def draw(self, picture: Image.Image, sighting: Sighting) -> Image.Image:
        """Return a copy of a picture with the answer of the last second drawn into it."""
        from primavista.cli.annotate import draw

        return draw(picture, sighting.recent)

    def report(self, sighting: Sighting) -> None:
        """Count one frame and print its line."""
        frame, alone = sighting.frame, sighting.alone
        self.votes += tally([alone])
        if frame.seconds is not None and not is_live(frame.source):
            self.videos.setdefault(frame.source, []).append(alone)
        if self.as_json:
            print(json.dumps(sighting.record))
        elif not self.quiet:
            self.console.print(self._line(frame, sighting.recent), soft_wrap=True)

    def close(self, skipped: int) -> None:
        """Print what each video shows, or the vote of all frames, and what was skipped."""
        from primavista.learner.watch import fuse

        rule = self.learner.answer_rule
        fused = {source: fuse(seen, rule) for source, seen in self.videos.items()}
        if self.as_json:
            videos = [
                {"source": source, "frames": len(self.videos[source]), **as_fields(answer)}
                for source, answer in fused.items()
            ]
            print(json.dumps({"summary": {**self._summary(skipped), "videos": videos}}))
            return
        for source, answer in fused.items():
            where = f"{Path(source).name}: " if len(fused) > 1 else ""
            label = answer.label if answer.known else None
            self._print_vote(label, tally(self.videos[source]), where)
        if not self.videos and self.votes.total() > 1:
            self._print_vote(winner(self.votes), self.votes)
        if skipped:
            self.console.print(f"skipped {skipped} that could not be decoded")

    def _summary(self, skipped: int) -> dict[str, Any]:
        label, total = winner(self.votes), self.votes.total()
        return {
            "label": label,
            "share": self.votes[label] / total if total else 0.0,
            "frames": total,
            "votes": {name: count for name, count in self.votes.items() if name is not None},
            "unknown": self.votes[None],
            "skipped": skipped,
        }

    def _print_vote(self, label: str | None, votes: Counter[str | None], where: str = "") -> None:
        """Print an answer, how many frames agree with it, and what the others show."""
        others = [f"{name} {n}" for name, n in votes.most_common() if name not in (label, None)]
        if label is not None and votes[None]:
            others.append(f"{UNKNOWN} {votes[None]}")
        rest = f" ({', '.join(others)})" if others else ""
        name = f"{escape(printable(where))}[bold]{escape(printable(label or UNKNOWN))}[/bold]"
        text = escape(printable(f"{votes[label]} of {votes.total()} frames{rest}"))
        self.console.print(f"{name}: {text}", soft_wrap=True)

    def _line(self, frame: SampledFrame, prediction: Prediction) -> str:
        where = escape(printable(Path(frame.source).name))
        if frame.seconds is not None:
            time = format_time(frame.seconds)
            where = f"{where} {time}" if self.named else time
        ranked = sorted(prediction.scores.items(), key=lambda item: -item[1])[: self.top]
        names = [f"{escape(printable(label))} {100 * share:.0f} %" for label, share in ranked]
        if prediction.known and prediction.label is not None:
            name = f"[bold]{escape(printable(prediction.label)):<{self.width}}[/bold]"
            bar = self._bar(prediction.confidence)
            return f"{where:<8} {name} {bar}  [dim]{', '.join(names[1:])}[/dim]".rstrip()
        # no percentage and no bar: they would read as those of "unknown"
        candidates = f"({', '.join(names)})" if names else ""
        blank = " " * (BAR_WIDTH + 6)
        return f"{where:<8} [dim]{UNKNOWN:<{self.width}} {blank}  {candidates}[/dim]".rstrip()

    def _bar(self, confidence: float) -> str:
        filled = round(BAR_WIDTH * confidence)
        full, empty = "#-" if self.console.options.ascii_only else "━─"
        rest = empty * (BAR_WIDTH - filled)
        return f"{100 * confidence:3.0f} % {full * filled}[dim]{rest}[/dim]"


def as_fields(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as a JSON object, with the field names of Python and of the service."""
    return {name: getattr(prediction, name) for name in FIELDS}


def tally(predictions: Iterable[Prediction]) -> Counter[str | None]:
    """Count the frames that show each object; those that show none are counted under None."""
    return Counter(one.label if one.known else None for one in predictions)


def winner(votes: Counter[str | None]) -> str | None:
    """Return the name with the most frames, or None if more frames are unknown.

    >>> winner(Counter({"mug": 2, "cup": 1, None: 2})), winner(Counter({"mug": 1, None: 2}))
    ('mug', None)
    """
    named = Counter({name: count for name, count in votes.items() if name is not None})
    best = named.most_common(1)
    return best[0][0] if best and best[0][1] >= votes[None] else None


def format_time(seconds: float) -> str:
    """Format a time in a video as minutes, seconds and tenths.

    >>> format_time(61.25)
    '1:01.2'
    """
    tenths = int(seconds * 10 + 1e-6)
    return f"{tenths // 600}:{tenths // 10 % 60:02d}.{tenths % 10}"
