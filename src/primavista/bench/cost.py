"""The cost of a strategy: time, bytes of state and stored data, peak memory, operations."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from primavista.engine.frames import read_frames
from primavista.strategies.base import Strategy
from primavista.streams.dataset import Patterns

# Not state: the network, and the one that Cumulative begins anew with.
NETWORKS = ("backbone", "scratch")
STORED = "memory"  # the part of our strategies that holds stored data
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@runtime_checkable
class Retrainable(Protocol):
    """A strategy that is trained from scratch on what it stores: Cumulative or GDumb."""

    def retrain(self) -> tuple[float, ...]:
        """Train from scratch; return the mean loss of each epoch."""


def now(strategy: Strategy) -> float:
    """Return the processor seconds of this process, which do not depend on what else runs.

    On a GPU it is the time after everything that was asked of the device is done.

    Args:
        strategy: Its device is waited for.
    """
    if strategy.device.type == "cuda":
        torch.cuda.synchronize(strategy.device)
        return time.perf_counter()
    return time.process_time()


@dataclass
class Clock:
    """The seconds that one batch of a strategy took; the device is waited for.

    Args:
        strategy: The strategy.
        learn_seconds: Time charged to learning.
        solve_seconds: Time charged to solving for the weights of a head.
        test_seconds: Time charged to testing.
    """

    strategy: Strategy
    learn_seconds: float = 0.0
    solve_seconds: float = 0.0
    test_seconds: float = 0.0

    @contextmanager
    def charge(
        self, name: Literal["learn_seconds", "solve_seconds", "test_seconds"]
    ) -> Iterator[None]:
        """Add the time of a `with` block to one of the three."""
        began = now(self.strategy)
        yield
        setattr(self, name, getattr(self, name) + now(self.strategy) - began)


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
    from Linux; on a GPU it is the memory that torch has allocated there. Only the first object of a
    process measures anything: a later cell reuses features, frames and memory of an earlier one,
    and would seem to need none.

    Args:
        device: "cpu" or "cuda".
    """

    used: ClassVar[bool] = False

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self._start: int | None = None
        if PeakMemory.used:
            return
        PeakMemory.used = True
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._start = torch.cuda.memory_allocated()
            return
        with suppress(OSError):
            CLEAR.write_text("5")  # the peak begins at what is resident now
            self._start = _status("VmRSS")

    @property
    def bytes(self) -> int | None:
        """The peak beyond the start; None if it was not measured."""
        if self._start is None:
            return None
        if self._cuda:
            return max(0, torch.cuda.max_memory_allocated() - self._start)
        peak = _status("VmHWM")
        return None if peak is None else max(0, peak - self._start)


def _status(name: str) -> int | None:
    """Return a size of this process in bytes; the file has lines such as `VmRSS:  1234 kB`."""
    for line in STATUS.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return 1024 * int(value.split()[0])
    return None


@dataclass(frozen=True)
class Operations:
    """Floating-point operations per frame; a multiplication with its addition counts as two.

    Torch counts them in matrix products and convolutions, forward and backward. The rest, such as
    norms and factorisations, is not counted.

    Args:
        forward: The operations of the network.
        predicting: The operations of the network and its head.
        learning: The operations of learning, over all epochs of a batch.
    """

    forward: float
    predicting: float
    learning: float


def count_flops(strategy: Strategy, batch: Patterns) -> Operations | None:
    """Count the operations of learning a batch and of predicting a frame, on a copy.

    This is a measurement after the end of the stream: the copy learns the last batch a second time,
    so `learn_batch` is called once more than there are batches. Nothing of it enters the results
    but the number of operations.

    Args:
        strategy: The strategy, which stays as it is.
        batch: The batch that the copy learns: the last one of the stream.

    Returns:
        The operations per frame. None if they cannot be counted: on a GPU, since training steps are
        captured there, if another engine than torch computes features, and for strategies that
        train on all data at once.
    """
    engine = strategy.representation.engine
    if strategy.device.type != "cpu" or engine != "torch" or isinstance(strategy, Retrainable):
        return None
    copied = copy.deepcopy(strategy)
    frame = read_frames(batch.images, torch.tensor([0]), copied.device)
    with torch.no_grad(), FlopCounter() as forward:
        copied.backbone.eval()(frame)
    with FlopCounter() as learning:
        copied.learn(batch.images, batch.labels, batch.sessions)
    copied.scores(frame)  # the head solves for its weights now: that is not part of a prediction
    with FlopCounter() as predicting:
        copied.scores(frame)
    return Operations(forward.total, predicting.total, learning.total / len(batch.labels))


class FlopCounter(TorchDispatchMode):
    """Counts the operations of a block in one total, by torch's own formulas.

    The total is that of torch's `FlopCounterMode`, which also keeps a count per module: for that it
    hooks into every call of every module, and imports the compiler.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip the compiler, torch would import it: two seconds and 150 MB

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        formula = flop_registry.get(func.overloadpacket)
        if formula is None:
            if not func._can_decompose():
                return func(*args, **named)
            with self:  # a composite one, such as `linear`, whose parts may have formulas
                return func.decompose(*args, **named)
        found = func(*args, **named)
        self.total += formula(*args, **named, out_val=found)
        return found
