"""Class/session folders of pictures and videos as a data set."""

import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import primavista as pv
from primavista.streams import session_files as module
from primavista.streams.folder import folder
from primavista.streams.store import pack

from . import media


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes: kettle with pictures in s1, s2, s10 and a video s3; mug with two sessions of
    pictures.
    """
    for number, name in enumerate(["s1", "s2", "s10"]):
        media.make_pictures(
            tmp_path / "own" / "kettle" / name, [100 * number + i for i in range(12)]
        )
    media.make_video(tmp_path / "own" / "kettle" / "s3.mp4", 6)
    media.make_pictures(tmp_path / "own" / "mug" / "a", [7, 8], "bmp")
    media.make_pictures(tmp_path / "own" / "mug" / "b", [9], "webp")
    (tmp_path / "own" / "README.txt").write_text("x")
    (tmp_path / "own" / ".git").mkdir()
    return tmp_path / "own"


def test_sessions_in_natural_order_with_the_frames_of_each(root: Path, tmp_path: Path) -> None:
    data = folder(root, size=8, cache=tmp_path / "cache")
    assert (data.name, data.classes, data.categories) == ("own", ("kettle", "mug"), (0, 1))
    rows = sorted((s.label, s.number, s.start, s.stop) for s in (*data.train, *data.test))
    assert rows == [
        (0, 1, 0, 12),
        (0, 2, 12, 24),
        (0, 3, 24, 30),
        (0, 4, 30, 42),
        (1, 1, 42, 44),
        (1, 2, 44, 45),
    ]
    greys = data.frames[torch.arange(45)].float().mean((1, 2, 3)).round().int().tolist()
    assert greys[:24] == [*range(12), *range(100, 112)]
    assert max(abs(g - media.shade(i)) for i, g in enumerate(greys[24:30])) <= 4
    assert greys[30:] == [*range(200, 212), 7, 8, 9]
    some = torch.tensor([44, 25, 0, 25, -1])
    assert torch.equal(data.frames[some], data.frames[torch.arange(45)][some])


def test_a_quarter_is_for_testing_and_that_is_said(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "primavista"):
        data = folder(root, size=8, cache=tmp_path / "cache")
    assert [(s.label, s.number) for s in data.test] == [(0, 3), (1, 2)]
    said = "2 of 6 sessions are the test set: kettle/s3, mug/b; left out: 1 .txt"
    assert data.note == said
    assert data.note in caplog.text


@pytest.mark.parametrize(
    ("count", "held"),
    [(1, []), (2, [2]), (3, [3]), (4, [3]), (8, [3, 7]), (11, [3, 7, 10]), (12, [3, 7, 11])],
)
def test_how_many_a_quarter_is(tmp_path: Path, count: int, held: list[int]) -> None:
    for i in range(count):
        media.make_pictures(tmp_path / "c" / f"{i}", [0], size=4)
    data = folder(tmp_path, size=4)
    assert [s.number for s in data.test] == held
    assert len(data.train) + len(data.test) == count


def test_chosen_test_sessions(root: Path, tmp_path: Path) -> None:
    data = folder(root, size=8, test=["s10", "a"], cache=tmp_path / "cache")
    assert [(s.label, s.number) for s in data.test] == [(0, 4), (1, 1)]
    assert folder(root, size=8, test="none", cache=tmp_path / "cache").test == ()
    with pytest.raises(pv.InputError, match="no sessions s9; there are a, b, s1, s2, s3, s10"):
        folder(root, size=8, test=["s9"], cache=tmp_path / "cache")
    with pytest.raises(pv.InputError, match=r'test=\["s1"\]'):
        folder(root, size=8, test="s1", cache=tmp_path / "cache")  # type: ignore[arg-type]


def test_a_video_is_decoded_once_until_it_changes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    real = module.open_frames
    monkeypatch.setattr(
        module,
        "open_frames",
        lambda place, **options: (calls.append(place), real(place, **options))[1],
    )
    for _ in range(2):
        folder(root, size=8, cache=tmp_path / "cache")
    assert len(calls) == 1
    folder(root, size=16, cache=tmp_path / "cache")
    assert len(calls) == 2
    media.make_video(root / "kettle" / "s3.mp4", 9)
    assert len(folder(root, size=8, cache=tmp_path / "cache").frames) == 48
    assert len(calls) == 3
    assert len(folder(root, size=8, max_frames=4, cache=tmp_path / "cache").frames) == 42


def test_the_default_cache(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    folder(root, size=8)
    assert len(list((tmp_path / "xdg" / "primavista" / "videos").glob("*.npy"))) == 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "README.txt"))
    with pytest.raises(pv.FileError, match="pass another folder as cache"):
        folder(root, size=8)


def test_packing_it_in_processes(root: Path, tmp_path: Path) -> None:
    data = folder(root, size=8, cache=tmp_path / "cache")
    assert torch.equal(
        pickle.loads(pickle.dumps(data.frames))[torch.arange(45)], data.frames[torch.arange(45)]
    )
    packed = pack(data, tmp_path / "store", 1)
    assert torch.equal(packed.frames[torch.arange(45)], data.frames[torch.arange(45)])
    assert (packed.train, packed.test) == (data.train, data.test)


def test_bad_files_are_named_or_skipped_and_counted(root: Path, tmp_path: Path) -> None:
    (root / "kettle" / "s1" / "3.png").write_bytes(b"")
    (root / "kettle" / "empty").mkdir()
    (root / "kettle" / "s3.mp4").write_bytes(b"no video")
    (root / "lamp").mkdir()
    with pytest.raises(pv.FileError, match="lamp has no sessions"):
        folder(root, size=8, cache=tmp_path / "cache")
    (root / "lamp").rmdir()
    with pytest.raises(pv.FileError, match="empty has no pictures"):
        folder(root, size=8, cache=tmp_path / "cache")
    (root / "kettle" / "empty").rmdir()
    with pytest.raises(pv.FileError, match=r"s3\.mp4 is damaged or not a video"):
        folder(root, size=8, cache=tmp_path / "cache")
    (root / "kettle" / "empty").mkdir()
    data = folder(root, size=8, skip_bad=True, cache=tmp_path / "cache")
    assert "skipped 3" in data.note
    rows = sorted((s.label, s.number, s.start, s.stop) for s in (*data.train, *data.test))
    assert rows == [
        (0, 2, 0, 11),
        (0, 3, 11, 23),
        (0, 5, 23, 35),
        (1, 1, 35, 37),
        (1, 2, 37, 38),
    ]  # numbered as found
    assert [(s.label, s.number) for s in data.test] == [(0, 3), (1, 2)]
    assert len(data.frames[torch.arange(38)]) == 38


def test_a_cut_video_counts_as_skipped_every_time(root: Path, tmp_path: Path) -> None:
    video = media.make_video(root / "kettle" / "s3.webm", 20)
    video.write_bytes(video.read_bytes()[: video.stat().st_size // 2])
    for _ in range(2):
        data = folder(root, size=8, skip_bad=True, cache=tmp_path / "cache")
        assert "skipped 1" in data.note
        assert "cut off" in data.note
    assert 45 < len(data.frames) < 65


def test_a_bad_picture_is_named_when_it_is_asked_for(root: Path, tmp_path: Path) -> None:
    (root / "kettle" / "s1" / "3.png").write_bytes(b"x")
    data = folder(root, size=8, cache=tmp_path / "cache")
    with pytest.raises(pv.FileError, match=r"s1/3\.png is damaged"):
        data.frames[torch.tensor([3])]


def test_folders_that_are_no_data_sets(tmp_path: Path) -> None:
    with pytest.raises(pv.FileError, match="No such file"):
        folder(tmp_path / "none")
    with pytest.raises(pv.FileError, match="holds no classes"):
        folder(tmp_path)
    media.make_pictures(tmp_path / "mug", [1, 2])
    with pytest.raises(
        pv.FileError, match="mug has no sessions: put the pictures in a folder per video"
    ):
        folder(tmp_path)
    with pytest.raises(pv.FileError, match="no session that can be read"):
        folder(tmp_path, skip_bad=True)


def test_loops_of_links_end(tmp_path: Path) -> None:
    media.make_pictures(tmp_path / "d" / "mug" / "a", [1, 2])
    (tmp_path / "d" / "self").symlink_to(tmp_path / "d" / "self")
    assert len(folder(tmp_path / "d", size=8).frames) == 2
    (tmp_path / "d" / "mug" / "up").symlink_to(tmp_path / "d")
    with pytest.raises(pv.FileError, match="mug/up has no pictures"):
        folder(tmp_path / "d", size=8)
    assert len(folder(tmp_path / "d", size=8, skip_bad=True).frames) == 2
    os.unlink(tmp_path / "d" / "mug" / "up")
    (tmp_path / "d" / "mug" / "v.mp4").symlink_to(tmp_path / "d" / "mug" / "v.mp4")
    with pytest.raises(pv.FileError, match=r"v\.mp4"):
        folder(tmp_path / "d", size=8)


def test_a_video_that_is_skipped_is_logged_once(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "kettle" / "s3.mp4").write_bytes(b"no video")
    with caplog.at_level(logging.WARNING, "primavista"):
        data = folder(root, size=8, skip_bad=True, cache=tmp_path / "cache")
    assert "skipped 1" in data.note
    assert len([record for record in caplog.records if "s3.mp4" in record.getMessage()]) == 1


def test_a_folder_is_opened_without_the_renderer() -> None:
    code = (
        "import sys, primavista.streams.folder, primavista.streams.open;"
        "sys.exit(any(name.startswith('primavista.streams.rendered.') and"
        " name != 'primavista.streams.rendered.scene' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_frames_are_of_the_kind_of_their_indices(tmp_path: Path) -> None:
    media.make_pictures(tmp_path / "mug" / "s1", [10, 60, 90])
    data = folder(tmp_path, size=16)
    by_torch = data.frames[torch.tensor([2, 0])]
    by_numpy = data.frames[np.array([2, 0])]
    assert isinstance(by_numpy, np.ndarray)
    assert np.array_equal(by_torch.numpy(), by_numpy)
    assert np.array_equal(data.frames[np.array([True, False, True])], by_numpy[::-1])
    assert np.array_equal(data.frames[np.array([-1, -3])], by_numpy)
