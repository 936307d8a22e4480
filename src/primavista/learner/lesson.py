"""Lessons: what one call of `learn` teaches, from folders, from images, or frame by frame."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import torch
from PIL import Image
from torch import Tensor

from primavista.errors import FileError, InputError
from primavista.frames import (
    Frames,
    FramesLike,
    ImageLike,
    crop_and_resize,
    model_frames,
    read_frames,
    whole_picture,
)
from primavista.images import decode_image
from primavista.progress import Progress
from primavista.strategies.base import Strategy, is_frozen
from primavista.streams.folder import sessions_by_object
from primavista.streams.rendered.written import read_scene, scene_classes
from primavista.streams.video import (
    IMAGES,
    VIDEOS,
    Clip,
    media_in,
    natural,
    open_frames,
    subfolders,
)

# The path of a picture, a video or a folder of pictures; or the images themselves.
LearnerInput: TypeAlias = FramesLike | ImageLike | str | Path
# Frames whose features are computed together. Fixed, so that features do not depend on how fast the
# frames came.
CHUNK = 16
IDENTIFYING_FRAMES = 8
SourceT_co = TypeVar("SourceT_co", covariant=True)


@dataclass(frozen=True)
class Lesson(Generic[SourceT_co]):
    """One video (or the pictures) of one object, not opened yet.

    Args:
        label: The name of the object.
        source: What an opener takes, such as the paths that `open_frames` takes.
        name: What messages call the source.
    """

    label: str
    source: SourceT_co
    name: str = ""


class AlreadyTaughtError(InputError):
    """Raised by `Learner.learn` if the lesson is one of those to refuse; nothing was changed.

    Args:
        lesson_id: The id of the lesson, also an attribute of the exception.
    """

    def __init__(self, lesson_id: str) -> None:
        super().__init__("this lesson was taught before: the same frames would count twice")
        self.lesson_id = lesson_id


def lessons_of_object(folder: Path, label: str) -> list[Lesson[tuple[Path, ...]]]:
    """Return the lessons in the folder of one object: its pictures, its videos, its folders.

    Args:
        folder: The folder; pictures directly in it are one lesson.
        label: The name of the object.

    Raises:
        FileError: If the folder cannot be read, or holds neither images nor videos.
    """
    pictures = media_in(folder, IMAGES)
    found: list[Lesson[tuple[Path, ...]]] = []
    if pictures:
        found.append(Lesson(label, tuple(pictures), str(folder)))
    parts = [*subfolders(folder), *media_in(folder, VIDEOS)]
    for part in sorted(parts, key=lambda path: natural(path.name)):
        files = media_in(part, IMAGES) if part.is_dir() else [part]
        if not files:
            raise FileError(
                f"the folder {part} holds no pictures: remove it, or name the folders in it one by "
                "one"
            )
        found.append(Lesson(label, tuple(files), str(part)))
    if not found:
        raise FileError(f"the folder {folder} holds no images and no videos")
    return found


def lessons_of_objects(root: Path) -> list[Lesson[tuple[Path, ...]]]:
    """Return the lessons of a folder with one folder per object, or in CORe50's layout, s1/o1.

    Args:
        root: The folder. If `primavista data render` wrote it, the names are those of its scene.

    Raises:
        InputError: If there are no folders in it.
        FileError: If one of them cannot be read, or holds neither images nor videos.
    """
    folders = subfolders(root)
    if not folders:
        raise InputError(
            f"{root} holds no folders named after objects: say what it shows with --label mug"
        )
    scene = read_scene(root)
    lessons: dict[Path, Lesson[tuple[Path, ...]]] = {}
    sessions: dict[str, list[tuple[str, Path]]] = {}
    for folder in folders:
        own = lessons_of_object(folder, folder.name)
        lessons |= {Path(lesson.name): lesson for lesson in own}
        sessions[folder.name] = [(Path(lesson.name).stem, Path(lesson.name)) for lesson in own]
    names = dict(enumerate(scene_classes(scene.scene)[0], 1)) if scene else {}
    found = []
    for label, own_sessions in sessions_by_object(sessions).items():
        name = names.get(int(label[1:]), label) if scene else label
        found += [replace(lessons[path], label=name) for _, path in own_sessions]
    return found


class SwappedChannels:
    """Frames with red and blue exchanged as they are read.

    Args:
        frames: The frames, with their colours in the order blue, green, red.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, indices: Tensor) -> Tensor:
        return self._frames[indices].flip(-1)


def learner_frames(frames: LearnerInput, size: int, bgr: bool = False) -> tuple[Frames, bool]:
    """Convert what a learner was given to frames at model size, in RGB.

    Args:
        frames: A path, one image, or several images.
        size: The side of the frames that the learner takes, in pixels.
        bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

    Returns:
        The frames, and whether there is one answer to give: for one image, and for a path.

    Raises:
        InputError: If these are not images, or if they are known to be RGB and `bgr` is set.
        FileError: If the path cannot be read.
    """
    if bgr:
        _check_order_is_open(frames)
    if isinstance(frames, str | Path):
        return open_frames(frames, size=size), True
    images, single = model_frames(frames, size)
    if bgr:
        # after resizing, which treats every channel alike; alpha is gone by then
        images = images.flip(-1) if isinstance(images, Tensor) else SwappedChannels(images)
    return images, single


def learner_picture(frame: ImageLike | str | Path, bgr: bool = False) -> Image.Image:
    """Convert one image to a whole picture, uncropped, in RGB.

    Args:
        frame: One image, or the path of a picture.
        bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

    Returns:
        The picture.

    Raises:
        InputError: If it is not one image, or if it is known to be RGB and `bgr` is set.
        FileError: If the path cannot be read.
    """
    if bgr:
        _check_order_is_open(frame)
    if isinstance(frame, str | Path):
        return Image.fromarray(decode_image(Path(frame), frame, None, whole=True))
    picture = whole_picture(frame)
    return Image.merge("RGB", picture.split()[::-1]) if bgr else picture


def _check_order_is_open(frames: LearnerInput) -> None:
    """Refuse `bgr` for what is RGB wherever it comes from."""
    first = frames[0] if isinstance(frames, list | tuple) and frames else frames
    if isinstance(first, str | Path | Image.Image | Clip | LessonBuffer):
        raise InputError(
            "files, PIL images and what open_frames and open_lesson return are RGB: leave out bgr"
        )


def check_order_of_arguments(frames: object, label: object) -> None:
    """Refuse `learn("mug", frames)`, whose arguments are in the wrong order.

    Args:
        frames: The first argument, which would be taken for the path of a file.
        label: The second one.

    Raises:
        InputError: If the first is a text and the second one is neither a text nor several.
    """
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


def lesson_id(images: Frames) -> str:
    """Identify a lesson by what was shown: SHA-256 of the number of frames and of eight of them.

    Args:
        images: The frames at model size. The eight frames are evenly spread over them.

    Returns:
        32 hexadecimal digits, the same on every machine.
    """
    count = len(images)
    sha = hashlib.sha256(repr(count).encode())
    for index in torch.linspace(0, count - 1, min(IDENTIFYING_FRAMES, count)).long().unique():
        frame = read_frames(images, index[None], torch.device("cpu"))
        sha.update(frame.numpy().tobytes())
    return sha.hexdigest()[:32]


@dataclass(frozen=True)
class LessonFeatures:
    """A lesson as the features of its frames: `Learner.learn_again` learns it without the frames.

    `LessonBuffer.without_frames` makes one.

    Args:
        id: The id of the lesson, as `lesson_id` gives it.
        features: The features of all frames, N x D.
        version: The version of the representation that computed them.
        origin: Identifies the learner and its copies; other learners cannot use the features.
    """

    id: str
    features: Tensor
    version: int
    origin: object

    def __len__(self) -> int:
        """Return the number of frames that the lesson had."""
        return len(self.features)

    @property
    def bytes(self) -> int:
        """The memory that the features take."""
        return self.features.numel() * self.features.element_size()


class LessonBuffer:
    """The frames of a lesson that arrive one by one, with their features if these are frozen.

    A buffer satisfies `Frames`, so `learner.learn(buffer, "mug")` learns it like any other frames.
    The features that were computed while frames still arrived spare the strategy its pass through
    the network, as long as the representation has not changed since. `Learner.open_lesson` makes
    one.

    Args:
        strategy: Computes the features.
        size: The side of the frames, in pixels.
        origin: Identifies the learner and its copies; features are not used by other learners.
    """

    def __init__(self, strategy: Strategy, size: int, origin: object) -> None:
        self.size = size
        self._strategy = strategy
        self._origin = origin
        self._version = int(strategy.embedding_version)
        self._frames: list[Tensor] = []
        self._features: list[Tensor] = []

    def add(self, image: ImageLike, *, bgr: bool = False) -> None:
        """Append one image of any size; its centre square is resized.

        Args:
            image: A PIL image or a uint8 array, H x W x 3, H x W or H x W x 4.
            bgr: Whether the colours of an array are in the order blue, green, red, as OpenCV has
                them.
        """
        frame = torch.from_numpy(crop_and_resize(image, self.size))
        if bgr and isinstance(image, Image.Image):
            raise InputError("a PIL image is RGB: leave out bgr")
        self._frames.append(frame.flip(-1) if bgr else frame)

    def prepare(self) -> None:
        """Compute the features of all full chunks of frames that have arrived and have none yet."""
        while self._strategy.embeds and (len(self._features) + 1) * CHUNK <= len(self._frames):
            self._embed_next()

    def finish(self) -> Iterator[int]:
        """Compute the features that are missing, one chunk at a time.

        Yields:
            How many frames have features, after each chunk.
        """
        while self._strategy.embeds and len(self._features) * CHUNK < len(self._frames):
            self._embed_next()
            yield min(len(self._features) * CHUNK, len(self._frames))

    def features_for(
        self, strategy: Strategy, origin: object, progress: Progress | None = None
    ) -> Tensor | None:
        """Return the features of all frames, N x D, if `strategy` can learn from them.

        Args:
            strategy: The strategy that is about to learn.
            origin: Identifies its learner.
            progress: Told of the frames whose features are computed now.

        Returns:
            The features, or None if the strategy needs the frames themselves: because it trains its
            representation, or because that is not the one that computed the features.
        """
        same = origin is self._origin and int(strategy.embedding_version) == self._version
        if not same or not strategy.embeds:
            return None
        for done in self.finish():
            if progress is not None:
                progress(done, len(self._frames))
        return torch.cat(self._features) if self._features else None

    def without_frames(self) -> LessonFeatures | None:
        """Return the lesson as its features alone, to be learned again after the frames are gone.

        Returns:
            The features with the id of the lesson, or None if there are none, because there is no
            frame or because the strategy trains its representation.
        """
        if not self._frames or not self._strategy.embeds:
            return None
        for _ in self.finish():
            pass
        return LessonFeatures(
            lesson_id(self), torch.cat(self._features), self._version, self._origin
        )

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, indices: Tensor) -> Tensor:
        if not self._frames:
            raise InputError("there are no frames: give at least one")
        return torch.stack([self._frames[int(i)] for i in indices.tolist()])

    def _embed_next(self) -> None:
        assert is_frozen(self._strategy)
        start = len(self._features) * CHUNK
        chunk = torch.stack(self._frames[start : start + CHUNK])
        self._features.append(self._strategy.embed(chunk))
