"""The evaluation of a learner on videos that it was not taught: per frame, per video, by name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np

from primavista.errors import FileError, InputError
from primavista.learner.prediction import Answer, Prediction
from primavista.learner.watch import fuse
from primavista.media.frames import Frames, Selection
from primavista.media.video import open_frames
from primavista.progress import Progress
from primavista.storage.names import UNKNOWN

if TYPE_CHECKING:
    from primavista.learner.learner import Learner
    from primavista.streams.dataset import DataSet


@dataclass(frozen=True)
class FrameCounts:
    """How many frames got each answer, and how many of them are right.

    For an object that was taught, its name is right; of an unknown frame, the likeliest name
    counts. For a stranger "unknown" is right, and nothing else is.

    Args:
        known: The number of frames that are known.
        known_right: How many of them are right.
        likely: The number of frames that are likely.
        likely_right: How many of them are right.
        unknown: The number of frames that are unknown.
        unknown_right: How many of them are right.
    """

    known: int = 0
    known_right: int = 0
    likely: int = 0
    likely_right: int = 0
    unknown: int = 0
    unknown_right: int = 0

    @classmethod
    def of(cls, videos: Iterable[VideoOutcome]) -> Self:
        """Sum up the frames of videos.

        Args:
            videos: The outcomes of the videos.
        """
        counts: Counter[str] = Counter()
        for video in videos:
            for answer, names in video.answers.items():
                count = sum(names.values())
                counts[answer] += count
                if video.taught:
                    counts[f"{answer}_right"] += names.get(video.truth, 0)
                elif answer == UNKNOWN:
                    counts[f"{answer}_right"] += count
        return cls(**counts)

    @property
    def total(self) -> int:
        """The number of frames."""
        return self.known + self.likely + self.unknown


@dataclass(frozen=True)
class VideoOutcome:
    """The answers of a learner about one video of one object.

    Args:
        name: The path of the video, or the class and the number of the session.
        truth: The name of the object that it shows.
        taught: Whether the learner knows the object; otherwise it is a stranger.
        answers: For each answer (known, likely, unknown), how many frames got it, by their
            likeliest name.
        answer: What the whole video shows; None if it could not be read.
        problem: Why it could not be read; empty if it was.
    """

    name: str
    truth: str
    taught: bool
    answers: dict[Answer, dict[str, int]] = field(default_factory=dict)
    answer: Prediction | None = None
    problem: str = ""

    @property
    def frames(self) -> FrameCounts:
        """The frames that were recognised."""
        return FrameCounts.of([self])

    @property
    def is_known(self) -> bool:
        """Whether the video as a whole is called known."""
        return self.answer is not None and self.answer.known

    @property
    def is_right(self) -> bool:
        """Whether the answer for the whole video is right, known or likely.

        The right answer is its name if the object was taught, and "unknown" for a stranger.
        """
        if self.answer is None:
            return False
        is_unknown = self.answer.answer == UNKNOWN
        if not self.taught:
            return is_unknown
        return not is_unknown and self.answer.label == self.truth

    def named(self) -> Counter[str]:
        """Count the frames by the name that they were given, known or likely, or "unknown"."""
        counts: Counter[str] = Counter()
        for answer, names in self.answers.items():
            counts.update({UNKNOWN: sum(names.values())} if answer == UNKNOWN else names)
        return counts


@dataclass(frozen=True)
class ObjectOutcome:
    """The outcome of all videos of one object, as a row of a table.

    Args:
        label: Its name.
        taught: Whether the learner knows it; otherwise it is a stranger, and unknown is right.
        videos: The number of videos.
        videos_right: How many got the right answer as a whole, known or likely.
        frames: The answers to the single frames.
    """

    label: str
    taught: bool
    videos: int
    videos_right: int
    frames: FrameCounts

    @classmethod
    def of(cls, label: str, videos: Sequence[VideoOutcome]) -> Self:
        """Sum up the videos of an object.

        Args:
            label: Its name.
            videos: At least one video that was read.
        """
        right = sum(video.is_right for video in videos)
        return cls(label, videos[0].taught, len(videos), right, FrameCounts.of(videos))


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The result of `Learner.evaluate`: how well a learner recognises the objects of a data set.

    An answer is a name, which is known or likely, or "unknown". For an object that was taught, its
    own name is right; for a stranger, "unknown" is right.

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

        The name may be known or likely. A frame that is called unknown is not right here.
        """
        return _share(self._frames(taught=True), "known_right", "likely_right")

    @property
    def known_accuracy(self) -> float | None:
        """The share of the frames of taught objects that are known by their name."""
        return _share(self._frames(taught=True), "known_right")

    @property
    def likeliest_accuracy(self) -> float | None:
        """The share of the frames of taught objects whose likeliest name is right, known or not."""
        return _share(self._frames(taught=True), "known_right", "likely_right", "unknown_right")

    @property
    def wrong_known_share(self) -> float | None:
        """The share of the frames of taught objects that are known by the name of another."""
        frames = self._frames(taught=True)
        return (frames.known - frames.known_right) / frames.total if frames.total else None

    @property
    def unknown_share(self) -> float | None:
        """The share of the frames of taught objects that were called unknown."""
        return _share(self._frames(taught=True), "unknown")

    @property
    def video_accuracy(self) -> float | None:
        """The share of the videos of taught objects whose answer is right, known or likely."""
        return _share_of_videos(self._read(taught=True), "is_right")

    @property
    def strangers_known(self) -> float | None:
        """The share of the frames of strangers that were called known: see the threshold."""
        return _share(self._frames(taught=False), "known")

    @property
    def strangers_unknown(self) -> float | None:
        """The share of the frames of strangers that were called unknown, as they should be."""
        return _share(self._frames(taught=False), "unknown")

    @property
    def strangers_known_videos(self) -> float | None:
        """The share of the videos of strangers that were called known as a whole."""
        return _share_of_videos(self._read(taught=False), "is_known")

    @property
    def strangers_unknown_videos(self) -> float | None:
        """The share of the videos of strangers that were called unknown as a whole."""
        return _share_of_videos(self._read(taught=False), "is_right")

    def objects(self) -> list[ObjectOutcome]:
        """Return the outcome of each object, the taught ones first."""
        names = [*(name for name in self.labels if self._of(name)), *self.strangers]
        return [ObjectOutcome.of(name, self._of(name)) for name in names]

    def confusion(self) -> tuple[list[str], list[str], list[list[int]]]:
        """Return the confusion matrix of the frames.

        Returns:
            The names of the rows (what was shown), the names of the columns (the answers, known or
            likely, the last one "unknown"), and the counts row by row.
        """
        rows = [one.label for one in self.objects()]
        columns = [*self.labels, UNKNOWN]
        counts = []
        for name in rows:
            total: Counter[str] = Counter()
            for video in self._of(name):
                total.update(video.named())
            counts.append([total[column] for column in columns])
        return rows, columns, counts

    def to_json(self) -> dict[str, object]:
        """Return everything as a JSON object, with the names that the attributes have."""
        rows, columns, counts = self.confusion()
        return {
            **{name: getattr(self, name) for name in MEASURES},
            "labels": list(self.labels),
            "strangers": list(self.strangers),
            "objects": [asdict(one) for one in self.objects()],
            "confusion": {"shown": rows, "answers": columns, "frames": counts},
            "videos": [
                {
                    "name": video.name,
                    "truth": video.truth,
                    "label": video.answer.label if video.answer else None,
                    "answer": video.answer.answer if video.answer else None,
                    "frames": asdict(video.frames),
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

    def _read(self, taught: bool) -> list[VideoOutcome]:
        """The videos that could be read, of objects that were taught, or of strangers."""
        return [one for one in self.videos if one.taught == taught and not one.problem]

    def _frames(self, taught: bool) -> FrameCounts:
        return FrameCounts.of(self._read(taught))

    def _of(self, name: str) -> list[VideoOutcome]:
        return [video for video in self.videos if video.truth == name and not video.problem]


ANSWERS = ("known", "likely", "unknown")
FRAMES = "frames by answer, and how many of them are right"
MEASURES = {
    "video_accuracy": "videos of taught objects that were given their name, known or likely",
    "frame_accuracy": "frames of taught objects that were given their name, known or likely",
    "known_accuracy": "the same, known only",
    "likeliest_accuracy": "the same, if the likeliest name counts, whatever the answer",
    "wrong_known_share": "frames of taught objects that were known by the name of another",
    "unknown_share": "frames of taught objects that were called unknown",
    "strangers_known_videos": "videos of strangers that were called known",
    "strangers_unknown_videos": "videos of strangers that were called unknown",
    "strangers_known": "frames of strangers that were called known",
    "strangers_unknown": "frames of strangers that were called unknown",
}


def answer_cells(frames: FrameCounts) -> list[str]:
    """Return a cell of a table per answer: how many frames got it, and how many are right.

    Args:
        frames: The counts.

    >>> answer_cells(FrameCounts(5, 4, 2, 2))
    ['5 (4 right)', '2 (2 right)', '0']
    """
    pairs = [(getattr(frames, name), getattr(frames, f"{name}_right")) for name in ANSWERS]
    return [f"{count} ({right} right)" if count else "0" for count, right in pairs]


# A video that is not opened yet: its name, what it shows, and what opens it.
_Shown: TypeAlias = tuple[str, str, Callable[[], Frames]]


def evaluate_learner(
    learner: Learner,
    data: DataSet | str | Path,
    *,
    max_frames: int = 100,
    progress: Progress | None = None,
) -> Evaluation:
    """Recognise all videos of a data set or of a folder and compare the answers with the truth.

    Args:
        learner: The learner, which learns nothing from them.
        data: A data set, or a folder with one folder per object; see `Learner.evaluate`.
        max_frames: How many frames of each video, evenly spread.
        progress: Called with the number of videos that are done, and their total.

    Raises:
        InputError: If there are no videos, or if the arguments do not fit.
        FileError: If the folder cannot be read.
    """
    if max_frames < 1:
        raise InputError(f"max_frames must be at least 1; got {max_frames}")
    if isinstance(data, str | Path):
        shown = list(_of_folder(Path(data).expanduser(), learner.size, max_frames))
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
    answers: dict[Answer, dict[str, int]] = {"known": {}, "likely": {}, "unknown": {}}
    for one in predictions:
        names = answers[one.answer]
        names[str(one.label)] = names.get(str(one.label), 0) + 1
    return VideoOutcome(name, truth, taught, answers, fuse(predictions, learner.answer_rule))


def _of_folder(root: Path, size: int, max_frames: int) -> Iterator[_Shown]:
    from primavista.streams.folder import lessons_of_objects

    for lesson in lessons_of_objects(root):
        read = partial(open_frames, lesson.source, size=size, max_frames=max_frames)
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


def _share(frames: FrameCounts, *counts: str) -> float | None:
    """Return the share of frames that some counts add up to; None if there are no frames."""
    return sum(getattr(frames, count) for count in counts) / frames.total if frames.total else None


def _share_of_videos(videos: Sequence[VideoOutcome], which: str) -> float | None:
    return sum(getattr(video, which) for video in videos) / len(videos) if videos else None
