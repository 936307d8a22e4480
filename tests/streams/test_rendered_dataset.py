"""The rendered scene as a data set, and as files in CORe50's layout."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import primavista as pv
from primavista.streams.conventions import held_out
from primavista.streams.folder import folder
from primavista.streams.rendered import dataset as module
from primavista.streams.rendered.dataset import RenderedFrames, rendered, write
from primavista.streams.rendered.renderer import Scene, render

from .scenes import materialise

SMALL = Scene(categories=2, objects=2, sessions=3, frames=5, size=16)


def test_the_structure_is_that_of_core50() -> None:
    data = rendered(Scene(frames=1, size=8))
    assert data.classes[:2] + data.classes[-1:] == (
        "plug adapter 1",
        "plug adapter 2",
        "remote control 5",
    )
    assert data.categories == tuple(i // 5 for i in range(50))
    assert (len(data.train), len(data.test), len(data.frames)) == (400, 150, 550)
    assert {s.number for s in data.test} == {3, 7, 10}
    assert sorted(s.start for s in (*data.train, *data.test)) == list(range(550))


@pytest.mark.parametrize(
    ("count", "held"),
    [(1, ()), (2, (2,)), (3, (3,)), (6, (3,)), (10, (3, 7)), (11, (3, 7, 10)), (12, (3, 7, 11))],
)
def test_which_sessions_are_the_test_set(count: int, held: tuple[int, ...]) -> None:
    assert held_out(count) == held


def test_frames_on_demand_are_those_of_the_renderer_wherever_they_are_asked_for() -> None:
    data, whole = rendered(SMALL), materialise(SMALL)
    assert isinstance(whole.frames, torch.Tensor)
    for session in (*data.train, *data.test):
        pictures = render(SMALL, session.label + 1, session.number)
        span = torch.arange(session.start, session.stop)
        assert torch.equal(data.frames[span], pictures)
        assert torch.equal(whole.frames[span], pictures)
    indices = torch.tensor([59, 0, 17, 17, -2])
    assert torch.equal(data.frames[indices], whole.frames[indices])
    assert torch.equal(data.frames[torch.arange(60) % 7 == 0], whole.frames[::7])
    assert (data.train, data.test, data.name) == (whole.train, whole.test, whole.name)
    with pytest.raises(IndexError):
        data.frames[torch.tensor([60])]


def test_few_sessions_are_kept_and_few_frames_do_not_render_a_whole_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[int, int, int]] = []

    def counting(
        scene: Scene,
        object: int,
        session: int,
        frames: list[int] | None = None,
        device: object = "cpu",
    ) -> torch.Tensor:
        calls.append((object, session, scene.frames if frames is None else len(frames)))
        return render(scene, object, session, frames, "cpu")

    monkeypatch.setattr(module, "render", counting)
    scene = Scene(categories=1, objects=2, sessions=2, frames=16, size=8)
    frames = RenderedFrames(scene, cache=2 * 16 * 8 * 8 * 3)
    for start in (0, 0, 16, 0, 32, 0, 16):
        frames[torch.arange(start, start + 16)]
    assert calls == [
        (1, 1, 16),
        (1, 2, 16),
        (2, 1, 16),
        (1, 2, 16),
    ]  # 16 was dropped when 32 came: 0 was used later
    calls.clear()
    frames[torch.tensor([50])]
    frames[torch.tensor([50, 51])]
    assert calls == [(2, 2, 1), (2, 2, 16)]
    assert pickle.loads(pickle.dumps(frames)).cache == frames.cache


def test_written_pictures_lie_in_a_folder_per_object_and_session(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    write(SMALL, tmp_path / "d", "png", lambda done, total: seen.append((done, total)))
    assert seen[-1] == (60, 60)
    objects = ["mobile phone 1", "mobile phone 2", "plug adapter 1", "plug adapter 2"]
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == objects
    third = tmp_path / "d" / "mobile phone 1" / "s2"
    assert sorted(p.name for p in third.iterdir()) == [f"00{i}.png" for i in range(5)]
    with Image.open(third / "004.png") as picture:
        assert np.array_equal(np.array(picture), render(SMALL, 3, 2)[4].numpy())


def test_written_videos_are_close(tmp_path: Path) -> None:
    pytest.importorskip("av")
    scene = Scene(categories=1, objects=1, sessions=2, frames=8, size=64)
    truth = render(scene, 1, 2).float()
    write(scene, tmp_path / "mp4", "mp4")
    home = tmp_path / "mp4" / "plug adapter 1"
    video = pv.open_frames(home / "s2.mp4", size=64)
    assert len(video) == 8
    assert (torch.from_numpy(video.frames).float() - truth).abs().mean() < 8
    assert sorted(p.name for p in home.iterdir()) == ["s1.mp4", "s2.mp4"]
    data = folder(tmp_path / "mp4", size=64, cache=tmp_path / "cache")
    assert (data.classes, data.note) == (
        ("plug adapter 1",),
        "1 of 2 sessions are the test set: plug adapter 1/s2",
    )
    assert np.array_equal(data.frames[np.arange(8, 16)], video.frames)


def test_a_stopped_writer_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(SMALL, tmp_path / "d", progress=stop)
    assert not list(tmp_path.iterdir())
    (tmp_path / "d").mkdir()
    write(SMALL, tmp_path / "d")
    assert len(list((tmp_path / "d").rglob("*.png"))) == 60


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(pv.InputError, match="png or mp4"):
        write(SMALL, tmp_path, "gif")  # type: ignore[arg-type]
    with pytest.raises(pv.InputError, match="even size"):
        write(Scene(size=15), tmp_path, "mp4")
    (tmp_path / "file").write_text("x")
    with pytest.raises(pv.FileError, match="cannot write"):
        write(SMALL, tmp_path / "file" / "d")
    (tmp_path / "real" / "mug").mkdir(parents=True)
    with pytest.raises(pv.InputError, match="choose an empty folder"):
        write(SMALL, tmp_path / "real")
