"""Child processes that decode: how they are started, their limits, and the messages to and from
them.

Decoders run much code on bytes that may be hostile. A child has neither the model nor the
connections of clients, and its memory is limited. Messages go through its standard input and
output. A job is a header, which is one line of JSON, then the bytes of its input, if it has any.
The answer is a header and the bytes of each frame, one after the other, and a header without a
frame at the end. Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np

from primavista.errors import FileError
from primavista.media.images import ImageArray, TooLargeError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_HEADER = 65536  # bytes
NO_NEW_PRIVILEGES = 38  # PR_SET_NO_NEW_PRIVS of <linux/prctl.h>
# the part of the environment that a child sees: it may hold tokens and passwords
_NEEDED = re.compile(
    r"PATH|HOME|LANG|TZ|SYSTEMROOT|TE?MP|TMPDIR|(PYTHON|LD_|DYLD_|LC_|SSL_CERT_|COVERAGE_)\w*"
    r"|(https?|all|no)_proxy",
    re.IGNORECASE,
)
MAX_REASON = 5000  # characters of what a child says


@dataclass(frozen=True)
class FrameHeader:
    """One frame, whose bytes follow, or a message without a frame, or the end of the answer.

    Attributes:
        width: The width of the frame in pixels; 0 without a frame.
        height: Its height.
        reason: Why there is no frame, or why there are no more; empty if all of them came.
        too_large: True if the input exceeds a limit, False if it is damaged.
        more: True if more follows.
        seconds: The time of the frame, from the start of a video.
        rate: The frames per second of a video, if these were asked for.
        count: The number of its frames, likewise.
    """

    width: int = 0
    height: int = 0
    reason: str = ""
    too_large: bool = False
    more: bool = False
    seconds: float = 0.0
    rate: float = 0.0
    count: int = 0


FIELD_TYPES = [type(one.default) for one in fields(FrameHeader)]
# what a child makes: a frame, a frame with its time, or a header without a frame
Answer: TypeAlias = ImageArray | tuple[float, ImageArray] | FrameHeader


class StoppedError(FileError):
    """Raised if a child ended in the middle of its answer, or answered nonsense."""

    def __init__(self) -> None:
        super().__init__("it made the decoder stop")


class Child:
    """A module of this package in a process of its own, which makes frames.

    Args:
        module: The name of the module, which calls `answer_jobs`.
        arguments: Those of its command line. Other users of the machine can see them.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"primavista.media.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if _NEEDED.fullmatch(name)},
        )

    def send(self, job: DataclassInstance, file: BinaryIO | None = None) -> None:
        """Send a job. If the child has ended, `frames` says so.

        Args:
            job: The job.
            file: The bytes that follow it, from the present position.
        """
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            _send_header(self.process.stdin, job)
            if file is not None:
                shutil.copyfileobj(file, self.process.stdin)
            self.process.stdin.flush()

    def frames(
        self, is_possible: Callable[[int, int], bool], most: float = math.inf
    ) -> Iterator[ImageArray]:
        """Receive the frames of a job as they come; see `answers`."""
        for _, image in self.answers(is_possible, most):
            if image is not None:
                yield image

    def answers(
        self, is_possible: Callable[[int, int], bool], most: float = math.inf
    ) -> Iterator[tuple[FrameHeader, ImageArray | None]]:
        """Receive the answers to a job as they come, and check them.

        What the child decodes may have taken it over, so nothing that it says is trusted.

        Args:
            is_possible: Whether a frame may have this width and height.
            most: The largest number of frames.

        Yields:
            A header, and its frame, if it has one: uint8, H x W x 3.

        Raises:
            TooLargeError: If the input exceeds a limit.
            FileError: If it cannot be decoded, with the reason that the child gives.
            StoppedError: If the child ends, or if its answer is not possible.
        """
        pipe = self.process.stdout
        assert pipe is not None
        count = 0
        while (header := _frame_header(pipe)).more:
            if not header.width:
                yield replace(header, reason=_printable(header.reason)), None
                continue
            count += 1
            width, height = header.width, header.height
            possible = count <= most and min(width, height) > 0 and is_possible(width, height)
            data = pipe.read(height * width * 3) if possible else b""
            if not possible or len(data) < height * width * 3:
                raise StoppedError
            yield header, np.frombuffer(bytearray(data), np.uint8).reshape(height, width, 3)
        if header.reason:
            reason = _printable(header.reason)
            raise TooLargeError(reason) if header.too_large else FileError(reason)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def answer_jobs(
    job_type: Callable[..., Any], make: Callable[..., Iterable[Answer]], processes: bool = True
) -> None:
    """Answer the jobs on standard input until it ends: the whole life of a child.

    Args:
        job_type: The dataclass of a job.
        make: Called with a job and the pipe with the bytes that follow it; makes the answers:
            frames, frames with their times, or headers without a frame.
        processes: Whether decoding may start threads and processes.
    """
    jobs, answers = _open_pipes()
    forbid_files(processes)
    try:
        while (job := _receive_header(jobs)) is not None:
            _answer(answers, make(job_type(**job), jobs))
    except BrokenPipeError:  # the parent has gone
        os._exit(0)


def _answer(pipe: BinaryIO, made: Iterable[Answer]) -> None:
    end = FrameHeader()
    try:
        for one in made:
            if isinstance(one, FrameHeader):
                _send_header(pipe, one)
            else:
                seconds, frame = one if isinstance(one, tuple) else (0.0, one)
                height, width, _ = frame.shape
                _send_header(pipe, FrameHeader(width, height, more=True, seconds=seconds))
                pipe.write(frame.tobytes())
            pipe.flush()
    except BrokenPipeError:
        raise
    except FileError as error:
        end = FrameHeader(reason=str(error), too_large=isinstance(error, TooLargeError))
    except MemoryError:
        reason = "it takes more memory to decode than is allowed: make it smaller"
        end = FrameHeader(reason=reason, too_large=True)
    _send_header(pipe, end)
    pipe.flush()


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


def forbid_files(processes: bool = True) -> None:
    """Let this process write to no file, and gain no rights; Linux and macOS.

    Args:
        processes: Whether it may start threads and processes.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        if not processes:
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def limit_processor_time(seconds: float) -> None:
    """Let this process compute for that many more seconds; not on Windows."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def _open_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes of a child, from and to its parent, to which nothing else may write."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends the child
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a decoder prints must not get between the answers
    return sys.stdin.buffer, answers


def _send_header(pipe: IO[bytes], header: DataclassInstance) -> None:
    pipe.write(json.dumps(asdict(header)).encode() + b"\n")


def _receive_header(pipe: IO[bytes]) -> dict[str, Any] | None:
    """Read a header from a pipe; None if the pipe has ended or what comes is not a header."""
    try:
        fields = json.loads(pipe.readline(MAX_HEADER))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _frame_header(pipe: IO[bytes]) -> FrameHeader:
    try:
        header = FrameHeader(**(_receive_header(pipe) or {"no header": ""}))
    except TypeError as error:
        raise StoppedError from error
    are_right = [type(value) for value in astuple(header)] == FIELD_TYPES
    if not are_right or not math.isfinite(header.seconds + header.rate):
        raise StoppedError
    if header.width and not header.more:
        raise StoppedError
    return header


def _printable(reason: str) -> str:
    return "".join(c for c in reason[:MAX_REASON] if c.isprintable())
