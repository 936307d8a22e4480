"""Processes that start in milliseconds: forks of this one, which has imported everything.

torch must not have started a thread before: call `torch.set_num_threads(1)` first.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path


def forget_garbage() -> None:
    """Exclude the objects of this process from garbage collection in its forks."""
    gc.collect()
    gc.freeze()


class Forked:
    """A fork of this process that calls a function, in its own session, and ends."""

    def __init__(self, call: Callable[[], None], log: Path) -> None:
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become(call, log)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end; return False if it still runs after the given seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, 0 if until is None else os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif until is not None and time.monotonic() > until:
                return False
            else:
                time.sleep(0.002)
        return True

    def kill(self) -> bool:
        """Send SIGKILL; return False if the process had already ended."""
        if self.wait(0):
            return False
        os.kill(self.pid, signal.SIGKILL)
        self.wait()
        return self.code == -signal.SIGKILL


def _become(call: Callable[[], None], log: Path) -> None:
    code = 1
    try:
        os.setsid()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        call()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def left_of_sessions(sessions: set[int]) -> list[int]:
    """Return the processes that still belong to one of the sessions (Linux)."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) in sessions and fields[0] != "Z":
            found.append(int(place.parent.name))
    return found
