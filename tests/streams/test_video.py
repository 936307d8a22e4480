"""open_frames: what it opens, how it thins, and what it says about files that are not as they
should be.
"""

import logging
import os
import random
import struct
import subprocess
import sys
import zlib
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from PIL import Image

import primavista as pv
from primavista.media import camera, decode, images
from primavista.media.frames import Frames
from primavista.media.images import centre_square
from primavista.media.video import (
    BadFiles,
    Clip,
    FrameSampler,
    natural,
    open_frames,
)

from . import media

av = pytest.importorskip("av")


def greys(clip: Frames) -> list[int]:
    return (
        torch.as_tensor(clip[torch.arange(len(clip))])
        .float()
        .mean((1, 2, 3))
        .round()
        .int()
        .tolist()
    )


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "webm", "mov"])
def test_every_frame_of_a_video_in_order_at_model_size(tmp_path: Path, suffix: str) -> None:
    clip = open_frames(media.make_video(tmp_path / f"v.{suffix}"), size=32)
    assert isinstance(clip, Frames)
    assert clip.frames.shape == (20, 32, 32, 3)
    assert clip.frames.dtype == np.uint8
    assert max(abs(a - media.shade(i)) for i, a in enumerate(greys(clip))) <= 4
    assert (clip.note, clip.skipped) == ("", 0)


def test_several_sources_are_called_by_the_first(tmp_path: Path) -> None:
    media.make_pictures(tmp_path / "cup", [10, 20])
    paths = (tmp_path / "cup/0.png", tmp_path / "cup/1.png")
    clip = open_frames(paths, size=8)
    assert np.array_equal(clip.frames, open_frames(str(tmp_path / "cup"), size=8).frames)
    assert clip.source == f"2 sources from {tmp_path / 'cup/0.png'}"
    paths[1].unlink()
    with pytest.raises(pv.FileError, match=r"cannot open .*1\.png: No such file"):
        open_frames(paths, size=8)


def test_a_camera_is_given_alone(tmp_path: Path) -> None:
    with pytest.raises(pv.InputError, match="camera:0 is a camera: give it alone"):
        open_frames([str(tmp_path / "1.png"), "camera:0"], skip_bad=True)


def test_the_crop_is_the_one_of_fit(tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "v.mp4", 3, frame=lambda i: media.corners())
    with av.open(str(path)) as container:
        expected = [
            centre_square(frame.to_ndarray(format="rgb24"), 24)
            for frame in container.decode(video=0)
        ]
    assert np.array_equal(open_frames(path, size=24).frames, np.stack(expected))
    Image.fromarray(media.corners()).save(tmp_path / "p.png")
    assert np.array_equal(
        open_frames(tmp_path / "p.png", size=24).frames[0],
        centre_square(media.corners(), 24),
    )


@pytest.mark.parametrize(("rotation", "turns"), [(90, 1), (180, 2), (-90, 3)])
def test_rotation_metadata_is_honoured(tmp_path: Path, rotation: int, turns: int) -> None:
    path = media.make_video(
        tmp_path / "v.mp4", 3, frame=lambda i: media.corners(), rotation=rotation
    )
    expected = centre_square(np.rot90(media.corners(), turns), 16).astype(
        int
    )  # counter-clockwise, as the display matrix counts
    assert np.abs(open_frames(path, size=16).frames[0].astype(int) - expected)[2:6, 2:6].max() < 30
    assert (
        np.abs(open_frames(path, size=16).frames[0].astype(int) - expected)[10:14, 10:14].max() < 30
    )


def test_a_picture_is_turned_as_its_exif_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    Image.fromarray(media.corners()).save(tmp_path / "p.png", exif=exif)
    clip = open_frames(tmp_path / "p.png", size=16)
    assert np.array_equal(clip.frames[0], centre_square(np.rot90(media.corners(), -1), 16))


def test_sixteen_bit_pictures_keep_their_upper_bits(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 0x4080, np.uint16)).save(tmp_path / "p.png")
    assert greys(open_frames(tmp_path / "p.png", size=8)) == [0x40]


@pytest.mark.parametrize("limit", range(1, 9))
def test_thinning_keeps_every_kth_with_k_a_power_of_two_if_the_count_is_not_known(
    limit: int,
) -> None:
    for count in range(1, 40):
        keep = FrameSampler(limit, BadFiles())
        keep.offer(range(count), np.array)
        step = 1
        while len(range(0, count, step)) > limit:
            step *= 2
        assert [int(i) for i in keep.frames] == list(range(0, count, step))
        assert keep.step == step


@pytest.mark.parametrize(("said", "come"), [(1800, 1800), (1800, 1795), (600, 600), (601, 601)])
def test_a_known_count_is_thinned_by_the_least_step(said: int, come: int) -> None:
    keep = FrameSampler(600, BadFiles(), said)
    keep.offer(range(come), np.array)
    assert [int(i) for i in keep.frames] == list(range(0, come, -(-said // 600)))


def test_more_frames_than_were_announced_are_thinned_too() -> None:
    keep = FrameSampler(4, BadFiles(), expected=10)  # every third
    keep.offer(range(20), np.array)
    assert [int(i) for i in keep.frames] == [0, 6, 12, 18]


def test_a_long_video_is_thinned_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = media.make_video(tmp_path / "v.avi", 20)
    with caplog.at_level(logging.INFO, "primavista"):
        clip = open_frames(path, size=16, max_frames=7)
    assert [round((g - 20) / 10) for g in greys(clip)] == [0, 3, 6, 9, 12, 15, 18]
    assert "kept 7 of 20 frames (1 in 3)" in clip.note
    assert clip.note in caplog.text


def test_fps_thins_by_time(tmp_path: Path) -> None:
    path = media.make_video(tmp_path / "v.mp4", 20, rate=10)
    assert [round((g - 20) / 10) for g in greys(open_frames(path, size=16, fps=5))] == list(
        range(0, 20, 2)
    )
    assert [round((g - 20) / 10) for g in greys(open_frames(path, size=16, fps=2.5))] == list(
        range(0, 20, 4)
    )
    assert len(open_frames(path, size=16, fps=100)) == 20


def test_folders_and_lists_in_natural_order(tmp_path: Path) -> None:
    folder = media.make_pictures(tmp_path / "f", range(0, 240, 20))
    (folder / ".hidden.png").write_bytes(b"x")
    (folder / "notes.txt").write_text("x")
    assert greys(open_frames(folder, size=8)) == list(range(0, 240, 20))
    assert greys(open_frames([folder / "3.png", str(folder / "1.png")], size=8)) == [60, 20]
    assert sorted(["a10", "a9", "B1", "a09"], key=natural) == ["a09", "a9", "a10", "B1"]


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "webp", "bmp"])
def test_every_kind_of_picture(tmp_path: Path, suffix: str) -> None:
    clip = open_frames(media.make_pictures(tmp_path, [100], suffix), size=8)
    assert abs(greys(clip)[0] - 100) <= 2


def test_pictures_that_thinning_leaves_out_are_not_decoded(tmp_path: Path) -> None:
    media.make_pictures(tmp_path, range(10))
    (tmp_path / "1.png").write_bytes(b"not a picture")
    assert greys(open_frames(tmp_path, size=8, max_frames=5)) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.png", b"", "is empty"),
        ("empty.mp4", b"", "is empty"),
        ("text.jpg", b"hello" * 100, "damaged or not an image"),
        ("text.mp4", b"hello" * 100, "damaged or not a video"),
        ("zero.mkv", b"\0" * 5000, "damaged or not a video"),
    ],
)
def test_foreign_and_empty_files(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(pv.FileError, match=says) as caught:
        open_frames(tmp_path / name)
    assert name in str(caught.value)


def test_bad_pictures_are_skipped_and_counted_when_asked(tmp_path: Path) -> None:
    media.make_pictures(tmp_path, [0, 50, 100])
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(pv.FileError, match=r"1\.png"):
        open_frames(tmp_path, size=8)
    clip = open_frames(tmp_path, size=8, skip_bad=True)
    assert (greys(clip), clip.skipped) == ([0, 100], 1)
    assert "1.png" in clip.note
    assert "--skip-bad" not in clip.note  # they are skipped already
    assert (
        open_frames([tmp_path / "0.png", tmp_path / "gone.png"], size=8, skip_bad=True).skipped == 1
    )
    with pytest.raises(pv.FileError, match="no frame") as none:
        open_frames([tmp_path / "1.png"], size=8, skip_bad=True)
    assert "--skip-bad" not in str(none.value)


def attempt(path: Path, **options: bool) -> Clip | str:
    try:
        return open_frames(path, size=16, **options)  # type: ignore[arg-type]
    except pv.FileError as error:
        return str(error)


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "webm"])
def test_videos_cut_at_random_bytes(tmp_path: Path, suffix: str) -> None:
    """Each either gives nearly all frames, or says that it is damaged.

    Skipping keeps only frames that were there.
    """
    options = {"movflags": "faststart"} if suffix == "mp4" else {}
    whole = media.make_video(tmp_path / f"v.{suffix}", options=options).read_bytes()
    path, draw = tmp_path / f"cut.{suffix}", random.Random(suffix)
    partial = 0
    for _ in range(25):
        path.write_bytes(whole[: draw.randrange(len(whole))])
        clip = attempt(path)
        if isinstance(clip, Clip):
            assert len(clip) >= 15
            continue
        assert path.name in clip
        clip = attempt(path, skip_bad=True)
        if isinstance(clip, Clip):
            partial += 1
            assert 1 <= len(clip) <= 20
            assert clip.skipped >= 1
    assert partial >= 1 or suffix == "avi"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi", "webm"])
def test_videos_with_random_bytes_changed_give_frames_or_file_errors(
    tmp_path: Path, suffix: str
) -> None:
    whole = media.make_video(tmp_path / f"v.{suffix}").read_bytes()
    draw, path = random.Random(suffix), tmp_path / f"hurt.{suffix}"
    for _ in range(25):
        hurt = bytearray(whole)
        for _ in range(draw.choice([1, 10, 100])):
            hurt[draw.randrange(len(hurt))] = draw.randrange(256)
        path.write_bytes(hurt)
        for skip in (False, True):
            clip = attempt(path, skip_bad=skip)
            assert len(clip) >= 1 if isinstance(clip, Clip) else path.name in clip


def png(width: int, height: int, data: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "side", [9_000, 11_000, 60_000]
)  # over our limit, Pillow's warning and Pillow's error
def test_bombs_are_refused_before_they_are_decoded(tmp_path: Path, side: int) -> None:
    (tmp_path / "bomb.png").write_bytes(png(side, side, b"\0" * 1000))
    with pytest.raises(pv.FileError, match=r"bomb\.png is too large"):
        open_frames(tmp_path / "bomb.png")


def encoded(size: tuple[int, int], count: int) -> list[bytes]:
    codec = av.CodecContext.create("libvpx", "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base, codec.framerate = (
        *size,
        "yuv420p",
        Fraction(1, 10),
        10,
    )
    frames = [av.VideoFrame(*size, "yuv420p") for _ in range(count)]
    return [bytes(packet) for frame in [*frames, None] for packet in codec.encode(frame)]


def test_video_frames_of_absurd_size_are_refused_even_in_mid_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with av.open(str(tmp_path / "v.mkv"), "w") as container:
        stream = container.add_stream("libvpx", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i, data in enumerate(encoded((64, 48), 4) + encoded((640, 480), 4)):
            packet = av.Packet(data)
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, i, i, Fraction(1, 10)
            packet.is_keyframe = i % 4 == 0
            container.mux(packet)
    assert len(open_frames(tmp_path / "v.mkv", size=8)) == 8
    monkeypatch.setattr(images, "MAX_PIXELS", 64 * 48)
    with pytest.raises(pv.FileError, match=r"v\.mkv"):
        open_frames(tmp_path / "v.mkv", size=8)
    clip = open_frames(tmp_path / "v.mkv", size=8, skip_bad=True)
    assert len(clip) == 4
    monkeypatch.setattr(images, "MAX_PIXELS", 64 * 48 - 1)
    with pytest.raises(pv.FileError, match=r"v\.mkv is too large to be decoded safely \(64 x 48"):
        open_frames(tmp_path / "v.mkv", size=8)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing.png")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    for name, says in [
        ("loop.png", "symbolic links"),
        ("gone.png", "No such file"),
        ("missing.mp4", "No such file"),
        ("empty", "holds no images"),
        ("pipe.png", "neither a file nor a folder"),
        ("a\0b.png", "null"),
    ]:
        with pytest.raises(pv.FileError, match=says):
            open_frames(str(tmp_path / name))
    with pytest.raises(pv.FileError, match=r"gone\.png"):
        open_frames(tmp_path)


def test_loops_of_folders_end(tmp_path: Path) -> None:
    media.make_pictures(tmp_path / "a", [10, 20])
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "more").symlink_to(tmp_path)
    assert len(open_frames(tmp_path / "a", size=8)) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")
def test_unreadable_files() -> None:
    with TemporaryDirectory() as name:  # `tmp_path` lies in a folder of the user
        folder = Path(name)
        folder.chmod(0o755)
        media.make_pictures(folder, [1])
        (folder / "0.png").chmod(0)
        user = os.geteuid()
        if user == 0:  # root may read everything
            os.seteuid(65534)
        try:
            with pytest.raises(pv.FileError, match="permissions"):
                open_frames(folder / "0.png")
        finally:
            os.seteuid(user)


def test_unreadable_files_as_the_system_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media.make_pictures(tmp_path, [1])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(decode.Image, "open", refuse)
    with pytest.raises(pv.FileError, match=r"0\.png: Permission denied. Check its permissions"):
        open_frames(tmp_path / "0.png")


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("https://example.org/a.mp4", {}, "download it first"),
        (np.zeros((2, 8, 8, 3), np.uint8), {}, "right: learner.learn"),
        ([], {}, "empty"),
        ("a.mp4", {"size": 0}, "size"),
        ("a.mp4", {"max_frames": 0}, "max_frames"),
        ("a.mp4", {"fps": 0}, "fps"),
        ("a.mp4", {"fps": float("nan")}, "fps"),
    ],
)
def test_wrong_calls(source: object, options: dict[str, float], says: str) -> None:
    with pytest.raises(pv.InputError, match=says):
        open_frames(source, **options)  # type: ignore[arg-type]


def test_files_of_unknown_kinds_and_names_that_look_like_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(pv.InputError, match="not a known kind"):
        open_frames(tmp_path / "a.txt")
    monkeypatch.chdir(tmp_path)
    media.make_video(tmp_path / "v.mp4", 3).rename("concat:x.mp4")
    assert len(open_frames("concat:x.mp4", size=8)) == 3
    Path("list.mp4").write_text("#EXTM3U\n#EXTINF:1,\nconcat:x.mp4\n#EXT-X-ENDLIST\n")
    with pytest.raises(pv.FileError, match="not a video"):
        open_frames("list.mp4")


def test_no_camera_is_said_clearly() -> None:
    with pytest.raises(pv.FileError, match=r"camera:97.*Connect a camera"):
        open_frames("camera:97")
    with pytest.raises(pv.FileError, match="write camera:0"):
        open_frames("camera:front")


def test_a_camera_is_read_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = ("testsrc=size=64x48:rate=50,realtime", "lavfi", {})
    monkeypatch.setattr(camera, "camera_input", lambda av, number: endless)
    clip = open_frames("camera:0", size=16, seconds=0.5, max_frames=10)
    assert 5 <= len(clip) <= 10
    assert len(open_frames("camera:0", size=16, seconds=0.5, fps=10)) <= 6


def test_without_the_extra_pictures_open_and_videos_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media.make_pictures(tmp_path, [1])
    video = media.make_video(tmp_path / "v.mp4", 2)
    monkeypatch.setitem(sys.modules, "av", None)
    assert len(open_frames(tmp_path / "0.png", size=8)) == 1
    with pytest.raises(pv.PrimavistaError, match=r"primavista\[video\]"):
        open_frames(video)


MEMORY = """
import resource, sys, torch
torch.set_num_threads(1)
from primavista import Learner, open_frames
from primavista.media import decode
decode.threads = 1
learner = Learner("cwr*", weights="random", width=0.0625, size=32)
learner.learn(open_frames(sys.argv[1], size=32, max_frames=40), "short")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
clip = open_frames(sys.argv[2], size=32, max_frames=40)
learner.learn(clip, "x")
print(len(clip), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, *learner.labels)
"""


@pytest.mark.slow
def test_a_long_1080p_video_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    """It is learned from.

    200 frames are 1.2 GB decoded; 40 of them at most are kept, 0.1 MB at model size.
    """
    black = np.zeros((1080, 1920, 3), np.uint8)
    short = media.make_video(
        tmp_path / "short.avi", 10, (1920, 1080), rate=5, frame=lambda i: black
    )
    long = media.make_video(tmp_path / "long.avi", 200, (1920, 1080), rate=5, frame=lambda i: black)
    result = subprocess.run(
        [sys.executable, "-c", MEMORY, short, long], capture_output=True, text=True, check=True
    )
    count, grown, *labels = result.stdout.split()
    assert int(count) == 40
    assert int(grown) < 12_000  # KiB: two frames of 1080p
    assert labels == ["short", "x"]
