"""Numpy arrays inside the official pickles: what their few names do, done by hand on checked arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_ITEMS = 64_000_000
_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
ALLOWED = {
    *((module, name) for module in _MULTIARRAY for name in ("_reconstruct", "scalar")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


@dataclass(frozen=True)
class Name:
    """A name in a pickle: never the thing that it names."""

    module: str
    name: str


class Kind:
    """A type of array items: integers, truth values or strings."""

    def __init__(self, code: Any) -> None:
        self.dtype = np.dtype(_text(code))
        if self.dtype.kind not in "iubSU":
            raise ValueError(f"it holds an array of {self.dtype}, not of integers or strings")

    def turn(self, state: Any) -> None:
        """Take the byte order from a pickled state; every other part must be that of a plain type."""
        if (
            not isinstance(state, tuple)
            or len(state) < 5
            or any(part is not None for part in state[2:5])
        ):
            raise ValueError("it holds an array of structures")
        order = _text(state[1])
        if order not in ("<", ">", "|", "="):
            raise ValueError("it holds an array of unknown byte order")
        if order in "<>":
            self.dtype = np.dtype(order + self.dtype.str[1:])


def reduce(function: Any, arguments: Any) -> Any:
    """What calling one of the allowed names would give."""
    if not isinstance(function, Name) or not isinstance(arguments, tuple):
        raise ValueError("something that is no function is called")
    if function.name == "_reconstruct":
        if not arguments or arguments[0] != Name("numpy", "ndarray"):
            raise ValueError("it holds something that is no plain array")
        return np.zeros(0, np.int8)
    if function.name == "dtype":
        return Kind(arguments[0])
    if function.name == "scalar":
        kind, raw = arguments
        if not isinstance(kind, Kind) or len(_bytes(raw)) != kind.dtype.itemsize:
            raise ValueError("it holds a malformed number")
        return np.frombuffer(_bytes(raw), kind.dtype)[0].item()
    if function.name == "encode":
        return _text(arguments[0]).encode("latin-1")
    raise ValueError(f"{function.module}.{function.name} is called")


def size_of(arguments: Any) -> int:
    """Bytes that `reduce` or `build` may make of these arguments at most: each of their texts, once."""
    parts = arguments if isinstance(arguments, tuple) else ()
    return sum(len(part) for part in parts if isinstance(part, str | bytes))


def build(target: Any, state: Any) -> None:
    """Fill an array or a type made by `reduce`, in place, from its pickled state."""
    if isinstance(target, Kind):
        target.turn(state)
        return
    if not isinstance(target, np.ndarray) or not isinstance(state, tuple) or len(state) != 5:
        raise ValueError("something that is no array is filled")
    _, shape, kind, fortran, raw = state
    if (
        not isinstance(kind, Kind)
        or not isinstance(shape, tuple)
        or len(shape) > 8
        or any(type(n) is not int for n in shape)
    ):
        raise ValueError("it holds a malformed array")
    data = _bytes(raw)
    if (
        min(shape, default=0) < 0
        or math.prod(shape) > MAX_ITEMS
        or math.prod(shape) * kind.dtype.itemsize != len(data)
    ):
        raise ValueError(f"it holds an array of shape {shape} in {len(data)} bytes")
    target.__setstate__((1, shape, kind.dtype, bool(fortran), data))  # type: ignore[arg-type]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise ValueError("a text is missing")
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("latin-1")
    if not isinstance(value, bytes):
        raise ValueError("the bytes of an array are missing")
    return value
