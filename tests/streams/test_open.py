"""The one opener: what a source text names, which options it takes, and what a stream shows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from primavista.errors import FileError, InputError
from primavista.streams.dataset import DataSet, Session, Stream
from primavista.streams.open import DataSource, open_dataset, parse_source, scene_of, stream
from primavista.streams.rendered.dataset import write
from primavista.streams.rendered.renderer import Scene
from primavista.streams.store import Store, pack

from .scenes import materialise

SMALL = Scene(categories=2, objects=2, sessions=3, frames=2, size=16)
TEXT = "rendered:categories=2,objects=2,sessions=3,frames=2,size=16"


def same(one: DataSet, other: DataSet) -> bool:
    every = torch.arange(len(one.frames))
    facts = [(d.name, d.train, d.test, d.classes, d.categories) for d in (one, other)]
    return facts[0] == facts[1] and torch.equal(one.frames[every], other.frames[every])


def test_all_kinds_of_sources_give_the_same_data_set(tmp_path: Path) -> None:
    truth = materialise(SMALL)
    write(SMALL, tmp_path / "drawn")
    pack(truth, tmp_path / "store")
    assert parse_source(tmp_path / "drawn").kind == "folder"
    own = open_dataset(tmp_path / "drawn", size=16)  # sorted by name, each class its own category
    assert sorted(own.classes) == sorted(truth.classes)
    assert len(own.frames) == len(truth.frames)
    for text, kind in ((TEXT, "rendered"), (tmp_path / "store", "store")):
        assert parse_source(text).kind == kind
        assert same(open_dataset(text), truth)
        assert same(open_dataset(parse_source(text)), truth)
    assert isinstance(open_dataset(tmp_path / "store"), Store)


def test_a_path_that_is_not_there_is_named_when_it_is_opened(tmp_path: Path) -> None:
    assert parse_source(tmp_path / "nowhere").kind == "folder"
    with pytest.raises(FileError, match="nowhere"):
        open_dataset(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["rendered:frame=2", "rendered:frames=two", "rendered:frames"])
def test_a_rendered_source_with_a_wrong_part_shows_a_right_one(text: str) -> None:
    with pytest.raises(InputError, match="write rendered:objects=2,frames=12; the keys are"):
        parse_source(text)


def test_the_text_of_a_source_has_precedence_over_the_size() -> None:
    assert scene_of(parse_source("rendered:size=32"), 64).size == 32
    assert scene_of(parse_source("rendered"), 64).size == 64
    assert scene_of(parse_source("rendered")) == Scene()


def test_an_option_that_does_not_apply_is_refused_by_its_name() -> None:
    with pytest.raises(InputError, match=r"skip_bad is for a CORe50 folder or .*leave it out"):
        open_dataset(TEXT, skip_bad=True)
    with pytest.raises(InputError, match=r"fps is for .*; rendered is rendered videos"):
        open_dataset(DataSource("rendered"), fps=5)


def test_data_that_is_not_core50_gets_a_generated_order() -> None:
    run = stream(materialise(SMALL), "NICv2_4", 1)
    assert (run.name, run.run, run.source, len(run)) == ("nicv2-4", 1, "generated", 4)


def test_data_sets_and_streams_say_what_they_are() -> None:
    data = DataSet(
        name="<i>mine</i>",
        frames=torch.zeros(12, 4, 4, 3, dtype=torch.uint8),
        train=(Session(0, 1, 0, 5), Session(1, 1, 5, 9)),
        test=(Session(0, 2, 9, 12),),
        classes=("<script>mug", "cup & co"),
        categories=(0, 1),
    )
    assert repr(data) == (
        "DataSet('<i>mine</i>', 2 classes, 2 training and 1 test sessions, 12 frames)"
    )
    run = Stream(data, [[data.train[0]], [data.train[1]]], "nicv2-2", 3)
    assert repr(run) == "Stream('nicv2-2', run 3, 2 batches of '<i>mine</i>', generated)"
