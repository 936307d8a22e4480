"""The evaluation of a learner on videos that it was not taught: per frame, per video, by name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from primavista.errors import FileError, InputError
from primavista.learner.prediction import Prediction
from primavista.learner.watch import fuse
from primavista.media.frames import Frames, Selection
from primavista.media.video import open_frames
from primavista.notebook import html_table
from primavista.progress import Progress
from primavista.storage.names import UNKNOWN

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.streams.dataset import DataSet

Sessions = Literal["test", "train", "all"]


@dataclass(frozen=True)
class VideoOutcome:
    """The answers of a learner about one video of one object.

    Args:
        name: The path of the video, or the class and the number of the session.
        truth: The name of the object that it shows.
        answers: How many frames were recognised as each name, "unknown" among them.
        likeliest: How many frames had the right name as the likeliest, known or not.
        answer: What the whole video shows; None if it could not be read.
        problem: Why it could not be read; empty if it was.
    """

    name: str
    truth: str
    answers: dict[str, int] = field(default_factory=dict)
    likeliest: int = 0
    answer: Prediction | None = None
    problem: str = ""

    @property
    def frames(self) -> int:
        """The number of frames that were recognised."""
        return sum(self.answers.values())

    @property
    def said(self) -> str:
        """The answer for the whole video: a name, or "unknown"."""
        return said_of(self.answer)


@dataclass(frozen=True)
class ObjectOutcome:
    """The outcome of all videos of one object, as a row of a table.

    Args:
        label: Its name.
        taught: Whether the learner knows it; otherwise it is a stranger, and unknown is right.
        videos: The number of videos.
        videos_right: How many got the right answer as a whole.
        frames: The number of frames.
        frames_right: How many got the right answer by themselves.
        frames_unknown: How many were called unknown.
    """

    label: str
    taught: bool
    videos: int
    videos_right: int
    frames: int
    frames_right: int
    frames_unknown: int


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The result of `Learner.evaluate`: how well a learner recognises the objects of a data set.

    An answer is the likeliest name, or "unknown" if the familiarity is below the threshold. For an
    object that was taught, its own name is right; for a stranger, "unknown" is right.

    Args:
        labels: The names that the learner knows.
        videos: The outcome of each video, in the order of the data.
    """

    labels: tuple[str, ...]
    videos: tuple[VideoOutcome, ...]

    @property
    def failed(self) -> tuple[VideoOutcome, ...]:
        """The videos that could not be read; they count nowhere else."""
        return tuple(video for video in self.videos if video.problem)

    @property
    def strangers(self) -> tuple[str, ...]:
        """The objects of the data that the learner was not taught."""
        found = dict.fromkeys(video.truth for video in self._read(taught=False))
        return tuple(found)

    @property
    def frame_accuracy(self) -> float | None:
        """The share of the frames of taught objects that were given their name; None without any.

        A frame that is called unknown is not right here.
        """
        videos = self._read(taught=True)
        return _share(sum(v.answers.get(v.truth, 0) for v in videos), _frames(videos))

    @property
    def likeliest_accuracy(self) -> float | None:
        """The share of the frames of taught objects whose likeliest name is right, known or not."""
        videos = self._read(taught=True)
        return _share(sum(video.likeliest for video in videos), _frames(videos))

    @property
    def video_accuracy(self) -> float | None:
        """The share of the videos of taught objects whose answer as a whole is right."""
        videos = self._read(taught=True)
        return _share(sum(video.said == video.truth for video in videos), len(videos))

    @property
    def unknown_share(self) -> float | None:
        """The share of the frames of taught objects that were called unknown."""
        videos = self._read(taught=True)
        return _share(sum(v.answers.get(UNKNOWN, 0) for v in videos), _frames(videos))

    @property
    def strangers_unknown(self) -> float | None:
        """The share of the frames of strangers that were called unknown, as they should be."""
        videos = self._read(taught=False)
        return _share(sum(v.answers.get(UNKNOWN, 0) for v in videos), _frames(videos))

    @property
    def strangers_unknown_videos(self) -> float | None:
        """The share of the videos of strangers that were called unknown as a whole."""
        videos = self._read(taught=False)
        return _share(sum(video.said == UNKNOWN for video in videos), len(videos))

    def objects(self) -> list[ObjectOutcome]:
        """Return the outcome of each object, the taught ones first."""
        names = [*(name for name in self.labels if self._of(name)), *self.strangers]
        found = []
        for name in names:
            videos = self._of(name)
            right = name if name in self.labels else UNKNOWN
            found.append(
                ObjectOutcome(
                    label=name,
                    taught=name in self.labels,
                    videos=len(videos),
                    videos_right=sum(video.said == right for video in videos),
                    frames=_frames(videos),
                    frames_right=sum(video.answers.get(right, 0) for video in videos),
                    frames_unknown=sum(video.answers.get(UNKNOWN, 0) for video in videos),
                )
            )
        return found

    def confusion(self) -> tuple[list[str], list[str], list[list[int]]]:
        """Return the confusion matrix of the frames.

        Returns:
            The names of the rows (what was shown), the names of the columns (the answers, the last
            one "unknown"), and the counts row by row.
        """
        rows = [one.label for one in self.objects()]
        columns = [*self.labels, UNKNOWN]
        counts = []
        for name in rows:
            total: Counter[str] = Counter()
            for video in self._of(name):
                total.update(video.answers)
            counts.append([total[column] for column in columns])
        return rows, columns, counts

    def to_json(self) -> dict[str, object]:
        """Return everything as a JSON object, with the names that the attributes have."""
        rows, columns, counts = self.confusion()
        return {
            **{name: getattr(self, name) for name in MEASURES},
            "labels": list(self.labels),
            "strangers": list(self.strangers),
            "objects": [vars(one) for one in self.objects()],
            "confusion": {"shown": rows, "answers": columns, "frames": counts},
            "videos": [
                {
                    "name": video.name,
                    "truth": video.truth,
                    "answer": video.said if not video.problem else None,
                    "frames": video.frames,
                    "answers": video.answers,
                    "problem": video.problem or None,
                }
                for video in self.videos
            ],
        }

    def __repr__(self) -> str:
        taught, others = self._read(taught=True), self._read(taught=False)
        facts = [
            f"{len(taught)} videos of {len({v.truth for v in taught})} objects",
            f"video_accuracy={percent(self.video_accuracy)}",
            f"frame_accuracy={percent(self.frame_accuracy)}",
        ]
        if others:
            facts.append(f"strangers_unknown={percent(self.strangers_unknown)}")
        if self.failed:
            facts.append(f"{len(self.failed)} could not be read")
        return f"Evaluation({', '.join(facts)})"

    def _repr_html_(self) -> str:
        summary = [
            (text, percent(getattr(self, name)))
            for name, text in MEASURES.items()
            if getattr(self, name) is not None
        ]
        objects = [
            (
                one.label,
                f"{one.videos_right} of {one.videos}",
                f"{one.frames_right} of {one.frames}",
            )
            for one in self.objects()
        ]
        rows, columns, counts = self.confusion()
        matrix = [(name, *row) for name, row in zip(rows, counts, strict=True)]
        return (
            html_table(summary, caption="Evaluation")
            + html_table(objects, header=("shown", "videos right", "frames right"))
            + html_table(matrix, header=("shown \\ answer", *columns), caption="frames")
        )

    def _read(self, taught: bool) -> list[VideoOutcome]:
        """The videos that could be read, of objects that were taught, or of strangers."""
        read = [video for video in self.videos if not video.problem]
        return [video for video in read if (video.truth in self.labels) == taught]

    def _of(self, name: str) -> list[VideoOutcome]:
        return [video for video in self.videos if video.truth == name and not video.problem]


MEASURES = {
    "video_accuracy": "videos of taught objects that were right",
    "frame_accuracy": "frames of taught objects that were right",
    "likeliest_accuracy": "the same, if the likeliest name counts, known or not",
    "unknown_share": "frames of taught objects that were called unknown",
    "strangers_unknown_videos": "videos of strangers that were called unknown",
    "strangers_unknown": "frames of strangers that were called unknown",
}


@dataclass(frozen=True)
class _Shown:
    """A video that is not opened yet."""

    name: str
    truth: str
    open: Callable[[], Frames]


def evaluate_learner(
    learner: Learner,
    data: DataSet | str | Path,
    *,
    sessions: Sessions = "test",
    max_frames: int = 100,
    fps: float | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Recognise all videos of a data set or of a folder and compare the answers with the truth.

    Args:
        learner: The learner, which learns nothing from them.
        data: A data set, or a folder with one folder per object; see `Learner.evaluate`.
        sessions: Which sessions of a data set.
        max_frames: How many frames of each video, evenly spread.
        fps: How many frames per second of the videos of a folder; None for all.
        progress: Called with the number of videos that are done, and their total.

    Raises:
        InputError: If there are no videos, or if the arguments do not fit.
        FileError: If the folder cannot be read.
    """
    if max_frames < 1:
        raise InputError(f"max_frames must be at least 1; got {max_frames}")
    if isinstance(data, str | Path):
        shown = list(_of_folder(Path(data).expanduser(), learner.size, max_frames, fps))
    else:
        shown = list(_of_data_set(data, sessions, max_frames))
    if not shown:
        raise InputError(f"there are no sessions to evaluate in {data!r}: sessions='all' takes all")
    outcomes = []
    for done, one in enumerate(shown, 1):
        outcomes.append(_outcome(learner, one))
        if progress is not None:
            progress(done, len(shown))
    return Evaluation(tuple(learner.labels), tuple(outcomes))


def _outcome(learner: Learner, shown: _Shown) -> VideoOutcome:
    """Recognise one video; one that cannot be read is an outcome too."""
    try:
        predictions = learner.predict(shown.open())
    except FileError as error:
        return VideoOutcome(shown.name, shown.truth, problem=str(error))
    return VideoOutcome(
        name=shown.name,
        truth=shown.truth,
        answers=dict(Counter(map(said_of, predictions))),
        likeliest=sum(one.label == shown.truth for one in predictions),
        answer=fuse(predictions, learner.threshold),
    )


def _of_folder(root: Path, size: int, max_frames: int, fps: float | None) -> Iterator[_Shown]:
    from primavista.streams.folder import lessons_of_objects

    for lesson in lessons_of_objects(root):
        read = partial(open_frames, lesson.source, size=size, max_frames=max_frames, fps=fps)
        yield _Shown(os.path.relpath(lesson.name, root), lesson.label, read)


def _of_data_set(data: DataSet, sessions: str, max_frames: int) -> Iterator[_Shown]:
    chosen = {"test": data.test, "train": data.train, "all": (*data.train, *data.test)}
    if sessions not in chosen:
        raise InputError(f"sessions is one of {', '.join(chosen)}; got {sessions!r}")
    for session in chosen[sessions]:
        count = min(len(session), max_frames)
        places = np.linspace(session.start, session.stop - 1, count).round().astype(np.int64)
        truth = data.classes[session.label]
        name = f"{truth}/{session.number}"
        yield _Shown(name, truth, partial(Selection, data.frames, places))


def said_of(prediction: Prediction | None) -> str:
    """Return the answer of a prediction as a word: the name, or "unknown".

    Args:
        prediction: The prediction; None for something that could not be read.
    """
    if prediction is None or not prediction.known or prediction.label is None:
        return UNKNOWN
    return prediction.label


def percent(share: float | None) -> str:
    """Return a share as a person reads it.

    >>> percent(0.875), percent(None)
    ('87.5 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def _frames(videos: list[VideoOutcome]) -> int:
    return sum(video.frames for video in videos)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
