"""Archives: names that collide, links, and damage."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest

from primavista import FileError
from primavista.streams.core50.unzip import unzip


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name in names:
            made.writestr(name, f"the content of {name} " * 20)
    return path


def test_a_name_that_is_a_file_and_a_folder_writes_nothing(tmp_path):
    into = tmp_path / "into"
    into.mkdir()
    for names in (("a", "a/b"), ("a/b", "A")):
        with pytest.raises(FileError, match="is a file and a folder"):
            unzip(archive(tmp_path / "z.zip", *names), into)
        assert list(into.iterdir()) == []


def test_a_link_in_the_folder_is_not_followed_out_of_it(tmp_path):
    into, outside = tmp_path / "into", tmp_path / "outside"
    into.mkdir()
    outside.mkdir()
    (into / "s1").symlink_to(outside)
    with pytest.raises(FileError, match="s1 is not a folder"):
        unzip(archive(tmp_path / "z.zip", "x.txt", "s1/y.txt"), into)
    assert list(outside.iterdir()) == []
    assert [one.name for one in into.iterdir()] == ["s1"]


def test_damaged_archives_are_file_errors(tmp_path):
    """400 archives with some bytes changed: unpacked, or refused with a reason."""
    good = archive(tmp_path / "good.zip", "a.txt", "b/c.txt", "b/d.txt").read_bytes()
    draw = random.Random(4)
    refused = 0
    for number in range(400):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        (tmp_path / "bad.zip").write_bytes(data)
        into = tmp_path / str(number)
        into.mkdir()
        try:
            unzip(tmp_path / "bad.zip", into)
        except FileError:
            refused += 1
    assert refused > 100
