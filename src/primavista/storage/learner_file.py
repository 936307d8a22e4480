"""The file of a learner or a checkpoint: safetensors with a checked JSON manifest. Never pickle."""

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
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from primavista.errors import CHOOSE_FOLDER, FileError, file_error, file_errors
from primavista.storage.disk import write_atomically

# The one metadata key: the header of a file with several would not have equal bytes each time.
KEY = "primavista"
MAX_HEADER = 16 * 2**20
MAX_FILE = 16 * 2**30
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
    data = encode(arrays, manifest)
    try:
        write_atomically(target, data)
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


def file_stamp(path: Path) -> tuple[int, ...] | None:
    """Return numbers that change if another file takes the place of this one; None without one."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _read_checked(path: Path) -> bytes:
    """Read a file whole, once its header says that it is one of primavista."""
    with open(path, "rb") as file:
        beginning = file.read(8)
        if len(beginning) == 8:
            beginning += file.read(min(struct.unpack("<Q", beginning)[0], MAX_HEADER))
        _header(beginning, str(path))
        try:
            return beginning + file.read()
        except MemoryError as error:
            raise FileError(f"{path} does not fit into memory") from error


def encode(arrays: Arrays, manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file; equal arrays and manifests give equal bytes.

    Args:
        arrays: Arrays by name.
        manifest: A JSON object.

    Raises:
        FileError: If the manifest is too long to be read again.
    """
    text = _canonical({"manifest": dict(manifest), "sha256": digest(arrays, manifest)})
    if len(text) > MAX_HEADER // 2:
        raise FileError(f"the manifest has {len(text)} characters, too many to be read again")
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save_safetensors(contiguous, {KEY: text})


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
        arrays = load_safetensors(data)
        digested = digest(arrays, header["manifest"])
    except (SafetensorError, ValueError, KeyError, RecursionError) as error:
        raise FileError(f"{name} is damaged ({error}): restore it from a copy") from error
    if digested != header["sha256"]:
        raise FileError(
            f"{name} is damaged or was altered: its contents do not match its checksum. Restore it "
            "from a copy"
        )
    return arrays, header["manifest"]


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
        array = arrays[name]
        sha.update(_canonical([name, str(array.dtype), list(array.shape)]).encode())
        sha.update(array.reshape(-1).view(np.uint8).data)
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
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        if not all(isinstance(text, str) for text in metadata.values()):
            raise _foreign(name)
        header = json.loads(metadata[KEY])
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
