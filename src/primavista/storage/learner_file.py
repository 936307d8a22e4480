"""One kind of file for everything that is kept: safetensors with a checked JSON manifest. Never pickle."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

import numpy as np

# relative: the distribution for the edge has this module too, under its own name
from ..errors import CHOOSE_FOLDER, FileError, file_error
from .atomic import write_atomically
from .tensors import pieces, raw, unpack

KEY = "primavista"  # the one metadata key: the header of a file with several would not have equal bytes each time
GRAPH = "onnx/graph"  # an ONNX model of the learner, as bytes, in files for the edge
MAX_HEADER = 16 * 2**20
MAX_FILE = 16 * 2**30
Arrays = Mapping[str, np.ndarray[Any, Any]]


def write(path: str | Path, arrays: Arrays, manifest: Mapping[str, Any]) -> None:
    """Write the whole file or nothing: to a temporary one beside it, synced, then renamed over it.

    Equal arrays and manifests give equal bytes.
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
    """Arrays and manifest of a file that `write` made, checked to the last bit."""
    target = Path(path)
    try:
        facts = target.stat()
        data = target.read_bytes() if S_ISREG(facts.st_mode) and facts.st_size <= MAX_FILE else None
    except OSError as error:
        raise FileError(f"cannot read {target}: {error.strerror or error}") from error
    if data is None:
        what = (
            "a directory"
            if S_ISDIR(facts.st_mode)
            else f"no ordinary file of at most {MAX_FILE >> 30} GiB"
        )
        raise FileError(f"cannot read {target}: it is {what}")
    return decode(data, str(target))


def encode(arrays: Arrays, manifest: Mapping[str, Any]) -> bytes:
    """The bytes of a file."""
    return b"".join(encoded(arrays, manifest))


def encoded(arrays: Arrays, manifest: Mapping[str, Any]) -> list[bytes | memoryview]:
    """The bytes of a file, one piece after the other; the arrays are not copied."""
    ordered = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
    header = {"manifest": dict(manifest), "sha256": digest(ordered, manifest)}
    text = _canonical(header)
    if len(text) > MAX_HEADER // 2:
        raise FileError(f"the manifest has {len(text)} characters, too many to be read again")
    return pieces(ordered, {KEY: text})


def decode(data: bytes, name: str) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Arrays and manifest from the bytes of a file; `name` is for the messages."""
    header = _header(data, name)
    try:
        arrays = unpack(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise FileError(f"{name} is damaged ({error}): restore it from a copy") from error
    manifest = header["manifest"]
    if digest(arrays, manifest) != header["sha256"]:
        raise FileError(
            f"{name} is damaged or was altered: its contents do not match its checksum. Restore it from a copy"
        )
    return arrays, manifest


def digest(arrays: Arrays, manifest: Mapping[str, Any]) -> str:
    """sha256 over the canonical manifest and every array: name, type, shape, bytes."""
    sha = hashlib.sha256(_canonical(manifest).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(_canonical([name, str(array.dtype), list(array.shape)]).encode())
        sha.update(raw(array))
    return sha.hexdigest()


def _header(data: bytes, name: str) -> dict[str, Any]:
    if len(data) < 8:
        cut = FileError(
            f"{name} has only {len(data)} bytes: it was cut off. Restore it from a copy"
        )
        raise cut if data else _foreign(name)
    (length,) = struct.unpack("<Q", data[:8])
    if length > MAX_HEADER:
        raise _foreign(name)
    if length > len(data) - 8:
        raise FileError(f"{name} was cut off, or is not a primavista file. Restore it from a copy")
    try:
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][KEY])
        if not isinstance(header["manifest"], dict) or not isinstance(header["sha256"], str):
            raise _foreign(name)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _foreign(name) from error
    return header  # type: ignore[no-any-return]


def _foreign(name: str) -> FileError:
    return FileError(f"{name} is not a primavista file. Files are made by Learner.save")


def _canonical(value: Any) -> str:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
