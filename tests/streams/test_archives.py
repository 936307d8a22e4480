"""Archives that are damaged, or not honest."""

from __future__ import annotations

import os
import random
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from primavista.errors import FileError
from primavista.streams.core50 import download
from primavista.streams.core50.download import unpack_archive


def archive(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in entries.items():
            target.writestr(name, data)
    return path


def entry(path: Path, name: str, data: bytes = b"x", mode: int = 0, flags: int = 0) -> Path:
    info = zipfile.ZipInfo("placeholder")
    info.filename = info.orig_filename = name
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("fine.txt", b"fine")
        target.writestr(info, data)
    if flags:
        raw = bytearray(path.read_bytes())
        at = raw.rindex(b"PK\x01\x02") + 8
        raw[at : at + 2] = struct.pack("<H", flags)
        path.write_bytes(bytes(raw))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "../out.txt",
        "a/../../out.txt",
        "/tmp/out.txt",
        "..\\out.txt",
        "C:/out.txt",
        "a/./../..//../out.txt",
        "a\nb",
    ],
)
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    with pytest.raises(FileError, match="leads out"):
        unpack_archive(entry(tmp_path / "x.zip", name), inside)
    assert not list(inside.iterdir())  # not even the good entry


def test_a_link_in_an_archive_becomes_an_ordinary_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    mode = stat.S_IFLNK | 0o777
    unpack_archive(entry(tmp_path / "x.zip", "link", b"/etc/passwd", mode), out)
    assert not (out / "link").is_symlink()
    assert (out / "link").read_bytes() == b"/etc/passwd"


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="encrypted"):
        unpack_archive(entry(tmp_path / "x.zip", "secret", flags=1), tmp_path)


def test_an_archive_that_would_get_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr(download, "MAX_UNPACKED", 100)
    with pytest.raises(FileError, match="would unpack to 200 bytes"):
        unpack_archive(archive(tmp_path / "y.zip", a=bytes(200)), out)
    assert not list(out.iterdir())


def test_a_name_that_is_a_file_and_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write in"):
        unpack_archive(archive(tmp_path / "z.zip", **{"a": b"1", "a/b": b"2"}), tmp_path)


def test_an_entry_that_lies_about_its_size_or_content(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", a=os.urandom(5000))
    raw = bytearray(path.read_bytes())
    raw[100] ^= 255
    path.write_bytes(bytes(raw))
    with pytest.raises(FileError, match="damaged"):
        unpack_archive(path, tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(FileError, match="damaged"):
        unpack_archive(path, tmp_path)


def test_damaged_archives_are_file_errors(tmp_path: Path) -> None:
    """400 archives with some bytes changed: unpacked, or refused with a reason."""
    contents = {name: f"the content of {name} ".encode() * 20 for name in ("a.txt", "b/c.txt")}
    good = archive(tmp_path / "good.zip", **contents).read_bytes()
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
            unpack_archive(tmp_path / "bad.zip", into)
        except FileError:
            refused += 1
    assert refused > 100
