"""The safetensors format in numpy alone: a JSON header of names, types, shapes and places, then the bytes.

The package `safetensors` gives the same bytes; made and read without it, they ask no more than numpy of a small device.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
ORDER = [
    "U64",
    "I64",
    "F64",
    "F32",
    "U32",
    "I32",
    "F16",
    "U16",
    "I16",
    "I8",
    "U8",
    "BOOL",
]  # wide types first, as aligned
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
Arrays = Mapping[str, np.ndarray[Any, Any]]


def pack(arrays: Arrays, metadata: Mapping[str, str]) -> bytes:
    """The bytes of a file; equal arrays and metadata give equal bytes.

    >>> unpack(pack({"a": np.arange(3)}, {}))["a"].tolist()
    [0, 1, 2]
    """
    return b"".join(pieces(arrays, metadata))


def pieces(arrays: Arrays, metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """The same, one after the other: the header, then each array where it lies, so that none is copied."""
    kinds = {
        name: NAMES[np.asarray(array).dtype.newbyteorder("<")] for name, array in arrays.items()
    }
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts, at = [], 0
    for name in sorted(arrays, key=lambda name: (ORDER.index(kinds[name]), name)):
        data = raw(np.ascontiguousarray(arrays[name], TYPES[kinds[name]]))
        header[name] = {
            "dtype": kinds[name],
            "shape": list(np.shape(arrays[name])),
            "data_offsets": [at, at + len(data)],
        }
        parts.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)), text, *parts]


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any] | None) -> bool:
    """Whether they are the same to the last bit: NaN equals itself, and 0 is not -0."""
    if b is None or a.dtype != b.dtype:
        return False
    bits = f"u{a.itemsize}"
    return np.array_equal(a.view(bits), b.view(bits))


def raw(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of a contiguous array, where they lie."""
    return array.reshape(-1).view(np.uint8).data


def unpack(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file. Every place in it is checked; a ValueError says what is wrong."""
    if len(data) < 8 or struct.unpack("<Q", data[:8])[0] > len(data) - 8:
        raise ValueError("the header is cut off")
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    if not isinstance(header, dict):
        raise ValueError("the header is no table")
    header.pop("__metadata__", None)
    found = {name: _place(name, entry) for name, entry in header.items()}
    end = 0
    for name, (_, _, begin, stop) in sorted(found.items(), key=lambda item: item[1][2:]):
        if begin != end:
            raise ValueError(f"{name} begins at {begin}, where {end} is free")
        end = stop
    if end != len(data) - start:
        raise ValueError(
            f"there are {len(data) - start} bytes of arrays, the header speaks of {end}"
        )
    return {
        name: np.frombuffer(data, kind, math.prod(shape), start + begin).reshape(shape).copy()
        for name, (kind, shape, begin, _) in found.items()
    }


def _place(name: str, entry: Any) -> tuple[np.dtype[Any], list[int], int, int]:
    if (
        not isinstance(entry, dict)
        or set(entry) != {"dtype", "shape", "data_offsets"}
        or entry["dtype"] not in TYPES
    ):
        raise ValueError(f"{name} is no array of a known type")
    kind, shape, places = np.dtype(TYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
    for numbers in (shape, places):
        if not isinstance(numbers, list) or any(
            type(n) is not int or not 0 <= n < 2**53 for n in numbers
        ):
            raise ValueError(f"{name} has no sensible shape or place")
    if (
        len(places) != 2
        or len(shape) > 32
        or places[1] - places[0] != math.prod(shape) * kind.itemsize
    ):
        raise ValueError(f"{name} has a place of another size than its shape")
    return kind, shape, places[0], places[1]
