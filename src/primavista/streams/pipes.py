"""Messages between this process and a child that decodes: a header in JSON, then bytes."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_HEADER = 65536  # bytes
_LENGTH = struct.Struct("!I")


def send_header(pipe: IO[bytes], header: DataclassInstance) -> None:
    """Write a header to a pipe.

    Args:
        pipe: The pipe; the bytes that belong to the header are written by the caller.
        header: A dataclass whose fields JSON can hold, such as the job or the answer.
    """
    data = json.dumps(asdict(header)).encode()
    pipe.write(_LENGTH.pack(len(data)) + data)


def receive_header(pipe: IO[bytes]) -> dict[str, object] | None:
    """Read a header from a pipe.

    Args:
        pipe: The pipe.

    Returns:
        Its fields, or None if the pipe has ended or what comes is not a header.
    """
    prefix = pipe.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(prefix)[0]
    if length > MAX_HEADER:
        return None
    try:
        fields = json.loads(pipe.read(length))
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None
