"""Frozen features through ONNX Runtime: on a CPU twice as fast as torch, equal within 1e-3."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.backbones.maps import MapBackbone
from primavista.engine.onnx_trace import CannotTraceError, trace
from primavista.errors import require_extra

Engine = Literal["torch", "onnx"]
EngineChoice = Engine | Literal["auto"]
TOLERANCE = 1e-3
INPUT = "frames"
# Otherwise its official builds send events about each process to their maker (its Privacy.md). The
# variable is read when ONNX Runtime is imported, which this package does below and nowhere else.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


class OnnxSession(Protocol):
    """The one method of `onnxruntime.InferenceSession` that is used here."""

    def run(
        self, output_names: Sequence[str] | None, inputs: dict[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Compute the outputs of a model for the given inputs."""


def onnx_installed() -> bool:
    """Return True if the packages of the extra `onnx` are installed."""
    return all(find_spec(name) is not None for name in ("onnx", "onnxruntime"))


class OnnxFeatures:
    """Features of a backbone in evaluation mode whose weights no longer change.

    One graph per size of images is made when the size is first seen, compared with torch, and kept.
    A single frame is computed by one thread, in a session of its own over the same graph: a second
    thread would gain a millisecond on idle cores and lose more on busy ones. If a backbone cannot
    be translated, or the graph does not give the same numbers, torch computes the features, and a
    warning says so. Other weights need another object.
    """

    def __init__(self) -> None:
        self._graphs: dict[tuple[int, int], bytes | None] = {}
        self._sessions: dict[tuple[int, int, int], OnnxSession] = {}

    def __deepcopy__(self, memo: object) -> OnnxFeatures:
        return self  # a copy of a strategy has the same weights until its version changes

    def __call__(self, backbone: Backbone, frames: Tensor) -> Tensor:
        """Compute the features of some frames.

        Args:
            backbone: The backbone, with the same weights at every call, on the CPU.
            frames: uint8, N x H x W x 3.

        Returns:
            float32, N x `backbone.dim`.
        """
        session = self.session(backbone, frames)
        if session is None:
            return backbone.eval()(frames)  # type: ignore[no-any-return]
        return run_session(session, frames)

    def session(self, backbone: Backbone, frames: Tensor) -> OnnxSession | None:
        """Return the session that computes frames of this size, or None if torch does.

        Args:
            backbone: The backbone, with the same weights at every call.
            frames: uint8, N x H x W x 3; one frame and several have sessions of their own.
        """
        threads = 1 if len(frames) == 1 else torch.get_num_threads()
        height, width = int(frames.shape[1]), int(frames.shape[2])
        key = (height, width, threads)
        if (height, width) not in self._graphs:
            graph, session = _compared_session(backbone, *key)
            self._graphs[height, width] = graph
            if session is not None:
                self._sessions[key] = session
        graph = self._graphs[height, width]
        if graph is not None and key not in self._sessions:
            self._sessions[key] = make_session(graph, threads)
        return self._sessions.get(key)


def maps_graph(reader: MapBackbone) -> bytes:
    """Translate the maps of a backbone into an ONNX graph for pictures of any size, and try it.

    Args:
        reader: The maps of a backbone, on the CPU.

    Returns:
        The serialised graph; its outputs are `map0`, `map1` and so on, and its metadata key
        `windows` is a JSON object that says what is read of a window.

    Raises:
        CannotTraceError: If the backbone cannot be translated, or if the graph gives other numbers
            than torch for pictures of another size.
    """
    names = [f"map{number}" for number in range(reader.count)]
    generator = torch.Generator().manual_seed(0)
    first, other = (
        torch.randint(0, 256, (2, *sides, 3), dtype=torch.uint8, generator=generator)
        for sides in ((128, 160), (192, 128))
    )
    facts = {"windows": json.dumps(asdict(reader.reader), sort_keys=True)}
    graph, _ = trace(reader, first, outputs=names, metadata=facts, any_size=True)
    found = make_session(graph, 1).run(None, {INPUT: other.numpy()})
    with torch.no_grad():
        expected = reader(other)
    for ours, right in zip(found, expected, strict=True):
        if not torch.allclose(torch.from_numpy(ours), right, TOLERANCE, TOLERANCE):
            raise CannotTraceError("its numbers differ for pictures of another size")
    return graph


class OnnxMaps:
    """The maps of a backbone whose weights no longer change, by all threads.

    One graph serves pictures of any size. If a backbone cannot be translated, torch computes the
    maps.

    Args:
        reader: The maps of the backbone, on the CPU.
    """

    def __init__(self, reader: MapBackbone) -> None:
        self._session: OnnxSession | None = None
        with contextlib.suppress(CannotTraceError):
            self._session = make_session(maps_graph(reader), torch.get_num_threads())
        self._reader = reader

    def __call__(self, picture: np.ndarray) -> list[np.ndarray]:
        """Compute the maps of one picture.

        Args:
            picture: uint8, H x W x 3, with sides that are multiples of 32.

        Returns:
            The maps, C x h x w each.
        """
        if self._session is None:
            return torch_maps(self._reader, picture)
        return [x[0] for x in self._session.run(None, {INPUT: picture[None]})]


@torch.no_grad()
def torch_maps(reader: MapBackbone, picture: np.ndarray) -> list[np.ndarray]:
    """Compute the maps of one picture by torch.

    Args:
        reader: The maps of a backbone, on any device.
        picture: uint8, H x W x 3, with sides that are multiples of 32.

    Returns:
        The maps, C x h x w each.
    """
    frames = torch.from_numpy(picture)[None].to(reader.device)
    return [x[0].cpu().numpy() for x in reader(frames)]


def make_session(model: bytes, threads: int) -> OnnxSession:
    """Make an ONNX Runtime session on the CPU.

    Args:
        model: A serialised ONNX model.
        threads: Number of threads of one operation.

    Raises:
        MissingExtraError: ONNX Runtime is not installed.
    """
    runtime = require_extra("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # waiting threads leave the cores to others
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False  # one block per pass: the heap grows by it at each
    session: OnnxSession = runtime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    return session


def run_session(session: OnnxSession, frames: Tensor) -> Tensor:
    """Run one forward pass.

    Args:
        session: The session of a model with the input `frames`.
        frames: uint8, N x H x W x 3.

    Returns:
        The first output of the model.
    """
    return torch.from_numpy(session.run(None, {INPUT: frames.contiguous().numpy()})[0])


def _compared_session(
    backbone: Backbone, height: int, width: int, threads: int
) -> tuple[bytes, OnnxSession] | tuple[None, None]:
    """Return a graph and a session of it whose features equal torch's; otherwise warn."""
    backbone.eval()
    generator = torch.Generator().manual_seed(0)
    shape = (2, height, width, 3)
    frames = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    try:
        graph, (expected,) = trace(backbone, frames)
        session = make_session(graph, threads)
        found = run_session(session, frames)
        if found.shape == expected.shape and torch.allclose(
            found, expected, TOLERANCE, TOLERANCE, equal_nan=True
        ):
            return graph, session
        reason = "its numbers differ"
    except CannotTraceError as error:
        reason = str(error)
    except Exception as error:  # torch can compute whatever ONNX Runtime cannot
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"this backbone is computed by torch, not by ONNX Runtime: {reason}", stacklevel=2
    )
    return None, None
