"""Thread pools for work that would block the event loop: decoding, loading, saving, exporting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class ThreadPools:
    """Two small thread pools: one for single frames, one for whole lessons and models.

    They are separate so that a frame never waits for a lesson, and small so that they leave the
    cores to the network.
    """

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(2, "frame")
        self._long = ThreadPoolExecutor(2, "lesson")

    async def run_short(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run work on a single frame in a thread.

        Args:
            function: The function to call.
            *arguments: Its arguments.

        Returns:
            What the function returns.
        """
        return await asyncio.get_running_loop().run_in_executor(self._short, function, *arguments)

    async def run_long(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run work on a whole lesson or a whole model in a thread.

        Args:
            function: The function to call.
            *arguments: Its arguments.

        Returns:
            What the function returns.
        """
        return await asyncio.get_running_loop().run_in_executor(self._long, function, *arguments)

    def close(self) -> None:
        """Wait for running work to end and cancel work that has not begun."""
        self._short.shutdown(cancel_futures=True)
        self._long.shutdown(cancel_futures=True)
