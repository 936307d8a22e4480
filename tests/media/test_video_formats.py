"""Videos of every suffix that is listed are read (F9); the network keeps to three formats."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from primavista import open_frames
from primavista.errors import FileError, InputError
from primavista.media.addresses import VIDEOS, camera_address
from primavista.media.decode import timed_frames

from ..streams import media

av = pytest.importorskip("av")


def make(folder: Path, suffix: str, count: int = 20) -> Path:
    codec = media.CODECS[suffix[1:]]
    if codec not in av.codecs_available:
        pytest.skip(f"this build of PyAV has no encoder {codec}")
    # MPEG has few frame rates and sizes of whole blocks
    return media.make_video(folder / f"clip{suffix}", count, (128, 96), 25)


@pytest.mark.parametrize("suffix", VIDEOS)
def test_a_video_of_every_suffix_is_read(tmp_path: Path, suffix: str) -> None:
    make(tmp_path, suffix)
    clip = open_frames(tmp_path, size=8)
    found = [float(frame.mean()) for frame in clip.frames]
    assert found == pytest.approx([media.shade(i) for i in range(20)], abs=8)
    assert clip.note == ""


@pytest.mark.parametrize("suffix", [".ts", ".mpg", ".h264", ".wmv"])
def test_their_times_are_right(tmp_path: Path, suffix: str) -> None:
    video = make(tmp_path, suffix)
    times = [at for at, _ in timed_frames(video)]
    assert times == pytest.approx([i / 25 for i in range(20)], abs=0.001)
    assert len(open_frames(video, size=8, fps=5).frames) == 4


@pytest.mark.parametrize("suffix", [".ts", ".mpg", ".flv", ".wmv", ".mxf", ".h264"])
def test_over_the_network_the_formats_are_those_of_before(tmp_path: Path, suffix: str) -> None:
    data = make(tmp_path, suffix).read_bytes()
    with pytest.raises(FileError, match="damaged or not a video"):
        list(timed_frames(io.BytesIO(data)))


def test_playlists_are_not_read_whatever_their_suffix(tmp_path: Path) -> None:
    """They name other files, and addresses."""
    video = make(tmp_path, ".ts")
    playlist = tmp_path / "list.mpg"
    text = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{video}\n#EXT-X-ENDLIST\n"
    playlist.write_text(text)
    with pytest.raises(FileError, match="damaged or not a video"):
        open_frames(playlist)
    playlist.write_text(f"ffconcat version 1.0\nfile '{video}'\n")
    with pytest.raises(FileError, match="damaged or not a video"):
        open_frames(playlist)


def test_the_address_of_a_camera_may_end_like_a_video() -> None:
    for path in ("video.mjpg", "live.ts", "live.flv"):
        assert camera_address(f"http://door/{path}").name == f"http://door/{path}"
    with pytest.raises(InputError, match="the address of a file"):
        camera_address("http://door/mug.mp4")
