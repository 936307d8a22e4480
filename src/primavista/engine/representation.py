"""The representation: a backbone together with how its features are computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.backbones.maps import MapBackbone
from primavista.caches import NotCopiedCache
from primavista.engine.cuda_graph import CapturedFunction
from primavista.engine.onnx_runtime import (
    Engine,
    EngineChoice,
    OnnxFeatures,
    OnnxMaps,
    onnx_installed,
    torch_maps,
)
from primavista.errors import InputError, require_extra
from primavista.frames import Frames, read_frames, split_indices
from primavista.progress import Progress

CHUNK = 128  # frames per forward pass without gradients
CHUNK_CUDA = 1024
RESIDENT = 2**30  # bytes of frames of one batch that may be copied to a GPU
CHUNK_PIXELS = 2**17  # per pass on a CPU: 8 frames of 128 x 128, whose maps stay in the caches


class Representation:
    """Computes features in evaluation mode, chunk by chunk, by torch or by ONNX Runtime.

    On a GPU the forward pass is captured as a CUDA graph. The graph of ONNX Runtime is made from
    the weights, so `weights_changed` must be called when they change.

    Args:
        backbone: the network. It is not copied.
        freezes: whether its weights are, or become, fixed. Only then another engine than torch may
            compute the features: the graph would have to be made again after each batch.
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
        """Choose what computes frozen features from now on.

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
            raise InputError(f"engine is auto, torch or onnx; got {engine!r}")
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
            frames: the frames, already checked.
            frozen: whether the weights stay as they are from now on, so that the chosen engine may
                compute the features.
            progress: is told how many frames are done.
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
        """Compute frozen features, and refuse NaN and infinity: they would spoil every sum."""
        z = self.features(frames, frozen=True, progress=progress)
        if math.isfinite(float(z.sum())):
            return z
        bad = (~z.isfinite().all(1)).nonzero()
        if len(bad):
            raise InputError(
                f"the backbone gives NaN or infinity for frame {int(bad[0, 0])}: "
                "leave that frame out, or mend the backbone"
            )
        return z

    def resident(self, frames: Frames) -> Frames:
        """Copy the frames of a batch to the GPU once, if there is one and they are not too many.

        Args:
            frames: the frames, already checked.

        Returns:
            The copy; or the frames as they are.
        """
        if self.device.type != "cuda" or (isinstance(frames, Tensor) and frames.is_cuda):
            return frames
        first = read_frames(frames, torch.tensor([0]), self.device)
        if len(frames) * first.numel() > RESIDENT:
            return frames
        parts = split_indices(len(frames), CHUNK_CUDA)
        return torch.cat([read_frames(frames, part, self.device) for part in parts])

    def map_reader(self) -> MapBackbone:
        """Return the maps of the backbone, which windows are read from.

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
            The maps, C x h x w each, as `map_reader` numbers them.
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
        """Refuse frames of a size that the backbone cannot take."""
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

    def weights_changed(self) -> None:
        """Drop what was computed from the weights; call it after they were trained or loaded."""
        self._onnx = None
        self._for_windows.clear()

    def moved(self) -> None:
        """Drop what belongs to the place where the tensors were; call it after a move."""
        self._captured.clear()
        self._for_windows.clear()
