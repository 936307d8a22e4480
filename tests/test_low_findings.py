"""Small refusals: headers, archives, plans, pickles, the terminal."""

from __future__ import annotations

import json
import random
import struct
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from primavista import FileError, InputError, __version__
from primavista.bench.folder import read_lines
from primavista.bench.plan import load_plan
from primavista.cli.app import app
from primavista.storage import learner_file as files
from primavista.storage.settings import parse_setting
from primavista.streams.core50.unzip import unzip
from primavista.streams.pickles import loads


def test_version():
    """L2."""
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"primavista {__version__}\n")


# L9: headers


def with_header(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


@pytest.fixture(scope="module")
def header() -> bytes:
    data = files.encode({}, {"a": 1})
    return data[8 : 8 + struct.unpack("<Q", data[:8])[0]]


def test_headers_that_safetensors_refuses_are_refused(header):
    assert files.decode(with_header(header), "x.pv") == ({}, {"a": 1})
    text = header.decode()
    entry = '"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    bad = {
        "UTF-16": text.encode("utf-16"),
        "a byte order mark": b"\xef\xbb\xbf" + header,
        "NaN": text.replace('"__metadata__"', '"n":NaN,"__metadata__"').encode(),
        "half a letter": text.replace("{", '{"\\ud800":1,', 1).encode(),
        "metadata of numbers": text.replace('{"primavista"', '{"n":1,"primavista"').encode(),
        "an array twice": text.replace("{", "{" + entry + "," + entry + ",", 1).encode(),
    }
    for why, changed in bad.items():
        assert changed != header, why
        with pytest.raises(FileError, match=r"x\.pv"):
            files.decode(with_header(changed), "x.pv")


def test_a_large_foreign_file_is_refused_by_its_first_bytes(tmp_path):
    """A sparse file of 8 GiB takes no room on disk, and would take 8 GiB of memory."""
    path = tmp_path / "large.pv"
    with open(path, "wb") as file:
        file.truncate(8 * 2**30)
    with pytest.raises(FileError, match="not a primavista file"):
        files.read(path)
    with open(path, "r+b") as file:
        file.write(b"\xff" * 8)
    with pytest.raises(FileError, match="not a primavista file"):
        files.read(path)


# L5: archives


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


# L6, L7


def test_a_letter_that_does_not_exist_in_a_pickle():
    """A scalar of one letter whose number is beyond all letters: numpy raises SystemError."""
    scalar = (
        b"\x80\x03cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n"
        b"X\x03\x00\x00\x00<U1K\x00K\x01\x87RC\x04%b\x86R."
    )
    assert loads(scalar % b"a\0\0\0") == "a"
    with pytest.raises(FileError, match="damaged"):
        loads(scalar % b"\xff\xff\xff\xff")


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000 + "]" * 5000, "a = " + "1" * 5001], ids=["brackets", "digits"]
)
def test_plans_that_no_reader_can_take(tmp_path, text):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(InputError, match=r"plan\.toml is not TOML"):
        load_plan(str(tmp_path / "plan.toml"))
    assert parse_setting(text.replace(" ", ""), "a=1")[0] == ["a"]


@pytest.mark.parametrize("name", [".", "..", "...", ".hidden", "a/b", ""])
def test_a_plan_cannot_be_called_like_a_folder_above(name):
    with pytest.raises(InputError, match="name"):
        load_plan("quick", [f"name='{name}'"])


# M11: damaged tails


@pytest.mark.parametrize(
    "tail", [b"\0" * 60 + b"\n", b"[1]\n", b"nonsense\n", b"[" * 9999 + b"\n", b'{"batch"']
)
def test_lines_are_read_up_to_the_damage(tmp_path, tail):
    (tmp_path / "t.jsonl").write_bytes(json.dumps({"batch": 1}).encode() + b"\n" + tail)
    assert read_lines(tmp_path / "t.jsonl") == [{"batch": 1}]
