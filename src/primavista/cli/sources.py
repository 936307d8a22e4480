"""What people name on the command line to be taught: videos, images, folders, cameras, as lessons in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from primavista.errors import FileError, InputError
from primavista.storage.names import checked_name

CAMERA = "camera:"


@dataclass(frozen=True)
class Lesson:
    """One video (or the pictures of one) of one object; `source` is what `open_frames` takes."""

    label: str
    name: str
    source: str | tuple[Path, ...]


def find_lessons(sources: Sequence[str], label: str | None) -> list[Lesson]:
    """The lessons of all sources, in their order; every one is looked up before any is taught.

    A folder may hold pictures (one lesson), videos and folders of pictures (a lesson each). Without `label` it holds such a
    folder for each object, named after it.
    """
    found: list[Lesson] = []
    for source in sources:
        path = Path(source).expanduser()
        if source.startswith(CAMERA) or not source.strip() or not path.is_dir():
            media = _single(source)
            found.append(Lesson(_said(label, source), source, media))
        elif label is not None:
            found += _sessions(path, label)
        else:
            found += _objects(path)
    return [replace(lesson, label=checked_name(lesson.label)) for lesson in found]


def shown(text: str) -> str:
    """A name or a path as it is printed: nothing in it reaches the terminal as a command, whoever wrote it.

    >>> shown("mug\\x1b[2J\\n")
    'mug\ufffd[2J\ufffd'
    """
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _single(source: str) -> str | tuple[Path, ...]:
    from primavista.streams.video import find_media

    return source if source.startswith(CAMERA) else tuple(find_media(source))


def _said(label: str | None, source: str) -> str:
    if label is None:
        raise InputError(
            f"what does {source} show? Say it with --label mug (only a folder of folders has names in it)"
        )
    return label


def _sessions(place: Path, label: str) -> list[Lesson]:
    """The lessons of one object's folder."""
    from primavista.streams.folder import subfolders
    from primavista.streams.video import IMAGES, VIDEOS, media_in, natural

    pictures = media_in(place, IMAGES)
    found = [Lesson(label, str(place), tuple(pictures))] if pictures else []
    for inner in sorted(
        [*subfolders(place), *media_in(place, VIDEOS)], key=lambda path: natural(path.name)
    ):
        files = media_in(inner, IMAGES) if inner.is_dir() else [inner]
        if not files:
            raise FileError(
                f"the folder {inner} holds no pictures: remove it, or name the folders in it one by one"
            )
        found.append(Lesson(label, str(inner), tuple(files)))
    if not found:
        raise FileError(f"the folder {place} holds no images and no videos")
    return found


def _objects(root: Path) -> list[Lesson]:
    """The lessons of a folder with a folder an object; of CORe50's layout, s1/o1, too."""
    from primavista.streams.folder import sessions_by_object, subfolders
    from primavista.streams.rendered.written import read_scene, scene_classes

    places = subfolders(root)
    if not places:
        raise InputError(
            f"{root} holds no folders named after objects: say what it shows with --label mug"
        )
    written = read_scene(root)
    named = {
        place.name: [(Path(one.name).stem, one) for one in _sessions(place, place.name)]
        for place in places
    }
    turned = sessions_by_object(
        {name: [(stem, Path(one.name)) for stem, one in own] for name, own in named.items()}
    )
    lessons = {Path(one.name): one for own in named.values() for _, one in own}
    names = dict(enumerate(scene_classes(written.scene)[0], 1)) if written else {}
    return [
        Lesson(
            names.get(int(label[1:]), label) if written else label,
            lessons[place].name,
            lessons[place].source,
        )
        for label, own in turned.items()
        for _, place in own
    ]
