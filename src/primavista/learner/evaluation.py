"""The evaluation of a learner on videos that it was not taught: per frame, per video, by name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

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


@dataclass(frozen=True)
class VideoOutcome:
    """The answers of a learner about one video of one object.

    Args:
        name: The path of the video, or the class and the number of the session.
        truth: The name of the object that it shows.
        taught: Whether the learner knows the object; otherwise it is a stranger.
        answers: How many frames were recognised as each name, "unknown" among them.
        likeliest: How many frames had the right name as the likeliest, known or not.
        answer: What the whole video shows; None if it could not be read.
        problem: Why it could not be read; empty if it was.
    """

    name: str
    truth: str
    taught: bool
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
        return UNKNOWN if self.answer is None else self.answer.said

    @property
    def right(self) -> str:
        """The right answer: the name of an object that was taught, "unknown" for a stranger."""
        return self.truth if self.taught else UNKNOWN

    @property
    def frames_right(self) -> int:
        """The number of frames that got the right answer."""
        return self.answers.get(self.right, 0)

    @property
    def frames_unknown(self) -> int:
        """The number of frames that were called unknown."""
        return self.answers.get(UNKNOWN, 0)


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

    @classmethod
    def of(cls, label: str, videos: Sequence[VideoOutcome]) -> Self:
        """Sum up the videos of an object.

        Args:
            label: Its name.
            videos: At least one video that was read.
        """
        return cls(
            label,
            taught=videos[0].taught,
            videos=len(videos),
            videos_right=sum(video.said == video.right for video in videos),
            frames=_sum(videos, "frames"),
            frames_right=_sum(videos, "frames_right"),
            frames_unknown=_sum(videos, "frames_unknown"),
        )


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
        return tuple(dict.fromkeys(video.truth for video in self._read(taught=False)))

    @property
    def frame_accuracy(self) -> float | None:
        """The share of the frames of taught objects that were given their name; None without any.

        A frame that is called unknown is not right here.
        """
        return _share_of_frames(self._read(taught=True), "frames_right")

    @property
    def likeliest_accuracy(self) -> float | None:
        """The share of the frames of taught objects whose likeliest name is right, known or not."""
        return _share_of_frames(self._read(taught=True), "likeliest")

    @property
    def video_accuracy(self) -> float | None:
        """The share of the videos of taught objects whose answer as a whole is right."""
        return _share_of_videos(self._read(taught=True))

    @property
    def unknown_share(self) -> float | None:
        """The share of the frames of taught objects that were called unknown."""
        return _share_of_frames(self._read(taught=True), "frames_unknown")

    @property
    def strangers_unknown(self) -> float | None:
        """The share of the frames of strangers that were called unknown, as they should be."""
        return _share_of_frames(self._read(taught=False), "frames_unknown")

    @property
    def strangers_unknown_videos(self) -> float | None:
        """The share of the videos of strangers that were called unknown as a whole."""
        return _share_of_videos(self._read(taught=False))

    def objects(self) -> list[ObjectOutcome]:
        """Return the outcome of each object, the taught ones first."""
        names = [*(name for name in self.labels if self._of(name)), *self.strangers]
        return [ObjectOutcome.of(name, self._of(name)) for name in names]

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
            (o.label, f"{o.videos_right} of {o.videos}", f"{o.frames_right} of {o.frames}")
            for o in self.objects()
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
        return [one for one in self.videos if one.taught == taught and not one.problem]

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


# A video that is not opened yet: its name, what it shows, and what opens it.
_Shown: TypeAlias = tuple[str, str, Callable[[], Frames]]


def evaluate_learner(
    learner: Learner,
    data: DataSet | str | Path,
    *,
    max_frames: int = 100,
    fps: float | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Recognise all videos of a data set or of a folder and compare the answers with the truth.

    Args:
        learner: The learner, which learns nothing from them.
        data: A data set, or a folder with one folder per object; see `Learner.evaluate`.
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
        shown = list(_of_data_set(data, max_frames))
    if not shown:
        raise InputError(f"there are no test sessions to evaluate in {data!r}")
    outcomes = []
    for done, one in enumerate(shown, 1):
        outcomes.append(_outcome(learner, *one))
        if progress is not None:
            progress(done, len(shown))
    return Evaluation(tuple(learner.labels), tuple(outcomes))


def _outcome(
    learner: Learner, name: str, truth: str, open_video: Callable[[], Frames]
) -> VideoOutcome:
    """Recognise one video; one that cannot be read is an outcome too."""
    taught = truth in learner.labels
    try:
        predictions = learner.predict(open_video())
    except FileError as error:
        return VideoOutcome(name, truth, taught, problem=str(error))
    answers = Counter(one.said for one in predictions)
    likeliest = sum(one.label == truth for one in predictions)
    answer = fuse(predictions, learner.answer_rule)
    return VideoOutcome(name, truth, taught, dict(answers), likeliest, answer)


def _of_folder(root: Path, size: int, max_frames: int, fps: float | None) -> Iterator[_Shown]:
    from primavista.streams.folder import lessons_of_objects

    for lesson in lessons_of_objects(root):
        read = partial(open_frames, lesson.source, size=size, max_frames=max_frames, fps=fps)
        yield os.path.relpath(lesson.name, root), lesson.label, read


def _of_data_set(data: DataSet, max_frames: int) -> Iterator[_Shown]:
    for session in data.test:
        count = min(len(session), max_frames)
        places = np.linspace(session.start, session.stop - 1, count).round().astype(np.int64)
        truth = data.classes[session.label]
        yield f"{truth}/{session.number}", truth, partial(Selection, data.frames, places)


def percent(share: float | None) -> str:
    """Return a share as a person reads it.

    >>> percent(0.875), percent(None)
    ('87.5 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def _sum(videos: Sequence[VideoOutcome], count: str) -> int:
    return sum(getattr(video, count) for video in videos)


def _share_of_frames(videos: Sequence[VideoOutcome], count: str) -> float | None:
    frames = _sum(videos, "frames")
    return _sum(videos, count) / frames if frames else None


def _share_of_videos(videos: Sequence[VideoOutcome]) -> float | None:
    """Return the share of videos that are right as a whole."""
    return sum(video.said == video.right for video in videos) / len(videos) if videos else None
