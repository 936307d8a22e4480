"""The file of a learner or a checkpoint: safetensors with a checked JSON manifest. Never pickle.

The safetensors format is a JSON header, then the bytes of the arrays. It is written and read in
numpy alone, with the bytes that the package `safetensors` gives: a small device needs nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

import numpy as np

from primavista.errors import CHOOSE_FOLDER, FileError, file_error, file_errors
from primavista.storage.disk import write_atomically

# The one metadata key: the header of a file with several would not have equal bytes each time.
KEY = "primavista"
MAX_HEADER = 16 * 2**20
MAX_FILE = 16 * 2**30
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
TYPE_ORDER = list(TYPES)
TYPE_NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
MAX_DIMENSIONS = 32
MAX_INTEGER = 2**53
Arrays = Mapping[str, np.ndarray[Any, Any]]


def write(path: str | Path, arrays: Arrays, manifest: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all; equal arrays and manifests give equal bytes.

    Args:
        path: The file to create or replace.
        arrays: Arrays by name.
        manifest: A JSON object.

    Raises:
        FileError: If it cannot be written; what was there before is untouched.
    """
    target = Path(path)
    parts = encoded(arrays, manifest)
    try:
        write_atomically(target, *parts)
    except OSError as error:
        if not os.access(target.parent, os.W_OK):
            raise file_error("write in", target.parent, error, CHOOSE_FOLDER) from error
        advice = "What was there before is untouched"
        raise file_error("write", target, error, advice) from error


def read(path: str | Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Read a file that `write` made, and verify its checksum.

    Args:
        path: The file.

    Returns:
        The arrays by name, and the manifest.

    Raises:
        FileError: If the file is missing, damaged or not one of primavista.
    """
    target = Path(path)
    with file_errors("read", target):
        facts = target.stat()
        if S_ISDIR(facts.st_mode):
            raise FileError(f"cannot read {target}: it is a directory")
        if not S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE:
            limit = f"{MAX_FILE >> 30} GiB"
            raise FileError(f"cannot read {target}: it is not an ordinary file of at most {limit}")
        data = _read_checked(target)
    return decode(data, str(target))


def _read_checked(path: Path) -> bytes:
    """Read a file whole, once its header says that it is one of primavista."""
    with open(path, "rb") as file:
        beginning = file.read(8)
        if len(beginning) == 8:
            length = min(struct.unpack("<Q", beginning)[0], MAX_HEADER + 1)
            beginning += file.read(length)
            if length <= MAX_HEADER and len(beginning) == 8 + length:
                _header(beginning, str(path))
            elif length > MAX_HEADER:
                raise _foreign(str(path))
        try:
            return beginning + file.read()
        except MemoryError as error:
            raise FileError(f"{path} does not fit into memory") from error


def encode(arrays: Arrays, manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file.

    Args:
        arrays: Arrays by name.
        manifest: A JSON object.
    """
    return b"".join(encoded(arrays, manifest))


def encoded(arrays: Arrays, manifest: Mapping[str, Any]) -> list[bytes | memoryview]:
    """Return the bytes of a file as consecutive parts; the arrays are not copied.

    Args:
        arrays: Arrays by name.
        manifest: A JSON object.

    Raises:
        FileError: If the manifest is too long to be read again.
    """
    ordered = {name: np.asarray(arrays[name], order="C") for name in sorted(arrays)}
    header = {"manifest": dict(manifest), "sha256": digest(ordered, manifest)}
    text = _canonical(header)
    if len(text) > MAX_HEADER // 2:
        raise FileError(f"the manifest has {len(text)} characters, too many to be read again")
    return packed_parts(ordered, {KEY: text})


def decode(data: bytes, name: str) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Return the arrays and the manifest of a file, after verifying its checksum.

    Args:
        data: The bytes of the file.
        name: What messages call the file.

    Raises:
        FileError: If the file is damaged or not one of primavista.
    """
    header = _header(data, name)
    try:
        arrays = unpack(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise FileError(f"{name} is damaged ({error}): restore it from a copy") from error
    manifest = header["manifest"]
    if digest(arrays, manifest) != header["sha256"]:
        raise FileError(
            f"{name} is damaged or was altered: its contents do not match its checksum. Restore it "
            "from a copy"
        )
    return arrays, manifest


def declared_manifest(data: bytes, name: str) -> dict[str, Any]:
    """Return the manifest of a file without looking at its arrays, and without its checksum.

    It is for refusing a file early, by what it declares.

    Args:
        data: The bytes of the file.
        name: What messages call the file.

    Raises:
        FileError: If the file is damaged or not one of primavista.
    """
    manifest: dict[str, Any] = _header(data, name)["manifest"]
    return manifest


def digest(arrays: Arrays, manifest: Mapping[str, Any]) -> str:
    """Return SHA-256 over the manifest and over the name, type, shape and bytes of each array.

    Args:
        arrays: Arrays by name.
        manifest: A JSON object.
    """
    sha = hashlib.sha256(_canonical(manifest).encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        sha.update(_canonical([name, str(array.dtype), list(array.shape)]).encode())
        sha.update(raw_bytes(array))
    return sha.hexdigest()


def _header(data: bytes, name: str) -> dict[str, Any]:
    if not data:
        raise _foreign(name)
    if len(data) < 8:
        size = f"{len(data)} bytes"
        raise FileError(f"{name} has only {size}: it was cut off. Restore it from a copy")
    (length,) = struct.unpack("<Q", data[:8])
    if length > MAX_HEADER:
        raise _foreign(name)
    if length > len(data) - 8:
        raise FileError(f"{name} was cut off, or is not a primavista file. Restore it from a copy")
    try:
        metadata = strict_json(data[8 : 8 + length])["__metadata__"]
        if not all(isinstance(text, str) for text in metadata.values()):
            raise _foreign(name)
        header = strict_json(metadata[KEY].encode())
        if not isinstance(header["manifest"], dict) or not isinstance(header["sha256"], str):
            raise _foreign(name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _foreign(name) from error
    return header  # type: ignore[no-any-return]


def _foreign(name: str) -> FileError:
    return FileError(f"{name} is not a primavista file. Files are made by Learner.save")


def _canonical(value: Any) -> str:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


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
        name: TYPE_NAMES[np.asarray(array).dtype.newbyteorder("<")]
        for name, array in arrays.items()
    }
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts, end = [], 0
    for name in sorted(arrays, key=lambda name: (TYPE_ORDER.index(kinds[name]), name)):
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
    """Return True if two arrays are equal to the last bit: NaN equals itself, and 0 is not -0.

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
