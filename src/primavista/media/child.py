"""Child processes that decode: how they are started, their limits, and the messages to and from
them.

Decoders run much code on bytes that may be hostile. A child has neither the model nor the
connections of clients, and its memory is limited. Messages go through its standard input and
output: a header in JSON, then bytes. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_HEADER = 65536  # bytes
_LENGTH = struct.Struct("!I")


def start_child(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a module of this package as a child process with pipes to and from it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def open_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes of a child, from and to its parent, to which nothing else may write."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the child
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a decoder prints must not get between the answers
    return sys.stdin.buffer, answers


def limit_memory(most: int) -> None:
    """Let this process take that many bytes beyond those that it has; Linux only."""
    try:
        import resource

        with open("/proc/self/statm") as statm:
            private = int(statm.read().split()[5]) * resource.getpagesize()
    except (ImportError, OSError):  # not Linux
        return
    # RLIMIT_AS would also count memory that is only reserved, such as 64 MiB per thread.
    resource.setrlimit(resource.RLIMIT_DATA, (private + most, resource.RLIM_INFINITY))


def limit_processor_time(seconds: float) -> None:
    """Let this process compute for that many more seconds; not on Windows."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def send_header(pipe: IO[bytes], header: DataclassInstance) -> None:
    """Write a dataclass to a pipe; the bytes that belong to it are written by the caller."""
    data = json.dumps(asdict(header)).encode()
    pipe.write(_LENGTH.pack(len(data)) + data)


def receive_header(pipe: IO[bytes]) -> dict[str, object] | None:
    """Read a header from a pipe; None if the pipe has ended or what comes is not a header."""
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
