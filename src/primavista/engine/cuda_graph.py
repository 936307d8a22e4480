"""A function on the GPU recorded once and replayed: hundreds of kernels at the price of one launch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

EAGER = 2  # calls of a shape before it is recorded: kernels are chosen and compiled in them
SHAPES = 8  # recordings kept, the oldest dropped first


@dataclass
class _Recording:
    calls: int = 0
    inputs: tuple[Tensor, ...] = ()
    output: Tensor | None = None
    graph: Any = None


@dataclass
class Replay:
    """`function(*inputs)`, which gives a tensor or nothing; all else that it touches must stay where it is.

    On the CPU it is called as it is. On a GPU its third call with inputs of one shape is recorded as a CUDA graph, and from
    then on replayed over copies of the inputs. The numbers are the same. A function that cannot be recorded is called as it is.
    """

    function: Callable[..., Tensor | None]
    _recordings: dict[Any, _Recording] = field(default_factory=dict)
    _possible: bool = True
    _pool: Any = None

    def __call__(self, *inputs: Tensor) -> Tensor | None:
        """Call or replay."""
        if not inputs[0].is_cuda or not self._possible:
            return self.function(*inputs)
        key = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        recording = self._recordings.setdefault(key, _Recording())
        recording.calls += 1
        if recording.graph is None and (
            recording.calls <= EAGER or not self._record(recording, inputs)
        ):
            return self.function(*inputs)
        for own, given in zip(recording.inputs, inputs, strict=True):
            own.copy_(given)
        recording.graph.replay()
        return None if recording.output is None else recording.output.clone()

    def _record(self, recording: _Recording, inputs: tuple[Tensor, ...]) -> bool:
        for key in [key for key, kept in self._recordings.items() if kept.graph is not None][
            : 1 - SHAPES
        ]:
            del self._recordings[key]
        recording.inputs = tuple(tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        torch.cuda.synchronize()
        try:
            # other threads may go on predicting meanwhile
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                recording.output = self.function(*recording.inputs)
        except RuntimeError as error:
            self._possible = False
            warnings.warn(
                f"this network cannot be recorded as a CUDA graph, so each step is launched: {error}",
                stacklevel=3,
            )
            return False
        recording.graph = graph
        return True

    def __deepcopy__(self, memo: dict[int, object]) -> Replay:
        raise TypeError("a recording belongs to the tensors that it was made of")


class Kept(dict[Any, Any]):
    """What belongs to the tensors of one module and is made again where it is wanted: a copy of the module starts with none."""

    def __deepcopy__(self, memo: dict[int, object]) -> Kept:
        return Kept()
