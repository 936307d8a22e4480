"""Pictures as phones and messengers write them (F3): HEIC, AVIF, GIF, TIFF, animations, MPO."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from primavista import Learner, open_frames
from primavista.errors import FileError
from primavista.media.images import IMAGES, TooLargeError, decode_image, read_image
from primavista.media.video import find_media
from primavista.streams.folder import folder, lessons_of_objects

SHADES = (20, 60, 100, 140, 180)
INSTALL = 'pip install "primavista[heic]"'


def grey(shade: int) -> Image.Image:
    return Image.new("RGB", (64, 48), (shade,) * 3)


def shades(frames: np.ndarray) -> list[int]:
    """The greys of frames, to the nearest of those that the tests draw."""
    return [min(SHADES, key=lambda shade: abs(shade - frame.mean())) for frame in frames]


def animation(path: Path, milliseconds: int = 100) -> Path:
    frames = [grey(shade) for shade in SHADES]
    options = {"append_images": frames[1:], "duration": milliseconds}
    frames[0].save(path, save_all=True, **options)
    return path


def heic(path: Path, picture: Image.Image | None = None, **options: object) -> Path:
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    (picture or grey(SHADES[1])).save(path, "HEIF", **options)
    return path


@pytest.fixture
def no_heic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra `heic` is not installed."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)


@pytest.mark.parametrize("suffix", [suffix for suffix in IMAGES if suffix not in (".hif",)])
def test_pictures_of_every_suffix_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"photo{suffix.upper()}"
    if suffix in (".heic", ".heif"):
        heic(path)
    else:
        formats = {".jfif": "JPEG", ".gif": "GIF"}
        grey(SHADES[1]).save(path, formats.get(suffix))
    assert shades(open_frames(tmp_path, size=8).frames) == [SHADES[1]]


@pytest.mark.parametrize("suffix", ["heic", "avif", "jpg", "tiff"])
def test_they_are_turned_upright(tmp_path: Path, suffix: str) -> None:
    """Held upright, a phone stores the picture lying on its side, and says so."""
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:24, :32] = 255  # top left; after a quarter turn to the right it is top right
    exif = Image.Exif()
    exif[0x112] = 6
    path = tmp_path / f"photo.{suffix}"
    if suffix == "heic":
        heic(path, Image.fromarray(pixels), exif=exif.tobytes())
    else:
        Image.fromarray(pixels).save(path, exif=exif)
    seen = read_image(path, 8)[..., 0]
    assert [seen[1, 1] > 128, seen[1, 6] > 128, seen[6, 1] > 128] == [False, True, False]


def test_a_heic_picture_with_another_suffix_is_read(tmp_path: Path) -> None:
    heic(tmp_path / "photo.jpg")
    assert shades(read_image(tmp_path / "photo.jpg", 8)[None]) == [SHADES[1]]


@pytest.mark.parametrize("suffix", ["heic", "avif", "gif", "tiff"])
def test_damaged_ones_are_refused_by_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"photo.{suffix}"
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8))
    if suffix == "heic":
        heic(path, noise)
    else:
        noise.save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(FileError, match=rf"photo.{suffix} is damaged"):
        read_image(path, 8)


def test_too_many_pixels_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    for name in ("photo.gif", "photo.tiff", "photo.avif"):
        grey(20).save(tmp_path / name)
        with pytest.raises(TooLargeError, match=name):
            decode_image(tmp_path / name, name, 8, max_pixels=64 * 48 - 1)
    with pytest.raises(TooLargeError, match=r"photo\.heic"):
        decode_image(heic(tmp_path / "photo.heic"), "photo.heic", 8, max_pixels=64 * 48 - 1)


@pytest.mark.parametrize("name", ["gif", "tiff", "avif", "heif"])
def test_over_the_network_only_the_four_formats_of_before_are_decoded(name: str) -> None:
    if name == "heif":
        pytest.importorskip("pillow_heif").register_heif_opener()
    file = io.BytesIO()
    grey(20).save(file, name)
    file.seek(0)
    with pytest.raises(FileError, match="cannot identify"):
        decode_image(file, "the frame", 8)


@pytest.mark.usefixtures("no_heic")
def test_without_the_extra_heic_is_left_out_and_the_command_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("1.heic", "2.HEIC", "notes.txt"):
        (tmp_path / name).write_bytes(b"\0\0\0\x18ftypheic" + bytes(12))
    grey(SHADES[2]).save(tmp_path / "3.png")
    assert shades(open_frames(tmp_path, size=8).frames) == [SHADES[2]]
    assert caplog.messages == [f"left out of {tmp_path}: 2 .heic ({INSTALL}), 1 .txt"]
    with pytest.raises(FileError) as caught:
        read_image(tmp_path / "1.heic", 8)
    assert str(caught.value).startswith(f"{tmp_path / '1.heic'} is a HEIC picture")
    assert str(caught.value).endswith(INSTALL)


@pytest.mark.usefixtures("no_heic")
def test_a_folder_of_heic_alone_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "mug").mkdir()
    (tmp_path / "mug" / "1.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(12))
    for call in (find_media, Learner("ncm", weights="random").learn):
        arguments = ["mug"] if call is not find_media else []
        with pytest.raises(FileError) as caught:
            call(str(tmp_path / "mug"), *arguments)
        said = f"holds no images and no videos that can be read; there are 1 .heic ({INSTALL})"
        assert said in str(caught.value)
    with pytest.raises(FileError, match=r"there are 1 \.heic"):
        lessons_of_objects(tmp_path)


def test_what_is_left_out_is_counted_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    toys = tmp_path / "toys"
    for name in ("mug", "cup/monday", "cup/tuesday", "cup/tuesday/raw"):
        (toys / name).mkdir(parents=True)
    for name in ("mug/1.png", "cup/monday/1.png", "cup/tuesday/1.png", "photo.png"):
        grey(20).save(toys / name)
    for name in ("mug/a.txt", "cup/monday/b.TXT", "cup/c.raw", "README", "mug/.hidden"):
        (toys / name).write_text("x")
    assert [lesson.label for lesson in lessons_of_objects(toys)] == ["cup", "cup", "mug"]
    assert caplog.messages == [
        f"left out of {toys}: 2 .txt, 1 .png (not where this layout has them), 1 .raw, "
        "1 of no known kind, 1 folder"
    ]


def test_a_data_set_says_in_its_note_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "mug" / "monday").mkdir(parents=True)
    grey(20).save(tmp_path / "mug" / "monday" / "1.png")
    grey(20).save(tmp_path / "mug" / "2.png")
    (tmp_path / "mug" / "monday" / "1.json").write_text("{}")
    note = folder(tmp_path, size=8).note
    left = sorted(note.partition("; left out: ")[2].split(", "))
    assert left == ["1 .json", "1 .png (not where this layout has them)"]


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "avif"])
def test_an_animation_is_a_short_video(tmp_path: Path, suffix: str) -> None:
    path = animation(tmp_path / f"wave.{suffix}")
    assert shades(open_frames(path, size=8).frames) == [*SHADES]
    assert shades(open_frames(path, size=8, fps=5).frames) == [20, 100, 180]
    assert shades(open_frames(path, size=8, max_frames=3).frames) == [20, 100, 180]


def test_frames_without_a_duration_last_a_tenth_of_a_second(tmp_path: Path) -> None:
    path = animation(tmp_path / "wave.gif", milliseconds=0)
    assert shades(open_frames(path, size=8, fps=5).frames) == [20, 100, 180]


def test_of_an_animation_that_breaks_off_the_frames_before_stay(tmp_path: Path) -> None:
    path = animation(tmp_path / "wave.gif")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    with pytest.raises(FileError, match=r"wave.gif is damaged"):
        open_frames(path, size=8)
    clip = open_frames(path, size=8, skip_bad=True)
    assert 1 <= len(clip) < 5
    assert shades(clip.frames) == [*SHADES[: len(clip)]]
    assert clip.skipped == 1


def test_where_one_picture_is_wanted_an_animation_is_its_first_frame_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = animation(tmp_path / "wave.webp")
    for _ in range(2):
        assert shades(read_image(path, 8)[None]) == [20]
    assert caplog.messages == [f"{path} is animated: only its first frame is used here"]


@pytest.mark.parametrize("suffix", ["tiff", "mpo"])
def test_further_pages_and_further_pictures_of_a_photograph_are_not_an_animation(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Phones put a map of brightness behind a photograph; the file is called .jpg then."""
    path = tmp_path / ("photo.jpg" if suffix == "mpo" else "pages.tiff")
    grey(20).save(path, suffix, save_all=True, append_images=[grey(180)])
    assert shades(open_frames(path, size=8).frames) == [20]
    assert not caplog.messages


def test_a_jpeg_with_a_second_picture_may_not_have_more_scans_than_another() -> None:
    file = io.BytesIO()
    options = {"save_all": True, "append_images": [grey(180)], "progressive": True}
    grey(20).save(file, "MPO", **options)
    data = file.getvalue()
    first = data.index(b"\xff\xda")
    scan = data[first : data.index(b"\xff\xda", first + 2)]
    bomb = data[:first] + scan * 2000 + data[first:]
    with pytest.raises(TooLargeError, match="scans"):
        decode_image(io.BytesIO(bomb), "the frame", 8)


def test_a_learner_takes_them_all(tmp_path: Path) -> None:
    learner = Learner("ncm", weights="random", size=32, width=0.25)
    animation(tmp_path / "wave.gif")
    grey(60).save(tmp_path / "photo.avif")
    heic(tmp_path / "photo.heic")
    with_all = learner.learn(tmp_path, "mug")
    assert with_all.total == 7
