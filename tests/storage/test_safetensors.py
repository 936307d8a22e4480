"""Our safetensors and the library's are the same bytes.

A strange header is refused, never followed.
"""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from safetensors.numpy import load, save

from primavista import FileError
from primavista.storage.learner_file import KEY, TYPE_NAMES, decode, encode

kinds = st.sampled_from(list(TYPE_NAMES))
shapes = some.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
arrays = kinds.flatmap(lambda kind: shapes.flatmap(lambda shape: some.arrays(kind, shape)))
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(
    lambda name: name != "__metadata__"
)


def metadata_of(data: bytes) -> dict[str, str]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length])["__metadata__"]


@given(st.dictionaries(names, arrays, max_size=6), st.sampled_from([{}, {"k": 'ä"\n'}]))
def test_the_same_bytes_as_the_library(made, manifest):
    ours = encode(made, manifest)
    expected = {name: (a.dtype, a.shape, a.tobytes()) for name, a in made.items()}
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in load(ours).items()} == expected
    read, found = decode(ours, "x.pv")
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in read.items()} == expected
    assert found == manifest
    if all(name.isprintable() for name in made):
        assert ours == save(made, metadata_of(ours))


def with_header(**entries: object) -> bytes:
    text = json.dumps({"__metadata__": METADATA, **entries}).encode()
    return struct.pack("<Q", len(text)) + text


METADATA = {KEY: json.dumps({"manifest": {}, "sha256": ""})}
GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        with_header(a=GOOD),
        with_header(a=GOOD) + bytes(9),
        with_header(a={**GOOD, "dtype": "BF16", "data_offsets": [0, 4]}) + bytes(4),
        with_header(a={**GOOD, "shape": [-2]}) + bytes(8),
        with_header(a={**GOOD, "shape": [True, 2]}) + bytes(8),
        with_header(a={**GOOD, "shape": [2**40, 2**40]}) + bytes(8),
        with_header(a={**GOOD, "shape": [1] * 100 + [2]}) + bytes(8),
        with_header(a=GOOD, b=GOOD) + bytes(8),
        with_header(a={**GOOD, "data_offsets": [4, 12]}) + bytes(12),
    ],
)
def test_a_strange_header_is_refused(data):
    with pytest.raises(FileError, match=r"x\.pv .*(cut off|not a primavista file|is damaged \()"):
        decode(data, "x.pv")


def test_what_is_read_may_be_written_to():
    found = decode(encode({"a": np.zeros(2)}, {}), "x.pv")[0]["a"]
    found += 1
    assert found.tolist() == [1, 1]
