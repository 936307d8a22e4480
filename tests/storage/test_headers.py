"""Headers of learner files that the safetensors library refuses are refused, and early."""

from __future__ import annotations

import struct

import pytest

from primavista import FileError
from primavista.storage import learner_file as files


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
