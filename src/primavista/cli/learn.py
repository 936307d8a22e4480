"""`primavista learn`: teach a saved learner from videos, images, folders and cameras."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from primavista.cli.sources import CAMERA, Lesson, find_lessons, shown
from primavista.errors import InputError, PrimavistaError

if TYPE_CHECKING:
    from torch import Tensor

    from primavista.learner.learner import Learner
    from primavista.streams.video import Clip

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The learner's file, e.g. kitchen.pv.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
NEW = "New files only: "
SMALLEST, LARGEST = 32, 512  # sides of the images, in pixels
HERE, RAY = "here", "ray"
FORGOTTEN = "If forgotten, --again is right: what was left of it in the pooled statistics counts twice then, its mean once."


@dataclass(frozen=True)
class Settings:
    """How sources are opened."""

    max_frames: int
    fps: float | None
    seconds: float
    skip_bad: bool
    again: bool


def learn(
    model: Model,
    sources: Annotated[
        list[str],
        typer.Argument(help="Videos, images, folders, camera:0; one lesson each, in this order."),
    ],
    label: Annotated[
        str | None,
        typer.Option(
            help="What they show. Without it, a folder holds a folder for each object, named after it."
        ),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help=NEW + "prima (default), cwr*, ar1*, ...")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help=NEW + "mobilenet_v1 (default) or efficientnet_lite0.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help=NEW + "imagenet (default), timm, random, or a file.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help=NEW + "side of the images in pixels (default: 128).", min=SMALLEST, max=LARGEST
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help=NEW + "of the strategy, e.g. balance=0.5; repeat it.")
    ] = None,
    max_frames: Annotated[
        int, typer.Option(help="Frames kept of each source, evenly spread.", min=1)
    ] = 600,
    fps: Annotated[
        float | None,
        typer.Option(help="Frames a second to take of videos (default: all).", min=0.001),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="How long to look through a camera.", min=0.1, max=3600)
    ] = 5.0,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out frames that cannot be decoded.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Teach what was taught before once more.")
    ] = False,
    on: Annotated[
        str, typer.Option(help="here, or a Ray cluster: ray (this machine's), ray://HOST:PORT.")
    ] = HERE,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each lesson and one at the end.")
    ] = False,
) -> None:
    """Teach a learner, which is made if there is no such file: each source is a lesson, on disk before the next begins.

    A lesson that fails changes nothing, and the others go on; one that the learner has had already is left out. So the same
    command after a stop goes on with what is missing. Exit code 1 where a lesson failed, or where there was nothing new.

    Examples: `primavista learn kitchen.pv --label mug mug.mp4 mug-photos/`, `primavista learn kitchen.pv --label cup camera:0`,
    `primavista learn kitchen.pv toys/` (toys/mug/1.mp4, toys/cup/monday/001.jpg, ...)

    With `--on ray` the lessons are learned on all machines of a cluster at once and merged, with the same result; for the
    strategies that can be (prima, ridge, lda, ncm). The file is written once, at the end.
    """
    from primavista.storage.lock import file_lock
    from primavista.storage.settings import parse_setting

    if on != HERE and on != RAY and not on.startswith(f"{RAY}://"):
        raise InputError(f"--on is {HERE}, {RAY} or {RAY}://HOST:PORT; got {on!r}")
    lessons = find_lessons(sources, label)
    target = model.expanduser().resolve()
    given = {"strategy": strategy, "backbone": backbone, "weights": weights, "size": size}
    options = {
        ".".join(keys): value
        for keys, value in (parse_setting(text, "balance=0.5") for text in option or ())
    }
    if taken := [name for name in (*given, "device") if name in options]:
        raise InputError(
            f"{taken[0]} is no option of a strategy: say --{taken[0]} {options[taken[0]]}"
        )
    with file_lock(target):
        learner = _opened(
            target,
            {name: value for name, value in given.items() if value is not None},
            options,
            device,
        )
        school = School(
            learner, target, Settings(max_frames, fps, seconds, skip_bad, again), as_json
        )
        if on == HERE:
            school.teach_all(lessons)
        else:
            school.teach_on_ray(lessons, on)
    if school.failed or not school.learned:
        raise typer.Exit(1)


Now = Callable[..., None]  # what is being done, how many frames of it are done, of how many


class Watched:
    """Frames that say how many of them have been read."""

    def __init__(self, frames: Clip, tell: Callable[[int], None]) -> None:
        self.frames, self.tell, self.read = frames, tell, 0

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, indices: Tensor) -> Tensor:
        self.read += len(indices)
        self.tell(self.read)
        return self.frames[indices]


@dataclass
class School:
    """Teaches lessons in order and says what became of each; the file always holds the last one that was learned."""

    learner: Learner
    target: Path
    settings: Settings
    as_json: bool
    learned: int = 0
    known: int = 0
    failed: int = 0

    def teach_all(self, lessons: list[Lesson]) -> None:
        """One after the other, each on disk before the next begins."""
        with _progress(len(lessons)) as (progress, now):
            try:
                for number, lesson in enumerate(lessons, 1):
                    record = {
                        "lesson": number,
                        "of": len(lessons),
                        "label": lesson.label,
                        "source": lesson.name,
                    }
                    self._tell({**record, **self._one(lesson, now)}, progress)
                    progress.advance(progress.task_ids[0])
            except KeyboardInterrupt:
                progress.stop()
                kept = f"{self.learned} of {len(lessons)} lessons"
                typer.echo(
                    f"stopped. What was learned is kept ({kept}); the same command goes on with the rest.",
                    err=True,
                )
                raise typer.Exit(130) from None
        self._close()

    def teach_on_ray(self, lessons: list[Lesson], on: str) -> None:
        """All at once, on the machines of a cluster; the file is written once, at the end."""
        from primavista.learner import fleet

        s = self.settings
        if s.again or any(isinstance(lesson.source, str) for lesson in lessons):
            raise InputError(
                "on a cluster, cameras cannot be seen and no lesson can be taught again: leave out --on"
            )
        opener = partial(fleet.open_source, max_frames=s.max_frames, fps=s.fps, skip_bad=s.skip_bad)
        given = [
            fleet.Lesson(one.label, tuple(Path(p).resolve() for p in one.source)) for one in lessons
        ]
        with (
            _progress(len(lessons)) as (progress, now),
            fleet.ray_cluster("" if on == RAY else on) as machines,
        ):
            now("learning on the cluster")
            outcomes = fleet.teach(
                self.learner,
                given,
                machines,
                opener=opener,
                listen=lambda told: progress.advance(progress.task_ids[0], len(told)),
            )
            counts = Counter(outcome.status for outcome in outcomes)
            self.learned, self.known, self.failed = (
                counts[status] for status in ("learned", "known", "failed")
            )
            if self.learned:
                self.learner.save(self.target)
            for number, (lesson, outcome) in enumerate(zip(lessons, outcomes, strict=True), 1):
                record = {
                    "lesson": number,
                    "of": len(lessons),
                    "label": lesson.label,
                    "source": lesson.name,
                }
                facts = {
                    "learned": ("id", "frames", "seconds", "note"),
                    "known": ("id",),
                    "failed": ("reason",),
                }[outcome.status]
                self._tell(
                    {
                        **record,
                        "status": outcome.status,
                        **{key: getattr(outcome, key) for key in facts},
                    },
                    progress,
                )
        self._close()

    def _one(self, lesson: Lesson, now: Now) -> dict[str, Any]:
        """What became of one lesson; an error that is its own fault is part of the answer."""
        began = time.monotonic()
        try:
            record = teach(self.learner, lesson, self.settings, now)
        except (PrimavistaError, RuntimeError, MemoryError) as error:
            self.failed += 1
            reason = str(error) if isinstance(error, PrimavistaError) else _crash(error)
            return {"status": "failed", "reason": reason}
        if record["status"] == "known":
            self.known += 1
            return record
        self.learner.save(self.target)
        self.learned += 1
        return {**record, "seconds": round(time.monotonic() - began, 3)}

    def _tell(self, record: dict[str, Any], progress: Progress) -> None:
        if self.as_json:
            typer.echo(json.dumps(record))
            return
        name = f"[bold]{escape(shown(record['label']))}[/bold]"
        source = escape(shown(record["source"]))
        if record["status"] == "failed":
            text = f"[red]failed:[/red] {name}: {escape(shown(record['reason']))}"
        elif record["status"] == "known":
            text = f"{name}: {source} was taught before, left out [dim](--again teaches it once more)[/dim]"
            if record["label"] not in self.learner.labels:
                text += f"\n  though no {name} is known: it was forgotten, renamed, or taught under another name. {FORGOTTEN}"
        else:
            note = f" [dim]{escape(shown(record['note']))}[/dim]" if record["note"] else ""
            text = (
                f"{name}: {record['frames']} frames of {source} in {record['seconds']:.1f} s{note}"
            )
        above = (
            sys.stdout.isatty() and not progress.disable
        )  # a line above the progress, on the same terminal
        (progress.console if above else Console(highlight=False)).print(text, soft_wrap=True)

    def _close(self) -> None:
        if self.as_json:
            counts = {"learned": self.learned, "known": self.known, "failed": self.failed}
            typer.echo(
                json.dumps({"file": str(self.target), **counts, "objects": self.learner.counts})
            )
            return
        if not self.learned and self.known and not self.failed:
            typer.echo("there was nothing new to learn")
        if self.learner.labels:
            typer.echo(summary(self.learner, self.target))


def summary(learner: Learner, path: Path) -> str:
    """What the learner of a file knows, in one line."""
    known = ", ".join(f"{shown(name)} ({count})" for name, count in learner.counts.items())
    objects = "1 object" if len(learner.labels) == 1 else f"{len(learner.labels)} objects"
    return f"{shown(path.name)} knows {f'{objects} (frames): {known}' if known else 'nothing yet'}"


def teach(
    learner: Learner, lesson: Lesson, settings: Settings, now: Now = lambda *stage: None
) -> dict[str, Any]:
    """One lesson: its frames, then what the learner makes of them; nothing is changed where it fails or was had before."""
    from primavista.learner.state import lesson_id
    from primavista.streams.video import open_frames

    camera = isinstance(lesson.source, str) and lesson.source.startswith(CAMERA)
    reading = (
        f"show {lesson.label} to {lesson.name} for {settings.seconds:g} s"
        if camera
        else f"reading {lesson.name}"
    )
    now(reading)
    clip = open_frames(
        lesson.source,
        size=learner.size,
        max_frames=settings.max_frames,
        fps=settings.fps,
        skip_bad=settings.skip_bad,
        seconds=settings.seconds,
        watch=lambda done, of: now(reading, done, of),
    )
    identity = lesson_id(clip)
    if identity in learner.lessons and not settings.again:
        return {"status": "known", "id": identity}
    passes = learner.options.get("epochs") or 1
    learner.learn(
        Watched(clip, lambda done: now(f"learning {lesson.label}", done, passes * len(clip))),
        lesson.label,
    )
    return {"status": "learned", "id": identity, "frames": len(clip), "note": clip.note}


def _opened(target: Path, given: dict[str, Any], options: dict[str, Any], device: str) -> Learner:
    """The learner of the file, which must be what was asked for, or a new one."""
    from primavista.learner.learner import Learner

    if not target.exists():
        return Learner(**given, device=device, **options)
    learner = Learner.load(target, device=device)
    spec = learner.strategy.backbone.spec
    own = {
        "seed": int(learner.strategy.seed),
        "threshold": learner.threshold,
        "engine": learner.engine,
    }
    facts = {
        **spec.options,
        **learner.options,
        **own,
        "strategy": learner.strategy_name,
        "backbone": spec.name,
        "size": learner.size,
    }
    if given.pop("weights", None) is not None:
        typer.echo(
            f"--weights is for new files: {target.name} goes on with the network that is in it",
            err=True,
        )
    for name, value in {**options, **given}.items():
        if facts.get(name) != value:
            raise InputError(
                f"{target.name} was made with {name} {facts.get(name)}, not {value}: leave that out (it is for new files), or "
                "name another file"
            )
    return learner


def _crash(error: BaseException) -> str:
    """Out of memory, mostly."""
    return f"{type(error).__name__}: {error}. Nothing was changed; with fewer frames it may fit (--max-frames 200)"


@contextmanager
def _progress(total: int) -> Iterator[tuple[Progress, Now]]:
    """Lessons done, and of the one that is being read or learned its frames, with the time left; nothing without a terminal."""
    console = Console(stderr=True, highlight=False)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
    )
    how: dict[str, Any] = {
        "console": console,
        "transient": True,
        "disable": not console.is_terminal,
    }
    with Progress(
        *columns, TimeRemainingColumn(), redirect_stdout=sys.stdout.isatty(), **how
    ) as bars:
        bars.add_task("lessons", total=total, visible=total > 1)
        task, doing = bars.add_task("", total=None), ""

        def now(what: str, done: int = 0, of: int = 0) -> None:
            nonlocal doing
            if what != doing:
                doing = what
                bars.reset(task, total=of or None, description=escape(shown(what)))
            bars.update(task, completed=min(done, of) if of else done, total=of or None)

        yield bars, now
