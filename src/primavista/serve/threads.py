"""A thread pool for work that would block the event loop: locating, loading, exporting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThreads:
    """A small thread pool for work on lessons, models and boxes; it leaves cores to the network.

    Pictures and videos are decoded elsewhere, see `primavista.media.decoder`.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2, "lesson")

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run work on a whole lesson or a whole model in a thread.

        Args:
            function: The function to call.
            *arguments: Its arguments.

        Returns:
            The result of the function.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def close(self) -> None:
        """Wait for running work to end and cancel work that has not begun."""
        self._pool.shutdown(cancel_futures=True)
