"""CIFAR-100, from small files in the official layout, in a folder and packed by tar."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import primavista as pv
from primavista.errors import FileError, InputError
from primavista.streams.cifar100 import cifar100, is_cifar100
from primavista.streams.open import parse_source
from primavista.streams.store import open_store, pack

from .official import CIFAR as TABLES
from .official import CIFAR_FILES, COARSE, COARSE_NAMES, FINE_NAMES, cifar_bytes
from .official import write_cifar as official


def archive(root: Path) -> Path:
    path = root / "cifar-100-binary.tar.gz"
    with tarfile.open(path, "w:gz") as target:
        for name, data in {"file.txt~": b"", **CIFAR_FILES}.items():
            member = tarfile.TarInfo(f"cifar-100-binary/{name}")
            member.size = len(data)
            target.addfile(member, io.BytesIO(data))
    return path


def picture(name: str, row: int) -> np.ndarray[Any, Any]:
    """A picture by the official description: 1,024 red values, then green, then blue, row-major."""
    values = TABLES[name]["data"][row]
    red, green, blue = (values[i * 1024 : (i + 1) * 1024].reshape(32, 32) for i in range(3))
    return np.stack([red, green, blue], 2)


@pytest.mark.parametrize("place", ["folder", "above", "archive", "above archive"])
def test_every_picture_has_its_label(tmp_path: Path, place: str) -> None:
    path = archive(tmp_path) if "archive" in place else official(tmp_path)
    path = tmp_path if "above" in place else path
    assert parse_source(path).kind == "cifar100"
    data = pv.open_dataset(path, size=32)
    assert (data.classes, data.categories) == (tuple(FINE_NAMES), tuple(COARSE))
    assert "8 pictures" in data.note
    for name, sessions in (("train", data.train), ("test", data.test)):
        assert [session.label for session in sessions] == [0, 1, 2, 3]
        for session in sessions:
            rows = [
                i for i, label in enumerate(TABLES[name]["fine_labels"]) if label == session.label
            ]
            frames = data.frames[torch.arange(session.start, session.stop)].numpy()
            assert np.array_equal(frames, [picture(name, row) for row in rows])
    assert not {(s.label, s.number) for s in data.train} & {(s.label, s.number) for s in data.test}


def test_frames_have_the_size_that_is_asked_for(tmp_path: Path) -> None:
    data = pv.open_dataset(official(tmp_path), size=48)
    assert data.frames[torch.tensor([3, 1])].shape == (2, 48, 48, 3)
    assert cifar100(official(tmp_path)).frames[torch.tensor([0])].shape == (1, 32, 32, 3)


def test_a_class_can_be_divided_into_sessions(tmp_path: Path) -> None:
    data = pv.open_dataset(official(tmp_path), size=32, sessions=4)
    own = [session for session in data.train if session.label == 2]
    assert [(s.number, len(s)) for s in own] == [(1, 2), (2, 2), (3, 1), (4, 1)]
    stream = pv.open_stream(data, "nicv2", run=0)
    assert sum(len(batch.labels) for batch in stream) == 24
    assert len(stream) == 1 + 16 - 2  # batch 1 has one class of each superclass
    with pytest.raises(InputError, match="sessions must lie from 1 to 6"):
        pv.open_dataset(official(tmp_path), sessions=7)


def test_superclasses_have_their_classes_as_domains(tmp_path: Path) -> None:
    data = pv.open_dataset(official(tmp_path), size=32, labels="category")
    assert (data.classes, data.categories) == (tuple(COARSE_NAMES), (0, 1))
    stream = pv.open_stream(data, "domain-incremental")
    assert [batch.labels.unique().tolist() for batch in stream] == [[0, 1], [0, 1]]
    first = data.frames[torch.arange(stream.batches[0][0].start, stream.batches[0][0].stop)]
    assert np.array_equal(first[0], picture("train", 1))  # bear, the first of the animals
    with pytest.raises(InputError, match="has one session per class, so that it has one domain"):
        pv.open_stream(pv.open_dataset(official(tmp_path)), "domain-incremental")


def test_a_packed_copy_is_the_same(tmp_path: Path) -> None:
    data = pv.open_dataset(official(tmp_path), size=32, sessions=2)
    store = pack(data, tmp_path / "store", workers=1)
    assert (store.train, store.classes) == (data.train, data.classes)
    every = torch.arange(len(data.frames))
    assert torch.equal(open_store(tmp_path / "store").frames[every], data.frames[every])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.bin", bytes(3073), r"train\.bin.* is damaged: it has 3,073 bytes"),
        ("train.bin", b"", r"train\.bin.* is damaged"),
        ("train.bin", CIFAR_FILES["train.bin"][:-3], r"train\.bin.* is damaged"),
        ("test.bin", bytes([0, 4]) + bytes(3072), "should have labels from 0 to 3"),
        ("test.bin", bytes([2, 0]) + bytes(3072), "superclasses from 0 to 1"),
        ("test.bin", bytes([0, 0]) + bytes(3072), "has 2 superclasses"),
        ("fine_label_names.txt", b"\n", "fine_label_names.txt .* holds no names"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(FileError, match=message):
        pv.open_dataset(official(tmp_path, {name: content}))


def test_an_enormous_file_is_not_read(tmp_path: Path) -> None:
    with (official(tmp_path) / "train.bin").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(FileError, match=r"refused to read .*train\.bin"):
        pv.open_dataset(tmp_path)


def test_a_class_without_training_pictures_is_named(tmp_path: Path) -> None:
    train = {
        **TABLES["train"],
        "fine_labels": [0, 1] * 12,
        "coarse_labels": [COARSE[0], COARSE[1]] * 12,
    }
    with pytest.raises(FileError, match="has no training pictures"):
        pv.open_dataset(official(tmp_path, {"train.bin": cifar_bytes(train)}))


def write_link(path: Path) -> None:
    with tarfile.open(path, "w:gz") as target:
        member = tarfile.TarInfo("cifar-100-binary/train.bin")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        target.addfile(member)


def write_large(path: Path) -> None:
    """A member that says it is a gigabyte; nothing of it may be read."""
    member = tarfile.TarInfo("cifar-100-binary/extra")
    member.size = 2**30
    path.write_bytes(gzip.compress(member.tobuf() + bytes(2048)))


def write_many(path: Path) -> None:
    with tarfile.open(path, "w:gz") as target:
        for i in range(150):
            target.addfile(tarfile.TarInfo(f"cifar-100-binary/{i}"))


def write_cut_off(path: Path) -> None:
    data = archive(path.parent).read_bytes()
    path.write_bytes(data[: len(data) // 2])


def write_other(path: Path) -> None:
    path.write_bytes(b"<html>not found</html>")


def write_empty(path: Path) -> None:
    with tarfile.open(path, "w:gz"):
        pass


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_link, "holds no file cifar-100-binary/train.bin"),
        (write_large, "has 1,073,741,824 bytes"),
        (write_many, "is file 101"),
        (write_cut_off, "damaged|cut off"),
        (write_other, "damaged|cannot read"),
        (write_empty, "holds no file cifar-100-binary/train.bin"),
    ],
)
def test_dishonest_archives_are_refused(
    tmp_path: Path, write: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "cifar-100-binary.tar.gz"
    write(path)
    with pytest.raises(FileError, match=message) as raised:
        pv.open_dataset(path)
    assert str(path) in str(raised.value)
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_without_the_files_says_what_is_missing(tmp_path: Path) -> None:
    assert not is_cifar100(tmp_path)
    with pytest.raises(FileError, match=r"cifar-100-binary\.tar\.gz.*cs\.toronto\.edu"):
        cifar100(tmp_path)


def test_options_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fps is for .*class/session folder; .* is CIFAR-100"):
        pv.open_dataset(official(tmp_path), fps=5)
    with pytest.raises(InputError, match="labels must be 'object' or 'category'"):
        cifar100(official(tmp_path), "fine")  # type: ignore[arg-type]


def test_the_name_of_a_file_of_the_archive_is_not_read_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tarfile reads long names whole: 254 kB took 440 MiB."""
    monkeypatch.setattr("primavista.streams.cifar100.MAX_BYTES", 2**20)
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**23
    packed = tmp_path / "cifar-100-binary.tar.gz"
    with gzip.open(packed, "wb", 1) as file:
        file.write(header.tobuf(tarfile.GNU_FORMAT) + b"a" * header.size)
    with pytest.raises(FileError, match="it is too large"):
        cifar100(packed)
