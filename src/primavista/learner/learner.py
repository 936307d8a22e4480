"""The learner: a strategy together with names, preprocessing, undo and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, overload

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from primavista.coach import (
    Advice,
    HeldOutTests,
    advise,
)
from primavista.engine.representation import EngineChoice, choose_device
from primavista.errors import InputError
from primavista.frames import (
    Frames,
    ImageLike,
    check_frames,
)
from primavista.images import LEARNER_SIZE, ImageArray
from primavista.learner.answers import held_out_tests, named_predictions
from primavista.learner.boxed import BoxesLike, boxed_frames
from primavista.learner.changes import LearnerChanges
from primavista.learner.defaults import (
    all_options,
    default_threshold,
    make_backbone,
    misspelt_arguments,
    strategy_options,
)
from primavista.learner.evaluation import Evaluation, Sessions, evaluate_learner
from primavista.learner.facts import checked_threshold
from primavista.learner.inputs import (
    LearnerInput,
    check_order_of_arguments,
    learner_frames,
    learner_picture,
)
from primavista.learner.lesson import AlreadyTaughtError, LessonBuffer, LessonFeatures, lesson_id
from primavista.learner.lesson_report import LessonReport
from primavista.learner.locate import locate
from primavista.learner.prediction import Prediction
from primavista.learner.state import (
    LearnerSettings,
    LearnerState,
    make_strategy,
)
from primavista.learner.watch import SECONDS, Watch, fuse
from primavista.locating import Located
from primavista.progress import Progress
from primavista.storage.manifest import checked_name, checked_names
from primavista.storage.settings import OptionValue
from primavista.strategies.base import Strategy
from primavista.strategies.embedding import is_frozen
from primavista.strategies.open_set import judge
from primavista.strategies.options import Options
from primavista.streams.dataset import DataSet

# Arrays whose number of dimensions a type checker knows.
GreyImage: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.uint8]]
ColourImage: TypeAlias = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]
ManyImages: TypeAlias = np.ndarray[tuple[int, int, int, int], np.dtype[np.uint8]]


class Learner(LearnerChanges):
    """Learns to recognise objects from a few seconds of video each, and keeps none of the frames.

    A lesson that fails changes nothing. Predictions may be asked for while another thread teaches;
    lessons that come at the same time are learned one after the other.

    Args:
        strategy: One of `primavista.strategies.names()`, such as "prima", "cwr*" or "ar1*".
        backbone: "mobilenet_v1", "efficientnet_lite0", a `Backbone`, or any module that maps
            N x 3 x H x W to features. It is copied, and may be on any device.
        weights: "imagenet", "timm", "random" or the path of a file; not used if `backbone` is a
            module.
        size: The side of the images that the backbone sees, in pixels; a `Backbone` has its own.
        width: The width multiplier of a backbone by name that has one, such as MobileNet v1.
        seed: The seed of every random choice.
        device: "auto" (the GPU if there is one), "cpu", "cuda" or a torch device.
        engine: What computes frozen features: "torch", "onnx" (ONNX Runtime), or "auto", the faster
            one of those that are installed.
        threshold: From 0 to 1; a frame whose familiarity is lower counts as unknown. By default 0.9
            for `prima` and 0.25 for the others. For strategies without familiarity, 0.1: how far
            the confidence p must be on the way from an even share to certainty, (p - 1/K) / (1 -
            1/K).
        first_batch: Whether to learn the first lesson as the paper learns batch 1, training the
            whole network; by default it is learned as batch 2 (small learning rate, moments
            inherited).
        **options: Options of the strategy.

    Raises:
        InputError: If an argument or an option is wrong, or if there is no such device.
        WeightsError: If the weights cannot be loaded.

    >>> frames = np.zeros((4, 32, 32, 3), np.uint8)
    >>> learner = Learner("cwr*", weights="random", size=32, width=0.25)
    >>> _ = learner.learn(frames, "dark")
    >>> _ = learner.learn(frames + 255, "bright")
    >>> learner.labels
    ['dark', 'bright']
    >>> learner.rename("bright", "lamp")
    >>> learner.undo()
    >>> learner
    Learner('cwr*', backbone='mobilenet_v1', size=32, objects={'dark': 4, 'bright': 4})
    """

    def __init__(
        self,
        strategy: str = "prima",
        *,
        backbone: str | nn.Module = "mobilenet_v1",
        weights: str | Path | None = "imagenet",
        size: int = LEARNER_SIZE,
        width: float | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        engine: EngineChoice = "auto",
        threshold: float | None = None,
        first_batch: bool = False,
        **options: OptionValue,
    ) -> None:
        options = strategy_options(strategy, first_batch, options)
        network = make_backbone(backbone, weights, size, width, seed)
        settings = LearnerSettings(strategy, options, network.spec)
        with misspelt_arguments():
            made = make_strategy(settings, network, seed).to(choose_device(device))
        made.representation.use_engine(engine)
        if threshold is None:
            threshold = default_threshold(made)
        settings = replace(settings, options=all_options(made, options))
        self._set_up(settings, threshold, (LearnerState(made), None), object())

    def short_of_epochs(self) -> Learner:
        """Return a copy that learns each lesson in a single epoch, for trials that are thrown away.

        A strategy without epochs is copied as it is.
        """
        strategy = self.strategy.draft()
        options = getattr(strategy, "options", None)
        if isinstance(options, Options):
            vars(strategy)["options"] = replace(options, epochs=1, epochs_1=1)
        history = replace(self._state, strategy=strategy), None
        return self._assembled(self._settings, self.threshold, history, self._origin)

    def settled(self) -> Learner:
        """Return a copy with nothing to undo.

        Its file is smaller, and holds nothing of what was forgotten: save it before you share
        a file from which an object was supposed to be removed.
        """
        history = (self._state, None)
        return self._assembled(self._settings, self.threshold, history, self._origin)

    def untaught(self) -> Learner:
        """Return a learner with the same strategy, options and backbone that was taught nothing.

        It can be taught elsewhere and merged into this one.
        """
        strategy, settings = self._state.strategy, self._settings
        made = make_strategy(settings, strategy.backbone, int(strategy.seed)).to(strategy.device)
        made.prepare_like(strategy)
        made.representation.use_engine(strategy.representation.engine)
        history = (LearnerState(made), None)
        return self._assembled(settings, self.threshold, history, self._origin)

    def open_lesson(self) -> LessonBuffer:
        """Return an empty lesson, to be filled frame by frame and then given to `learn`.

        The features of frozen representations are computed while frames still arrive. Give it to
        this learner or to a copy of it; another one would learn it from its frames.
        """
        return LessonBuffer(self.strategy, self.size, self._origin)

    def learn(
        self,
        frames: LearnerInput,
        label: str | Sequence[str],
        *,
        box: BoxesLike | None = None,
        bgr: bool = False,
        refuse: Collection[str] = (),
        coach: bool = True,
        progress: Progress | None = None,
    ) -> LessonReport:
        """Learn one lesson: frames of one object and its name. A lesson that fails changes nothing.

        If the object is known already, up to ten frames are predicted before the lesson is learned:
        `advice` is drawn from how many were right.

        Args:
            frames: Images of any size: a uint8 array N x H x W x 3 (RGB), a list of images, the
                path of a video, of a picture or of a folder of pictures, `open_frames("mug.mp4",
                fps=5)` for a choice of frames, or the result of `open_lesson`.
            label: The name of the object, known or new, or one name per frame. The word "unknown"
                is taken: it is what strangers are called.
            box: Where the object is, in pixels of the frames: left, top, right and bottom, one box
                for all frames or one per frame, or "motion" to find what moves in front of a camera
                that stands still. A square around it is learned. By default it is in the middle.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.
            refuse: Ids of lessons that must not be learned again; `learner.lessons` for those that
                this learner has had. By default the same frames may be learned any number of times.
            coach: Whether to predict first, for `advice`. Without it, lessons that are taught in a
                row need no solution in between.
            progress: Called with the number of frames that were processed and their total.

        Returns:
            What learning came to: the frames per name, which names are new, the mean loss of each
            epoch.

        Raises:
            InputError: If the frames or the names are wrong; the message shows a right call.
            AlreadyTaughtError: If the id of the lesson is in `refuse`.
            FileError: If the path cannot be read.
        """
        check_order_of_arguments(frames, label)
        if box is not None:
            frames, bgr = boxed_frames(frames, box, self.size, bgr), False
        images, _ = learner_frames(frames, self.size, bgr)
        names = checked_names(label, len(images), self.labels)
        with self._writing:
            state = self._state
            lesson = lesson_id(images)
            if lesson in refuse:
                raise AlreadyTaughtError(lesson)
            ids = state.ids(names)
            labels = torch.tensor([ids[name] for name in names])
            strategy = state.strategy.draft()  # predictions go on from the old one meanwhile
            features = self._features(strategy, images, progress)
            held_out: HeldOutTests = {}
            if coach and lesson not in state.lessons:
                held_out = held_out_tests(state, strategy, images, features, labels, self.threshold)
            if features is not None and is_frozen(strategy):
                report = strategy.learn_embedded(features, labels)
            else:
                report = strategy.learn(images, labels, progress=progress)
            counts = Counter(labels.tolist())
            self._change_to(state.taught(strategy, ids, counts, (lesson,), held_out))
        new = tuple(name for name in dict.fromkeys(names) if ids[name] not in state.names)
        frames_of = dict(Counter(names))
        return LessonReport(lesson, frames_of, new, report.losses, report.stored_bytes)

    def learn_again(self, lesson: LessonFeatures, label: str) -> LessonReport:
        """Learn a lesson from the features of its frames, exactly as `learn` did from the frames.

        With it a lesson can be left out afterwards: start from a copy of the learner before it,
        and learn those that followed again.

        Args:
            lesson: The lesson, made by `LessonBuffer.without_frames` with this learner or a copy.
            label: The name of the object, known or new.

        Returns:
            What learning came to.

        Raises:
            InputError: If another learner or another representation computed the features, or if
                the name is wrong.
        """
        name = checked_name(label, self.labels)
        with self._writing:
            state = self._state
            strategy = state.strategy.draft()
            same = lesson.origin is self._origin
            if not same or int(strategy.embedding_version) != lesson.version:
                raise InputError(
                    "these features come from another learner, or from before its representation "
                    "was trained: teach the lesson from its frames"
                )
            assert is_frozen(strategy)
            ids = state.ids([name])
            labels = torch.full((len(lesson),), ids[name])
            held_out: HeldOutTests = {}
            if lesson.id not in state.lessons:
                held_out = held_out_tests(
                    state, strategy, lesson.features, lesson.features, labels, self.threshold
                )
            report = strategy.learn_embedded(lesson.features, labels)
            counts = {ids[name]: len(lesson)}
            self._change_to(state.taught(strategy, ids, counts, (lesson.id,), held_out))
        new = () if ids[name] in state.names else (name,)
        return LessonReport(lesson.id, {name: len(lesson)}, new, report.losses, report.stored_bytes)

    def _features(
        self, strategy: Strategy, images: Frames, progress: Progress | None
    ) -> Tensor | None:
        """Return the features of a lesson; None if it trains the representation."""
        if not is_frozen(strategy):
            return None
        if isinstance(images, LessonBuffer):
            features = images.features_for(strategy, self._origin, progress)
            if features is not None:
                return features
        frames = check_frames(images)
        strategy.representation.check_frames(frames)
        return strategy.representation.finite_features(frames, progress)

    def advice(self) -> list[Advice]:
        """Say what to teach next, urgent things first.

        Each lesson of an object that was known already has been predicted before it was learned;
        the advice says what the last three lessons of each object came to.

        Returns:
            One `Advice` per pair of objects that are confused, and one per other object.

        >>> light = np.full((4, 32, 32, 3), 250, np.uint8)
        >>> learner = Learner("ncm", weights="random", size=32, width=0.25)
        >>> for frames, label in ((light, "lamp"), (light - 230, "coal"), (light - 20, "lamp")):
        ...     _ = learner.learn(frames, label)
        >>> for one in learner.advice():
        ...     print(one.text)
        show coal once more, somewhere else
        lamp is good enough: 4 of 4 new frames were recognised
        """
        state = self._state
        return advise(state.held_out, state.names)

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
            threshold: The familiarity (or confidence) from which on a window counts as known; by
                default that of the learner. With 0 every window is somebody's.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            What was found, the best first; an empty list if nothing was.

        Raises:
            InputError: If this is not an image, or if the strategy or its network cannot do it.
            FileError: If the path cannot be read.
        """
        picture = learner_picture(frame, bgr)
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
