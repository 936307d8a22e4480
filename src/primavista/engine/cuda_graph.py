"""Functions captured as CUDA graphs, which launch hundreds of kernels at the cost of one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from primavista.heads.caches import NotCopiedCache

T = TypeVar("T")
EAGER = 2  # calls before the first shape is captured, in which kernels are chosen and compiled
RARE = 8  # calls before another shape is captured, because a capture takes time and memory
SHAPES = 8  # captured shapes that are kept; the oldest is dropped first


@dataclass
class _Capture:
    calls: int = 0
    inputs: tuple[Tensor, ...] = ()
    output: Tensor | None = None
    graph: Any = None


@dataclass
class CapturedFunction:
    """A function of tensors that runs as a CUDA graph from its third call on.

    On the CPU the function is called directly. On a GPU the third call with inputs of the same
    shape is captured, and later calls copy their inputs and launch the graph. Further shapes, such
    as that of a last minibatch, are captured after more calls. The results are the same. A function
    that cannot be captured is called directly, with a warning.

    The function returns a tensor or None. All other tensors that it reads or writes must keep their
    place in memory.
    """

    function: Callable[..., Tensor | None]
    _captures: dict[Any, _Capture] = field(default_factory=dict)
    _possible: bool = True
    _pool: Any = None

    def __call__(self, *inputs: Tensor) -> Tensor | None:
        """Call the function, or launch its graph."""
        if not inputs[0].is_cuda or not self._possible:
            return self.function(*inputs)
        key = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        capture = self._captures.setdefault(key, _Capture())
        capture.calls += 1
        if capture.graph is None and capture.calls > (RARE if self.graphs else EAGER):
            self._capture(capture, inputs)
        if capture.graph is None:
            return self.function(*inputs)
        for own, given in zip(capture.inputs, inputs, strict=True):
            own.copy_(given)
        capture.graph.replay()
        return None if capture.output is None else capture.output.clone()

    @property
    def graphs(self) -> list[Any]:
        """The CUDA graphs that were captured, with their inputs."""
        return [capture for capture in self._captures.values() if capture.graph is not None]

    def _capture(self, capture: _Capture, inputs: tuple[Tensor, ...]) -> None:
        captured = [key for key, kept in self._captures.items() if kept.graph is not None]
        for key in captured[: 1 - SHAPES]:
            del self._captures[key]
        capture.inputs = tuple(tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        torch.cuda.synchronize()
        try:
            # other threads may predict in the meantime
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                capture.output = self.function(*capture.inputs)
        except RuntimeError as error:
            self._possible = False
            warnings.warn(
                "this network cannot be captured as a CUDA graph, so every kernel is launched "
                f"by itself: {error}",
                stacklevel=3,
            )
            return
        capture.graph = graph

    def __deepcopy__(self, memo: dict[int, object]) -> CapturedFunction:
        raise TypeError("a captured function cannot be copied: it refers to fixed tensors")


class ReusedOnGPU(NotCopiedCache):
    """Captured functions, and objects that contain them, for reuse by later batches.

    The owner clears this cache when tensors that the functions read or write move in memory.
    """

    def get_or_make(
        self,
        kind: str,
        key: tuple[Hashable, ...],
        tensors: Sequence[Tensor],
        make: Callable[[], T],
        most: int,
    ) -> T:
        """Return an object that an earlier batch made, or make it; on a CPU it is always made.

        It depends on `key` and on the memory of `tensors`, of which there is at least one. Of each
        kind, the `most` objects that were made last are kept.
        """
        if not tensors[0].is_cuda:
            return make()
        full = (kind, *key, *(tensor.data_ptr() for tensor in tensors))
        if full not in self:
            same = [old for old in self if old[0] == kind]
            for old in same[: len(same) + 1 - most]:
                del self[old]
            self[full] = make()
        made: T = self[full]
        return made


class KeptTensors(NotCopiedCache):
    """Tensors with new values in each batch that keep their place in memory.

    On a GPU a captured step reads and writes them. On a CPU, new copies of the weights in each
    batch would fragment the heap, which grew by 300 MB over 25 batches.
    """

    def put(self, name: str, values: Sequence[Tensor]) -> list[Tensor]:
        """Copy values into the tensors of the previous batch, if they fit, and return these."""
        kept: list[Tensor] = self.get(name, [])
        places, wanted = ([(t.device, t.dtype, t.shape) for t in ts] for ts in (kept, values))
        if places != wanted:
            kept = self[name] = [value.clone() for value in values]
        else:
            torch._foreach_copy_(kept, list(values))
        return kept
