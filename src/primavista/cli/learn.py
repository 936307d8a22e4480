"""`primavista learn`: teach a saved learner from videos, images, folders and cameras."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBars

from primavista.cli.arguments import (
    MAX_SIZE,
    MIN_SIZE,
    Device,
    Model,
    RegionText,
    Threshold,
    chosen_region,
    printable,
    register_named,
    warn_of_password,
)
from primavista.errors import InputError, PrimavistaError
from primavista.learner.coach import lessons_to_test
from primavista.storage.manifest import checked_name

if TYPE_CHECKING:
    from primavista.learner.fleet import LessonOutcome
    from primavista.learner.learner import Learner
    from primavista.media.images import Region
    from primavista.media.video import Camera, Lesson, MediaFiles

    SourceLesson: TypeAlias = Lesson[Camera | MediaFiles]

NEW = "New files only: "
HERE, RAY = "here", "ray"
ALREADY_TAUGHT = "already taught"
ADVICE_SHOWN = 3
ON_FORGOTTEN = (
    "If you forgot it on purpose, use --again. A trace of the first lesson stays in the statistics "
    "that all objects share, and then counts twice."
)


@dataclass(frozen=True)
class LessonOptions:
    """The options of reading the sources of lessons and of teaching the same lesson again.

    Args:
        max_frames: How many frames of each source are kept, evenly spread.
        fps: How many frames per second of a video are taken; None for all.
        seconds: How long to look through a camera.
        skip_bad: Whether frames that cannot be decoded are left out.
        again: Whether to teach what was taught before once more.
        coach: Whether lessons of known objects are predicted first, for advice.
        region: The part of the picture to look at; None for all of it.
    """

    max_frames: int
    fps: float | None
    seconds: float
    skip_bad: bool
    again: bool
    coach: bool = True
    region: Region | None = None


class ShowStage(Protocol):
    """Shows what is being done, and how far it is."""

    def __call__(self, text: str, done: int = 0, total: int | None = None, /) -> None:
        """Show a stage of a lesson.

        Args:
            text: What is being done.
            done: How many frames are done.
            total: Of how many; None or 0 if that is not known.
        """


def learn(
    model: Model,
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Videos, images, folders, cameras (camera:0, /dev/video0, rtsp://..., http://..., "
            "env:NAME); one lesson each, in this order."
        ),
    ],
    label: Annotated[
        str | None,
        typer.Option(
            help="What they show. Without it, a folder holds one folder per object, named after it."
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help=NEW + "prima (default), cwr*, ..., or your own: package.module:Class."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help=NEW + "mobilenet_v1 (default), efficientnet_lite0, or your own: "
            "package.module:function, which returns a torch.nn.Module."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help=NEW + "imagenet (default), timm, random, or a file.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            help=NEW + "side of the images in pixels (default: 192).", min=MIN_SIZE, max=MAX_SIZE
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help=NEW + "option of the strategy, e.g. balance=0.5; repeatable."),
    ] = None,
    threshold: Threshold = None,
    max_frames: Annotated[
        int, typer.Option(help="Frames kept of each source, evenly spread.", min=1)
    ] = 600,
    fps: Annotated[
        float | None,
        typer.Option(help="Frames per second to take of videos (default: all).", min=0.001),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="How long to record from a camera.", min=0.1, max=3600)
    ] = 5.0,
    region: RegionText = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out frames that cannot be decoded.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Teach a lesson again that was taught before.")
    ] = False,
    no_coach: Annotated[
        bool,
        typer.Option("--no-coach", help="Do not test known objects first: faster, no advice."),
    ] = False,
    on: Annotated[
        str, typer.Option(help="here, or a Ray cluster: ray (this machine's), ray://HOST:PORT.")
    ] = HERE,
    device: Device = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="One line of JSON for each lesson and one at the end.")
    ] = False,
) -> None:
    """Teach a learner: each source is a lesson, on disk before the next one begins.

    The learner is made if there is no such file. A lesson that fails changes nothing, and the
    others go on; one that the learner has had already is left out. So the same command after an
    interruption goes on with what is missing. The exit code is 1 if a lesson failed, or if there
    was nothing new.

    Examples: `primavista learn kitchen.pv --label mug mug.mp4 mug-photos/`,
    `primavista learn kitchen.pv --label cup camera:0`,
    `primavista learn kitchen.pv toys/` (toys/mug/1.mp4, toys/cup/monday/001.jpg, ...)

    `--threshold` is kept in the file, also if there is nothing new to learn.

    With `--on ray` the lessons are learned on all machines of a cluster at once and merged, with
    the same result, for the strategies that can be merged (prima, ridge, lda, ncm). The file is
    written once, at the end.
    """
    from primavista.learner.learner import open_learner
    from primavista.storage.disk import file_lock

    _check_place(on)
    register_named(strategy, backbone)
    part = chosen_region(region)
    lessons = find_lessons(sources, label)
    given = {"strategy": strategy, "backbone": backbone, "weights": weights, "size": size}
    asked = {name: value for name, value in given.items() if value is not None}
    options = _strategy_options(option or (), reserved=(*given, "device", "threshold"))
    with file_lock(model) as target:
        if weights is not None and target.exists():
            note = f"{target.name} goes on with the network that is in it"
            typer.echo(f"--weights is for new files: {note}", err=True)
        learner = open_learner(target, device=device, **options, **asked)
        changed = _set_threshold(learner, threshold)
        reading = LessonOptions(max_frames, fps, seconds, skip_bad, again, not no_coach, part)
        teacher = Teacher(learner, target, reading, as_json)
        if on == HERE:
            teacher.teach_here(lessons)
        else:
            teacher.teach_on_cluster(lessons, "" if on == RAY else on)
        if changed:
            teacher.save_without_lessons()
    if teacher.statuses["failed"] or not teacher.statuses["learned"]:
        raise typer.Exit(1)


def find_lessons(sources: Sequence[str], label: str | None) -> list[SourceLesson]:
    """Find the lessons of all sources, in their order, before any of them is taught.

    A folder may hold pictures (one lesson), videos and folders of pictures (one lesson each).
    Without a label it holds one such folder per object, named after it.

    Args:
        sources: Files, folders and cameras, as they were typed.
        label: The name of the object that all of them show, or None.

    Returns:
        One lesson per video or folder of pictures; the name of each is its path.

    Raises:
        FileError: If a source cannot be read, or holds neither images nor videos.
        InputError: If it is not clear what a source shows, or if a name is not valid.
    """
    from primavista.media.video import Camera, Lesson, find_source, lessons_of_object
    from primavista.streams.folder import lessons_of_objects

    found: list[SourceLesson] = []
    for source in sources:
        path = Path(source).expanduser()
        if source.strip() and path.is_dir():
            found += lessons_of_objects(path) if label is None else lessons_of_object(path, label)
            continue
        media, name = find_source(source), source
        if isinstance(media, Camera):
            name = media.name
            warn_of_password(source)
        found.append(Lesson(_required_label(label, name), media, name))
    return [replace(lesson, label=checked_name(lesson.label)) for lesson in found]


def _required_label(label: str | None, source: str) -> str:
    if label is None:
        raise InputError(
            f"what does {source} show? Say it with --label mug "
            "(only a folder of folders has names in it)"
        )
    return label


@dataclass
class Teacher:
    """Teaches lessons in order and prints the outcome of each.

    Args:
        learner: The learner.
        target: Its file. It holds every lesson that was learned here; the lessons of a cluster are
            written together at the end.
        reading: How sources are read.
        as_json: Whether to print JSON lines instead of text.
        statuses: How many lessons were "learned", "already taught" or "failed".
    """

    learner: Learner
    target: Path
    reading: LessonOptions
    as_json: bool
    statuses: Counter[str] = field(default_factory=Counter)

    def teach_here(self, lessons: list[SourceLesson]) -> None:
        """Teach lessons one after the other, each on disk before the next one begins.

        Args:
            lessons: The lessons.

        Raises:
            typer.Exit: With code 130, if the user interrupts it.
        """
        # the coach advises by the last lessons of each object: testing others would be in vain
        tested = lessons_to_test([lesson.label for lesson in lessons])
        with _progress_bars(len(lessons)) as (bars, show):
            try:
                for number, (lesson, test) in enumerate(zip(lessons, tested, strict=True), 1):
                    outcome = self._teach(lesson, show, self.reading.coach and test)
                    self._print(number, len(lessons), lesson, outcome, bars)
                    bars.advance(bars.task_ids[0])
            except KeyboardInterrupt:
                bars.stop()
                kept = f"{self.statuses['learned']} of {len(lessons)} lessons"
                message = f"stopped. What was learned is kept ({kept}); "
                typer.echo(f"{message}the same command goes on with the rest.", err=True)
                raise typer.Exit(130) from None
        self._print_summary()

    def save_without_lessons(self) -> None:
        """Save a changed threshold if no lesson has saved the file.

        A missing file is not created.
        """
        if not self.statuses["learned"] and self.target.exists():
            self.learner.save(self.target)

    def teach_on_cluster(self, lessons: list[SourceLesson], address: str) -> None:
        """Teach all lessons at once, on the machines of a cluster; the file is written at the end.

        Args:
            lessons: The lessons.
            address: "ray://HOST:PORT", or "" for the cluster of this machine.

        Raises:
            InputError: If a lesson cannot be learned on another machine.
        """
        from primavista.learner import fleet

        reading = self.reading
        resolved = [_resolved(lesson) for lesson in lessons]
        if reading.again or reading.region or None in resolved:
            raise InputError(
                "on a cluster, cameras cannot be seen, no lesson can be taught again, and pictures "
                "are looked at whole: leave out --on"
            )
        opener = partial(
            fleet.open_source,
            max_frames=reading.max_frames,
            fps=reading.fps,
            skip_bad=reading.skip_bad,
        )
        with (
            _progress_bars(len(lessons)) as (bars, show),
            fleet.ray_cluster(address) as machines,
        ):
            show("learning on the cluster")
            outcomes = fleet.teach(
                self.learner,
                [lesson for lesson in resolved if lesson is not None],
                machines,
                opener=opener,
                listen=lambda told: bars.advance(bars.task_ids[0], len(told)),
            )
            if any(outcome.status == "learned" for outcome in outcomes):
                self.learner.save(self.target)
            for number, (lesson, outcome) in enumerate(zip(lessons, outcomes, strict=True), 1):
                self._print(number, len(lessons), lesson, _outcome_record(outcome), bars)
        self._print_summary()

    def _teach(self, lesson: SourceLesson, show: ShowStage, coach: bool) -> dict[str, Any]:
        """Return the outcome of one lesson: "failed" if its source or its frames are bad."""
        began = time.monotonic()
        try:
            reading = replace(self.reading, coach=coach)
            record = teach_lesson(self.learner, lesson, reading, show)
        except PrimavistaError as error:
            return {"status": "failed", "reason": str(error)}
        except (RuntimeError, MemoryError) as error:  # mostly out of memory
            reason = (
                f"{type(error).__name__}: {error}. Nothing was changed; with fewer frames it may "
                "fit (--max-frames 200)"
            )
            return {"status": "failed", "reason": reason}
        if record["status"] == "learned":
            self.learner.save(self.target)
            record["seconds"] = round(time.monotonic() - began, 3)
        return record

    def _print(
        self,
        number: int,
        of: int,
        lesson: SourceLesson,
        outcome: dict[str, Any],
        bars: ProgressBars,
    ) -> None:
        self.statuses[outcome["status"]] += 1
        position = {"lesson": number, "of": of, "label": lesson.label, "source": lesson.name}
        record = {**position, **outcome}
        if self.as_json:
            typer.echo(json.dumps(record))
            return
        # on a terminal, the line goes above the progress bars
        above = sys.stdout.isatty() and not bars.disable
        console = bars.console if above else Console(highlight=False)
        console.print(_outcome_text(record, self.learner.labels), soft_wrap=True)

    def _print_summary(self) -> None:
        if self.as_json:
            names = ("learned", ALREADY_TAUGHT, "failed")
            counts = {name.replace(" ", "_"): self.statuses[name] for name in names}
            advice = [asdict(one) for one in self.learner.advice()]
            objects = self.learner.counts
            end = {"file": str(self.target), **counts, "objects": objects, "advice": advice}
            typer.echo(json.dumps(end))
            return
        if set(self.statuses) == {ALREADY_TAUGHT}:
            typer.echo("there was nothing new to learn")
        if self.learner.labels:
            typer.echo(summary(self.learner, self.target))
            for one in self.learner.advice()[:ADVICE_SHOWN]:
                typer.echo(f"next: {printable(one.text)}")


def summary(learner: Learner, path: Path) -> str:
    """Return one line on what the learner of a file knows.

    Args:
        learner: The learner.
        path: Its file.
    """
    if not learner.labels:
        return f"{printable(path.name)} knows nothing yet"
    known = ", ".join(f"{printable(name)} ({count})" for name, count in learner.counts.items())
    objects = "1 object" if len(learner.labels) == 1 else f"{len(learner.labels)} objects"
    return f"{printable(path.name)} knows {objects} (frames): {known}"


def teach_lesson(
    learner: Learner, lesson: SourceLesson, reading: LessonOptions, show: ShowStage
) -> dict[str, Any]:
    """Open the frames of one lesson and learn them; nothing is changed if that fails.

    Args:
        learner: The learner.
        lesson: The lesson.
        reading: How its source is read.
        show: Told what is being done, and how far it is.

    Returns:
        The fields of the outcome: the status "learned" or "already taught".
    """
    from primavista.learner.lesson import AlreadyTaughtError
    from primavista.media.video import Camera, open_frames

    stage = f"reading {lesson.name}"
    if isinstance(lesson.source, Camera):
        stage = f"show {lesson.label} to {lesson.name} for {reading.seconds:g} s"
    show(stage)
    clip = open_frames(
        lesson.source,
        size=learner.size,
        max_frames=reading.max_frames,
        fps=reading.fps,
        skip_bad=reading.skip_bad,
        seconds=reading.seconds,
        region=reading.region,
        progress=partial(show, stage),
    )
    refuse = () if reading.again else learner.lessons
    progress = partial(_show_learning, show, lesson.label)
    try:
        learner.learn(clip, lesson.label, refuse=refuse, coach=reading.coach, progress=progress)
    except AlreadyTaughtError as error:
        return {"status": ALREADY_TAUGHT, "id": error.lesson_id}
    identity = learner.lessons[-1]
    return {"status": "learned", "id": identity, "frames": len(clip), "note": clip.note}


def _show_learning(show: ShowStage, label: str, done: int, total: int | None) -> None:
    """Show how many frames of a lesson are learned; after the last one, that it is finishing."""
    if total and done >= total:
        show(f"finishing {label}")
    else:
        show(f"learning {label}", done, total)


def _set_threshold(learner: Learner, threshold: float | None) -> bool:
    """Set the threshold unless it is None; return True if that changes it."""
    before = learner.threshold
    learner.threshold = before if threshold is None else threshold
    return learner.threshold != before


def _check_place(on: str) -> None:
    if on not in (HERE, RAY) and not on.startswith(f"{RAY}://"):
        raise InputError(f"--on is {HERE}, {RAY} or {RAY}://HOST:PORT; got {on!r}")


def _strategy_options(texts: Sequence[str], reserved: Sequence[str]) -> dict[str, Any]:
    """Parse the texts of --option; refuse the names in `reserved`, which have their own options."""
    from primavista.storage.settings import parse_setting

    options = {}
    for text in texts:
        keys, value = parse_setting(text, "balance=0.5")
        options[".".join(keys)] = value
    for name in reserved:
        if name in options:
            raise InputError(f"{name} is not an option of a strategy: say --{name} {options[name]}")
    return options


def _resolved(lesson: SourceLesson) -> SourceLesson | None:
    """Return the lesson with absolute paths, or None if its source is a camera."""
    from primavista.media.video import Camera, MediaFiles

    if isinstance(lesson.source, Camera):
        return None
    paths = tuple(path.resolve() for path in lesson.source.paths)
    return replace(lesson, source=MediaFiles(paths))


def _outcome_record(outcome: LessonOutcome) -> dict[str, Any]:
    if outcome.status == "failed":
        return {"status": "failed", "reason": outcome.reason}
    if outcome.status == ALREADY_TAUGHT:
        return {"status": ALREADY_TAUGHT, "id": outcome.id}
    learned = {"frames": outcome.frames, "seconds": outcome.seconds, "note": outcome.note}
    return {"status": "learned", "id": outcome.id, **learned}


def _outcome_text(record: dict[str, Any], labels: Sequence[str]) -> str:
    """Return the line that is printed about one lesson, in the markup of rich."""
    name = f"[bold]{escape(printable(record['label']))}[/bold]"
    source = escape(printable(record["source"]))
    if record["status"] == "failed":
        return f"[red]failed:[/red] {name}: {escape(printable(record['reason']))}"
    if record["status"] == ALREADY_TAUGHT:
        hint = "[dim](--again teaches it once more)[/dim]"
        text = f"{name}: {source} was taught before, left out {hint}"
        if record["label"] not in labels:
            text += (
                f"\n  though no {name} is known: it was forgotten, renamed, or taught under "
                f"another name. {ON_FORGOTTEN}"
            )
        return text
    note = f" [dim]{escape(printable(record['note']))}[/dim]" if record["note"] else ""
    return f"{name}: {record['frames']} frames of {source} in {record['seconds']:.1f} s{note}"


@contextmanager
def _progress_bars(total: int) -> Iterator[tuple[ProgressBars, ShowStage]]:
    """Show how many lessons are done and how far the current one is; nothing without a terminal."""
    console = Console(stderr=True, highlight=False)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with ProgressBars(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    ) as bars:
        bars.add_task("lessons", total=total, visible=total > 1)
        task, stage = bars.add_task("", total=None), ""

        def show(text: str, done: int = 0, total: int | None = None, /) -> None:
            nonlocal stage
            if text != stage:
                stage = text
                bars.reset(task, total=total or None, description=escape(printable(text)))
            completed = min(done, total) if total else done
            bars.update(task, completed=completed, total=total or None)

        yield bars, show
