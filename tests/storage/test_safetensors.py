"""What is written is read again to the bit; a strange header is refused, never followed."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some

from primavista import FileError
from primavista.storage.learner_file import KEY, decode, encode

TYPES = ("u8", "i8", "f8", "f4", "u4", "i4", "f2", "u2", "i2", "i1", "u1", "?")
kinds = st.sampled_from([np.dtype(kind) for kind in TYPES])
shapes = some.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
arrays = kinds.flatmap(lambda kind: shapes.flatmap(lambda shape: some.arrays(kind, shape)))
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(
    lambda name: name != "__metadata__"
)


@given(st.dictionaries(names, arrays, max_size=6), st.sampled_from([{}, {"k": 'ä"\n'}]))
def test_arrays_of_every_type_and_shape_come_back_to_the_bit(made, manifest):
    ours = encode(made, manifest)
    expected = {name: (a.dtype, a.shape, a.tobytes()) for name, a in made.items()}
    read, found = decode(ours, "x.pv")
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in read.items()} == expected
    assert found == manifest
    assert encode(dict(reversed(made.items())), manifest) == ours


def test_arrays_in_another_order_of_memory_are_written_as_what_they_are():
    array = np.arange(6.0).reshape(2, 3)
    assert encode({"a": np.asfortranarray(array)}, {}) == encode({"a": array}, {})
    assert encode({"a": array[:, ::2]}, {}) == encode({"a": array[:, ::2].copy()}, {})


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
