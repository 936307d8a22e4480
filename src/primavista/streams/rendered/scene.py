"""Scenes: what is rendered, and its description in a folder that holds its pictures or videos."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from primavista.errors import FileError, InputError
from primavista.streams.conventions import object_names

SCENE = "scene.json"
FORMATS = ("png", "jpg", "mp4")
# The smallest and the largest value of each number of a scene.
BOUNDS = {
    "categories": (1, 1000),
    "objects": (1, 1000),
    "sessions": (1, 1000),
    "frames": (1, 100_000),
    "size": (8, 2048),
    "seed": (-(2**63), 2**63 - 1),
}
MAX_OBJECTS = 9999  # CORe50's file names have four digits for them
MAX_FRAMES = 10_000_000


@dataclass(frozen=True)
class Scene:
    """The description of a data set to render; equal scenes give equal pixels.

    Args:
        categories: The number of categories. Beyond ten, the families repeat with other hues.
        objects: The number of objects per category.
        sessions: The number of sessions per object.
        frames: The number of frames per session.
        size: The side of the frames in pixels.
        seed: Another seed gives other objects and backgrounds.

    Raises:
        InputError: If a value is out of range.
    """

    categories: int = 10
    objects: int = 5
    sessions: int = 11
    frames: int = 60
    size: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"Scene.{name} must be an integer, got {value!r}")
            if value < low:
                raise InputError(f"Scene.{name} must be at least {low}, got {value}")
            if value > high:
                raise InputError(f"Scene.{name} must be at most {high:,}, got {value:,}")
        objects = self.categories * self.objects
        if objects > MAX_OBJECTS:
            raise InputError(
                f"a Scene has at most {MAX_OBJECTS:,} objects (categories x objects), "
                f"got {objects:,}"
            )
        total = objects * self.sessions * self.frames
        if total > MAX_FRAMES:
            raise InputError(
                f"a Scene has at most {MAX_FRAMES:,} frames "
                f"(categories x objects x sessions x frames), got {total:,}"
            )


@dataclass(frozen=True)
class WrittenScene:
    """The contents of a folder that `primavista data render` writes.

    Args:
        scene: The scene that was rendered.
        format: "png" or "jpg" for pictures, "mp4" for videos.
    """

    scene: Scene
    format: str

    @property
    def record(self) -> dict[str, Any]:
        """The content of scene.json."""
        return {"scene": asdict(self.scene), "format": self.format}

    def location(self, object: int, session: int) -> str:
        """Return the path of a session below the folder: a folder of pictures, or a video.

        Args:
            object: The number of the object, from 1.
            session: The number of the session, from 1.
        """
        suffix = ".mp4" if self.format == "mp4" else ""
        return f"s{session}/o{object}{suffix}"

    def command(self, folder: Path) -> str:
        """Return the command that writes the scene, for messages.

        Args:
            folder: The folder to write.
        """
        scene = asdict(self.scene)
        options = " ".join(f"--{name} {value}" for name, value in scene.items())
        return f"primavista data render {folder} --format {self.format} {options}"


def read_scene(folder: Path) -> WrittenScene | None:
    """Read the description of the scene that `primavista data render` wrote to a folder.

    Args:
        folder: Any folder; it need not exist.

    Returns:
        The scene; None if the folder has no scene.json of ours.

    Raises:
        FileError: If scene.json is damaged, or the scene was not written completely.
    """
    try:
        record = json.loads((folder / SCENE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(
            f"cannot read {folder / SCENE} ({error}): "
            "restore it, or delete it if primavista did not write it"
        ) from error
    if not isinstance(record, dict) or set(record) != {"scene", "format"}:
        return None  # the file belongs to another program
    try:
        written = WrittenScene(Scene(**record["scene"]), record["format"])
    except (TypeError, ValueError) as error:
        raise FileError(
            f"{folder / SCENE} does not describe a scene ({error}): restore it"
        ) from error
    if written.format not in FORMATS:
        raise FileError(
            f"{folder / SCENE} has the format {written.format!r}; there are {', '.join(FORMATS)}"
        )
    _check_complete(folder, written)
    return written


def _check_complete(folder: Path, written: WrittenScene) -> None:
    found, scene = 0, written.scene
    objects = range(1, scene.categories * scene.objects + 1)
    for session in range(1, scene.sessions + 1):
        outer = folder / f"s{session}"
        names = set(os.listdir(outer)) if outer.is_dir() else set()
        expected = {os.path.basename(written.location(object, session)) for object in objects}
        found += len(expected & names)
    total = len(objects) * scene.sessions
    if found < total:
        raise FileError(
            f"{folder} holds {found} of the {total} videos of its scene: it was interrupted, "
            "or some were deleted. Finish it with the same command: "
            f"{written.command(folder)}"
        )


def scene_name(scene: Scene) -> str:
    """Return the name of the data set of a scene, which contains all its numbers.

    Args:
        scene: The scene.

    >>> scene_name(Scene(frames=12))
    'rendered-10x5x11x12-128px-seed0'
    """
    counts = f"{scene.categories}x{scene.objects}x{scene.sessions}x{scene.frames}"
    return f"rendered-{counts}-{scene.size}px-seed{scene.seed}"


def scene_classes(scene: Scene) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of a scene's objects, and the category of each.

    Args:
        scene: The scene.
    """
    objects = scene.categories * scene.objects
    return object_names(objects, scene.objects), tuple(i // scene.objects for i in range(objects))
