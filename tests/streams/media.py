"""Videos and pictures for the tests, with colours that say which frame they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CODECS = {"mp4": "libx264", "mkv": "libx264", "avi": "mpeg4", "webm": "libvpx-vp9", "mov": "mpeg4"}


def shade(index: int, step: int = 10) -> int:
    """The grey of frame `index`."""
    return 20 + index * step % 200


def make_video(
    path: Path,
    count: int = 20,
    size: tuple[int, int] = (64, 48),
    rate: int = 10,
    frame: Callable[[int], Any] | None = None,
    rotation: int = 0,
    options: dict[str, str] | None = None,
) -> Path:
    """A video of grey frames (`shade`), or of what `frame(i)` draws.

    Its codec follows from its suffix.
    """
    import av

    width, height = size
    draw = frame or (lambda i: np.full((height, width, 3), shade(i), np.uint8))
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(CODECS[path.suffix[1:]], rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        if rotation:
            stream.set_display_rotation(rotation)
        for i in range(count):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(draw(i), format="rgb24")))
        container.mux(stream.encode())
    return path


def make_pictures(folder: Path, shades: Iterable[int], suffix: str = "png", size: int = 16) -> Path:
    """A folder of grey pictures 0.png, 1.png, ... up to any number.

    Natural order is not that of the letters.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for i, value in enumerate(shades):
        Image.new("RGB", (size, size), (value,) * 3).save(folder / f"{i}.{suffix}")
    return folder


def corners() -> np.ndarray[Any, Any]:
    """48 x 64: red top left, green top right, blue bottom left, white bottom right."""
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:24, :32], picture[:24, 32:] = (255, 0, 0), (0, 255, 0)
    picture[24:, :32], picture[24:, 32:] = (0, 0, 255), (255, 255, 255)
    return picture
