"""`primavista learn`: teach a saved learner from videos, images, folders and cameras."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from primavista.cli import arguments
from primavista.cli.arguments import (
    check_model,
    chosen_region,
    printable,
    register_named,
    warn_of_password,
)
from primavista.cli.progress import ShowStage, resumable, stages
from primavista.errors import InputError
from primavista.media.addresses import is_live, live_name
from primavista.storage.names import checked_name

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.learner.teaching import LessonOutcome
    from primavista.media.video import Lesson

HERE, RAY = "here", "ray"
ALREADY_TAUGHT = "already taught"
ADVICE_SHOWN = 3
ON_FORGOTTEN = (
    "If you forgot it on purpose, use --again. A trace of the first lesson stays in the statistics "
    "that all objects share, and then counts twice."
)


def learn(
    model: Path,
    sources: list[str],
    label: str | None = None,
    strategy: str | None = None,
    backbone: str | None = None,
    weights: str | None = None,
    size: arguments.ImageSize = None,
    option: list[str] | None = None,
    threshold: arguments.Threshold = None,
    max_frames: arguments.MaxFrames = 600,
    fps: arguments.VideoFps = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=3600)] = 5.0,
    region: arguments.RegionText = None,
    skip_bad: bool = False,
    again: bool = False,
    no_coach: bool = False,
    on: str = HERE,
    device: str = "auto",
    as_json: arguments.AsJson = False,
) -> None:
    """Teach a learner: each source is a lesson, on disk before the next one begins.

    The file is created if it does not exist. A lesson that fails changes nothing, and the others go
    on; a lesson that was taught before is left out. Run the same command again after an
    interruption to continue. The exit code is 1 if a lesson failed, or if there was nothing new.

    Examples: `primavista learn kitchen.pv --label mug mug.mp4 mug-photos/`,
    `primavista learn kitchen.pv --label cup camera:0`,
    `primavista learn kitchen.pv toys/` (toys/mug/1.mp4, toys/cup/monday/001.jpg, ...)

    `--threshold` is kept in the file, also if there is nothing new to learn.

    With `--on ray` the machines of a cluster learn parts of the lessons, which are merged in order,
    with the same result. This is for strategies that can be merged: prima, ridge, lda, ncm.

    Args:
        sources: Videos, images, folders, cameras (camera:0, /dev/video0, rtsp://..., http://...,
            env:NAME); one lesson each, in this order.
        label: What they show. Without it, a folder holds one folder per object, named after it.
        backbone: New files only: mobilenet_v1 (default), efficientnet_lite0, resnet50, or your
            own: package.module:function, which returns a torch.nn.Module.
        weights: New files only: objects (default), imagenet, timm, random, or a file.
        option: New files only: option of the strategy, e.g. balance=0.5; repeatable.
        seconds: How long to record from a camera.
        again: Teach a lesson again that was taught before.
        no_coach: Do not test known objects first: faster, no advice.
        on: here, or a Ray cluster: ray (this machine's), ray://HOST:PORT.
    """
    from primavista.learner.learner import open_learner
    from primavista.storage.disk import file_lock

    if on not in (HERE, RAY) and not on.startswith(f"{RAY}://"):
        raise InputError(f"--on is {HERE}, {RAY} or {RAY}://HOST:PORT; got {on!r}")
    check_model(model, sources[0])
    register_named(strategy, backbone)
    how: dict[str, Any] = {"max_frames": max_frames, "fps": fps, "skip_bad": skip_bad}
    how |= {"seconds": seconds, "region": chosen_region(region)}
    lessons = find_lessons(sources, label)
    if on != HERE and (again or any(isinstance(lesson.source, str) for lesson in lessons)):
        raise InputError(
            "on a cluster, cameras cannot be seen and no lesson can be taught again: leave out --on"
        )
    given = {"strategy": strategy, "backbone": backbone, "weights": weights, "size": size}
    options = _strategy_options(option or (), reserved=(*given, "device", "threshold"))
    options |= {name: value for name, value in given.items() if value is not None}
    with resumable(), file_lock(model) as target, stages(len(lessons)) as (bars, show):
        if weights is not None and target.exists():
            note = f"{target.name} goes on with the network that is in it"
            typer.echo(f"--weights is for new files: {note}", err=True)
        learner = open_learner(target, device=device, **options)
        changed = threshold not in (None, learner.threshold)
        learner.threshold = learner.threshold if threshold is None else threshold
        if on == HERE:
            parts = _learn_here(learner, lessons, show, how, again, not no_coach)
        else:
            parts = _learn_on_cluster(learner, lessons, show, how, on)
        statuses: Counter[str] = Counter()
        for outcomes in parts:
            if any(outcome.status == "learned" for outcome in outcomes):
                learner.save(target)
            for outcome in outcomes:
                number = statuses.total()
                lesson = lessons[number]
                # `print` alone takes away the bar before it writes; rich and click write behind it
                if as_json:
                    record = {"lesson": number + 1, "of": len(lessons), "label": lesson.label}
                    print(json.dumps(record | {"source": lesson.name, **asdict(outcome)}))
                else:
                    console = Console(highlight=False)
                    with console.capture() as line:
                        text = _outcome_text(lesson, outcome, learner.labels)
                        console.print(text, soft_wrap=True)
                    print(line.get(), end="")
                statuses[outcome.status] += 1
                bars.advance(bars.task_ids[0])
        if changed and not statuses["learned"] and target.exists():
            learner.save(target)
    _print_end(learner, target, statuses, as_json)
    if statuses["failed"] or not statuses["learned"]:
        raise typer.Exit(1)


def find_lessons(sources: Sequence[str], label: str | None) -> list[Lesson]:
    """Find the lessons of all sources, in their order, before any of them is taught.

    A folder may hold pictures (one lesson), videos and folders of pictures (one lesson each).
    Without a label it holds one such folder per object, named after it. The name of a lesson is the
    path of its source.
    """
    from primavista.media.video import Lesson, find_media, lessons_of_object
    from primavista.streams.folder import lessons_of_objects

    found: list[Lesson] = []
    for source in sources:
        path = Path(source).expanduser()
        if source.strip() and path.is_dir():
            found += lessons_of_objects(path) if label is None else lessons_of_object(path, label)
            continue
        files: str | tuple[Path, ...]
        if is_live(source):
            files, name = source, live_name(source)
            warn_of_password(source)
        else:
            files, name = tuple(find_media(source)), source
        if label is None:
            raise InputError(
                f"what does {name} show? Say it with --label mug "
                "(only a folder of folders has names in it)"
            )
        found.append(Lesson(label, files, name))
    return [replace(lesson, label=checked_name(lesson.label)) for lesson in found]


def _learn_here(
    learner: Learner,
    lessons: Sequence[Lesson],
    show: ShowStage,
    how: dict[str, Any],
    again: bool,
    coach: bool,
) -> Iterator[list[LessonOutcome]]:
    """Learn one lesson after the other; yield the outcome of each, before the next one begins."""
    from primavista.learner.coach import lessons_to_test

    # the coach advises by the last lessons of each object: testing others would be in vain
    tested = lessons_to_test([lesson.label for lesson in lessons])
    for lesson, test in zip(lessons, tested, strict=True):
        refuse = () if again else learner.lessons
        yield [learn_shown(learner, lesson, show, how, refuse=refuse, coach=coach and test)]


def learn_shown(
    learner: Learner, lesson: Lesson, show: ShowStage, how: dict[str, Any], **teaching: Any
) -> LessonOutcome:
    """Learn one lesson, and show how far its reading and its learning are.

    `how` are arguments of `open_frames`, and `teaching` those of `Learner.learn`.
    """
    from primavista.learner.teaching import learn_lesson

    stage = f"reading {lesson.name}"
    if isinstance(lesson.source, str):
        stage = f"show {lesson.label} to {lesson.name} for {how['seconds']:g} s"
    show(stage)

    def learning(done: int, total: int | None, /) -> None:
        if total and done >= total:
            show(f"finishing {lesson.label}")
        else:
            show(f"learning {lesson.label}", done, total)

    reading = {**how, "progress": partial(show, stage)}
    return learn_lesson(learner, lesson, reading, progress=learning, **teaching)


def _learn_on_cluster(
    learner: Learner, lessons: Sequence[Lesson], show: ShowStage, how: dict[str, Any], on: str
) -> Iterator[list[LessonOutcome]]:
    """Learn all lessons on the machines of a cluster; yield the outcomes of each merged part."""
    from primavista.bench.ray_cluster import ray_cluster
    from primavista.learner.teaching import teach

    found = [
        replace(lesson, source=tuple(Path(file).resolve() for file in lesson.source))
        for lesson in lessons
    ]
    with ray_cluster("" if on == RAY else on) as ray:
        show("learning on the cluster")
        yield from teach(learner, found, ray, **how)


def _outcome_text(lesson: Lesson, outcome: LessonOutcome, labels: Sequence[str]) -> str:
    """Return the line that is printed about one lesson, in the markup of rich."""
    name = f"[bold]{escape(printable(lesson.label))}[/bold]"
    source = escape(printable(lesson.name))
    if outcome.status == "failed":
        return f"[red]failed:[/red] {name}: {escape(printable(outcome.reason))}"
    if outcome.status == "learned":
        note = f" [dim]{escape(printable(outcome.note))}[/dim]" if outcome.note else ""
        return f"{name}: {outcome.frames} frames of {source} in {outcome.seconds:.1f} s{note}"
    hint = "[dim](--again teaches it once more)[/dim]"
    text = f"{name}: {source} was taught before, left out {hint}"
    if lesson.label in labels:
        return text
    return (
        f"{text}\n  though no {name} is known: it was forgotten, renamed, or taught under "
        f"another name. {ON_FORGOTTEN}"
    )


def _print_end(learner: Learner, target: Path, statuses: Counter[str], as_json: bool) -> None:
    advice = learner.advice()
    if as_json:
        names = ("learned", ALREADY_TAUGHT, "failed")
        counts = {name.replace(" ", "_"): statuses[name] for name in names}
        told = {"objects": learner.counts, "advice": [asdict(one) for one in advice]}
        typer.echo(json.dumps({"file": str(target), **counts, **told}))
        return
    if set(statuses) == {ALREADY_TAUGHT}:
        typer.echo("there was nothing new to learn")
    if learner.labels:
        typer.echo(summary(learner, target))
        for one in advice[:ADVICE_SHOWN]:
            typer.echo(f"next: {printable(one.text)}")


def summary(learner: Learner, path: Path) -> str:
    """Return one line on what the learner of a file knows."""
    if not learner.labels:
        return f"{printable(path.name)} knows nothing yet"
    known = ", ".join(f"{printable(name)} ({count})" for name, count in learner.counts.items())
    objects = "1 object" if len(learner.labels) == 1 else f"{len(learner.labels)} objects"
    return f"{printable(path.name)} knows {objects} (frames): {known}"


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
