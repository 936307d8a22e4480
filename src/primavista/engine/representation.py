"""The representation: a backbone together with how its features are computed.

`choose_device` turns a name into a device. On a CPU, ONNX Runtime computes frozen features if it is
installed, which is twice as fast as torch; the results agree within 1e-3.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from primavista.engine.cuda_graph import CapturedFunction
from primavista.engine.frames import are_features, read_frames, split_indices
from primavista.engine.onnx_trace import CannotTraceError, trace
from primavista.errors import InputError, require_extra
from primavista.heads.caches import NotCopiedCache
from primavista.media.frames import Frames
from primavista.networks.base import Backbone
from primavista.networks.maps import MapBackbone
from primavista.progress import Progress

Engine = Literal["torch", "onnx"]
EngineChoice = Engine | Literal["auto"]
CHUNK = 128  # frames per forward pass without gradients
CHUNK_CUDA = 1024
RESIDENT = 2**30  # bytes of frames of one batch that may be copied to a GPU
CHUNK_PIXELS = 2**17  # per pass on a CPU: 8 frames of 128 x 128, whose maps fit into the caches
TOLERANCE = 1e-3  # the largest difference between ONNX Runtime and torch
INPUT = "frames"  # the name of the input of an ONNX graph
# Without this, the official builds of ONNX Runtime send telemetry about each process to their
# maker (see its Privacy.md). The variable is read when ONNX Runtime is imported, which this package
# does below and nowhere else.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


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
        self._onnx: OnnxFeatures | None = None
        self._captured = NotCopiedCache()
        self._for_windows = NotCopiedCache()
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
            engine: `torch`, `onnx`, or `auto`: ONNX Runtime if it is installed, can compute this
                backbone, and the device is the CPU.

        Returns:
            The engine that was chosen.
        """
        self._check_engine(engine)
        self.engine, self._onnx = "torch", None
        wanted = engine == "onnx" or (engine == "auto" and onnx_installed())
        if wanted and self.freezes and self.device.type == "cpu":
            side = self.backbone.spec.size
            features = OnnxFeatures()
            probe = torch.zeros(2, side, side, 3, dtype=torch.uint8)
            if features.session(self.backbone, probe) is not None:
                self.engine, self._onnx = "onnx", features
            elif engine == "onnx":
                raise InputError(
                    "ONNX Runtime cannot compute this backbone: choose engine='torch' or 'auto'"
                )
        return self.engine

    def _check_engine(self, engine: EngineChoice) -> None:
        if engine not in ("auto", "torch", "onnx"):
            raise InputError(f"engine must be auto, torch or onnx; got {engine!r}")
        if engine == "onnx" and self.device.type != "cpu":
            raise InputError(
                "the engine onnx is for the CPU: choose device='cpu', or engine='torch'"
            )
        if engine == "onnx" and self.freezes and not onnx_installed():
            require_extra("onnxruntime", "onnx")
            require_extra("onnx", "onnx")

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
        done = 0
        for indices in split_indices(len(frames), self.chunk):
            parts.append(self.some_features(frames, indices, frozen=frozen))
            done += len(indices)
            if progress is not None:
                progress(done, len(frames))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @torch.no_grad()
    def some_features(self, frames: Frames, indices: Tensor, *, frozen: bool) -> Tensor:
        """Compute the features of the frames at `indices`, in one pass; see `features`."""
        images = read_frames(frames, indices, self.device)
        if self.engine == "onnx" and frozen and images.device.type == "cpu":
            if self._onnx is None:
                self._onnx = OnnxFeatures()
            return self._onnx(self.backbone, images)
        self.backbone.eval()
        key = self.backbone.precision
        if key not in self._captured:
            self._captured[key] = CapturedFunction(self.backbone)
        z: Tensor = self._captured[key](images)
        return z

    def finite_features(self, frames: Frames, progress: Progress | None = None) -> Tensor:
        """Compute frozen features, and reject NaN and infinity, which would spoil every sum."""
        z = self.features(frames, frozen=True, progress=progress)
        check_finite(z)
        return z

    def resident(self, frames: Frames | Tensor) -> Frames | Tensor:
        """Copy the frames of a batch to the GPU once, if there is a GPU and they fit.

        Args:
            frames: The frames, already checked; or features, which are not copied.

        Returns:
            The copy, or `frames` itself.
        """
        if self.device.type != "cuda" or are_features(frames):
            return frames
        if isinstance(frames, Tensor) and frames.is_cuda:
            return frames
        first = read_frames(frames, torch.tensor([0]), self.device)
        if len(frames) * first.numel() > RESIDENT:
            return frames
        parts = split_indices(len(frames), CHUNK_CUDA)
        return torch.cat([read_frames(frames, part, self.device) for part in parts])

    def map_reader(self) -> MapBackbone:
        """Return the maps of the backbone, from which the features of windows are read.

        Raises:
            InputError: If its features are not means of maps that grow with the picture.
        """
        if "reader" not in self._for_windows:
            self._for_windows["reader"] = MapBackbone(self.backbone)
        reader: MapBackbone = self._for_windows["reader"]
        return reader

    def maps(self, picture: np.ndarray[Any, np.dtype[np.uint8]]) -> list[np.ndarray[Any, Any]]:
        """Compute the maps of one picture by the chosen engine.

        Args:
            picture: uint8, H x W x 3, RGB, with sides that are multiples of 32.

        Returns:
            The maps, C x h x w each, in the order of `map_reader`.
        """
        reader = self.map_reader()
        if self.backbone.training:
            self.backbone.eval()
        if self.engine != "onnx" or self.device.type != "cpu":
            return torch_maps(reader, picture)
        if "onnx" not in self._for_windows:
            self._for_windows["onnx"] = OnnxMaps(reader)
        found: list[np.ndarray[Any, Any]] = self._for_windows["onnx"](picture)
        return found

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
        self._onnx = None
        self._for_windows.clear()

    def moved(self) -> None:
        """Clear all caches that depend on the device of the tensors; call this after a move."""
        self._captured.clear()
        self._for_windows.clear()


class OnnxSession(Protocol):
    """The one method of `onnxruntime.InferenceSession` that is used here."""

    def run(
        self, output_names: Sequence[str] | None, inputs: dict[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Compute the outputs of a model for the given inputs."""


def onnx_installed() -> bool:
    """Return True if the packages of the extra `onnx` are installed."""
    return all(find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def check_finite(z: Tensor) -> None:
    """Refuse features that are NaN or infinite, and name the first frame that has such features.

    Args:
        z: Features, N x D.

    Raises:
        InputError: If one of them is not a number.
    """
    if math.isfinite(float(z.sum())):  # quicker than to look at each; the sum may overflow
        return
    bad = (~z.isfinite().all(1)).nonzero()
    if len(bad):
        raise InputError(
            f"the backbone gives NaN or infinity for frame {int(bad[0, 0])}: leave that frame out, "
            "or fix the backbone"
        )


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
            frames: uint8, N x H x W x 3; a single frame has a separate session.
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


def make_session(model: bytes, threads: int) -> OnnxSession:
    """Make an ONNX Runtime session on the CPU.

    Args:
        model: A serialised ONNX model.
        threads: The number of threads of one operation.

    Raises:
        MissingExtraError: If ONNX Runtime is not installed.
    """
    runtime = require_extra("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # waiting threads must not occupy the cores
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False  # it allocates one block per pass, by which the heap grows
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
    """Return a graph and its session if its features equal those of torch; otherwise warn."""
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


class OnnxMaps:
    """The maps of a backbone whose weights no longer change, computed by all threads.

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
    if here and made.type == "cuda" and not gpu:
        raise InputError("there is no GPU here that torch can use: choose auto or cpu")
    if here:
        _check_usable(made)
    return made


def _check_usable(device: torch.device) -> None:
    """Reject a device that torch knows of but cannot use on this machine, such as mps or xpu."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(
            f"torch cannot use the device {str(device)!r} here ({reason}): choose auto, cpu or cuda"
        ) from error


def free_memory() -> None:
    """Free unused memory, also on the GPU, for other processes that share it.

    A strategy and its captured functions refer to each other, so they live until the garbage
    collector runs; and torch does not return memory of a GPU by itself.
    """
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
