"""Folders with a list of pictures, and the lists of CLEAR, Tiny ImageNet and OpenLORIS-Object."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import primavista as pv
from primavista.errors import FileError
from primavista.streams import listed as module
from primavista.streams.listed import LIST, listed
from primavista.streams.open import parse_source

from .official import (
    CIFAR,
    CLEAR_CLASSES,
    COARSE,
    FINE_NAMES,
    LORIS_OBJECTS,
    TINY_IDS,
    picture,
    write_cifar,
    write_clear,
    write_list,
    write_openloris,
    write_tiny_imagenet,
)

HEADER = "file,class,session,split\n"


def colours(data: pv.DataSet, session: pv.Session) -> list[list[int]]:
    """The colour of each picture of a session, in steps of ten, since JPEG changes it a little."""
    frames = data.frames[torch.arange(session.start, session.stop)]
    return (frames[:, 8, 8].float() / 10).round().mul(10).int().tolist()


def check_unique(data: pv.DataSet) -> None:
    keys = [(s.label, s.number) for s in (*data.train, *data.test)]
    assert len(set(keys)) == len(keys)


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    """A folder with four pictures of two classes."""
    home = tmp_path / "toys"
    for number in range(4):
        picture(home / "pictures" / f"{number}.jpg", number * 40)
    lines = ["3.jpg,mug,2,train", "0.jpg,cup,1,train", "2.jpg,mug,2,train", "1.jpg,cup,4,test"]
    (home / LIST).write_text(HEADER + "".join(f"pictures/{line}\n" for line in lines))
    return home


def test_the_list_orders_classes_sessions_and_pictures(toys: Path) -> None:
    assert parse_source(toys).kind == "list"
    data = pv.open_dataset(toys, size=16)
    assert (data.name, data.classes, data.categories) == ("toys", ("mug", "cup"), (0, 1))
    assert [(s.label, s.number, len(s)) for s in data.train] == [(0, 2, 2), (1, 1, 1)]
    assert [(s.label, s.number, len(s)) for s in data.test] == [(1, 4, 1)]
    assert colours(data, data.train[0]) == [[120, 0, 0], [80, 0, 0]]


def test_clear_has_periods_as_domains(tmp_path: Path) -> None:
    root = write_clear(tmp_path / "clear10")
    write_list(root, "clear10")
    data = pv.open_dataset(root, size=16)
    assert sorted(data.classes) == sorted(CLEAR_CLASSES)
    check_unique(data)
    for sessions, count, blue in ((data.train, 2, 0), (data.test, 1, 200)):
        assert len(sessions) == 9
        for session in sessions:
            period = session.number - (10 if blue else 0)
            label = CLEAR_CLASSES.index(data.classes[session.label])
            assert colours(data, session) == [[period * 20, label * 20, blue]] * count
    stream = pv.open_stream(data, "domain-incremental")
    assert [{s.number for s in batch} for batch in stream.batches] == [{1}, {2}, {3}]


def test_tiny_imagenet_tests_on_val(tmp_path: Path) -> None:
    home = write_tiny_imagenet(tmp_path)
    write_list(home, "tiny-imagenet-200")
    data = pv.open_dataset(home, size=16)
    assert data.classes == tuple(sorted(TINY_IDS))
    check_unique(data)
    assert [(s.number, len(s)) for s in data.train] == [(1, 4)] * 3
    own = data.classes.index(TINY_IDS[0])
    (tested,) = [s for s in data.test if s.label == own]
    assert colours(data, tested) == [[0, 80, 200], [0, 200, 200]]  # of class 0 are val_2 and val_5


def test_openloris_numbers_sessions_as_the_authors_do(tmp_path: Path) -> None:
    root = write_openloris(tmp_path / "loris")
    write_list(root, "openloris")
    data = pv.open_dataset(root, size=16)
    assert data.classes == tuple(LORIS_OBJECTS)
    assert data.categories == (0, 0, 1)
    check_unique(data)
    stream = pv.open_stream(data, "domain-incremental")
    numbers = [batch[0].number for batch in stream.batches]
    assert numbers == [1, 2, 9, 28, 29, 36]  # illumination, and after occlusion and pixel clutter
    (clutter,) = [s for s in stream.batches[4] if s.label == 1]
    assert colours(data, clutter) == [[40, 40, 0]] * 2  # bottle_02 in segment 2
    assert sum(map(len, data.test)) == 18  # validation is not used


def test_cifar100_has_its_pictures_and_the_official_numbers(tmp_path: Path) -> None:
    data = pv.open_dataset(write_cifar(tmp_path, sessions=2), size=32)
    assert data.classes == tuple(FINE_NAMES)
    # the class of each, where the categories are numbered by first appearance
    assert [1 - category for category in data.categories] == COARSE
    check_unique(data)
    assert [(s.label, s.number, len(s)) for s in data.train[:3]] == [
        (0, 1, 3),
        (0, 2, 3),
        (1, 1, 3),
    ]
    assert [(s.number, len(s)) for s in data.test] == [(3, 2)] * 4
    for sessions, split in ((data.train, "train"), (data.test, "test")):
        for label in range(4):
            own = [torch.arange(s.start, s.stop) for s in sessions if s.label == label]
            rows = [i for i, fine in enumerate(CIFAR[split]["fine_labels"]) if fine == label]
            pictures = CIFAR[split]["data"][rows].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            assert np.array_equal(data.frames[torch.cat(own)], pictures)


def test_damaged_pictures_are_named_or_skipped(toys: Path) -> None:
    victim = toys / "pictures" / "2.jpg"
    victim.write_bytes(victim.read_bytes()[:40])
    data = pv.open_dataset(toys, size=16)
    with pytest.raises(FileError, match=r"2\.jpg is damaged"):
        data.frames[torch.arange(len(data.frames))]
    skipping = pv.open_dataset(toys, size=16, skip_bad=True, progress=lambda done, total: None)
    assert "skipped 1" in skipping.note
    assert victim.name in skipping.note
    assert len(skipping.frames) == len(data.frames) - 1
    assert len(skipping.frames[torch.arange(len(skipping.frames))]) == len(skipping.frames)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../secret.jpg", "lies outside"),
        ("x/../../secret.jpg", "lies outside"),
        ("/etc/hostname", "lies outside"),
        ("link.jpg", "lies outside"),
        ("folder/secret.jpg", "lies outside"),
        ("a\\bus.jpg", "as the name of a file"),
        ("a\0.jpg", "as the name of a file"),
        ("x" * 5000, "line 2: file: "),
        ("", "line 2: file: "),
        ("none.jpg", "is missing, and .* names it"),
    ],
)
def test_a_list_cannot_name_files_elsewhere(toys: Path, name: str, message: str) -> None:
    picture(toys.parent / "secret.jpg", 1)
    (toys / "link.jpg").symlink_to(toys.parent / "secret.jpg")
    (toys / "folder").symlink_to(toys.parent)
    (toys / LIST).write_text(f"{HEADER}{name},mug,1,train\n")
    with pytest.raises(FileError, match=message) as raised:
        listed(toys)
    assert LIST in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\xff", "is not a text"),
        ("file,class,session\nx.jpg,mug,1\n", "line 2: split: "),
        (f"{HEADER}x.jpg,mug,one,train\n", "line 2: session: "),
        (f"{HEADER}x.jpg,mug,0,train\n", "line 2: session: "),
        (f"{HEADER}x.jpg,mug,1,val\n", "line 2: split: "),
        (f"{HEADER}x.jpg,,1,train\n", "line 2: class: "),
        (f"{HEADER}x.jpg,mug,1\n", "line 2: split: "),
        (f"{HEADER}x.jpg,mug,1,train,more\n", "line 2: "),
        (f"{HEADER.strip()},colour\nx.jpg,mug,1,train,red\n", "line 2: colour: "),
        (HEADER, "no training pictures"),
        ("", "no training pictures"),
        (f"{HEADER}pictures/0.jpg,mug,1,test\n", "no training pictures"),
    ],
)
def test_wrong_lists_are_named(toys: Path, content: str | bytes, message: str) -> None:
    (toys / LIST).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FileError, match=message):
        listed(toys)


def test_an_endless_field_is_an_error_of_the_list(toys: Path) -> None:
    (toys / LIST).write_text(f"{HEADER}{'x' * 200_000},mug,1,train\n")
    with pytest.raises(FileError, match=r"pictures\.csv, line 1: field larger than"):
        listed(toys)


def test_oversized_lists_are_not_read(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PICTURES", 3)
    with pytest.raises(FileError, match="more than 3 pictures"):
        listed(toys)
    monkeypatch.setattr(module, "MAX_TEXT", 10)
    with pytest.raises(FileError, match=r"it has .* bytes, over 10"):
        listed(toys)
