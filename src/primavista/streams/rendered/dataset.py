"""The rendered videos as a data set with CORe50's structure, and as files in CORe50's layout."""

from __future__ import annotations

import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from primavista.errors import FileError, InputError, require_extra
from primavista.streams.dataset import DataSet, Session
from primavista.streams.rendered.renderer import Scene, render
from primavista.streams.rendered.written import (
    FORMATS,
    SCENE,
    WrittenScene,
    scene_classes,
    scene_name,
)
from primavista.streams.split import held_out

Progress = Callable[[int, int], None]
CACHE = 256 * 2**20  # bytes of rendered sessions that are kept
FEW = 8  # less than one frame in so many of a session does not pay for all of it
FPS = 20  # as CORe50's camera
DEFAULT = Scene()


def rendered(scene: Scene = DEFAULT, device: str | torch.device = "cpu") -> DataSet:
    """The data set of a scene; its frames are rendered when they are asked for, a session at a time.

    The 256 MiB of sessions used last are kept. For access all over the data set in random order, `materialise` it or pack it.
    The test sessions are those of `held_out`.
    """
    return _data_set(scene, RenderedFrames(scene, device))


def materialise(
    scene: Scene = DEFAULT,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> DataSet:
    """The same data set, all rendered now into one uint8 tensor on `device`; `progress(done, total)` counts frames."""
    frames = _room(scene, device)
    for place, (object, session) in enumerate(_sessions(scene)):
        start = place * scene.frames
        frames[start : start + scene.frames] = render(scene, object, session, device=device)
        if progress:
            progress(start + scene.frames, len(frames))
    return _data_set(scene, frames)


def _room(scene: Scene, device: str | torch.device) -> Tensor:
    """Memory for all frames, or an error before any is taken."""
    need = _count(scene) * scene.size**2 * 3
    advice = f"{need / 2**30:,.1f} GiB of frames do not fit in the memory of {device}: draw fewer or smaller ones, or pack them"
    own = (
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else need
    )
    if torch.device(device).type == "cpu" and need > own:
        raise InputError(advice)
    try:
        return torch.empty(
            _count(scene), scene.size, scene.size, 3, dtype=torch.uint8, device=device
        )
    except (RuntimeError, MemoryError) as error:
        raise InputError(advice) from error


class RenderedFrames:
    """`Frames` of a scene: session s of object o begins at ((o - 1) * sessions + s - 1) * frames."""

    def __init__(
        self, scene: Scene, device: str | torch.device = "cpu", cache: int = CACHE
    ) -> None:
        self.scene, self.device, self.cache = scene, torch.device(device), cache
        self._kept: OrderedDict[int, Tensor] = OrderedDict()
        self._lock = Lock()
        self._session_bytes = scene.frames * scene.size**2 * 3

    def __len__(self) -> int:
        return _count(self.scene)

    def __getitem__(self, indices: Tensor) -> Tensor:
        asked = torch.arange(len(self))[
            indices.cpu()
        ]  # negative ones, masks and slices as of any tensor
        places = asked // self.scene.frames
        pictures = torch.empty(
            len(asked), self.scene.size, self.scene.size, 3, dtype=torch.uint8, device=self.device
        )
        for place in places.unique().tolist():
            here = (places == place).nonzero()[:, 0]
            pictures[here.to(self.device)] = self._some(place, asked[here] % self.scene.frames)
        return pictures

    def _some(self, place: int, frames: Tensor) -> Tensor:
        """Of a session; where few are asked for and not all sessions can be kept, only those are rendered."""
        fits = self._session_bytes * len(self) <= self.cache * self.scene.frames
        if fits or place in self._kept or len(frames) * FEW >= self.scene.frames:
            return self._session(place)[frames.to(self.device)]
        object, session = divmod(place, self.scene.sessions)
        return render(self.scene, object + 1, session + 1, frames.tolist(), self.device)

    def _session(self, place: int) -> Tensor:
        with self._lock:
            if place in self._kept:
                self._kept.move_to_end(place)
                return self._kept[place]
        object, session = divmod(place, self.scene.sessions)
        pictures = render(self.scene, object + 1, session + 1, device=self.device)
        with self._lock:
            self._kept[place] = pictures
            while len(self._kept) > 1 and len(self._kept) * self._session_bytes > self.cache:
                self._kept.popitem(last=False)
        return pictures

    def __reduce__(self) -> tuple[Any, ...]:
        return RenderedFrames, (self.scene, str(self.device), self.cache)


def write(
    scene: Scene,
    folder: str | Path,
    format: Literal["png", "jpg", "mp4"] = "png",
    progress: Progress | None = None,
    device: str | torch.device = "cpu",
) -> Path:
    """Write the scene in CORe50's layout: `s1/o1/C_01_01_000.png` (session, object, frame), or `s1/o1.mp4` (20 frames/s).

    Pictures as png are exact, jpg (quality 95) and mp4 (x264) are not. The same call after a stop goes on where it was;
    `scene.json` in the folder says what is in it, and another scene is refused.
    """
    if format not in FORMATS:
        raise InputError(f"format must be png, jpg or mp4; got {format!r}")
    if format == "mp4" and scene.size % 2:
        raise InputError(
            f"an mp4 needs an even size; got {scene.size}: choose {scene.size + 1}, or png"
        )
    target = Path(folder).expanduser()
    with _writing(target):
        written = WrittenScene(scene, format)
        _claim(target, written)
        for place, (object, session) in enumerate(_sessions(scene)):
            final = target / written.location(object, session)
            if not final.exists():
                _write_session(
                    final,
                    render(scene, object, session, device=device).cpu().numpy(),
                    object,
                    session,
                    format,
                )
            if progress:
                progress((place + 1) * scene.frames, _count(scene))
    return target


def _write_session(
    final: Path, pictures: np.ndarray[Any, Any], object: int, session: int, format: str
) -> None:
    part = final.with_name(f".{final.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        if format == "mp4":
            _write_video(part / final.name, pictures)
            os.replace(part / final.name, final)
            return
        options: dict[str, Any] = {"quality": 95} if format == "jpg" else {"compress_level": 1}
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(
                part / f"C_{session:02d}_{object:02d}_{i:03d}.{format}", **options
            )
        os.replace(part, final)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_video(path: Path, pictures: np.ndarray[Any, Any]) -> None:
    av = require_extra("av", "video")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "18", "threads": "1"})
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def _claim(target: Path, written: WrittenScene) -> None:
    """Mark the folder as holding this scene, or refuse it."""
    target.mkdir(parents=True, exist_ok=True)
    text = json.dumps(written.record, indent=1) + "\n"
    try:
        found = (target / SCENE).read_text()
    except FileNotFoundError:
        if any(target.glob("s*/o*")):
            raise InputError(
                f"{target} holds other files in CORe50's layout: choose an empty folder"
            ) from None
        part = target / f".{SCENE}.part"
        part.write_text(text)
        os.replace(part, target / SCENE)
        return
    if found != text:
        raise InputError(
            f"{target} holds another scene or format (see {SCENE} there): choose another folder, or delete it"
        )


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except (FileError, InputError):
        raise
    except OSError as error:
        reason = error.strerror or error
        raise FileError(
            f"cannot write in {target}: {reason}. Make room or choose another folder; what is written is kept"
        ) from error


def _data_set(scene: Scene, frames: Any) -> DataSet:
    chosen = set(held_out(scene.sessions))
    every = [
        Session(object - 1, session, place * scene.frames, (place + 1) * scene.frames)
        for place, (object, session) in enumerate(_sessions(scene))
    ]
    classes, categories = scene_classes(scene)
    return DataSet(
        name=scene_name(scene),
        frames=frames,
        train=tuple(s for s in every if s.number not in chosen),
        test=tuple(s for s in every if s.number in chosen),
        classes=classes,
        categories=categories,
    )


def _sessions(scene: Scene) -> Iterator[tuple[int, int]]:
    return (
        (o + 1, s + 1)
        for o in range(scene.categories * scene.objects)
        for s in range(scene.sessions)
    )


def _count(scene: Scene) -> int:
    return scene.categories * scene.objects * scene.sessions * scene.frames
