"""Decoding in child processes, each of which is killed if it exceeds its limits."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import BinaryIO

import numpy as np

from primavista.media.decoder_child import DecodeAnswer, DecodeJob
from primavista.media.images import ImageArray
from primavista.media.pipes import receive_header, send_header
from primavista.serve.limits import RefusedError

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
            RefusedError: If it cannot be decoded (422), or not within the limits (413).
        """
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
            answer = self._ask(child, job, file)
        finally:
            timer.cancel()
            if child.poll() is not None or expired.is_set():
                self.close()
        if answer is None:
            self.close()
            raise _gave_up(job, expired.is_set())
        return answer

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

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "primavista.media.decoder_child"),
                    *(["background"] if self._in_background else []),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        return self._child

    def _ask(
        self, child: subprocess.Popen[bytes], job: DecodeJob, file: BinaryIO
    ) -> list[ImageArray] | None:
        """Send a job and receive its frames; None if the child ends or answers nonsense."""
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            send_header(child.stdin, job)
            shutil.copyfileobj(file, child.stdin)
            child.stdin.flush()
        except OSError:  # it has ended
            return None
        fields = receive_header(child.stdout)
        if fields is None:
            return None
        answer = _checked_answer(fields, job)
        if answer is None:
            return None
        if answer.status != 200:
            raise RefusedError(answer.status, answer.reason)
        sides = (answer.height, answer.width) if job.whole else (job.size, job.size)
        shape = (answer.frames, *sides, 3)
        data = child.stdout.read(int(np.prod(shape)))
        if len(data) < int(np.prod(shape)):
            return None
        return list(np.frombuffer(bytearray(data), np.uint8).reshape(shape))


class Decoder:
    """Child processes for small pictures, for large ones and for videos.

    Jobs of one kind are done in the order of their arrival. A picture of few bytes counts as small
    at first. If it has many pixels, the child sees that in its first bytes and refuses it, and it
    is decoded as a large one. The service itself reads nothing of it.
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
            RefusedError: If it cannot be decoded (422), or not within the limits (413).
        """
        if job.kind == "video":
            return await self._run_in("video", job, file)
        if job.length > SMALL_BYTES:
            return await self._run_in("large", job, file)
        small = replace(job, pixels=min(job.pixels, SMALL_PIXELS))
        begin = file.tell()
        try:
            return await self._run_in("small", small, file)
        except RefusedError as refused:
            if refused.status != 413 or small.pixels == job.pixels:
                raise
        file.seek(begin)
        return await self._run_in("large", job, file)

    async def _run_in(self, kind: str, job: DecodeJob, file: BinaryIO) -> list[ImageArray]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pools[kind], self._run, kind, job, file)

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


def _checked_answer(fields: dict[str, object], job: DecodeJob) -> DecodeAnswer | None:
    """Check an answer: a hostile picture may have taken the child over."""
    try:
        answer = DecodeAnswer(**fields)  # type: ignore[arg-type]
    except TypeError:
        return None
    if answer.status == 200:
        return answer if _fits(answer, job) else None
    is_refusal = answer.status in (413, 422) and isinstance(answer.reason, str)
    return answer if is_refusal else None


def _fits(answer: DecodeAnswer, job: DecodeJob) -> bool:
    """Return True if the numbers of an answer are whole numbers that the job allows."""
    limits = [(answer.frames, job.frames if job.kind == "video" else 1)]
    if job.whole:
        limits += [(answer.width, job.size), (answer.height, job.size)]
    return all(type(number) is int and 1 <= number <= most for number, most in limits)


def _gave_up(job: DecodeJob, expired: bool) -> RefusedError:
    if expired:
        reason = f"{job.name} takes more than {job.seconds:g} seconds to decode"
        return RefusedError(413, f"{reason}: send a shorter or smaller one")
    return RefusedError(422, f"{job.name} cannot be decoded: it made the decoder stop")
