"""The safetensors format in numpy alone: a JSON header, then the bytes of the arrays.

The package `safetensors` gives the same bytes. Without it, a small device needs nothing but numpy.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

# wide types first: the arrays of a file are in this order, so that every one is aligned
TYPES = {
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "F32": "<f4",
    "U32": "<u4",
    "I32": "<i4",
    "F16": "<f2",
    "U16": "<u2",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
ORDER = list(TYPES)
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
MAX_DIMENSIONS = 32
MAX_INTEGER = 2**53
Arrays = Mapping[str, np.ndarray[Any, Any]]


def pack(arrays: Arrays, metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a file; equal arrays and metadata give equal bytes.

    Args:
        arrays: Arrays by name, of the types in `TYPES`.
        metadata: Texts by name.

    >>> unpack(pack({"a": np.arange(3)}, {}))["a"].tolist()
    [0, 1, 2]
    """
    return b"".join(packed_parts(arrays, metadata))


def packed_parts(arrays: Arrays, metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """Return the bytes of a file as consecutive parts: the header, then each array, not copied.

    Args:
        arrays: Arrays by name, of the types in `TYPES`.
        metadata: Texts by name.
    """
    kinds = {
        name: NAMES[np.asarray(array).dtype.newbyteorder("<")] for name, array in arrays.items()
    }
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts, end = [], 0
    for name in sorted(arrays, key=lambda name: (ORDER.index(kinds[name]), name)):
        data = raw_bytes(np.ascontiguousarray(arrays[name], TYPES[kinds[name]]))
        header[name] = {
            "dtype": kinds[name],
            "shape": list(np.shape(arrays[name])),
            "data_offsets": [end, end + len(data)],
        }
        parts.append(data)
        end += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)), text, *parts]


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any] | None) -> bool:
    """Return whether two arrays are equal to the last bit: NaN equals itself, and 0 is not -0.

    Args:
        a: An array.
        b: Another one, or None, which equals no array.
    """
    if b is None or a.dtype != b.dtype:
        return False
    bits = f"u{a.itemsize}"
    return np.array_equal(a.view(bits), b.view(bits))


def exact_halves(arrays: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Return float32 arrays as float16 if all of their numbers are float16 numbers.

    Published weights often are, and two bytes per number then hold them exactly.

    Args:
        arrays: Arrays by name. If a number of any float32 array is not a float16 number, all of
            them are returned as they are.

    >>> exact_halves({"w": np.array([0.5, -2], np.float32)})["w"].dtype
    dtype('float16')
    """
    halves = {}
    for name, array in arrays.items():
        if array.dtype == np.float32:
            with np.errstate(over="ignore"):
                halves[name] = array.astype(np.float16)
            if not same_bits(halves[name].astype(np.float32), array):
                return dict(arrays)
    return {**arrays, **halves}


def raw_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the bytes of a contiguous array, which share its memory.

    Args:
        array: The array.
    """
    return array.reshape(-1).view(np.uint8).data


def unpack(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a file. Every offset is checked, since anybody may have written it.

    Args:
        data: The bytes of the file.

    Raises:
        ValueError: If they are not a valid file; the message says what is wrong.
    """
    if len(data) < 8 or struct.unpack("<Q", data[:8])[0] > len(data) - 8:
        raise ValueError("the header is cut off")
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = strict_json(data[8:start])
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    found = {name: _checked_entry(name, entry) for name, entry in header.items()}
    end = 0
    for name, (_, _, begin, stop) in sorted(found.items(), key=lambda item: item[1][2:]):
        if begin != end:
            raise ValueError(f"{name} begins at {begin}, expected {end}")
        end = stop
    if end != len(data) - start:
        raise ValueError(
            f"there are {len(data) - start} bytes of arrays, but the header describes {end}"
        )
    return {
        name: np.frombuffer(data, kind, math.prod(shape), start + begin).reshape(shape).copy()
        for name, (kind, shape, begin, _) in found.items()
    }


def strict_json(data: bytes) -> Any:
    """Read JSON as the package `safetensors` does: UTF-8, no NaN, no key twice, no half letters.

    Args:
        data: The text, in UTF-8 without a byte order mark.

    Raises:
        ValueError: If it is anything else.

    >>> strict_json(b'{"a": 1}')
    {'a': 1}
    """
    found = json.loads(
        data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique
    )
    if b"\\u" in data:  # the only way to write half of a surrogate pair
        json.dumps(found, ensure_ascii=False).encode()
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _checked_entry(name: str, entry: Any) -> tuple[np.dtype[Any], list[int], int, int]:
    """Return the type, the shape and the offsets of an array, from its entry in the header."""
    fields = {"dtype", "shape", "data_offsets"}
    if not isinstance(entry, dict) or set(entry) != fields or entry["dtype"] not in TYPES:
        raise ValueError(f"{name} is not an array of a known type")
    kind, shape, offsets = np.dtype(TYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
    for numbers in (shape, offsets):
        if not _are_sizes(numbers):
            raise ValueError(f"{name} has an invalid shape or invalid offsets")
    size = math.prod(shape) * kind.itemsize
    if len(offsets) != 2 or len(shape) > MAX_DIMENSIONS or offsets[1] - offsets[0] != size:
        raise ValueError(f"{name} has offsets that do not fit its shape")
    return kind, shape, offsets[0], offsets[1]


def _are_sizes(numbers: Any) -> bool:
    if not isinstance(numbers, list):
        return False
    return all(type(n) is int and 0 <= n < MAX_INTEGER for n in numbers)
