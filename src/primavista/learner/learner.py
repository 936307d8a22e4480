"""`Learner`: teaching, and how a learner is made or opened.

Each of its base classes has one subject: `learner/state.py` the state and how it is saved,
`loading.py` loading, `changes.py` rename, forget, merge and undo, `recognition.py` predictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from primavista.engine.representation import EngineChoice, choose_device
from primavista.errors import InputError
from primavista.learner.boxed import BoxesLike, boxed_frames
from primavista.learner.coach import Advice, HeldOutTests, advise, count_answers, frames_to_test
from primavista.learner.lesson import (
    AlreadyTaughtError,
    LessonBuffer,
    LessonFeatures,
)
from primavista.learner.lesson_report import LessonReport
from primavista.learner.recognition import LearnerRecognition, named_predictions
from primavista.learner.state import LearnerSettings, LearnerState, make_strategy
from primavista.media.frames import Frames, LearnerInput, check_frames, lesson_id, read_frames
from primavista.media.images import LEARNER_SIZE
from primavista.media.video import learner_frames
from primavista.networks.base import Backbone, build
from primavista.progress import Progress
from primavista.storage.manifest import checked_name, checked_names
from primavista.storage.settings import OptionValue
from primavista.strategies.base import Strategy, is_frozen
from primavista.strategies.open_set import OpenSet, judge, judge_features
from primavista.strategies.option_types import UnknownOptionError
from primavista.strategies.options import Options
from primavista.strategies.registry import current_names, strategy_info

CAPACITY = 64
# the arguments of a learner that are not options of its strategy
ARGUMENTS = ("backbone", "weights", "width", "size", "seed", "device", "engine", "threshold")
CONFIDENCE_THRESHOLD = 0.1  # for strategies that have no familiarity


class Learner(LearnerRecognition):
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
            for `prima` (0.3 with `rule="frames"`) and 0.25 for the others. For strategies without
            familiarity, 0.1: how far the confidence p must be on the way from an even share to
            certainty, (p - 1/K) / (1 - 1/K).
        first_batch: Whether to learn the first lesson as the paper learns batch 1, training the
            whole network; by default it is learned as batch 2 (small learning rate, moments
            inherited).
        **options: Options of the strategy.

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
        options = _with_defaults(strategy, first_batch, options)
        network = _make_backbone(backbone, weights, size, width, seed)
        settings = LearnerSettings(strategy, options, network.spec)
        with _misspelt_arguments():
            made = make_strategy(settings, network, seed).to(choose_device(device))
        made.representation.use_engine(engine)
        if threshold is None:
            threshold = _default_threshold(made)
        settings = replace(settings, options=_all_options(made, options))
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

        If the object and another one are known already, up to ten frames of it are predicted before
        a new lesson is learned: `advice` is drawn from how many were right.

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
            The report on the lesson: the frames per name, the names that are new, and the mean loss
            of each epoch.

        Raises:
            InputError: If the frames or the names are wrong; the message shows a right call.
            AlreadyTaughtError: If the id of the lesson is in `refuse`.
            FileError: If the path cannot be read.
        """
        _check_order_of_arguments(frames, label)
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
                held_out = _held_out_tests(
                    state, strategy, images, features, labels, self.threshold
                )
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
        name = checked_name(label, self.labels)
        with self._writing:
            state = self._state
            strategy = state.strategy.draft()
            if not self.can_learn_again(lesson):
                raise InputError(
                    "these features come from another learner, or from before its representation "
                    "was trained: teach the lesson from its frames"
                )
            assert is_frozen(strategy)
            ids = state.ids([name])
            labels = torch.full((len(lesson),), ids[name])
            held_out: HeldOutTests = {}
            if lesson.id not in state.lessons:
                held_out = _held_out_tests(
                    state, strategy, lesson.features, lesson.features, labels, self.threshold
                )
            report = strategy.learn_embedded(lesson.features, labels)
            counts = {ids[name]: len(lesson)}
            self._change_to(state.taught(strategy, ids, counts, (lesson.id,), held_out))
        new = () if ids[name] in state.names else (name,)
        return LessonReport(lesson.id, {name: len(lesson)}, new, report.losses, report.stored_bytes)

    def can_learn_again(self, lesson: LessonFeatures) -> bool:
        """Return True if `learn_again` accepts these features: they come from this representation.

        Args:
            lesson: The lesson, made by `LessonBuffer.without_frames`.
        """
        same = lesson.origin is self._origin
        return same and int(self.strategy.embedding_version) == lesson.version

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


def _with_defaults(
    strategy: str, first_batch: bool, options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return the options of a learner's strategy: the defaults of learners, then those given."""
    info = strategy_info(strategy)
    defaults: dict[str, OptionValue] = {}
    if info.open_set_option:
        defaults["open_set"] = True
    if info.training_options:
        # a learner is not told how many objects will come, and a head whose weights start at 0
        # learns more from one-class batches than one whose weights are drawn
        defaults |= {"capacity": CAPACITY, "first_batch": first_batch, "unseen": "reset"}
    elif first_batch:
        raise InputError(f"{strategy} learns every batch alike: leave out first_batch")
    return {**defaults, **options}


@contextmanager
def _misspelt_arguments() -> Iterator[None]:
    """Name the argument that was meant if making a strategy fails over an option.

    A misspelt argument of `Learner` arrives as an unknown option of its strategy.
    """
    try:
        yield
    except UnknownOptionError as error:
        for name in error.strange:
            meant = get_close_matches(name, ARGUMENTS, 1)
            if meant:
                raise InputError(f"{error} (did you mean {meant[0]}?)") from error
        raise


def _make_backbone(
    backbone: str | nn.Module,
    weights: str | Path | None,
    size: int,
    width: float | None,
    seed: int,
) -> Backbone:
    """Return a `Backbone` as it is, or build one from a name or a module."""
    if isinstance(backbone, nn.Module) and width is not None:
        raise InputError("width is for backbones by name: leave it out, or leave out the module")
    if isinstance(backbone, Backbone):
        return backbone
    options: dict[str, Any] = {} if width is None else {"width": width}
    return build(backbone, weights, size=size, seed=seed, **options)


def _all_options(strategy: Strategy, given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    """Return all options of a strategy if it names them, else those that were given."""
    options = getattr(strategy, "options", None)
    if is_dataclass(options) and not isinstance(options, type):
        return asdict(options)
    return dict(given)


def _default_threshold(strategy: Strategy) -> float:
    """Return the threshold of a learner to which none was given."""
    if isinstance(strategy, OpenSet) and strategy.open_set:
        return strategy.known_from
    return CONFIDENCE_THRESHOLD


def _check_order_of_arguments(frames: object, label: object) -> None:
    """Refuse `learn("mug", frames)`, whose arguments are in the wrong order."""
    texts = isinstance(label, str) or (
        isinstance(label, list | tuple) and all(isinstance(one, str) for one in label)
    )
    is_names = getattr(getattr(label, "dtype", None), "kind", "") in "UO"
    if isinstance(frames, str) and not texts and not is_names:
        raise InputError(
            "the frames come first, then the name.\n"
            f'  wrong: learner.learn("{frames:.60}", frames)\n'
            f'  right: learner.learn(frames, "{frames:.60}")'
        )


def _held_out_tests(
    state: LearnerState,
    draft: Strategy,
    images: Frames,
    features: Tensor | None,
    labels: Tensor,
    threshold: float,
) -> HeldOutTests:
    """Predict some frames of known objects before they are learned, and count the answers.

    The features are None if the lesson trains the representation. The frames are then predicted by
    the draft, the strategy that is about to learn them: no other thread uses its network.
    """
    chosen = torch.tensor(frames_to_test(labels.tolist(), state.names), dtype=torch.int64)
    if not len(chosen):
        return {}
    if features is None:
        judged = judge(draft, read_frames(images, chosen, draft.device))
    else:
        judged = judge_features(state.strategy, features[chosen.to(features.device)])
    ids = {name: i for i, name in state.names.items()}
    found = named_predictions(state, judged, threshold)
    answers = [ids[prediction.label] for prediction in found if prediction.label is not None]
    known = [prediction.known for prediction in found]
    return count_answers(labels[chosen].tolist(), answers, known)


def open_learner(path: Path, *, device: str | torch.device = "auto", **options: Any) -> Learner:
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
    spec = learner.strategy.backbone.spec
    facts = {
        **spec.options,
        **learner.options,
        "seed": int(learner.strategy.seed),
        "threshold": learner.threshold,
        "engine": learner.engine,
        "strategy": learner.strategy_name,
        "backbone": spec.name,
        "size": learner.size,
    }
    for name, value in current_names(options).items():
        if name != "weights" and facts.get(name) != value:
            raise InputError(
                f"{path.name} was made with {name} {facts.get(name)}, not {value}: leave that out "
                "(it is for new files), or name another file"
            )
    return learner
