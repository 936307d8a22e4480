"""Decoding in child processes, each of which is killed if it exceeds its limits.

`Decoder.run` does not block an event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from asyncio import Future
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import BinaryIO

from primavista.errors import FileError
from primavista.media.child import Child, StoppedError
from primavista.media.decoder_child import DecodeJob
from primavista.media.images import ImageArray, TooLargeError

PROCESSES = 2  # of each kind, so that frames of cameras never wait for photographs or videos
SMALL_PIXELS = 2_100_000  # a frame of a camera: 1920 x 1080
SMALL_BYTES = 2**20  # likewise
KINDS = ("small", "picture", "video")


class DecoderProcess:
    """A child process that decodes one job at a time; it is started when it is needed.

    Args:
        in_background: True to run with a low priority.
    """

    def __init__(self, in_background: bool = False) -> None:
        self._in_background = in_background
        self._child: Child | None = None

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
        child = self._started()
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            child.process.kill()

        # The child limits its own processor time. In the background, the time by the clock may be
        # much longer.
        timer = threading.Timer(job.seconds * (3 if self._in_background else 1), expire)
        timer.start()
        try:
            child.send(job, file)
            return _received(child, job)
        except StoppedError as error:
            self.close()
            if expired.is_set():
                reason = f"{job.name} takes more than {job.seconds:g} seconds to decode"
                raise TooLargeError(f"{reason}: send a shorter or smaller one") from error
            raise FileError(f"{job.name} cannot be decoded: {error}") from error
        finally:
            timer.cancel()
            if expired.is_set():
                self.close()

    def interrupt(self) -> None:
        """Kill the process, from another thread; the job that it decodes is refused."""
        child = self._child
        if child is not None:
            child.process.kill()

    def close(self) -> None:
        """End the process; the next job starts another one."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _started(self) -> Child:
        if self._child is None or self._child.process.poll() is not None:
            self.close()
            priority = ["background"] if self._in_background else []
            self._child = Child("decoder_child", *priority)
        return self._child


def _received(child: Child, job: DecodeJob) -> list[ImageArray]:
    """Receive the frames of a job, at least one."""

    def is_possible(width: int, height: int) -> bool:
        if job.whole:
            return max(width, height) <= job.size
        return width == height == job.size

    frames = list(child.frames(is_possible, job.frames))
    if not frames:
        raise StoppedError
    return frames


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
                return await self._submit("small", small, file)
            except TooLargeError:
                if small.pixels == job.pixels:
                    raise
            file.seek(begin)
        return await self._submit(job.kind, job, file)

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
        """Decode in a thread of a pool, each of which has a child process of its own."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._pools[kind], self._run_in_thread, kind, job, file)

    def _run_in_thread(self, kind: str, job: DecodeJob, file: BinaryIO) -> list[ImageArray]:
        """Decode in the child process of this thread, which its first job starts."""
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
