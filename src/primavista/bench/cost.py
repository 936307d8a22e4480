"""The cost of a strategy beside time: bytes of state and stored data, peak memory."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from primavista.strategies.base import Strategy

# Not state: the network, and the one that Cumulative begins anew with.
NETWORKS = ("backbone", "scratch")
STORED = "memory"  # the part of our strategies that holds stored data
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@runtime_checkable
class Retrainable(Protocol):
    """A strategy that is trained from scratch on what it stores: Cumulative or GDumb."""

    def retrain(self) -> tuple[float, ...]:
        """Train from scratch; return the mean loss of each epoch."""


def state_bytes(strategy: Strategy, stored: int = 0) -> int:
    """Return the bytes of a strategy's buffers beyond the network, its head and stored data.

    Trainable parameters outside the network are its head, whatever they are called, and are not
    counted; neither are buffers that a module names in `scoring_buffers`, such as the cw of CWR.
    Every tensor that a strategy remembers is a parameter or a buffer, so its buffers contain the
    stored data. These are not counted either: the part `memory` is left out, or else the bytes that
    the strategy reports as stored are subtracted.

    Args:
        strategy: The strategy.
        stored: `LearnReport.stored_bytes` of its last batch.
    """
    apart = (*NETWORKS, STORED) if not strategy.rehearsal_free else NETWORKS
    buffers = list(strategy.buffers(recurse=False))
    for part, child in strategy.named_children():
        for module in child.modules() if part not in apart else ():
            scoring = getattr(module, "scoring_buffers", ())
            own = module.named_buffers(recurse=False)
            buffers += [buffer for name, buffer in own if name not in scoring]
    found = sum(buffer.numel() * buffer.element_size() for buffer in buffers)
    return found if hasattr(strategy, STORED) else max(0, found - stored)


class PeakMemory:
    """The most memory that was in use since this object was made, beyond what was in use then.

    On a CPU this is the resident memory of the process, which contains mapped files and is read
    from Linux; on a GPU it is the memory that torch has allocated there. Making another object
    starts both measurements anew. It first returns the memory that the process has freed to the
    system: a cell would otherwise reuse the freed memory of an earlier cell, and seem to need none.

    Args:
        device: "cpu" or "cuda".
    """

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._start: int | None = None
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._start = torch.cuda.memory_allocated()
            return
        with suppress(OSError):
            _give_back_freed_memory()
            CLEAR.write_text("5")  # the peak begins at what is resident now
            self._start = _status("VmRSS")

    @property
    def bytes(self) -> int | None:
        """The peak beyond the start; None if the system does not report it."""
        if self._start is None:
            return None
        if self._cuda:
            return max(0, torch.cuda.max_memory_allocated() - self._start)
        peak = _status("VmHWM")
        return None if peak is None else max(0, peak - self._start)


def _give_back_freed_memory() -> None:
    """Return freed memory to the system, if the C library can (glibc)."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _status(name: str) -> int | None:
    """Return a size of this process in bytes; the file has lines such as `VmRSS:  1234 kB`."""
    for line in STATUS.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return 1024 * int(value.split()[0])
    return None
