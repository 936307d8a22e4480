"""CLEAR-10, Tiny ImageNet and OpenLORIS-Object, from small files in the official layouts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import primavista as pv
from primavista.errors import FileError, InputError
from primavista.streams.official import clear, openloris, picture_files, tiny_imagenet
from primavista.streams.open import parse_source

from .official import (
    CLEAR_CLASSES,
    LORIS_OBJECTS,
    TINY_IDS,
    picture,
    write_clear,
    write_openloris,
    write_tiny_imagenet,
)


def colours(data: pv.DataSet, session: pv.Session) -> list[list[int]]:
    """The colour of each picture of a session, in steps of ten, since JPEG changes it a little."""
    frames = data.frames[torch.arange(session.start, session.stop)]
    return (frames[:, 8, 8].float() / 10).round().mul(10).int().tolist()


def check_unique(data: pv.DataSet) -> None:
    keys = [(s.label, s.number) for s in (*data.train, *data.test)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("train", ["train", "train_image_only"])
def test_clear_has_periods_as_domains(tmp_path: Path, train: str) -> None:
    root = write_clear(tmp_path / "clear10", train)
    assert parse_source(root).kind == "clear"
    data = pv.open_dataset(root, size=16)
    assert data.classes == tuple(CLEAR_CLASSES)
    assert "all periods: 9 pictures" in data.note
    check_unique(data)
    for sessions, count, blue in ((data.train, 2, 0), (data.test, 1, 200)):
        assert len(sessions) == 9
        for session in sessions:
            period = session.number - (3 if blue else 0)
            assert colours(data, session) == [[period * 20, session.label * 20, blue]] * count
    stream = pv.open_stream(data, "domain-incremental")
    assert [{s.number for s in batch} for batch in stream.batches] == [{1}, {2}, {3}]


def test_tiny_imagenet_tests_on_val(tmp_path: Path) -> None:
    home = write_tiny_imagenet(tmp_path)
    assert parse_source(home).kind == parse_source(tmp_path).kind == "tiny-imagenet"
    data = pv.open_dataset(tmp_path, size=16, sessions=2)
    assert data.classes == ("Egyptian cat", "goldfish", TINY_IDS[2])  # words.txt lacks the third
    check_unique(data)
    assert [(s.label, s.number, len(s)) for s in data.train[:3]] == [
        (0, 1, 2),
        (0, 2, 2),
        (1, 1, 2),
    ]
    assert colours(data, data.train[3]) == [[40, 80, 0], [40, 120, 0]]
    assert [s.label for s in data.test] == [0, 1, 2]
    # of class 0 are val_2 and val_5
    assert colours(data, data.test[0]) == [[0, 80, 200], [0, 200, 200]]
    stream = pv.open_stream(data, "class-incremental", classes_per_batch=1, order="given")
    assert [batch.labels.unique().tolist() for batch in stream] == [[0], [1], [2]]


def test_two_synsets_with_one_word_keep_their_ids(tmp_path: Path) -> None:
    home = write_tiny_imagenet(tmp_path)
    (home / "words.txt").write_text("".join(f"{name}\tcrane\n" for name in TINY_IDS))
    assert tiny_imagenet(home).classes[0] == f"crane {TINY_IDS[0]}"


def test_openloris_numbers_sessions_as_the_authors_do(tmp_path: Path) -> None:
    root = write_openloris(tmp_path / "loris")
    assert parse_source(root).kind == "openloris"
    data = pv.open_dataset(root, size=16)
    assert data.classes == tuple(LORIS_OBJECTS)
    assert data.categories == (0, 0, 1)
    check_unique(data)
    stream = pv.open_stream(data, "domain-incremental")
    numbers = [batch[0].number for batch in stream.batches]
    assert numbers == [1, 2, 9, 28, 29, 36]  # illumination, and after occlusion and pixel clutter
    clutter = stream.batches[4][1]
    assert colours(data, clutter) == [[40, 40, 0]] * 2  # bottle_02 in segment 2
    assert colours(data, stream.batches[0][2]) == [[80, 20, 100]] * 2
    assert sum(map(len, data.test)) == 18  # validation is not used


def test_openloris_by_factor_and_by_kind(tmp_path: Path) -> None:
    root = write_openloris(tmp_path)
    data = pv.open_dataset(root, size=16, factors=["clutter"], labels="category")
    assert data.classes == ("bottle", "paper_cutter")
    assert data.categories == (0, 1)
    assert {s.number for s in data.train} == {28, 29, 36}
    assert [colours(data, s)[0][0] for s in data.train if s.label == 1] == [80] * 3
    with pytest.raises(InputError, match="factors are some of illumination"):
        openloris(root, factors=["weather"])
    with pytest.raises(InputError, match="factors are some of illumination"):
        openloris(root, factors="clutter")
    with pytest.raises(FileError, match="has no folder train/pixel"):
        openloris(root, factors=["pixel"])


@pytest.mark.parametrize("write", [write_clear, write_tiny_imagenet, write_openloris])
def test_damaged_pictures_are_named_or_skipped(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    root = write(tmp_path / "data")
    victim = min(path for path in (root / "train").rglob("*") if path.suffix in (".jpg", ".JPEG"))
    victim.write_bytes(victim.read_bytes()[:40])
    data = pv.open_dataset(root, size=16)
    with pytest.raises(FileError, match=f"{victim.name} is damaged"):
        data.frames[torch.arange(len(data.frames))]
    skipping = pv.open_dataset(root, size=16, skip_bad=True, progress=lambda done, total: None)
    assert skipping.skipped == 1
    assert victim.name in skipping.note
    assert len(skipping.frames) == len(data.frames) - 1
    assert len(skipping.frames[torch.arange(len(skipping.frames))]) == len(skipping.frames)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../../secret.jpg", "lies outside"),
        ("x/../../../secret.jpg", "lies outside"),
        ("a\\bus.jpg", "as the name of a file"),
        ("a\0.jpg", "as the name of a file"),
        ("x" * 5000, "as the name of a file"),
        ("none.jpg", "is missing, and .* names it"),
    ],
)
def test_a_list_cannot_name_files_elsewhere(tmp_path: Path, name: str, message: str) -> None:
    home = write_tiny_imagenet(tmp_path / "data")
    picture(home / "secret.jpg", 1)
    (home / "val" / "val_annotations.txt").write_text(f"{name}\t{TINY_IDS[0]}\t0\n")
    with pytest.raises(FileError, match=message) as raised:
        tiny_imagenet(home)
    assert "val_annotations.txt" in str(raised.value)


def test_an_absolute_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="lies outside"):
        picture_files.inside(tmp_path, "/etc/hostname", tmp_path / "list.txt")


def test_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    picture(tmp_path / "secret.jpg", 1)
    root = write_openloris(tmp_path / "loris")
    video = root / "train" / "clutter" / "segment1" / "bottle_01"
    (video / "99999.jpg").symlink_to(tmp_path / "secret.jpg")
    with pytest.raises(FileError, match="lies outside"):
        openloris(root)
    shutil.rmtree(video)
    video.symlink_to(tmp_path)
    with pytest.raises(FileError, match="is a link that leads out"):
        openloris(root)
    home = write_tiny_imagenet(tmp_path)
    (home / "val" / "images" / "val_0.JPEG").unlink()
    (home / "val" / "images" / "val_0.JPEG").symlink_to(tmp_path / "secret.jpg")
    with pytest.raises(FileError, match="lies outside"):
        tiny_imagenet(home)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("wnids.txt", "n02124075\n../../x\n", "'../../x' instead of one WordNet id per line"),
        ("wnids.txt", "n02124075\nn02124075\n", "a class twice, or none"),
        ("wnids.txt", "", "a class twice, or none"),
        ("wnids.txt", "n02124075\nn00000001\n", "n00000001"),
        ("val/val_annotations.txt", "val_0.JPEG\tn00000009\t0\n", "line 1: no class"),
        ("val/val_annotations.txt", "../../../secret.jpg\tn02124075\n", "lies outside|is missing"),
        ("words.txt", b"\xff\xfe\xff", "is not a text"),
    ],
)
def test_wrong_lists_of_tiny_imagenet_are_named(
    tmp_path: Path, file: str, content: str | bytes, message: str
) -> None:
    home = write_tiny_imagenet(tmp_path / "a" / "b")
    picture(tmp_path / "a" / "secret.jpg", 1)
    data = content if isinstance(content, bytes) else content.encode()
    (home / file).write_bytes(data)
    with pytest.raises(FileError, match=message):
        tiny_imagenet(home)


@pytest.mark.parametrize("name", ["one", "12345", "-1"])
def test_wrong_periods_of_clear_are_named(tmp_path: Path, name: str) -> None:
    root = write_clear(tmp_path)
    (root / "train" / "labeled_images" / "2").rename(root / "train" / "labeled_images" / name)
    with pytest.raises(FileError, match=f"{name} does not have the number of a period"):
        clear(root)


def test_classes_that_are_not_listed_are_named(tmp_path: Path) -> None:
    root = write_clear(tmp_path)
    picture(root / "train" / "labeled_images" / "1" / "zebra" / "1.jpg", 1)
    with pytest.raises(FileError, match=r"the class 'zebra', which class_names\.txt has not"):
        clear(root)


def test_oversized_lists_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_files, "MAX_TEXT", 10)
    with pytest.raises(FileError, match=r"it has .* bytes, over 10"):
        clear(write_clear(tmp_path / "clear"))
    monkeypatch.setattr(picture_files, "MAX_PICTURES", 5)
    with pytest.raises(FileError, match="more than 5 pictures"):
        openloris(write_openloris(tmp_path / "loris"))


def test_what_is_missing_is_said_with_where_to_get_it(tmp_path: Path) -> None:
    root = write_clear(tmp_path / "clear")
    shutil.rmtree(root / "test")
    with pytest.raises(FileError, match=r"no folder test: unpack .*clear10-test\.zip"):
        clear(root)
    with pytest.raises(FileError, match=r"tiny-imagenet-200\.zip"):
        tiny_imagenet(tmp_path)
    with pytest.raises(FileError, match="has no folder train/illumination"):
        openloris(tmp_path)
    loris = write_openloris(tmp_path / "loris")
    shutil.rmtree(loris / "test" / "clutter")
    with pytest.raises(FileError, match=r"test/clutter is missing"):
        openloris(loris)
    (loris / "train" / "clutter" / "segment9").rename(loris / "train" / "clutter" / "segment10")
    with pytest.raises(FileError, match="has the segments 1 to 9"):
        openloris(loris)


def test_more_sessions_than_pictures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sessions must lie from 1 to 4"):
        tiny_imagenet(write_tiny_imagenet(tmp_path), sessions=5)
