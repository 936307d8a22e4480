"""A scene that was written to a folder: `scene.json` says what it should hold."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from primavista.errors import FileError
from primavista.streams.names import object_names
from primavista.streams.rendered.renderer import Scene

SCENE = "scene.json"
FORMATS = ("png", "jpg", "mp4")


@dataclass(frozen=True)
class WrittenScene:
    """What a folder should hold: a scene, as pictures (png, jpg) or as videos (mp4)."""

    scene: Scene
    format: str

    @property
    def record(self) -> dict[str, Any]:
        """The content of scene.json."""
        return {"scene": asdict(self.scene), "format": self.format}

    def location(self, object: int, session: int) -> str:
        """Where a session of an object lies: a folder of pictures, or a video."""
        return f"s{session}/o{object}" + (".mp4" if self.format == "mp4" else "")

    def command(self, folder: Path) -> str:
        """What writes it."""
        scene = asdict(self.scene)
        options = " ".join(f"--{name} {value}" for name, value in scene.items())
        return f"primavista data render {folder} --format {self.format} {options}"


def read_scene(folder: Path) -> WrittenScene | None:
    """The scene of a folder that `primavista data render` wrote to the end; None where it wrote none of it."""
    try:
        record = json.loads((folder / SCENE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(
            f"cannot read {folder / SCENE} ({error}): restore it, or delete it if it is none of ours"
        ) from error
    if not isinstance(record, dict) or set(record) != {"scene", "format"}:
        return None  # a file of somebody else's
    try:
        written = WrittenScene(Scene(**record["scene"]), record["format"])
    except (TypeError, ValueError) as error:
        raise FileError(f"{folder / SCENE} describes no scene ({error}): restore it") from error
    if written.format not in FORMATS:
        raise FileError(
            f"{folder / SCENE} has the format {written.format!r}; there are {', '.join(FORMATS)}"
        )
    _check_whole(folder, written)
    return written


def _check_whole(folder: Path, written: WrittenScene) -> None:
    there, scene = 0, written.scene
    objects = scene.categories * scene.objects
    for session in range(1, scene.sessions + 1):
        names = (
            set(os.listdir(folder / f"s{session}")) if (folder / f"s{session}").is_dir() else set()
        )
        there += sum(
            os.path.basename(written.location(object, session)) in names
            for object in range(1, objects + 1)
        )
    if there < objects * scene.sessions:
        raise FileError(
            f"{folder} holds {there} of the {objects * scene.sessions} videos of its scene: its drawing was stopped, or some "
            f"were deleted. Finish it with the same command: {written.command(folder)}"
        )


def scene_name(scene: Scene) -> str:
    """The name of the data set."""
    return f"rendered-{scene.categories}x{scene.objects}x{scene.sessions}x{scene.frames}-{scene.size}px-seed{scene.seed}"


def scene_classes(scene: Scene) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The names of the objects, and the category of each."""
    objects = scene.categories * scene.objects
    return object_names(objects, scene.objects), tuple(i // scene.objects for i in range(objects))
