"""Numpy arrays inside the official pickles, built by hand from checked arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_ITEMS = 256_000_000  # the pixels of CIFAR-100 are 153,600,000
MAX_DIMENSIONS = 8
_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
ALLOWED = {
    *((module, name) for module in _MULTIARRAY for name in ("_reconstruct", "scalar")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


@dataclass(frozen=True)
class PickledName:
    """A name in a pickle, never the thing that it names.

    Args:
        module: The module that the pickle gives.
        name: The name in that module.
    """

    module: str
    name: str


class PickledType:
    """The type of the items of an array: integers, truth values or strings.

    Args:
        code: Numpy's code of the type, such as "i8".
    """

    def __init__(self, code: Any) -> None:
        self.dtype = np.dtype(_text(code))
        if self.dtype.kind not in "iubSU":
            raise ValueError(f"it holds an array of {self.dtype}, not of integers or strings")

    def set_byte_order(self, state: Any) -> None:
        """Set the byte order.

        Args:
            state: The pickled state; every part but the byte order must be that of a plain type.

        Raises:
            ValueError: If it is something else.
        """
        is_state = isinstance(state, tuple) and len(state) >= 5
        if not is_state or any(part is not None for part in state[2:5]):
            raise ValueError("it holds an array of structures")
        order = _text(state[1])
        if order not in ("<", ">", "|", "="):
            raise ValueError("it holds an array of unknown byte order")
        if order in "<>":
            self.dtype = np.dtype(order + self.dtype.str[1:])


def call_allowed(function: Any, arguments: Any) -> Any:
    """Return what calling one of the allowed names would give.

    Args:
        function: The name that the pickle calls.
        arguments: Its arguments.

    Returns:
        An empty array, a type, a number or bytes.

    Raises:
        ValueError: If the arguments are not those of plain data.
    """
    if not isinstance(function, PickledName) or not isinstance(arguments, tuple):
        raise ValueError("something that is not a function is called")
    if function.name == "_reconstruct":
        if not arguments or arguments[0] != PickledName("numpy", "ndarray"):
            raise ValueError("it holds something that is not a plain array")
        return np.zeros(0, np.int8)
    if function.name == "dtype":
        return PickledType(arguments[0])
    if function.name == "scalar":
        kind, raw = arguments
        if not isinstance(kind, PickledType) or len(_bytes(raw)) != kind.dtype.itemsize:
            raise ValueError("it holds a malformed number")
        return np.frombuffer(_bytes(raw), kind.dtype)[0].item()
    if function.name == "encode":
        return _text(arguments[0]).encode("latin-1")
    raise ValueError(f"{function.module}.{function.name} is called")


def size_of(arguments: Any) -> int:
    """Return the number of bytes that may be made of arguments: the length of each of their texts.

    Args:
        arguments: What `call_allowed` or `fill` is to be given.
    """
    parts = arguments if isinstance(arguments, tuple) else ()
    return sum(len(part) for part in parts if isinstance(part, str | bytes))


def fill(target: Any, state: Any) -> None:
    """Fill an array or a type made by `call_allowed`, in place.

    Args:
        target: The array or type.
        state: Its pickled state.

    Raises:
        ValueError: If the state is not that of a plain array, or its size is wrong.
    """
    if isinstance(target, PickledType):
        target.set_byte_order(state)
        return
    if not isinstance(target, np.ndarray) or not isinstance(state, tuple) or len(state) != 5:
        raise ValueError("something that is not an array is filled")
    _, shape, kind, fortran, raw = state
    if not isinstance(kind, PickledType) or not _is_shape(shape):
        raise ValueError("it holds a malformed array")
    data = _bytes(raw)
    count = math.prod(shape)
    if count > MAX_ITEMS or count * kind.dtype.itemsize != len(data):
        raise ValueError(f"it holds an array of shape {shape} in {len(data)} bytes")
    target.__setstate__((1, shape, kind.dtype, bool(fortran), data))  # type: ignore[arg-type]


def _is_shape(shape: Any) -> bool:
    if not isinstance(shape, tuple) or len(shape) > MAX_DIMENSIONS:
        return False
    return all(type(n) is int and n >= 0 for n in shape)


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
