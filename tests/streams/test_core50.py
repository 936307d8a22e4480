"""CORe50 as people have it on disk.

The whole folder is here in shape: 164,866 names, each a hard link to a tiny image.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from primavista.errors import InputError
from primavista.streams.core50 import CORe50
from primavista.streams.dataset import DataSet
from primavista.streams.open import stream as open_stream
from primavista.streams.session_files import FolderFrames
from primavista.streams.store import pack

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
PROTOCOLS = (79, 196, 391)
Key = tuple[int, int]

pytestmark = [
    pytest.mark.skipif(
        not SHARED.is_dir(), reason="the folder `shared` with the official orders is not there"
    ),
    pytest.mark.xdist_group("core50"),  # its 164,866 files are written once
]


def official_numbers() -> dict[Key, range]:
    """The frames of each session.

    The official counts, numbered so that the official 1-in-20 list names existing ones.
    """
    counts = json.loads((SHARED / "nicv2_official_orders.json").read_text())["frames"]
    firsts: dict[Key, int] = {}
    for line in reversed(reduced_list()):
        session, thing, number = (
            int(part) for part in line.split(" ")[0].split("/")[2][2:-4].split("_")
        )
        firsts[session, thing] = number
    numbers, place = {}, 0
    keys = sorted(
        (tuple(map(int, key.split("/"))) for key in counts), key=lambda key: (key[0], str(key[1]))
    )
    for key in [
        *(k for k in keys if k[0] in (3, 7, 10)),
        *(k for k in keys if k[0] not in (3, 7, 10)),
    ]:
        count = counts[f"{key[0]}/{key[1]}"]
        start = firsts[key] - (-place % 20) if key in firsts else 0
        numbers[key[0], key[1]] = range(start, start + count)
        place += count
    return numbers


def reduced_list() -> list[str]:
    return (SHARED / "core50_test_filelist_reduced.txt").read_text().splitlines()


def name(key: Key, number: int, ending: str = "png") -> str:
    return f"s{key[0]}/o{key[1]}/C_{key[0]:02d}_{key[1]:02d}_{number:03d}.{ending}"


def picture(key: Key, size: int = 4) -> Image.Image:
    return Image.new("RGB", (size, size), (key[0], key[1], 7))


@pytest.fixture(scope="module")
def numbers() -> dict[Key, range]:
    return official_numbers()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, numbers: dict[Key, range]) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("core50")
    for key, frames in numbers.items():
        home = root / "core50_128x128" / f"s{key[0]}" / f"o{key[1]}"
        home.mkdir(parents=True)
        first = os.path.join(root / "core50_128x128", name(key, frames[0]))
        picture(key).save(first)
        for number in frames[1:]:
            os.link(first, os.path.join(root / "core50_128x128", name(key, number)))
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def lists(folder: Path, numbers: dict[Key, range]) -> Path:
    """All 30 official orders as official file lists."""
    orders = json.loads((SHARED / "nicv2_official_orders.json").read_text())["orders"]
    text = {
        key: "".join(f"{name(key, n)} {key[1] - 1}\n" for n in frames)
        for key, frames in numbers.items()
    }
    for batches in PROTOCOLS:
        for run, order in enumerate(orders[str(batches)]):
            home = folder / "batches_filelists" / f"NIC_v2_{batches}" / f"run{run}"
            home.mkdir(parents=True)
            for i, batch in enumerate(order):
                (home / f"train_batch_{i:02d}_filelist.txt").write_text(
                    "".join(text[s, o] for s, o in batch)
                )
    return folder


@pytest.fixture(scope="module")
def data(folder: Path) -> CORe50:
    return CORe50(folder)


def moved_to(data: CORe50, folder: Path) -> DataSet:
    """The same data, whose official orders lie in another folder."""
    return DataSet(**{**vars(data), "origin": folder})


def keys(stream: Any) -> list[list[list[int]]]:
    return [[[session.number, session.label + 1] for session in batch] for batch in stream.batches]


def test_the_folder_has_core50_s_figures(data: CORe50, folder: Path) -> None:
    assert data.name == "core50"
    assert len(data.train) == 400
    assert sum(map(len, data.train)) == 119_894
    assert sum(map(len, data.test)) == 2_249
    assert sum(map(len, CORe50(folder, test="full").test)) == 44_972
    assert {s.number for s in data.train} == {1, 2, 4, 5, 6, 8, 9, 11}
    assert {s.number for s in data.test} == {3, 7, 10}
    assert len(data.classes) == 50
    assert data.classes[5] == "mobile phone 1"
    assert data.categories == tuple(i // 5 for i in range(50))


def lines_of(data: CORe50, folder: Path) -> list[str]:
    """The lines of the test set, by way of the picture of each frame."""
    frames = data.frames
    assert isinstance(frames, FolderFrames)
    pictures = [path for one in frames.sessions for path in one.pictures]
    home = folder / "core50_128x128"
    return [
        f"{pictures[place].relative_to(home).as_posix()} {session.label}"
        for session in data.test
        for place in range(session.start, session.stop)
    ]


def test_the_reduced_test_set_is_the_official_list_line_by_line(data: CORe50, folder: Path) -> None:
    assert lines_of(data, folder) == reduced_list()


def test_a_packed_copy_is_tested_on_the_same_official_frames(
    data: CORe50, folder: Path, tmp_path: Path
) -> None:
    """Stores of all 44,972 test frames and of the reduced list give the same 2,249 frames."""
    reduced = list(zip(*_labels(data, 1), strict=True))
    assert len(reduced) == 2_249
    full = CORe50(folder, test="full")
    for one, thin in ((data, 1), (full, 20)):
        assert one.core50 is not None
        assert one.core50.complete
        black = torch.zeros(len(one.frames), 1, 1, 3, dtype=torch.uint8)
        store = pack(DataSet(**{**vars(one), "frames": black}), tmp_path / f"store{thin}")
        assert store.core50 == one.core50
        assert list(zip(*_labels(store, thin), strict=True)) == reduced
    # Every 20th of the whole list, not of each session: these are the rows of the reduced list.
    lines = lines_of(full, folder)
    first = full.test[0].start
    chosen = open_stream(full, "ni").test(20).images.indices - first
    assert [lines[i] for i in chosen.tolist()] == reduced_list()


def _labels(data: DataSet, thin: int) -> tuple[list[int], list[int]]:
    test = open_stream(data, "ni").test(thin)
    return test.labels.tolist(), test.sessions.tolist()


def test_an_unknown_test_set_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="'reduced' or 'full'"):
        CORe50(folder, test="half")


@pytest.mark.slow
@pytest.mark.parametrize("batches", PROTOCOLS)
def test_all_official_orders_come_back_from_file_lists(
    lists: Path, data: CORe50, batches: int
) -> None:
    orders = json.loads((SHARED / "nicv2_official_orders.json").read_text())["orders"][str(batches)]
    for run in range(10):
        stream = open_stream(data, f"nicv2-{batches}", run)
        assert keys(stream) == orders[run]
        assert stream.source.endswith(f"run{run}")
    plain = DataSet(
        "a packed copy", data.frames, data.train, data.test, data.classes, data.categories
    )
    assert keys(open_stream(plain, f"nicv2-{batches}", 9, orders=lists)) == orders[9]


def test_train_and_test_are_disjoint(lists: Path) -> None:
    data = CORe50(lists, test="full")
    stream = open_stream(data, "nicv2-79", 0)
    trained = np.concatenate([stream[i].images.indices for i in range(len(stream))])
    assert len(np.unique(trained)) == 119_894
    assert not set(trained.tolist()) & set(stream.test().images.indices.tolist())


def test_frames_decode_when_they_are_asked_for(data: CORe50) -> None:
    session = data.train[17]
    frames = data.frames[torch.tensor([session.start, session.stop - 1])]
    assert frames.dtype == torch.uint8
    assert frames.shape == (2, 4, 4, 3)
    assert frames[1, 0, 0].tolist() == [session.number, session.label + 1, 7]


def test_orders_without_lists_come_from_the_generator(
    lists: Path, data: CORe50, tmp_path: Path
) -> None:
    assert open_stream(moved_to(data, tmp_path), "nicv2-391", 0).source == "generated"
    assert open_stream(data, "nicv2-391", 9).source != "generated"
    assert open_stream(data, "nicv2-391", 10).source == "generated"  # there are runs 0 to 9
    plain = DataSet("any", data.frames, data.train, data.test, data.classes, data.categories)
    assert open_stream(plain, "ni", 1).source == "generated"
