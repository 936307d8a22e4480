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

from primavista.storage.learner_file import TYPES, pack, unpack

kinds = st.sampled_from(sorted(TYPES.values())).map(np.dtype)
shapes = some.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
arrays = kinds.flatmap(lambda kind: shapes.flatmap(lambda shape: some.arrays(kind, shape)))
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(
    lambda name: name != "__metadata__"
)


@given(
    st.dictionaries(names, arrays, max_size=6),
    st.sampled_from([{}, {"primavista": "{}"}, {"k": 'ä"\n'}]),
)
def test_the_same_bytes_as_the_library(made, metadata):
    ours = pack(made, metadata)
    theirs = save(made, metadata or None)
    ordered = {name: (a.dtype, a.shape, a.tobytes()) for name, a in load(ours).items()}
    assert ordered == {name: (a.dtype, a.shape, a.tobytes()) for name, a in made.items()}
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in unpack(theirs).items()} == ordered
    if all(name.isprintable() for name in made) and metadata != {"k": 'ä"\n'}:
        assert ours == theirs


def header(**entries: object) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut off"),
        (struct.pack("<Q", 2**63) + b"{}", "cut off"),
        (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
        (header(a=GOOD), "0 bytes of arrays"),
        (header(a=GOOD) + bytes(9), "9 bytes of arrays"),
        (header(a={**GOOD, "dtype": "BF16"}) + bytes(8), "known type"),
        (header(a={**GOOD, "shape": [-2]}) + bytes(8), "invalid shape"),
        (header(a={**GOOD, "shape": [True, 2]}) + bytes(8), "invalid shape"),
        (header(a={**GOOD, "shape": [2**40, 2**40]}) + bytes(8), "do not fit its shape"),
        (header(a=GOOD, b=GOOD) + bytes(8), "begins at 0, expected 8"),
        (header(a={**GOOD, "data_offsets": [4, 12]}) + bytes(12), "begins at 4, expected 0"),
        (header(a={**GOOD, "more": 1}) + bytes(8), "not an array"),
    ],
)
def test_a_strange_header_is_refused(data, why):
    with pytest.raises(ValueError, match=why):
        unpack(data)


def test_what_is_read_may_be_written_to():
    found = unpack(pack({"a": np.zeros(2)}, {}))["a"]
    found += 1
    assert found.tolist() == [1, 1]
