"""Decoding in child processes, each of which is killed if it exceeds its limits.

`decode` waits for the result; `Decoder.run` does not block an event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import io
import shutil
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import BinaryIO

import numpy as np

from primavista.errors import FileError
from primavista.media.child import receive_header, send_header, start_child
from primavista.media.decoder_child import DecodeAnswer, DecodeJob
from primavista.media.images import ImageArray, TooLargeError

PROCESSES = 2  # of each kind, so that frames of cameras never wait for photographs or videos
SMALL_PIXELS = 2_100_000  # a frame of a camera: 1920 x 1080
SMALL_BYTES = 2**20  # likewise
KINDS = ("small", "large", "video")


class DecoderProcess:
    """A child process that decodes one job at a time; it is started when it is needed.

    Args:
        in_background: True to run with a low priority.
    """

    def __init__(self, in_background: bool = False) -> None:
        self._in_background = in_background
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, job: DecodeJob, file: BinaryIO) -> list[ImageArray]:
        """Decode a picture or a video.

        Args:
            job: The kind and the size of the input, and the limits.
            file: Its bytes, `job.length` of them from the present position.

        Returns:
            The frames.

        Raises:
            TooLargeError: If it cannot be decoded within the limits.
            FileError: If it cannot be decoded at all.
        """
        answer, data = self._answer(job, file)
        shape = (answer.frames, answer.height, answer.width, 3)
        return list(np.frombuffer(bytearray(data), np.uint8).reshape(shape))

    def interrupt(self) -> None:
        """Kill the process, from another thread; the job that it decodes is refused."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """End the process; the next job starts another one."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _answer(self, job: DecodeJob, file: BinaryIO) -> tuple[DecodeAnswer, bytes]:
        """Let the child decode; raise its refusal."""
        child = self._started()
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            child.kill()

        # The child limits its own processor time. In the background, the time by the clock may be
        # much longer.
        seconds = job.seconds * (3 if self._in_background else 1)
        timer = threading.Timer(seconds, expire)
        timer.start()
        try:
            found = _ask(child, job, file)
        finally:
            timer.cancel()
            if child.poll() is not None or expired.is_set():
                self.close()
        if found is None:
            self.close()
            raise _gave_up(job, expired.is_set())
        answer, data = found
        if answer.reason:
            raise TooLargeError(answer.reason) if answer.too_large else FileError(answer.reason)
        return answer, data

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            priority = ["background"] if self._in_background else []
            self._child = start_child("primavista.media.decoder_child", *priority)
        return self._child


class Decoder:
    """Child processes for small pictures, for large ones and for videos.

    Jobs of one kind are done in the order of their arrival. A picture of few bytes counts as small
    at first. If it has many pixels, the child sees that in its first bytes and refuses it, and it
    is decoded as a large one. The calling process itself reads nothing of it.
    """

    def __init__(self) -> None:
        self._pools = {kind: ThreadPoolExecutor(PROCESSES, kind) for kind in KINDS}
        self._own = threading.local()
        self._processes: list[DecoderProcess] = []

    async def run(self, job: DecodeJob, file: BinaryIO) -> list[ImageArray]:
        """Decode a picture or a video without blocking the event loop.

        Args:
            job: The kind and the size of the input, and the limits.
            file: Its bytes.

        Returns:
            The frames.

        Raises:
            TooLargeError: If it cannot be decoded within the limits.
            FileError: If it cannot be decoded at all.
        """
        small = replace(job, pixels=min(job.pixels, SMALL_PIXELS))
        if job.kind == "picture" and job.length <= SMALL_BYTES:
            begin = file.tell()
            try:
                return await asyncio.wrap_future(self._submit("small", small, file))
            except TooLargeError:
                if small.pixels == job.pixels:
                    raise
            file.seek(begin)
        return await asyncio.wrap_future(self.submit(job, file))

    def submit(self, job: DecodeJob, file: BinaryIO) -> Future[list[ImageArray]]:
        """Decode a picture or a video in the background; the result is that of `run`."""
        return self._submit("video" if job.kind == "video" else "large", job, file)

    def interrupt(self) -> None:
        """Refuse the jobs that run now; those that come later are decoded."""
        for process in self._processes:
            process.interrupt()

    def close(self) -> None:
        """End all processes; jobs that run are refused."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.close()

    def _submit(self, kind: str, job: DecodeJob, file: BinaryIO) -> Future[list[ImageArray]]:
        return self._pools[kind].submit(self._run, kind, job, file)

    def _run(self, kind: str, job: DecodeJob, file: BinaryIO) -> list[ImageArray]:
        """Decode in the process of this thread."""
        process = getattr(self._own, "process", None)
        if process is None:
            process = self._own.process = DecoderProcess(in_background=kind != "small")
            self._processes.append(process)
        return process.run(job, file)


@cache
def shared_decoder() -> Decoder:
    """Return the decoder of this process; it ends with the process."""
    decoder = Decoder()
    atexit.register(decoder.close)
    return decoder


def decode(job: DecodeJob, file: BinaryIO | None = None) -> list[ImageArray]:
    """Decode a picture or a video in a child process of this one, and wait for the frames.

    Args:
        job: The kind and the size of the input, and the limits.
        file: Its bytes; None if the job names the path of a file.

    Returns:
        The frames.

    Raises:
        TooLargeError: If it cannot be decoded within the limits.
        FileError: If it cannot be decoded at all.
    """
    return shared_decoder().submit(job, file or io.BytesIO()).result()


def _ask(
    child: subprocess.Popen[bytes], job: DecodeJob, file: BinaryIO
) -> tuple[DecodeAnswer, bytes] | None:
    """Send a job and receive its answer; None if the child ends or answers nonsense."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        send_header(child.stdin, job)
        shutil.copyfileobj(file, child.stdin)
        child.stdin.flush()
    except OSError:  # it has ended
        return None
    fields = receive_header(child.stdout)
    answer = None if fields is None else _checked_answer(fields, job)
    if answer is None:
        return None
    data = child.stdout.read(answer.length)
    return None if len(data) < answer.length else (answer, data)


def _checked_answer(fields: dict[str, object], job: DecodeJob) -> DecodeAnswer | None:
    """Check an answer: a hostile picture may have taken the child over."""
    try:
        answer = DecodeAnswer(**fields)  # type: ignore[arg-type]
    except TypeError:
        return None
    if answer.reason:
        is_refusal = isinstance(answer.reason, str) and isinstance(answer.too_large, bool)
        return answer if is_refusal and answer.length == 0 else None
    return answer if _fits(answer, job) else None


def _fits(answer: DecodeAnswer, job: DecodeJob) -> bool:
    """Return True if the numbers of an answer are whole numbers that the job allows."""
    sides = (answer.width, answer.height)
    limits = [(answer.frames, job.frames if job.kind == "video" else 1)]
    limits += [(side, job.size) for side in sides]
    if not all(type(number) is int and 1 <= number <= most for number, most in limits):
        return False
    if not job.whole and sides != (job.size, job.size):
        return False
    return answer.length == answer.frames * answer.width * answer.height * 3


def _gave_up(job: DecodeJob, expired: bool) -> FileError:
    if expired:
        reason = f"{job.name} takes more than {job.seconds:g} seconds to decode"
        return TooLargeError(f"{reason}: send a shorter or smaller one")
    return FileError(f"{job.name} cannot be decoded: it made the decoder stop")
