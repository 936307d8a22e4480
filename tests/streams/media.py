"""Videos and pictures for the tests, with colours that say which frame they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CODECS = {
    **{"mp4": "libx264", "mkv": "libx264", "avi": "mpeg4", "webm": "libvpx-vp9", "mov": "mpeg4"},
    **{"ts": "libx264", "m2ts": "libx264", "mts": "libx264", "mpg": "mpeg1video", "f4v": "libx264"},
    "m4v": "libx264",
    **{"mpeg": "mpeg2video", "vob": "mpeg2video", "m1v": "mpeg1video", "m2v": "mpeg2video"},
    **{"flv": "flv", "3gp": "mpeg4", "3g2": "mpeg4", "ogv": "libvpx", "wmv": "wmv2"},
    **{"asf": "wmv1", "h264": "libx264", "264": "libx264", "h265": "libx265", "265": "libx265"},
    **{"hevc": "libx265", "mjpeg": "mjpeg", "mjpg": "mjpeg", "mxf": "mpeg2video", "ivf": "libvpx"},
    **{"obu": "libsvtav1", "nut": "mpeg4", "wtv": "mpeg2video", "divx": "mpeg4", "ogm": "libvpx"},
}
# FFmpeg's formats, if it does not know them by the suffix
CONTAINERS = {"m4v": "mp4", "ogv": "ogg", "ogm": "ogg", "divx": "avi", "mts": "mpegts"}


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
    suffix = path.suffix[1:]
    format = CONTAINERS.get(suffix)
    with av.open(str(path), "w", format=format, options=options or {}) as container:
        stream = container.add_stream(CODECS[suffix], rate=rate)
        stream.width, stream.height = width, height
        stream.pix_fmt = "yuvj420p" if CODECS[suffix] == "mjpeg" else "yuv420p"
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
