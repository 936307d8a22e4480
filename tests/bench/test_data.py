"""Rendered frames are kept, and never those of another version of the renderer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from primavista.bench import data as module
from primavista.bench.data import RenderedData, data_settings, open_cell_data
from primavista.errors import InputError
from primavista.streams.rendered import dataset
from primavista.streams.rendered.renderer import Scene
from primavista.streams.rendered.renderer import render as draw

SMALL = {"categories": 1, "objects": 1, "sessions": 3, "frames": 2, "size": 16}


def frames(data: RenderedData, cache: Path) -> Tensor:
    opened = open_cell_data(data, cache)
    return opened.frames[torch.arange(len(opened.frames))]


def test_a_changed_renderer_draws_anew_and_the_old_frames_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = RenderedData(**SMALL)
    before = frames(old, tmp_path)
    monkeypatch.setattr(dataset, "render", lambda *args, **kwargs: 255 - draw(*args, **kwargs))
    monkeypatch.setattr(module, "VERSION", old.renderer + 1)
    new = RenderedData(**SMALL, renderer=old.renderer + 1)
    assert torch.equal(frames(new, tmp_path), 255 - before)
    with pytest.raises(
        InputError, match=rf"drawn by version {old.renderer} of the renderer, and this is version"
    ):
        open_cell_data(old, tmp_path)
    monkeypatch.undo()
    assert torch.equal(frames(old, tmp_path), before)
    assert len(list(tmp_path.glob("rendered-*"))) == 2


def test_the_version_of_the_renderer_is_part_of_what_a_cell_says_of_its_data() -> None:
    assert RenderedData(**SMALL).model_dump()["renderer"] == module.VERSION
    with pytest.raises(
        InputError, match=r"the keys are categories, objects, sessions, frames, size, seed$"
    ):
        data_settings("rendered:renderer=1")


# The mean grey of each ninth of two pictures, by version: who changes what is drawn raises the
# version and adds a line.
DRAWN = {1: [[99, 88, 77, 76, 101, 87, 98, 79, 77], [139, 159, 143, 145, 145, 127, 126, 129, 127]]}


def test_a_change_of_what_is_drawn_comes_with_a_new_version() -> None:
    scene = Scene(categories=4, objects=1, sessions=2, frames=2, size=48)
    pictures = torch.stack(
        [draw(scene, object, session, [1])[0] for object, session in ((1, 1), (4, 2))]
    ).float()
    found = pictures.mean(3).unfold(1, 16, 16).unfold(2, 16, 16).mean((3, 4)).reshape(2, 9)
    assert (found - torch.tensor(DRAWN[module.VERSION])).abs().max() < 1, (
        found.round().int().tolist()
    )
