"""`primavista predict`: what a saved learner sees in images, folders, videos, and through a camera."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from primavista.cli.learn import Device, Model
from primavista.cli.look import BATCH, Look, is_live, is_one_video, looks, recognised
from primavista.cli.sources import shown
from primavista.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primavista.learner.learner import Learner, Prediction

UNKNOWN = "unknown"
FPS, SMOOTH = 2.0, 10.0  # looks a second: for reading, and for a video that is watched
BAR = 12


def predict(
    model: Model,
    source: Annotated[str, typer.Argument(help="An image, a folder, a video, or camera:0.")],
    annotate: Annotated[
        Path | None,
        typer.Option(help="Write the video with what is recognised drawn in, e.g. out.mp4."),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(
            help="Looks a second at videos and cameras (default: 2; 10 with --annotate).", min=0.001
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="How long to look through a camera (default: until Ctrl-C)."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many of the likeliest names to show.", min=1)] = 3,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out frames that cannot be decoded.")
    ] = False,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each frame and one at the end.")
    ] = False,
) -> None:
    """Say what a learner sees: a line for each image, or each look at a video or a camera, and the vote of all of them.

    What looks like nothing that was taught is `unknown`, with the likeliest names in brackets.

    Examples: `primavista predict kitchen.pv photo.jpg`, `primavista predict kitchen.pv clip.mp4 --annotate out.mp4`
    """
    from primavista.learner.learner import Learner
    from primavista.streams.video import BadFiles

    if annotate is not None:
        _check_target(source, annotate)
    learner, bad = Learner.load(model.expanduser(), device=device), BadFiles(skip_bad)
    teller = Teller(
        top, as_json, max((len(name) for name in [*learner.labels, UNKNOWN]), default=0)
    )
    if annotate is not None:
        frames = _annotated(learner, source, annotate, fps or SMOOTH, bad)
        teller.quiet = not as_json
    else:
        frames = recognised(
            learner,
            looks(source, learner.size, fps or FPS, seconds, bad),
            1 if is_live(source) else BATCH,
        )
    try:
        for look, prediction in frames:
            teller.tell(look, prediction)
    except KeyboardInterrupt:
        if not is_live(source):
            raise
    teller.close(bad.skipped)
    if annotate is not None and not as_json:
        typer.echo(f"wrote {annotate}")


def _check_target(source: str, target: Path) -> None:
    from primavista.cli.annotate import SUFFIXES

    if not is_one_video(source):
        raise InputError(f"--annotate is for one video file, and {source} is none")
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"--annotate {target}: the name of a video ends in {', '.join(SUFFIXES)}")
    folder = target.absolute().parent
    if not os.access(folder, os.W_OK):
        why = "you may not" if folder.is_dir() else "there is no such folder"
        raise FileError(f"cannot write in {folder}: {why}. Choose a folder that you may write")
    if target.exists():
        same = target.samefile(Path(source).expanduser())
        raise InputError(
            f"{target} is the video itself: give another name"
            if same
            else f"{target} exists: give another name"
        )


def _annotated(
    learner: Learner, source: str, target: Path, fps: float, bad: Any
) -> Iterator[tuple[Look, Prediction]]:
    from primavista.cli.annotate import annotate_video
    from primavista.cli.data import bar

    with bar("drawing frames") as progress:
        yield from annotate_video(learner, Path(source).expanduser(), target, fps, bad, progress)


@dataclass
class Teller:
    """A line for each prediction, and at the end the vote of all."""

    top: int
    as_json: bool
    width: int  # of the longest name
    quiet: bool = False
    votes: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    console: Console = field(default_factory=lambda: Console(highlight=False))

    def tell(self, look: Look, prediction: Prediction) -> None:
        """One line."""
        if prediction.known and prediction.label is not None:
            self.votes[prediction.label] += 1
        else:
            self.unknown += 1
        if self.as_json:
            typer.echo(json.dumps(record(look, prediction)))
        elif not self.quiet:
            self.console.print(self._line(look, prediction), soft_wrap=True)

    def close(self, skipped: int) -> None:
        """The vote: the name that most frames were known by, or unknown where most were not."""
        total = sum(self.votes.values()) + self.unknown
        if self.as_json:
            label = self.winner()
            count = self.unknown if label is None else self.votes[label]
            vote = {
                "label": label,
                "share": count / total if total else 0.0,
                "frames": total,
                "votes": dict(self.votes),
            }
            typer.echo(
                json.dumps({"summary": {**vote, "unknown": self.unknown, "skipped": skipped}})
            )
            return
        if total > 1 or self.quiet:
            winner = self.winner() or UNKNOWN
            counts = {**dict(self.votes.most_common()), UNKNOWN: self.unknown}
            others = ", ".join(
                f"{name} {count}" for name, count in counts.items() if count and name != winner
            )
            text = f"{counts[winner]} of {total} frames" + (f" ({others})" if others else "")
            self.console.print(
                f"[bold]{escape(shown(winner))}[/bold]: {escape(shown(text))}", soft_wrap=True
            )
        if skipped:
            self.console.print(f"skipped {skipped} that could not be decoded")

    def winner(self) -> str | None:
        """The name with the most frames, None where more are unknown."""
        best = self.votes.most_common(1)
        return best[0][0] if best and best[0][1] >= self.unknown else None

    def _line(self, look: Look, prediction: Prediction) -> str:
        where = escape(clock(look.at) if look.at is not None else shown(Path(look.source).name))
        ranked = sorted(prediction.scores.items(), key=lambda item: -item[1])[: self.top]
        names = [f"{escape(shown(label))} {100 * share:.0f} %" for label, share in ranked]
        if (
            not prediction.known or prediction.label is None
        ):  # no share and no bar: they would read as those of "unknown"
            likeliest = f"({', '.join(names)})" if names else ""
            return f"{where:<8} [dim]{UNKNOWN:<{self.width}} {' ' * (BAR + 6)}  {likeliest}[/dim]".rstrip()
        filled = round(BAR * prediction.confidence)
        full, empty = "#-" if self.console.options.ascii_only else "━─"
        bar = f"{100 * prediction.confidence:3.0f} % {full * filled}[dim]{empty * (BAR - filled)}[/dim]"
        name = f"[bold]{escape(shown(prediction.label)):<{self.width}}[/bold]"
        return f"{where:<8} {name} {bar}  [dim]{', '.join(names[1:])}[/dim]".rstrip()


def record(look: Look, prediction: Prediction) -> dict[str, Any]:
    """A prediction for scripts, in the words of Python and the service: `label` is the likeliest name, `known` or not."""
    time = {} if look.at is None else {"seconds": round(look.at, 3)}
    facts = ("label", "known", "confidence", "familiarity", "scores")
    return {"source": look.source, **time, **{name: getattr(prediction, name) for name in facts}}


def clock(seconds: float) -> str:
    """A time in a video.

    >>> clock(61.25)
    '1:01.2'
    """
    tenths = int(seconds * 10 + 1e-6)
    return f"{tenths // 600}:{tenths // 10 % 60:02d}.{tenths % 10}"
