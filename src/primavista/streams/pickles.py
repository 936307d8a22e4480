"""Reads the official pickles without running them: a machine for the opcodes of plain data alone.

The standard unpickler calls what a file tells it to call, and even restricted it takes as much
memory as a file of a few bytes asks for. This one calls nothing, counts what it makes, and builds
lists, tuples, dicts, integers, strings and numpy arrays of integers or strings. Everything else is
refused by name.
"""

from __future__ import annotations

import ast
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from primavista.errors import FileError, file_errors
from primavista.streams.pickled_arrays import (
    ALLOWED,
    PickledName,
    call_allowed,
    fill,
    size_of,
)

MAX_BYTES = 256 * 2**20
MAX_OBJECTS = 4_000_000  # other than integers in runs; paths.pkl holds 164,866 strings
MAX_INTEGERS = 64_000_000  # LUP.pkl holds about 10 million
# Bytes of arrays and strings that are made from others: a memo can name one a million times.
MAX_MADE = 512 * 2**20
MAX_DIGITS = 20
MAX_LINE = 1 << 16
_RUN = re.compile(rb"(?:K.|M..|J....){2,65536}", re.DOTALL)
_SHARED = list(range(1 << 18))  # so that an index costs 8 bytes however often it occurs
_MARK = object()
_DAMAGE = (
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    SyntaxError,
    OverflowError,
    RecursionError,
    MemoryError,
    SystemError,  # numpy's, over strings of an impossible length
)


def read_pickle(path: str | Path) -> Any:
    """Read a pickle of plain data.

    Args:
        path: The file.

    Returns:
        Lists, tuples, dicts, integers, strings and numpy arrays of integers or strings.

    Raises:
        FileError: If it cannot be read, or holds anything else. The message names what was refused.
    """
    target = Path(path)
    with file_errors("read", target):
        size = target.stat().st_size
        if size > MAX_BYTES:
            raise FileError(
                f"{target} has {size:,} bytes, over the limit of {MAX_BYTES:,} for a pickle: "
                "it is not an official file of a data set"
            )
        data = target.read_bytes()
    return loads(data, str(target))


def loads(data: bytes, name: str = "the pickle") -> Any:
    """Read a pickle of plain data from bytes.

    Args:
        data: The pickle.
        name: Its name, for messages.

    Returns:
        What `read_pickle` returns.

    Raises:
        FileError: As `read_pickle` does.

    >>> import pickle
    >>> loads(pickle.dumps({"ni": [(1, "s1/o1/C_01_01_000.png")]}))
    {'ni': [(1, 's1/o1/C_01_01_000.png')]}
    """
    try:
        return _Machine(data, name).run()
    except _DAMAGE as error:
        raise FileError(
            f"{name} is damaged or not a pickle of plain data ({error}): download it again"
        ) from error


class _Machine:
    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name, self.at = data, name, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.objects = self.integers = self.made = 0

    def run(self) -> Any:
        data, stack = self.data, self.stack
        while True:
            if run := _RUN.match(data, self.at):
                self.at = run.end()
                stack.extend(self._run(run[0]))
                continue
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return stack.pop()
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise self._refused(f"the opcode {_opcode(code)}")
            self.objects += 1
            if self.objects > MAX_OBJECTS:
                raise self._refused(f"more than {MAX_OBJECTS:,} objects")
            operation(self)

    def _run(self, run: bytes) -> list[int]:
        """A run of integer opcodes; most are of one kind, and that is done at once."""
        width = {b"K": 2, b"M": 3, b"J": 5}[run[:1]]
        if len(run) % width == 0 and run[::width] == run[:1] * (len(run) // width):
            kind = {2: "u1", 3: "<u2", 5: "<i4"}[width]
            values = np.frombuffer(run, [("code", "u1"), ("value", kind)])["value"].tolist()
        else:
            values, at = [], 0
            while at < len(run):
                width = {75: 2, 77: 3, 74: 5}[run[at]]
                values.append(int.from_bytes(run[at + 1 : at + width], "little", signed=width == 5))
                at += width
        self.integers += len(values)
        if self.integers > MAX_INTEGERS:
            raise self._refused(f"more than {MAX_INTEGERS:,} integers")
        return [_SHARED[value] if 0 <= value < 1 << 18 else value for value in values]

    def _refused(self, what: str) -> FileError:
        return FileError(
            f"refused to read {self.name}: it holds {what}. The pickles of CORe50 and CIFAR-100 "
            "hold only lists, tuples, dicts, integers, strings and numpy arrays of them; "
            "delete this file and download it again"
        )

    def make(self, count: int) -> None:
        """Count bytes that are about to be made, and refuse too many of them."""
        self.made += count
        if self.made > MAX_MADE:
            raise self._refused(f"more than {MAX_MADE:,} bytes of arrays")

    def take(self, count: int) -> bytes:
        """Read the next `count` bytes."""
        chunk = self.data[self.at : self.at + count]
        if len(chunk) < count:
            raise ValueError("it was cut off")
        self.at += count
        return chunk

    def number(self, count: int) -> int:
        """Read the next `count` bytes as an unsigned integer."""
        return int.from_bytes(self.take(count), "little")

    def line(self) -> str:
        """Read the text up to the end of the line."""
        end = self.data.index(b"\n", self.at)
        if end - self.at > MAX_LINE:
            raise self._refused(f"a line of {end - self.at:,} bytes")
        return self.take(end + 1 - self.at)[:-1].decode("latin-1")

    def marked(self) -> list[Any]:
        """Pop everything above the last mark, and the mark."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("a mark is missing")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self) -> Any:
        """Take a value off the stack."""
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark is out of place")
        return value

    def name_of(self, module: Any, name: Any) -> PickledName:
        """Check that a file may use a name."""
        if (module, name) not in ALLOWED:
            raise self._refused(
                f"the name {str(module)[:80]}.{str(name)[:80]}, which no data needs"
            )
        return PickledName(module, name)

    def integer(self, text: str) -> int:
        """Parse an integer in digits; 00 and 01 are the truth values of protocol 0."""
        if len(text) > MAX_DIGITS:
            raise self._refused(f"an integer of {len(text):,} digits")
        return int(text)

    def long(self, count: int) -> int:
        """Read a signed integer of `count` bytes."""
        if count > 8:
            raise self._refused(f"an integer of {count:,} bytes")
        return int.from_bytes(self.take(count), "little", signed=True)


def _opcode(code: int) -> str:
    known = pickletools.code2op.get(chr(code))  # type: ignore[attr-defined]
    return str(known.name) if known else f"0x{code:02x}"


def _extend(m: _Machine, items: list[Any]) -> None:
    target = m.stack[-1]
    if type(target) is not list:
        raise ValueError("items are added to something that is not a list")
    target.extend(items)


def _update(m: _Machine, items: list[Any]) -> None:
    target = m.stack[-1]
    if type(target) is not dict or len(items) % 2:
        raise ValueError("pairs are added to something that is not a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) not in (int, str, bytes):
            raise ValueError("a key is neither an integer nor a string")
        target[key] = value


def _tuple(count: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(tuple(reversed([m.pop() for _ in range(count)])))


def _dict(m: _Machine) -> None:
    items = m.marked()
    m.push({})
    _update(m, items)


def _pair(m: _Machine) -> None:
    value, key = m.pop(), m.pop()
    _update(m, [key, value])


def _append(m: _Machine) -> None:
    item = m.pop()
    _extend(m, [item])


def _reduce(m: _Machine) -> None:
    arguments, function = m.pop(), m.pop()
    m.make(size_of(arguments))
    m.push(call_allowed(function, arguments))


def _build(m: _Machine) -> None:
    state = m.pop()
    m.make(size_of(state))
    fill(m.stack[-1], state)


def _stack_global(m: _Machine) -> None:
    name, module = m.pop(), m.pop()
    m.push(m.name_of(module, name))


def _text(width: int, encoding: str) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(width)).decode(encoding))


def _bytes(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(m.take(m.number(width)))


def _put(m: _Machine, key: int) -> None:
    m.memo[key] = m.stack[-1]


# Python 2 wrote strings as bytes: latin-1 keeps each.
_OPERATIONS: dict[int, Callable[[_Machine], None]] = {
    ord(code): operation
    for code, operation in {
        "\x80": lambda m: m.take(1) and None,
        "\x95": lambda m: m.take(8) and None,
        "(": lambda m: m.push(_MARK),
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "K": lambda m: m.push(m.number(1)),
        "M": lambda m: m.push(m.number(2)),
        "J": lambda m: m.push(m.long(4)),
        "I": lambda m: m.push(m.integer(m.line())),
        "L": lambda m: m.push(m.integer(m.line().rstrip("L"))),
        "\x8a": lambda m: m.push(m.long(m.number(1))),
        "\x8b": lambda m: m.push(m.long(m.number(4))),
        "U": _text(1, "latin-1"),
        "T": _text(4, "latin-1"),
        "X": _text(4, "utf-8"),
        "\x8c": _text(1, "utf-8"),
        "\x8d": _text(8, "utf-8"),
        "C": _bytes(1),
        "B": _bytes(4),
        "\x8e": _bytes(8),
        "S": lambda m: m.push(ast.literal_eval("b" + m.line()).decode("latin-1")),
        "V": lambda m: m.push(m.line().encode("latin-1").decode("raw-unicode-escape")),
        "]": lambda m: m.push([]),
        ")": lambda m: m.push(()),
        "}": lambda m: m.push({}),
        "l": lambda m: m.push(m.marked()),
        "t": lambda m: m.push(tuple(m.marked())),
        "d": _dict,
        "\x85": _tuple(1),
        "\x86": _tuple(2),
        "\x87": _tuple(3),
        "a": _append,
        "s": _pair,
        "e": lambda m: _extend(m, m.marked()),
        "u": lambda m: _update(m, m.marked()),
        "p": lambda m: _put(m, m.integer(m.line())),
        "q": lambda m: _put(m, m.number(1)),
        "r": lambda m: _put(m, m.number(4)),
        "\x94": lambda m: _put(m, len(m.memo)),
        "g": lambda m: m.push(m.memo[m.integer(m.line())]),
        "h": lambda m: m.push(m.memo[m.number(1)]),
        "j": lambda m: m.push(m.memo[m.number(4)]),
        "c": lambda m: m.push(m.name_of(m.line(), m.line())),
        "\x93": _stack_global,
        "R": _reduce,
        "b": _build,
    }.items()
}
