"""The representation: a backbone together with how its features are computed.

`choose_device` turns a name into a device. On a CPU, ONNX Runtime computes frozen features if the
package `onnx` is installed, which translates the network. This is twice as fast as torch; the
results agree within 1e-3. The floor, which has no torch, has `backbones.onnx.OnnxRepresentation`.
"""

from __future__ import annotations

import gc
import json
import warnings
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from primavista.backbones.base import CHUNK_PIXELS, check_finite_features
from primavista.backbones.onnx import INPUT, make_session
from primavista.backbones.places import WindowReader
from primavista.engine.cuda_graph import CapturedFunction
from primavista.engine.frames import are_features, read_frames, split_indices
from primavista.engine.onnx_trace import CannotTraceError, trace
from primavista.errors import InputError, require_extra
from primavista.heads.caches import Derived
from primavista.media.frames import Frames
from primavista.networks.base import Backbone
from primavista.networks.places import MapBackbone
from primavista.progress import Progress

Engine = Literal["torch", "onnx"]
EngineChoice = Engine | Literal["auto"]
CHUNK = 128  # frames per forward pass without gradients
CHUNK_CUDA = 1024
RESIDENT = 2**30  # bytes of frames of one batch that may be copied to a GPU
TOLERANCE = 1e-3  # the largest difference between ONNX Runtime and torch


class Representation:
    """Computes features in evaluation mode, chunk by chunk, by torch or by ONNX Runtime.

    On a GPU the forward pass is captured as a CUDA graph. The graph of ONNX Runtime contains the
    weights, so `weights_changed` must be called when they change.

    Args:
        backbone: The network. It is not copied.
        freezes: True if its weights are fixed now or later. Otherwise only torch computes the
            features, because the graph would have to be made again after each batch.
    """

    def __init__(self, backbone: Backbone, *, freezes: bool) -> None:
        self.backbone = backbone
        self.freezes = freezes
        self.engine: Engine = "torch"
        self._onnx = OnnxFeatures()
        self._captured = Derived()
        self._for_windows = Derived()
        side = backbone.spec.size
        self._tried_shapes = {torch.Size((1, side, side, 3))}

    @property
    def device(self) -> torch.device:
        """The device of the backbone."""
        return self.backbone.scale.device

    @property
    def chunk(self) -> int:
        """The number of frames that go through the network at once."""
        if self.device.type == "cuda":
            return CHUNK_CUDA
        return min(CHUNK, max(4, CHUNK_PIXELS // self.backbone.spec.size**2))

    def use_engine(self, engine: EngineChoice) -> Engine:
        """Choose the engine that computes frozen features from now on.

        For ONNX Runtime the network is traced and compiled at once, and the features of two random
        frames are compared with those of torch.

        Args:
            engine: `torch`, `onnx`, or `auto`: ONNX Runtime if the package `onnx` is installed, it
                can compute this backbone, and the device is the CPU.

        Returns:
            The engine that was chosen.
        """
        on_cpu = self.device.type == "cpu"
        if engine == "onnx" and not on_cpu:
            raise InputError(
                "the engine onnx is for the CPU: choose device='cpu', or engine='torch'"
            )
        possible = self.freezes and on_cpu
        if engine == "onnx" and possible:
            require_extra("onnx", "onnx")
        self.engine, self._onnx = "torch", OnnxFeatures()
        if engine == "torch" or not possible or not onnx_installed():
            return self.engine
        side = self.backbone.spec.size
        probe = torch.zeros(2, side, side, 3, dtype=torch.uint8)
        if self._onnx.session(self.backbone, probe) is not None:
            self.engine = "onnx"
        elif engine == "onnx":
            raise InputError(
                "ONNX Runtime cannot compute this backbone: choose engine='torch' or 'auto'"
            )
        return self.engine

    @torch.no_grad()
    def features(self, frames: Frames, *, frozen: bool, progress: Progress | None = None) -> Tensor:
        """Compute the features of frames, N x D.

        Args:
            frames: The frames, already checked.
            frozen: True if the weights are fixed from now on, so that the chosen engine may
                compute the features.
            progress: Called with the number of frames done so far.
        """
        parts = []
        for indices in split_indices(len(frames), self.chunk):
            parts.append(self.some_features(frames, indices, frozen=frozen))
            if progress is not None:
                progress(int(indices[-1]) + 1, len(frames))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @torch.no_grad()
    def some_features(self, frames: Frames, indices: Tensor, *, frozen: bool) -> Tensor:
        """Compute the features of the frames at `indices`, in one pass; see `features`."""
        images = read_frames(frames, indices, self.device)
        if self.engine == "onnx" and frozen and images.device.type == "cpu":
            return self._onnx(self.backbone, images)
        if any(module.training for module in self.backbone.modules()):  # faster than to set it
            self.backbone.eval()
        captured = self._captured.get_or_compute(
            self.backbone.precision, lambda: CapturedFunction(self.backbone)
        )
        z = captured(images)
        assert z is not None
        return z

    def finite_features(self, frames: Frames, progress: Progress | None = None) -> Tensor:
        """Compute frozen features, and reject NaN and infinity, which would spoil every sum."""
        z = self.features(frames, frozen=True, progress=progress)
        check_finite_features(z)
        return z

    def resident(self, frames: Frames | Tensor) -> Frames | Tensor:
        """Copy the frames of a batch to the GPU once, if there is a GPU and they fit.

        Args:
            frames: The frames, already checked; or features, which are not copied.

        Returns:
            The copy, or `frames` itself.
        """
        there = isinstance(frames, Tensor) and frames.is_cuda
        if self.device.type != "cuda" or there or are_features(frames):
            return frames
        parts = split_indices(len(frames), CHUNK_CUDA)
        first = read_frames(frames, next(parts), self.device)
        if len(frames) * first[0].numel() > RESIDENT:
            return frames
        return torch.cat([first, *(read_frames(frames, part, self.device) for part in parts)])

    def map_reader(self) -> MapBackbone:
        """Return the maps of the backbone, from which the features of windows are read.

        Raises:
            InputError: If its features are not means of maps that grow with the picture.
        """
        return self._for_windows.get_or_compute("reader", lambda: MapBackbone(self.backbone))

    def window_reader(self) -> WindowReader:
        """Return what is read of a window; `InputError` as for `map_reader`."""
        return self.map_reader().reader

    def maps(self, picture: np.ndarray[Any, np.dtype[np.uint8]]) -> list[np.ndarray[Any, Any]]:
        """Compute the maps of one picture.

        Args:
            picture: uint8, H x W x 3, RGB, with sides that are multiples of 32.

        Returns:
            The maps, C x h x w each, in the order of `map_reader`.
        """
        reader = self.map_reader()
        if self.backbone.training:
            self.backbone.eval()
        with torch.no_grad():
            maps = reader(torch.from_numpy(picture)[None].to(reader.device))
        return [x[0].cpu().numpy() for x in maps]

    def check_frames(self, frames: Frames) -> None:
        """Reject frames of a size that the backbone cannot take."""
        first = read_frames(frames, torch.tensor([0]), self.device)
        if first.shape in self._tried_shapes:
            return
        try:
            with torch.no_grad():
                self.backbone.eval()(first)
        except RuntimeError as error:
            side = self.backbone.spec.size
            shape = " x ".join(map(str, first.shape[1:3]))
            raise InputError(
                f"the backbone cannot take frames of {shape} pixels ({error}): "
                f"resize them to {side} x {side}"
            ) from error
        self._tried_shapes.add(first.shape)

    def trained(self, version: Tensor) -> None:
        """Count a change of the weights, which makes earlier features invalid.

        Args:
            version: `Strategy.embedding_version`, which is incremented.
        """
        version += 1
        self.weights_changed()

    def weights_changed(self) -> None:
        """Clear all caches that depend on the weights; call this after training or loading."""
        self._onnx = OnnxFeatures()
        self._for_windows.clear()

    def moved(self) -> None:
        """Clear all caches that depend on the device of the tensors; call this after a move."""
        self._captured.clear()
        self._for_windows.clear()


def onnx_installed() -> bool:
    """Return True if the package of the extra `onnx` is installed."""
    return find_spec("onnx") is not None


class OnnxFeatures:
    """Features of a backbone in evaluation mode whose weights no longer change.

    For each size of images one graph is made when the size first occurs; it is compared with torch
    and kept. A single frame is computed by one thread, in a separate session of the same graph: a
    second thread would gain a millisecond on idle cores and lose more on busy ones. If a backbone
    cannot be translated, or if the graph gives other numbers, torch computes the features, with a
    warning. Other weights need another object.
    """

    def __init__(self) -> None:
        self._graphs: dict[tuple[int, int], bytes | None] = {}
        self._sessions: dict[tuple[int, int, int], Any] = {}

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
        return _run(session, frames)

    def session(self, backbone: Backbone, frames: Tensor) -> Any:
        """Return the session that computes frames of this size, or None if torch does.

        Args:
            backbone: The backbone, with the same weights at every call.
            frames: uint8, N x H x W x 3; a single frame has a separate session.
        """
        height, width = frames.shape[1:3]
        if (height, width) not in self._graphs:
            self._graphs[height, width] = _compared_graph(backbone, height, width)
        graph = self._graphs[height, width]
        if graph is None:
            return None
        key = (height, width, 1 if len(frames) == 1 else torch.get_num_threads())
        if key not in self._sessions:
            self._sessions[key] = make_session(graph, key[2])
        return self._sessions[key]


def _run(session: Any, frames: Tensor) -> Tensor:
    """Return the features that a session computes of frames, uint8, N x H x W x 3."""
    return torch.from_numpy(session.run(None, {INPUT: frames.contiguous().numpy()})[0])


def _compared_graph(backbone: Backbone, height: int, width: int) -> bytes | None:
    """Return a graph if its features of frames of this size equal those of torch; else warn."""
    backbone.eval()
    generator = torch.Generator().manual_seed(0)
    shape = (2, height, width, 3)
    frames = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    try:
        graph, (expected,) = trace(backbone, frames)
        found = _run(make_session(graph, torch.get_num_threads()), frames)
        if found.shape == expected.shape and torch.allclose(
            found, expected, TOLERANCE, TOLERANCE, equal_nan=True
        ):
            return graph
        reason = "its numbers differ"
    except CannotTraceError as error:
        reason = str(error)
    except Exception as error:  # torch can compute whatever ONNX Runtime cannot
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"this backbone is computed by torch, not by ONNX Runtime: {reason}", stacklevel=2
    )
    return None


def maps_graph(reader: MapBackbone) -> bytes:
    """Translate the maps of a backbone into an ONNX graph for pictures of any size, and test it.

    Args:
        reader: The maps of a backbone, on the CPU.

    Returns:
        The serialised graph; its outputs are `map0`, `map1` and so on, and its metadata key
        `windows` is a JSON object that describes how a window is read.

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


def choose_device(device: str | torch.device, here: bool = True) -> torch.device:
    """Return the device with the given name.

    Args:
        device: "auto" (the GPU if torch can use one, else the CPU), "cpu", "cuda", "cuda:1", or a
            torch device.
        here: True if this machine must have the device; False for work on another machine.

    Raises:
        InputError: If there is no such device.
    """
    gpu = torch.cuda.is_available()
    if str(device) == "auto":
        return torch.device("cuda" if gpu else "cpu")
    try:
        made = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"there is no device {device!r}: choose auto, cpu or cuda") from error
    if not here:
        return made
    if made.type == "cuda" and not gpu:
        raise InputError("there is no GPU here that torch can use: choose auto or cpu")
    try:
        torch.empty(0, device=made)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # such as mps or xpu
        raise InputError(
            f"torch cannot use the device {str(device)!r} here: choose auto, cpu or cuda"
        ) from error
    return made


def free_memory() -> None:
    """Free unused memory, also on the GPU, for other processes that share it.

    A strategy and its captured functions refer to each other, so they live until the garbage
    collector runs; and torch does not return memory of a GPU by itself.
    """
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
