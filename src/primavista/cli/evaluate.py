"""`primavista evaluate`: how well a saved learner recognises a folder of videos."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from primavista.cli.arguments import (
    AsJson,
    MaxFrames,
    Threshold,
    check_model,
    check_writable,
    load_learner,
    printable,
)
from primavista.cli.progress import progress_bar
from primavista.storage.csv_file import write_csv

if TYPE_CHECKING:
    from primavista.learner.evaluation import Evaluation

MOST_COLUMNS = 12  # of the confusion matrix on a terminal
CSV_ANSWER = ("said", "answer", "label", "right")
CSV_FRAMES = ("known", "known_right", "likely", "likely_right", "unknown", "unknown_right")
CSV_COLUMNS = ("video", "object", "taught", *CSV_ANSWER, "frames", *CSV_FRAMES, "problem")


def evaluate(
    model: Path,
    folder: Path,
    csv: Path | None = None,
    max_frames: MaxFrames = 100,
    threshold: Threshold = None,
    device: str = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure how well a learner recognises videos that it was not taught. Nothing is learned.

    The folder is laid out as for `primavista learn MODEL FOLDER`. The table says how many frames
    are known, likely and unknown, and how many of each are right: those whose name is that of their
    folder. For objects that were not taught (strangers), "unknown" is right. A video that cannot be
    read is named, the others go on, and the exit code is 1.

    Examples: `primavista evaluate kitchen.pv test-videos/`,
    `primavista evaluate kitchen.pv test-videos/ --csv videos.csv`

    Args:
        folder: One folder per object, named after it, with videos or folders of pictures.
        csv: Write one row per video, e.g. videos.csv.
    """
    check_model(model, folder)
    check_writable(csv)
    learner = load_learner(model, device, threshold)
    with progress_bar("videos") as progress:
        result = learner.evaluate(folder, max_frames=max_frames, progress=progress)
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        _print(result)
    if csv is not None:
        write_csv(csv, CSV_COLUMNS, _rows(result))
        if not as_json:
            typer.echo(f"wrote {printable(str(csv))}")
    if result.failed:
        raise typer.Exit(1)


def _rows(result: Evaluation) -> list[tuple[object, ...]]:
    """The rows of the CSV file, one per video."""
    rows: list[tuple[object, ...]] = []
    for video in result.videos:
        answer: tuple[object, ...] = ("",) * len(CSV_ANSWER)
        if video.answer is not None:
            fused = video.answer
            answer = (fused.said, fused.answer, fused.label, video.is_right)
        frames = (video.frames.total, *(getattr(video.frames, name) for name in CSV_FRAMES))
        rows.append((video.name, video.truth, video.taught, *answer, *frames, video.problem))
    return rows


def _print(result: Evaluation) -> None:
    from primavista.learner.evaluation import ANSWERS, FRAMES, MEASURES, answer_cells, percent

    console = Console(highlight=False)
    objects = Table("shown", "videos right", *ANSWERS, title=FRAMES, box=None)
    for column in objects.columns[1:]:
        column.justify = "right"
    for one in result.objects():
        name = one.label if one.taught else f"{one.label} (not taught)"
        objects.add_row(
            Text(printable(name)),
            f"{one.videos_right} of {one.videos}",
            *answer_cells(one.frames),
        )
    console.print(objects)
    _print_confusion(result, console)
    for name, text in MEASURES.items():
        share = getattr(result, name)
        if share is not None:
            console.print(f"{percent(share):>8}  {text}")
    for video in result.failed:
        console.print(Text(f"could not be read: {printable(video.problem)}", style="red"))


def _print_confusion(result: Evaluation, console: Console) -> None:
    """Print the confusion matrix, unless it is too wide."""
    rows, columns, counts = result.confusion()
    if len(columns) > MOST_COLUMNS:
        console.print("--json has the confusion matrix", style="dim")
        return
    table = Table("shown \\ answer", *map(printable, columns), title="frames", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in zip(rows, counts, strict=True):
        table.add_row(Text(printable(name)), *(str(count or ".") for count in row))
    console.print(table)
