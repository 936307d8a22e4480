"""`Learner`: teaches, recognises, changes, saves and loads; everything that a person does with it.

A learner is a strategy in the states of its history (`history.py`), with names, a threshold and a
file (`file.py`). How its strategy is made, with torch or without, is in `making.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeAlias, overload

import numpy as np
from PIL import Image

from primavista.errors import FileError, InputError
from primavista.heads.options import UnknownOptionError
from primavista.learner.coach import (
    Advice,
    HeldOutTests,
    advise,
    count_answers,
    frames_to_test,
    with_ids,
)
from primavista.learner.file import file_content, restore_content
from primavista.learner.history import History, LearnerState
from primavista.learner.lesson import AlreadyTaughtError, LessonBuffer, LessonFeatures, LessonReport
from primavista.learner.locating import Located, locate
from primavista.learner.making import new_strategy, weights_of_new
from primavista.learner.prediction import AnswerRule, Prediction, named_predictions
from primavista.learner.strategy import Arrays, NetworkChoice, TaughtStrategy
from primavista.learner.watch import SECONDS, Watch, fuse
from primavista.media.frames import (
    Frames,
    ImageLike,
    LearnerInput,
    are_paths,
    frames_at,
    lesson_id,
    model_frames,
    whole_picture,
)
from primavista.media.images import LEARNER_SIZE, ImageArray
from primavista.media.video import learner_frames
from primavista.progress import LateBar, Progress
from primavista.storage import learner_file
from primavista.storage.names import checked_name, checked_names
from primavista.storage.settings import OptionValue
from primavista.strategies.registry import strategy_info

if TYPE_CHECKING:
    from torch import Tensor, device, nn

    from primavista.learner.evaluation import Evaluation
    from primavista.streams.dataset import DataSet

CAPACITY = 64
PASSES = 4  # of Cumulative, per window: its steps are in proportion to the few frames
NAMES_SHOWN = 8
# the arguments of a learner that are not options of its strategy
ARGUMENTS = ("backbone", "weights", "width", "size", "seed", "device", "engine", "threshold")

EngineChoice: TypeAlias = Literal["auto", "torch", "onnx"]
# Arrays whose number of dimensions a type checker knows.
GreyImage: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.uint8]]
ColourImage: TypeAlias = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]
ManyImages: TypeAlias = np.ndarray[tuple[int, int, int, int], np.dtype[np.uint8]]


class Learner:
    """Learns to recognise objects from a few seconds of video each, and keeps none of the frames.

    A lesson that fails changes nothing. Predictions may be asked for while another thread teaches;
    lessons that come at the same time are learned one after the other. `prima`, `ridge`, `lda`,
    `ncm`, `dslda`, `cwr*` and `cwr+` need no torch; the others train the network with it.

    Args:
        strategy: One of `primavista.strategies.names()`, such as "prima", "cwr*" or "ar1*".
        backbone: "mobilenet_v1", "efficientnet_lite0", "resnet50", a `Backbone`, or any module that
            maps N x 3 x H x W to features. It is copied, and may be on any device.
        weights: "objects" (MobileNet v1, trained for objects in videos), "imagenet", "timm",
            "random" or the path of a file; not used if `backbone` is a module. "auto" is "objects"
            for MobileNet v1 and "imagenet" for others.
        size: The side of the images that the backbone sees, in pixels; a `Backbone` has its own.
        width: The width multiplier of a backbone by name that has one, such as MobileNet v1.
        seed: The seed of every random choice.
        device: "auto" (the GPU if there is one), "cpu", "cuda" or a torch device.
        engine: What computes frozen features: "onnx" (ONNX Runtime, on the CPU), "torch", or
            "auto", the faster one for the device.
        threshold: From 0 to 1; a frame whose familiarity is lower counts as unknown. By default 0.9
            for `prima` and 0.25 for the others. For strategies without
            familiarity, 0.1: how far the confidence p must be on the way from an even share to
            certainty, (p - 1/K) / (1 - 1/K).
        **options: Options of the strategy. With `first_batch=True`, one that trains the network
            learns the first lesson as the paper learns batch 1, training the whole network; in a
            learner it is learned as batch 2 by default (small learning rate, moments inherited).

    Raises:
        InputError: If an argument or an option is wrong, or if there is no such device.
        WeightsError: If the weights cannot be loaded.

    >>> import numpy as np
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
        weights: str | Path | None = "auto",
        size: int = LEARNER_SIZE,
        width: float | None = None,
        seed: int = 0,
        device: str | device = "auto",
        engine: EngineChoice = "auto",
        threshold: float | None = None,
        **options: OptionValue,
    ) -> None:
        weights = weights_of_new(backbone, weights)
        asked = NetworkChoice(backbone, device, engine, weights, size, width, seed)
        try:
            made = new_strategy(strategy, _with_defaults(strategy, options), asked)
        except UnknownOptionError as error:  # a misspelt argument arrives as an unknown option
            meant = [near for one in error.strange for near in get_close_matches(one, ARGUMENTS, 1)]
            if not meant:
                raise
            raise InputError(f"{error} (did you mean {', '.join(meant)}?)") from error
        self._history = History(LearnerState(made))
        self.threshold = made.threshold if threshold is None else threshold

    @classmethod
    def _assembled(cls, history: History, threshold: float) -> Self:
        """Return a learner made of its parts, without building a network."""
        learner = cls.__new__(cls)
        learner._history = history
        learner.threshold = threshold
        return learner

    def learn(
        self,
        frames: LearnerInput,
        label: str | Sequence[str],
        *,
        bgr: bool = False,
        refuse: Collection[str] = (),
        coach: bool = True,
        progress: Progress | None = None,
    ) -> LessonReport:
        """Learn one lesson: frames of one object and its name. A lesson that fails changes nothing.

        If the object and another one are known already, up to ten frames of it are predicted before
        a new lesson is learned: `advice` is drawn from how many were right.

        Args:
            frames: Images of any size: a uint8 array N x H x W x 3 (RGB), a list of images, the
                path of a video, of a picture or of a folder of pictures, a list of such paths,
                `open_frames("mug.mp4", fps=5)` for a choice of frames, or the result of
                `open_lesson`. The centre square of each is learned.
            label: The name of the object, known or new, or one name per frame. The word "unknown"
                is taken: it is what strangers are called.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.
            refuse: Ids of lessons that must not be learned again; `learner.lessons` for those that
                this learner has had. By default the same frames may be learned any number of times.
            coach: Whether to predict first, for `advice`. Without it, lessons that are taught in a
                row need no solution in between.
            progress: Called with the number of frames that were processed and their total. By
                default, a terminal or a notebook shows a bar with the time left if a lesson takes
                more than a second. Ctrl-C ends the lesson, and everything before it is kept.

        Returns:
            The report on the lesson: the frames per name, the names that are new, and the mean loss
            of each epoch.

        Raises:
            InputError: If the frames or the names are wrong; the message shows a right call.
            AlreadyTaughtError: If the id of the lesson is in `refuse`.
            FileError: If the path cannot be read.
        """
        _check_order_of_arguments(frames, label)
        images = learner_frames(frames, self.size, bgr)
        names = checked_names(label, len(images), self.labels)
        shown = LateBar("learning") if progress is None else nullcontext(progress)
        with self._history.changing, shown as progress:
            lesson = lesson_id(images)
            if lesson in refuse:
                raise AlreadyTaughtError(lesson)
            draft = self.strategy.draft()  # predictions go on from the old one meanwhile
            z = self._features(draft, images, progress)
            return self._learn(draft, lesson, names, z, images, coach=coach, progress=progress)

    def learn_again(self, lesson: LessonFeatures, label: str) -> LessonReport:
        """Learn a lesson from the features of its frames, exactly as `learn` did from the frames.

        With it a lesson can be left out afterwards: start from a copy of the learner before that
        lesson, and learn the later lessons again.

        Args:
            lesson: The lesson, made by `LessonBuffer.without_frames` with this learner or a copy.
            label: The name of the object, known or new.

        Returns:
            The report on the lesson.

        Raises:
            InputError: If another learner or another representation computed the features, or if
                the name is wrong.
        """
        names = [checked_name(label, self.labels)] * len(lesson)
        with self._history.changing:
            if not self.can_learn_again(lesson):
                raise InputError(
                    "these features come from another learner, or from before its representation "
                    "was trained: teach the lesson from its frames"
                )
            return self._learn(self.strategy.draft(), lesson.id, names, lesson.features)

    def open_lesson(self) -> LessonBuffer:
        """Return an empty lesson, to be filled frame by frame and then given to `learn`.

        The features of frozen representations are computed while frames still arrive. Give it to
        this learner or to a copy of it; another one would learn it from its frames.
        """
        return LessonBuffer(self.strategy)

    def can_learn_again(self, lesson: LessonFeatures) -> bool:
        """Return True if `learn_again` accepts these features: they come from this representation.

        Args:
            lesson: The lesson, made by `LessonBuffer.without_frames`.
        """
        now = self.strategy.features_from
        return now is not None and lesson.features_from == now

    def _features(self, strategy: TaughtStrategy, images: Frames, progress: Progress | None) -> Any:
        """Return the features of a lesson; None if it trains the representation."""
        if strategy.features_from is None:
            return None
        if isinstance(images, LessonBuffer):
            features = images.features_for(strategy, progress)
            if features is not None:
                return features
        return strategy.features(images, progress)

    def _learn(
        self,
        draft: TaughtStrategy,
        lesson: str,
        names: Sequence[str],
        z: Any,
        images: Frames = (),
        *,
        coach: bool = True,
        progress: Progress | None = None,
    ) -> LessonReport:
        """Learn a lesson from its features z, or from its images if z is None."""
        state = self._state
        ids = state.ids(names)
        labels = [ids[name] for name in names]
        held_out: HeldOutTests = {}
        if coach and lesson not in state.lessons:
            held_out = self._held_out_tests(draft, images, z, labels)
        if z is None:
            losses = draft.learn(images, labels, progress)
        else:
            losses = draft.learn_features(z, labels)
        self._history.change_to(state.taught(draft, ids, Counter(labels), (lesson,), held_out))
        known = state.names.values()
        new = tuple(name for name in dict.fromkeys(names) if name not in known)
        return LessonReport(lesson, dict(Counter(names)), new, losses, draft.stored_bytes)

    def _held_out_tests(
        self, draft: TaughtStrategy, images: Frames, z: Any, labels: Sequence[int]
    ) -> HeldOutTests:
        """Predict some frames of known objects before they are learned, and count the answers.

        Without features, the frames are predicted by the draft, the strategy that is about to learn
        them: no other thread uses its network.
        """
        state = self._state
        chosen = frames_to_test(labels, state.names)
        if not chosen:
            return {}
        if z is None:
            judged = draft.judge(frames_at(images, np.asarray(chosen)))
        else:
            judged = state.strategy.judge_features(z[chosen])
        found = named_predictions(state.columns, judged, self.answer_rule)
        ids = {name: i for i, name in state.names.items()}
        answers = [ids[prediction.label] for prediction in found if prediction.label is not None]
        known = [prediction.known for prediction in found]
        return count_answers([labels[k] for k in chosen], answers, known)

    def advice(self) -> list[Advice]:
        """Say what to teach next, urgent things first.

        Lessons of objects that were known already have been predicted before they were learned; the
        advice says how well the last three lessons of each object were recognised.

        Returns:
            One `Advice` per pair of objects that are confused, and one per other object.

        >>> import numpy as np
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
        self,
        frames: ManyImages | Sequence[ImageLike] | list[str] | list[Path],
        *,
        bgr: bool = False,
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
                path of a picture, of a video or of a folder of pictures of one object; or a list of
                paths.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            A `Prediction` for one image, a list of them for several. A path gets one `Prediction`:
            what the whole video shows, as `predict_video` says it, and so does each of a list.

        Raises:
            InputError: If these are not images; the message shows a right call.
            FileError: If the path cannot be read.
        """
        if isinstance(frames, str | Path):
            return self.predict_video(frames, bgr=bgr)
        if are_paths(frames):
            return [self.predict_video(path, bgr=bgr) for path in frames]
        images, single = model_frames(frames, self.size, bgr)
        predictions = self._predictions(images)
        return predictions[0] if single else predictions

    def predict_video(self, frames: LearnerInput, *, bgr: bool = False) -> Prediction:
        """Recognise what a clip of one object shows: one answer from all its frames.

        The mean of the frames' scores decides, and their familiarity together; the order of the
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
        images = learner_frames(frames, self.size, bgr)
        return fuse(self._predictions(images), self.answer_rule)

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
            threshold: By default the threshold of the learner. With `prima`, 1 - the share of
                pictures without a taught object in which something may be found nevertheless; with
                other strategies, the least familiarity (or confidence) of a window. With 0, all
                windows count.
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
        return locate(state.strategy, state.columns, picture, limit)

    def _predictions(self, images: Frames) -> list[Prediction]:
        state = self._state
        if not state.names:
            return [Prediction(None, 0.0, "unknown")] * len(images)
        judged = state.strategy.judge(images)
        return named_predictions(state.columns, judged, self.answer_rule)

    def evaluate(
        self,
        data: DataSet | str | Path,
        *,
        max_frames: int = 100,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Measure how well it recognises videos that it was not taught; nothing is learned.

        Args:
            data: A `DataSet`, whose test sessions are recognised, or a folder with one folder per
                object, named after it, that holds videos, folders of pictures, or pictures. An
                object that was not taught is a stranger: of it, "unknown" is the right answer.
            max_frames: How many frames of each video are recognised, evenly spread.
            progress: Called with the number of videos that are done, and their total.

        Returns:
            The accuracy per frame and per video, the share of strangers that were called unknown,
            and the confusion matrix. A video that cannot be read is named in `failed`, and the
            others go on.

        Raises:
            InputError: If there is nothing to evaluate, or an argument is wrong.
            FileError: If the folder cannot be read.
        """
        from primavista.learner.evaluation import evaluate_learner  # with data sets

        return evaluate_learner(self, data, max_frames=max_frames, progress=progress)

    def rename(self, old: str, new: str) -> None:
        """Give a known object another name.

        Args:
            old: Its present name.
            new: Its name from now on, which no other object may have.

        Raises:
            InputError: If `old` is not known, or if `new` is taken or not a valid name.
        """
        with self._history.changing:
            state = self._state
            i, new = state.id(checked_name(old, self.labels)), checked_name(new)
            if new in self.labels:
                raise InputError(
                    f"there is a {new!r} already: forget it first, or choose another name"
                )
            self._history.change_to(replace(state, names={**state.names, i: new}))

    def forget(self, label: str) -> None:
        """Remove an object. What it left in a representation that goes on learning stays there.

        Args:
            label: Its name.

        Raises:
            InputError: If it is not known, or if the strategy cannot forget it.
        """
        with self._history.changing:
            i = self._state.id(checked_name(label, self.labels))
            self._history.change_to(self._state.without(i))

    def merge(self, other: Learner | str | Path) -> None:
        """Learn everything that another learner was taught, as if its lessons had been ours too.

        Objects are joined by name. A merge that fails changes nothing; `undo` takes one back.

        Args:
            other: A learner, or the file of one. It must have the same order-invariant strategy
                (`prima`, `ridge`, `lda`, `ncm`) with the same options and seed, and the same
                backbone, weights and image size.

        Raises:
            InputError: If they cannot be merged, or if both have had the same lesson, which would
                count twice.
            FileError: If the file cannot be loaded.
        """
        if not isinstance(other, Learner):
            other = self.load(other, backbone=self.strategy.own_module(), device=self.device)
        if self.strategy_name != other.strategy_name:
            raise InputError(
                f"this learner's strategy is {self.strategy_name}, the other's is "
                f"{other.strategy_name}: only equal ones can be merged"
            )
        theirs = other._state
        with self._history.changing:
            state = self._state
            _check_no_lesson_twice(state, theirs)
            ids = state.ids(theirs.names.values())
            strategy = state.strategy.draft()
            ours = {i: ids[name] for i, name in theirs.names.items()}
            strategy.merge(theirs.strategy, ours)
            frames = {ours[i]: theirs.counts[i] for i in theirs.names}
            held_out = with_ids(theirs.held_out, ours)
            self._history.change_to(state.taught(strategy, ids, frames, theirs.lessons, held_out))

    def undo(self) -> None:
        """Take back the last lesson, merge, renaming or forgetting.

        There is one level of undo; it survives saving and loading.

        Raises:
            InputError: If there is nothing to undo.
        """
        with self._history.changing:
            self._history.undo()

    def free_undo_cache(self) -> None:
        """Free what the state before the last change has computed; `undo` computes it again."""
        self._history.free_undo_cache()

    def copy(self) -> Self:
        """Return a learner that knows the same; later changes of one do not affect the other.

        It costs neither time nor memory: states are shared and never modified.
        """
        return self._assembled(self._history.copy(), self.threshold)

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.copy()

    def without_undo(self) -> Self:
        """Return a copy with nothing to undo.

        Its file is smaller, and holds nothing of what was forgotten: save it before you share
        a file from which an object was supposed to be removed.
        """
        return self._assembled(History(self._state), self.threshold)

    def untaught(self) -> Self:
        """Return a learner with the same strategy, options and backbone that was taught nothing.

        It can be taught elsewhere and merged into this one.

        Raises:
            InputError: If the strategy trains the backbone: it can neither be merged nor be taught
                nothing, since its backbone has learned.
        """
        return self._assembled(History(LearnerState(self.strategy.untaught())), self.threshold)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        backbone: nn.Module | None = None,
        device: str | device = "auto",
        engine: EngineChoice | None = None,
        trusted: bool = False,
    ) -> Self:
        """Load the learner of a file, exactly as it was saved.

        Args:
            path: The file.
            backbone: The module, if it was made with a module of your own, which is not in the
                file. A strategy or a backbone by reference must have been registered: a file alone
                never imports code (see `register`).
            device: "auto" (the GPU if there is one), "cpu", "cuda" or a torch device.
            engine: What computes frozen features; by default the engine that it was saved with, if
                that is installed.
            trusted: Whether the file may ask for images of more than 512 x 512 pixels and for
                hundreds of epochs in each lesson, which takes gigabytes and hours.

        Raises:
            FileError: If the file is missing, damaged, foreign or of a newer format, or if it asks
                for too much.
        """
        try:
            found = learner_file.read(path)
        except FileError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise FileError(
                    f"{error}. A first lesson makes it: primavista learn {path} --label mug mug.mp4"
                ) from error
            raise
        asked = NetworkChoice(backbone, device, engine or "")
        return cls._assembled(*restore_content(*found, str(path), asked, trusted=trusted))

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        name: str = "the file",
        *,
        backbone: nn.Module | None = None,
        device: str | device = "auto",
        engine: EngineChoice | None = None,
        trusted: bool = False,
    ) -> Self:
        """Load the learner of the bytes of a file, as `load` does.

        Args:
            data: The bytes, as `to_bytes` gives.
            name: What messages call the file.
            backbone: The module, if it was made with a module of your own.
            device: "auto" (the GPU if there is one), "cpu", "cuda" or a torch device.
            engine: What computes frozen features; by default as it was saved.
            trusted: Whether the file may ask for any amount of work, as for `load`.

        Raises:
            FileError: If they are not the bytes of a learner.
        """
        found = learner_file.decode(data, name)
        asked = NetworkChoice(backbone, device, engine or "")
        return cls._assembled(*restore_content(*found, name, asked, trusted=trusted))

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InputError(
            "a learner is not pickled: whoever loads a pickle runs the code in it.\n"
            "  right: data = learner.to_bytes(); learner = Learner.from_bytes(data)\n"
            '  right: learner.save("kitchen.pv"); learner = Learner.load("kitchen.pv")'
        )

    def save(self, path: str | Path) -> None:
        """Write everything into one file, whole or not at all; equal learners give equal bytes.

        Args:
            path: The file, by convention with the suffix .pv. Its folder must exist. Of a symbolic
                link, the file that it leads to is written, and keeps its permissions.

        Raises:
            FileError: If the file cannot be written; what was there before is untouched.
        """
        learner_file.write(os.path.realpath(path), *self.content())

    def to_bytes(self) -> bytes:
        """Return the bytes of the file that `save` writes."""
        return learner_file.encode(*self.content())

    def content(self) -> tuple[Arrays, dict[str, object]]:
        """Return the arrays and the manifest of the file that `save` writes."""
        return file_content(self._history, self.threshold)

    @property
    def _state(self) -> LearnerState:
        return self._history.now

    @property
    def labels(self) -> list[str]:
        """The known names, in the order in which they were first taught."""
        return list(self._state.names.values())

    @property
    def counts(self) -> dict[str, int]:
        """The number of frames that each name was taught with."""
        return {name: self._state.counts[i] for i, name in self._state.names.items()}

    @property
    def lessons(self) -> tuple[str, ...]:
        """The id of each lesson, in order; equal frames have equal ids on every machine."""
        return self._state.lessons

    @property
    def strategy_name(self) -> str:
        """The name of the strategy, such as "prima"."""
        return self.strategy.settings.strategy

    @property
    def options(self) -> dict[str, OptionValue]:
        """All options of the strategy, with their defaults."""
        return dict(self.strategy.settings.options)

    @property
    def strategy(self) -> TaughtStrategy:
        """The strategy in its present state: to look at, not to change."""
        return self._state.strategy

    @property
    def columns(self) -> list[str | None]:
        """The name of each column of the strategy's scores.

        It is None for a class that was not taught yet: with `compat="caffe"` all columns exist from
        the start.
        """
        return self._state.columns

    @property
    def threshold(self) -> float:
        """The least familiarity (or, without one, confidence) with which a frame counts as known.

        It can be set to any number from 0 to 1, and is saved with the learner.
        """
        return self._threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        """Set the threshold; `InputError` if it is not a number from 0 to 1."""
        self._threshold = checked_threshold(value)

    @property
    def answer_rule(self) -> AnswerRule:
        """The rule by which an answer is known, likely or unknown."""
        strategy = self.strategy
        return AnswerRule(self.threshold, strategy.ranks_strangers, strategy.frame_correlation)

    @property
    def engine(self) -> str:
        """The engine that computes the features if they are frozen: "torch" or "onnx"."""
        return self.strategy.engine

    @property
    def device(self) -> str:
        """Where the network computes: "cpu" or "cuda:0"."""
        return self.strategy.device

    @property
    def size(self) -> int:
        """The side of the images that the backbone sees, in pixels."""
        return self.strategy.settings.spec.size

    @property
    def can_undo(self) -> bool:
        """True if there is a change that `undo` can take back."""
        return self._history.states[1] is not None

    def __repr__(self) -> str:
        spec, counts = self.strategy.settings.spec, list(self.counts.items())
        objects = ", ".join(f"{name!r}: {count}" for name, count in counts[:NAMES_SHOWN])
        more = f", ... ({len(counts)} in all)" if len(counts) > NAMES_SHOWN else ""
        return (
            f"Learner({self.strategy_name!r}, backbone={spec.name!r}, size={spec.size}, "
            f"objects={{{objects}{more}}})"
        )


def checked_threshold(value: float) -> float:
    """Return a threshold; `InputError` if it is not a number from 0 to 1.

    Args:
        value: The threshold of a learner, or of one call.
    """
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"threshold must be from 0 to 1; got {value!r}")
    return value


def _with_defaults(strategy: str, options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return the options given, and the defaults of learners where they are not the strategy's."""
    info = strategy_info(strategy)
    defaults: dict[str, OptionValue] = {}
    if info.open_set_option:
        defaults["open_set"] = True
    if info.training_options:
        # a learner is not told how many objects will come, and a head whose weights start at 0
        # learns more from one-class batches than one whose weights are drawn
        defaults |= {"capacity": CAPACITY, "first_batch": False, "unseen": "reset"}
        if info.features_option:
            defaults["features"] = "fixed"  # computed once, and kept while a lesson is open
    if strategy == "cumulative":
        defaults["passes"] = PASSES
    return {**defaults, **options}


def _check_order_of_arguments(frames: object, label: object) -> None:
    """Refuse `learn("mug", frames)`, whose arguments are in the wrong order."""
    first = label[0] if isinstance(label, list | tuple) and label else label
    # one dimension is that of an array of names
    if isinstance(frames, str) and not isinstance(first, str) and getattr(first, "ndim", 2) > 1:
        raise InputError(
            "the frames come first, then the name.\n"
            f'  wrong: learner.learn("{frames:.60}", frames)\n'
            f'  right: learner.learn(frames, "{frames:.60}")'
        )


def _check_no_lesson_twice(ours: LearnerState, theirs: LearnerState) -> None:
    twice = set(ours.lessons) & set(theirs.lessons)
    if twice:
        raise InputError(
            f"{len(twice)} of the other's {len(theirs.lessons)} lessons are among ours: they would "
            "count twice.\n"
            "  right: teach learner.untaught() what is new, and merge that (docs/guides/merging.md)"
        )


def open_learner(path: Path, *, device: str | device = "auto", **options: Any) -> Learner:
    """Load the learner of a file, or make a new one if there is no such file; nothing is written.

    Args:
        path: The file.
        device: "auto" (the GPU if there is one), "cpu", "cuda" or a torch device.
        **options: Arguments of `Learner`. If the file exists, they must be those that it was made
            with; `weights` alone is not compared, since the file does not say where they came from.

    Raises:
        InputError: If the file was made with other options.
        FileError: If the file cannot be loaded.
    """
    if not path.exists():
        return Learner(device=device, **options)
    learner = Learner.load(path, device=device)
    settings = learner.strategy.settings
    facts = {
        **settings.spec.options,
        **learner.options,
        "seed": settings.seed,
        "threshold": learner.threshold,
        "engine": learner.engine,
        "strategy": learner.strategy_name,
        "backbone": settings.spec.name,
        "size": learner.size,
    }
    for name, value in options.items():
        if name != "weights" and facts.get(name) != value:
            raise InputError(
                f"{path.name} was made with {name} {facts.get(name)}, not {value}: leave that out "
                "(it is for new files), or name another file"
            )
    return learner
