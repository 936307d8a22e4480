"""The data of cells: what is drawn once, and what a result says of its data."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from primavista.bench import data as module
from primavista.bench import features
from primavista.bench.data import (
    DataFacts,
    RenderedData,
    data_settings,
    open_cell_data,
    why_not_comparable,
)
from primavista.bench.folder import read_result
from primavista.bench.local import Inline
from primavista.errors import InputError
from primavista.streams import session_files
from primavista.streams.core50 import CORe50
from primavista.streams.dataset import CORe50Facts
from primavista.streams.open import stream as open_stream
from primavista.streams.rendered import dataset
from primavista.streams.rendered.renderer import Scene
from primavista.streams.rendered.renderer import render as draw
from primavista.streams.store import pack

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


WHOLE = {"size": 128, "train_sessions": 400, "train_frames": 119_894, "order": "official"}


@pytest.mark.parametrize(
    ("facts", "thin", "frames", "reason"),
    [
        (CORe50Facts("reduced", True), 1, 2_249, ""),
        (CORe50Facts("full", True), 1, 44_972, ""),
        (CORe50Facts("full", True), 20, 2_249, ""),
        (CORe50Facts("full", True), 10, 4_498, "not an official one"),
        (CORe50Facts("reduced", True), 20, 113, "not an official one"),
        (CORe50Facts("reduced", False), 1, 2_249, "a part of CORe50"),
        (None, 1, 2_249, "not CORe50"),
    ],
)
def test_what_can_be_compared_with_the_authors(facts, thin, frames, reason) -> None:
    found = DataFacts(core50=facts, test_thin=thin, test_frames=frames, **WHOLE)
    why = why_not_comparable(found)
    assert reason in why
    assert bool(reason) == bool(why)
    smaller = found.model_copy(update={"size": 64})
    assert why_not_comparable(smaller)
    assert DataFacts.model_validate_json(found.model_dump_json()) == found


def test_a_result_without_facts_cannot_be_compared() -> None:
    assert "does not say" in why_not_comparable(None)


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_a_result_says_what_its_data_was(kind, core50_folder, suite, tmp_path) -> None:
    source = core50_folder(objects=5, frames=4, size=32, name="holidays")
    if kind == "store":
        source = pack(CORe50(source, test="full"), tmp_path / "nothing").path
    runs = suite("ncm", data=data_settings(str(source), size=32), limit=None, protocol="nicv2-14")
    assert not runs.run(Inline())
    (state,) = runs.states
    facts = read_result(state.path).data
    assert facts == DataFacts(
        core50=CORe50Facts("full" if kind == "store" else "reduced", complete=False),
        size=32,
        train_sessions=40,
        train_frames=160,
        test_frames=3,  # 5 objects x 3 sessions x 4 frames = 60, every 20th
        test_thin=20 if kind == "store" else 1,
        order="generated",
    )
    assert why_not_comparable(facts) == (
        "the data is a part of CORe50 (40 training sessions, 160 frames)"
    )


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each picture of a test session of CORe50 is decoded."""
    counts: Counter[str] = Counter()
    read = session_files.read_image

    def counted(path, size):
        if path.parent.parent.name in ("s3", "s7", "s10"):
            counts[str(path)] += 1
        return read(path, size)

    monkeypatch.setattr(session_files, "read_image", counted)
    return counts


@pytest.mark.slow
def test_test_frames_are_decoded_once_by_all_cells_of_a_process(
    core50_folder, suite, decoded
) -> None:
    data = data_settings(str(core50_folder(objects=5, frames=12, size=32)), size=32)
    runs = suite("naive", "ar1*", "cwr*", "dslda", data=data, limit=3, runs=2, protocol="nicv2-14")
    assert not runs.run(Inline())
    assert {state.batch for state in runs.states} == {3}  # each was tested after each
    assert decoded == dict.fromkeys(decoded, 1)
    assert len(decoded) == 9  # 5 objects x 3 sessions x 12 frames = 180, every 20th


def test_a_test_set_over_the_limit_is_decoded_anew_and_gives_the_same_numbers(
    core50_folder, suite, decoded, monkeypatch, tmp_path, results
) -> None:
    data = data_settings(str(core50_folder(objects=5, frames=12, size=32)), size=32)
    settings = {"data": data, "limit": 3, "protocol": "nicv2-14"}
    assert not suite("naive", out=tmp_path / "kept", **settings).run(Inline())
    decoded.clear()
    module.kept_data.cache_clear()
    monkeypatch.setattr(features, "MOST_FRAME_BYTES", 9 * 32 * 32 * 3 - 1)
    assert not suite("naive", out=tmp_path / "anew", **settings).run(Inline())
    assert set(decoded.values()) == {3}
    assert results(tmp_path / "kept") == results(tmp_path / "anew")


def test_frames_that_need_no_decoding_are_not_copied(tiny_data, tmp_path) -> None:
    store = pack(tiny_data, tmp_path / "store")
    for data in (tiny_data, store):
        test = open_stream(data, "ni").test()
        assert features.keep_decoded(test).images is test.images


def test_kept_frames_go_with_the_data_set_that_they_belong_to(core50_folder) -> None:
    data = CORe50(core50_folder(objects=1, frames=20), size=16)
    images = features.keep_decoded(open_stream(data, "ni").test()).images
    wanted = data.frames[torch.arange(data.test[0].start, data.test[-1].stop)]
    for chosen in (torch.tensor([1]), torch.tensor([2, 0, 2]), torch.arange(3)):
        assert torch.equal(images[chosen], wanted[chosen])
    frames = weakref.ref(images._decoded[0])
    del images, data
    gc.collect()
    assert frames() is None


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
