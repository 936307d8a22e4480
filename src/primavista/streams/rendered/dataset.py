"""The rendered videos as a data set with CORe50's structure, and as files."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from primavista.arrays import chosen_rows
from primavista.errors import CHOOSE_FOLDER, InputError, file_errors, require_extra
from primavista.progress import Progress
from primavista.storage import disk
from primavista.storage.disk import replacing
from primavista.streams.conventions import held_out
from primavista.streams.dataset import DataSet, consecutive_sessions
from primavista.streams.rendered.renderer import Scene, render
from primavista.streams.rendered.scene import scene_classes, scene_name, scene_sessions

CACHE_BYTES = 256 * 2**20  # the size of the cache of rendered sessions
# If fewer than one in this many frames of a session are requested, only those are rendered.
WHOLE_SESSION_SHARE = 8
FPS = 20  # the frame rate of CORe50
DEFAULT = Scene()


def rendered(scene: Scene = DEFAULT, device: str | torch.device = "cpu") -> DataSet:
    """Open the data set of a scene; its frames are rendered on demand.

    Sessions are rendered as a whole, and the 256 MiB used last are cached. For access in random
    order, `pack` the data set. The test sessions are those of `held_out`.

    Args:
        scene: The scene to render; by default 10 x 5 objects, 11 sessions, 60 frames of 128 pixels.
        device: The device to render on.

    Returns:
        The data set, with one class per object.
    """
    tested = set(held_out(scene.sessions))
    train, test = consecutive_sessions(
        (object - 1, number, scene.frames, number in tested)
        for object, number in scene_sessions(scene)
    )
    classes, categories = scene_classes(scene)
    return DataSet(
        name=scene_name(scene),
        frames=RenderedFrames(scene, device),
        train=train,
        test=test,
        classes=classes,
        categories=categories,
    )


class RenderedFrames:
    """The frames of a scene, rendered on demand.

    Session s of object o begins at ((o - 1) * sessions + s - 1) * frames.

    Args:
        scene: The scene to render.
        device: The device to render on.
        cache: The number of bytes of rendered sessions to keep.
    """

    def __init__(
        self, scene: Scene, device: str | torch.device = "cpu", cache: int = CACHE_BYTES
    ) -> None:
        self.scene, self.device, self.cache = scene, torch.device(device), cache
        kept = cache // (scene.frames * scene.size**2 * 3)
        self._session = lru_cache(max(1, kept))(self._render)
        self._keeps_all = kept * scene.frames >= len(self)

    def __len__(self) -> int:
        return self.scene.categories * self.scene.objects * self.scene.sessions * self.scene.frames

    def __getitem__(self, indices: Tensor) -> Tensor:
        asked = torch.from_numpy(chosen_rows(indices, len(self)))
        sessions = asked // self.scene.frames
        shape = (len(asked), self.scene.size, self.scene.size, 3)
        pictures = torch.empty(shape, dtype=torch.uint8, device=self.device)
        for index in sessions.unique().tolist():
            here = (sessions == index).nonzero()[:, 0]
            frames = asked[here] % self.scene.frames
            few = len(frames) * WHOLE_SESSION_SHARE < self.scene.frames
            if few and not self._keeps_all:
                found = self._render(index, frames.tolist())
            else:
                found = self._session(index)[frames.to(self.device)]
            pictures[here.to(self.device)] = found
        return pictures

    def _render(self, index: int, frames: list[int] | None = None) -> Tensor:
        object, session = divmod(index, self.scene.sessions)
        return render(self.scene, object + 1, session + 1, frames, self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        return RenderedFrames, (self.scene, str(self.device), self.cache)


def write(
    scene: Scene,
    folder: str | Path,
    format: Literal["png", "mp4"] = "png",
    progress: Progress | None = None,
    device: str | torch.device = "cpu",
) -> Path:
    """Write a scene as a folder of objects, which is there only once it is complete.

    The files are `cup 1/s1/000.png` (object, session, frame), or `cup 1/s1.mp4` at 20 frames per
    second. Pictures are lossless, videos (x264) are not.

    Args:
        scene: The scene to render.
        folder: The folder to write; it may exist if it is empty.
        format: The kind of files.
        progress: Called with (done, total), in frames.
        device: The device to render on.

    Returns:
        The path of the folder.

    Raises:
        InputError: If the folder is not empty.
        FileError: If it cannot be written.
    """
    if format not in ("png", "mp4"):
        raise InputError(f"format must be png or mp4; got {format!r}")
    if format == "mp4" and scene.size % 2:
        raise InputError(
            f"an mp4 needs an even size; got {scene.size}: choose {scene.size + 1}, or png"
        )
    target = Path(folder).expanduser()
    if target.is_dir() and any(target.iterdir()):
        raise InputError(f"{target} holds files: choose an empty folder, or delete it")
    save = _write_video if format == "mp4" else _write_pictures
    with file_errors("write", target, CHOOSE_FOLDER):
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as part:
            sessions, (names, _) = list(scene_sessions(scene)), scene_classes(scene)
            for done, (object, session) in enumerate(sessions, 1):
                home = part / names[object - 1]
                home.mkdir(parents=True, exist_ok=True)
                save(home / f"s{session}", render(scene, object, session, device=device))
                if progress:
                    progress(done * scene.frames, len(sessions) * scene.frames)
            disk.sync_all()  # the folder gets its name after the files are on the disk
        disk.sync_folder(target.parent)
    return target


def _write_pictures(path: Path, pictures: Tensor) -> None:
    path.mkdir()
    for i, picture in enumerate(pictures.cpu().numpy()):
        Image.fromarray(picture).save(path / f"{i:03d}.png", compress_level=1)


def _write_video(path: Path, pictures: Tensor) -> None:
    av = require_extra("av", "video")
    with av.open(f"{path}.mp4", "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "18", "threads": "1"})
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for picture in pictures.cpu().numpy():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
