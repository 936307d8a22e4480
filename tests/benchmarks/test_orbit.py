"""benchmarks/orbit.py on rendered users, written in the layout of ORBIT's benchmark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import orbit

from primavista.errors import FileError
from primavista.networks.base import build
from primavista.strategies.creation import create
from primavista.streams.rendered.dataset import rendered
from primavista.streams.rendered.renderer import Scene

ABSENT = 4  # frames at the end of each clutter video that are marked as without the object


def write_video(root: Path, place: Path, frames: np.ndarray, notes: bool) -> None:
    name = "--".join((*place.parts[-3:], "v1"))
    (place / name).mkdir(parents=True)
    facts = {}
    for k, frame in enumerate(frames):
        file = f"{name}-{k + 1:05}.jpg"
        Image.fromarray(frame).save(place / name / file, quality=95)
        facts[file] = {"object_not_present_issue": k >= len(frames) - ABSENT}
    if notes:
        folder = root / "annotations" / "test"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(facts))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two users with two objects each: one clean and one clutter video of 56 frames."""
    found = tmp_path_factory.mktemp("orbit")
    scene = Scene(categories=2, objects=2, sessions=4, frames=orbit.LEAST + 2 + ABSENT, size=32)
    data = rendered(scene, "cpu")
    by_class: dict[int, list] = {}
    for session in (*data.train, *data.test):
        by_class.setdefault(session.label, []).append(session)
    for label, sessions in by_class.items():
        place = found / "test" / f"P{label // 2}" / f"object {label}"
        for kind, session in zip(("clean", "clutter"), sessions, strict=False):
            frames = data.frames[torch.arange(session.start, session.stop)].numpy()
            write_video(found, place / kind, frames, notes=kind == "clutter")
    return found


def test_users_are_read_from_the_official_layout(root):
    one, other = orbit.read_users(root)
    assert (one.name, other.name) == ("P0", "P1")
    assert other.objects == ("object 2", "object 3")
    assert [(label, len(frames)) for label, frames in one.clean] == [(0, 56), (1, 56)]
    assert one.present == (tuple(range(52)),) * 2


def test_a_video_with_too_few_frames_of_the_object_is_left_out_and_notes_are_needed(root, tmp_path):
    frames = np.zeros((orbit.LEAST + ABSENT - 1, 8, 8, 3), np.uint8)
    write_video(tmp_path, tmp_path / "test" / "P9" / "cup" / "clutter", frames, notes=True)
    (user,) = orbit.read_users(tmp_path)
    assert user.clutter == ()
    for note in (tmp_path / "annotations" / "test").iterdir():
        note.unlink()
    with pytest.raises(FileError, match=r"orbit_extra_annotations\.zip"):
        list(orbit.read_users(tmp_path))
    with pytest.raises(FileError, match="train, validation and test"):
        list(orbit.read_users(tmp_path / "test"))


def test_the_accuracies_are_those_of_the_learner_of_each_user(root):
    backbone = build("mobilenet_v1", "imagenet", size=32)
    users = list(orbit.read_users(root))
    found = orbit.evaluate("ncm", users, backbone, frames=10, past=1, tasks=3)
    expected = []
    for user in users:
        learner = create("ncm", backbone)
        for label, paths in user.clean:
            some = [paths[round(k)] for k in np.linspace(0, 55, 10)]
            learner.learn(pictures(some), torch.full((10,), label))
        for label, paths in user.clutter:
            best = learner.classes[learner.scores(pictures(paths[:52])).argmax(1)]
            expected.append(100 * float((best == label).float().mean()))
    # fewer than 200 frames: all of them are asked in each of the three tasks
    assert found == pytest.approx(
        [a for k in (0, 2) for _ in range(3) for a in expected[k : k + 2]]
    )


def pictures(paths) -> torch.Tensor:
    return torch.from_numpy(np.stack([np.asarray(Image.open(path)) for path in paths]))


def test_the_interval_and_the_means_over_the_past_by_hand():
    assert orbit.summary([50.0, 70.0, 60.0, 60.0]) == "60.00 ± 6.93"  # 1.96 sqrt(50) / 2
    scores = np.array([[4.0], [0.0], [2.0], [6.0]])
    assert orbit.past_means(scores, 1).tolist() == scores.tolist()
    assert orbit.past_means(scores, 3)[:, 0].tolist() == [4, 2, 2, pytest.approx(8 / 3)]
