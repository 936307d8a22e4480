"""Writes pickles as Python 2 did, with which the official files of CIFAR-100 were made."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np


def dumps(value: Any) -> bytes:
    """Protocol 2 of Python 2: texts are byte strings, and so are the bytes of an array."""
    return b"\x80\x02" + _item(value) + b"."


def _item(value: Any) -> bytes:
    if isinstance(value, str):
        text = value.encode("latin-1")
        return b"U" + bytes([len(text)]) + text
    if isinstance(value, int):
        return b"K" + bytes([value])
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, Mapping):
        pairs = b"".join(_item(key) + _item(value[key]) for key in value)
        return b"}(" + pairs + b"u"
    return b"](" + b"".join(map(_item, value)) + b"e"


def _array(array: np.ndarray[Any, Any]) -> bytes:
    minus_one = b"J\xff\xff\xff\xff"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + 2 * minus_one + b"K\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    shape = b"".join(b"M" + struct.pack("<H", n) for n in array.shape)
    data = array.tobytes()
    raw = b"T" + struct.pack("<i", len(data)) + data
    return empty + b"(K\x01(" + shape + b"t" + kind + b"\x89" + raw + b"tb"
