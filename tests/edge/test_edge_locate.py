"""The edge finds objects where primavista does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from primavista import Learner
from primavista.learner.export import export
from primavista.storage import learner_file


def taught(strategy: str) -> Learner:
    learner = Learner(strategy, weights="random", width=0.25, size=64, device="cpu")
    for k, name in enumerate(("red", "green", "blue")):
        colour = np.full(3, 60)
        colour[k] = 200
        cells = np.random.default_rng(k).integers(-40, 40, (5, 8, 8, 1))
        frames = np.kron(cells, np.ones((1, 8, 8, 1))) + colour
        learner.learn(frames.astype(np.uint8), name)
    return learner


def frame() -> np.ndarray:
    picture = np.random.default_rng(7).integers(80, 160, (150, 210, 3))
    picture[30:100, 60:130] = (60, 200, 60)
    return picture.astype(np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["prima", "dslda", "ncm", "lda", "ridge"])
def test_the_edge_finds_what_primavista_finds(edge, tmp_path: Path, strategy: str) -> None:
    learner = taught(strategy)
    path = export(learner, tmp_path / "one.edge.pv", "edge")
    small = edge.Learner.load(path)
    expected = learner.locate(frame(), threshold=0)
    found = small.locate(frame(), threshold=0)
    assert expected
    assert [one.label for one in found] == [one.label for one in expected]
    for one, right in zip(found, expected, strict=True):
        assert one.confidence == pytest.approx(right.confidence, abs=2e-3)
        assert one.box.iou(edge.Box(*vars(right.box).values())) > 0.95
    assert small.locate(frame()[..., ::-1], threshold=0, bgr=True) == found


def test_it_still_locates_after_a_lesson_and_from_its_own_file(edge, tmp_path: Path) -> None:
    small = edge.Learner.load(export(taught("prima"), tmp_path / "one.edge.pv", "edge"))
    small.learn(np.full((4, 64, 64, 3), 30, np.uint8), "dark")
    found = small.locate(frame(), threshold=0)
    small.save(tmp_path / "two.edge.pv")
    assert edge.Learner.load(tmp_path / "two.edge.pv").locate(frame(), threshold=0) == found
    assert Learner.load(tmp_path / "two.edge.pv", device="cpu").labels == small.labels


def test_resizing_equals_that_of_pillow_to_the_last_bit(edge) -> None:
    from importlib import import_module

    images = import_module(edge.__name__ + ".images")
    picture = frame()
    for size in ((96, 64), (256, 192), (210, 150), (64, 320)):
        right = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(images.resize(picture, *size), right)


def test_what_cannot_be_located_is_refused(edge, tmp_path: Path) -> None:
    path = export(taught("prima"), tmp_path / "one.edge.pv", "edge")
    small = edge.Learner.load(path)
    for bad in (np.zeros((2, 9, 9, 3), np.uint8), np.zeros((9, 9, 3)), "mug.jpg"):
        with pytest.raises(edge.InputError):
            small.locate(bad)
    with pytest.raises(edge.InputError, match="from 0 to 1"):
        small.locate(frame(), threshold=7)
    arrays, manifest = learner_file.read(path)
    old = {k: v for k, v in arrays.items() if not k.startswith("onnx/maps")}
    learner_file.write(tmp_path / "old.edge.pv", old, manifest)
    with pytest.raises(edge.InputError, match="export it again"):
        edge.Learner.load(tmp_path / "old.edge.pv").locate(frame())
    arrays[learner_file.MAPS] = arrays[learner_file.MAPS][:100]
    learner_file.write(tmp_path / "bad.edge.pv", arrays, manifest)
    with pytest.raises(edge.FileError, match="maps"):
        edge.Learner.load(tmp_path / "bad.edge.pv").locate(frame())
