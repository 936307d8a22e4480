"""Scenes: what is rendered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from primavista.errors import InputError
from primavista.streams.conventions import object_names

# The smallest and the largest value of each number of a scene.
BOUNDS = {
    "categories": (1, 1000),
    "objects": (1, 1000),
    "sessions": (1, 1000),
    "frames": (1, 100_000),
    "size": (8, 2048),
    "seed": (-(2**63), 2**63 - 1),
}
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
        total = self.categories * self.objects * self.sessions * self.frames
        if total > MAX_FRAMES:
            raise InputError(
                f"a Scene has at most {MAX_FRAMES:,} frames "
                f"(categories x objects x sessions x frames), got {total:,}"
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


def scene_sessions(scene: Scene) -> Iterator[tuple[int, int]]:
    """Iterate over (object, session), both from 1, in the order of the data set.

    Args:
        scene: The scene.
    """
    for object in range(1, scene.categories * scene.objects + 1):
        for session in range(1, scene.sessions + 1):
            yield object, session
