"""Recognition: what frames, clips and cameras show, where objects are, how often it is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, overload

import numpy as np
from PIL import Image
from torch import Tensor

from primavista.learner.changes import LearnerChanges
from primavista.learner.evaluation import Evaluation, Sessions, evaluate_learner
from primavista.learner.locate import locate
from primavista.learner.locating import Located
from primavista.learner.prediction import Prediction, is_known
from primavista.learner.state import LearnerState, checked_threshold
from primavista.learner.watch import SECONDS, Watch, fuse
from primavista.media.frames import Frames, ImageLike, LearnerInput, whole_picture
from primavista.media.images import ImageArray
from primavista.media.video import learner_frames
from primavista.progress import Progress
from primavista.storage.manifest import checked_names
from primavista.strategies.open_set import Judgement, judge
from primavista.streams.dataset import DataSet

# Arrays whose number of dimensions a type checker knows.
GreyImage: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.uint8]]
ColourImage: TypeAlias = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]
ManyImages: TypeAlias = np.ndarray[tuple[int, int, int, int], np.dtype[np.uint8]]


class LearnerRecognition(LearnerChanges):
    """The part of a learner that answers about frames; nothing here teaches it anything.

    `Learner` is the class to use.
    """

    @overload
    def predict(
        self, frames: str | Path | Image.Image | GreyImage | ColourImage, *, bgr: bool = False
    ) -> Prediction: ...

    @overload
    def predict(
        self, frames: ManyImages | Sequence[ImageLike], *, bgr: bool = False
    ) -> list[Prediction]: ...

    @overload
    def predict(
        self, frames: Tensor | ImageArray, *, bgr: bool = False
    ) -> Prediction | list[Prediction]: ...

    @overload
    def predict(self, frames: Frames, *, bgr: bool = False) -> list[Prediction]: ...

    def predict(self, frames: LearnerInput, *, bgr: bool = False) -> Prediction | list[Prediction]:
        """Recognise what one image, several images or a file show.

        Args:
            frames: One image (a PIL image or an array H x W x 3, H x W or H x W x 4) of any size;
                several: an array N x H x W x 3, a list of images, `open_frames("mug.mp4")`; or the
                path of a picture, of a video or of a folder of pictures of one object.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            A `Prediction` for one image, a list of them for several. A path gets one `Prediction`:
            what the whole video shows, as `predict_video` says it.

        Raises:
            InputError: If these are not images; the message shows a right call.
            FileError: If the path cannot be read.
        """
        if isinstance(frames, str | Path):
            return self.predict_video(frames, bgr=bgr)
        images, single = learner_frames(frames, self.size, bgr)
        predictions = self._predictions(images)
        return predictions[0] if single else predictions

    def predict_video(self, frames: LearnerInput, *, bgr: bool = False) -> Prediction:
        """Recognise what a clip of one object shows: one answer from all its frames.

        The mean of the frames' scores decides, and the mean of their familiarity; the order of the
        frames does not matter. For a camera that goes on, see `watch`.

        Args:
            frames: The frames of the clip, or its path, as for `predict`. For a single image the
                answer is that of `predict`.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            The answer for the whole clip.

        Raises:
            InputError: If these are not images; the message shows a right call.
        """
        images, _ = learner_frames(frames, self.size, bgr)
        return fuse(self._predictions(images), self.threshold)

    def watch(self, seconds: float = SECONDS, *, bgr: bool = False) -> Watch:
        """Return an object that recognises the frames of a camera, steadied over the last second.

        Call its `predict` with each new frame. It starts anew when the scene changes, and keeps no
        frame, only small thumbnails and predictions.

        Args:
            seconds: How long a frame counts; 0 answers each frame by itself, as `predict` does.
            bgr: Whether the frames have their colours in the order blue, green, red, as OpenCV
                does.
        """
        return Watch(self, seconds, bgr=bgr)

    def locate(
        self, frame: ImageLike | str | Path, *, threshold: float | None = None, bgr: bool = False
    ) -> list[Located]:
        """Find where in a frame taught objects are, several of them at once.

        The network runs twice over the whole frame, at two sizes; windows over its maps are scored
        as frames are. It needs a convolutional network whose weights no longer change, as all
        strategies but those that train the representation have it.

        Args:
            frame: One image of any size, as for `predict`, or the path of one; all of it is
                searched.
            threshold: The least familiarity (or confidence) with which a window counts as known; by
                default the threshold of the learner. With 0, all windows are known.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            What was found, the best first; an empty list if nothing was.

        Raises:
            InputError: If this is not an image, or if the strategy or its network cannot do it.
            FileError: If the path cannot be read.
        """
        picture = whole_picture(frame, bgr)
        limit = self.threshold if threshold is None else checked_threshold(threshold)
        state = self._state
        if not state.names:
            return []
        return locate(state, picture, limit)

    def _predictions(self, images: Frames) -> list[Prediction]:
        state = self._state
        if not state.names:
            return [Prediction(None, 0.0, False)] * len(images)
        return named_predictions(state, judge(state.strategy, images), self.threshold)

    def evaluate(
        self,
        data: DataSet | str | Path,
        *,
        sessions: Sessions = "test",
        max_frames: int = 100,
        fps: float | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Measure how well it recognises videos that it was not taught; nothing is learned.

        Args:
            data: A `DataSet`, or a folder with one folder per object, named after it, that holds
                videos, folders of pictures, or pictures. An object that was not taught is a
                stranger: of it, "unknown" is the right answer.
            sessions: Which sessions of a `DataSet`: "test", "train" or "all". A folder is
                evaluated whole.
            max_frames: How many frames of each video are recognised, evenly spread.
            fps: How many frames per second of the videos in a folder are read; all by default.
            progress: Called with the number of videos that are done, and their total.

        Returns:
            The accuracy per frame and per video, the share of strangers that were called unknown,
            and the confusion matrix. A video that cannot be read is named in `failed`, and the
            others go on.

        Raises:
            InputError: If there is nothing to evaluate, or an argument is wrong.
            FileError: If the folder cannot be read.
        """
        return evaluate_learner(
            self, data, sessions=sessions, max_frames=max_frames, fps=fps, progress=progress
        )

    def score(
        self, frames: LearnerInput, label: str | Sequence[str], *, bgr: bool = False
    ) -> float:
        """Return the share of frames whose most likely name is the right one, from 0 to 1.

        Args:
            frames: Images, as for `predict`.
            label: The right name, or one per frame.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.
        """
        images, _ = learner_frames(frames, self.size, bgr)
        names = checked_names(label, len(images), self.labels)
        predicted = self._predictions(images)
        right = sum(1 for p, name in zip(predicted, names, strict=True) if p.label == name)
        return right / len(names)


def named_predictions(state: LearnerState, judged: Judgement, threshold: float) -> list[Prediction]:
    """Turn scores and familiarity into predictions, by the names of a state.

    Args:
        state: The state that has judged.
        judged: The scores of its classes for each frame, and the familiarity if it can tell.
        threshold: That of the learner, for `known`.
    """
    classes = state.strategy.classes.tolist()
    # compat="caffe" has columns for classes that were not taught yet
    columns = [j for j, i in enumerate(classes) if i in state.names]
    names = [state.names[classes[j]] for j in columns]
    scores = judged.scores if len(columns) == len(classes) else judged.scores[:, columns]
    shares = (scores / judged.temperature).float().softmax(1).tolist()
    familiarities: list[float | None] = [None] * len(shares)
    if judged.familiarity is not None:
        familiarities = judged.familiarity.tolist()
    found = []
    for row, familiarity in zip(shares, familiarities, strict=True):
        confidence = max(row)
        known = is_known(confidence, len(names), familiarity, threshold)
        label = names[row.index(confidence)]
        by_name = dict(zip(names, row, strict=True))
        found.append(Prediction(label, confidence, known, by_name, familiarity))
    return found
