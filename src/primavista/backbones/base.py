"""A fixed representation: what a head on the floor needs of a network that does not train."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from primavista.arrays import Array, array_namespace, to_device
from primavista.backbones.places import Floats, WindowReader
from primavista.backbones.spec import Spec
from primavista.errors import InputError
from primavista.media.frames import FrameArray, Frames, chunks, frames_at
from primavista.progress import Progress

CHUNK_PIXELS = 2**17  # per pass on a CPU: 8 frames of 128 x 128, whose maps fit into the caches


class FixedRepresentation(ABC):
    """Computes the features of frames with a network whose weights no longer change.

    Features stay valid as long as this object exists; two objects with equal weights give equal
    features only if they have the same engine.

    Args:
        spec: The size of the frames and their normalisation.
        sizes: The lengths of the parts of the features, one per place that is read.
        priors: The prior weight of each place.
    """

    engine: str
    device: str = "cpu"

    def __init__(self, spec: Spec, sizes: Sequence[int], priors: Sequence[float]) -> None:
        self.spec, self.sizes, self.priors = spec, tuple(sizes), tuple(priors)

    @property
    def dim(self) -> int:
        """The number of features."""
        return sum(self.sizes)

    @property
    def chunk(self) -> int:
        """The number of frames that go through the network at once."""
        return max(4, CHUNK_PIXELS // self.spec.size**2)

    @abstractmethod
    def compute(self, frames: FrameArray) -> Array:
        """Compute the features of a few frames in one pass, N x `dim`."""

    @abstractmethod
    def weights(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return the arrays of the network by their names in files."""

    @abstractmethod
    def window_reader(self) -> WindowReader:
        """Return what is read of a window; `InputError` if the features are not means of maps."""

    @abstractmethod
    def maps(self, picture: FrameArray) -> Sequence[Floats]:
        """Compute the maps of one picture, C x h x w each; its sides are multiples of 32."""

    @abstractmethod
    def reference(self) -> tuple[Array, Array] | None:
        """Return the shipped centre and spread of generic frames, or None if there are none."""

    def to_library(self, array: Array, *, on_cpu: bool = False) -> Array:
        """Convert an array to the library of the features, and put it onto their device.

        Args:
            array: A numpy array, or one that was converted before.
            on_cpu: True to leave it on the CPU.
        """
        return array

    def graph_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays of a graph that the network came with in a file, if it did."""
        return {}

    def finite_features(self, frames: Frames, progress: Progress | None = None) -> Array:
        """Compute features to learn from; `InputError` if one is NaN, which spoils every sum."""
        z = self.features(frames, progress)
        check_finite_features(z)
        return z

    def features(self, frames: Frames, progress: Progress | None = None) -> Array:
        """Compute the features of frames, N x `dim`.

        Args:
            frames: Frames of `spec.size`.
            progress: Called with the number of frames done so far and their total.
        """
        parts = []
        done = 0
        for indices in chunks(len(frames), self.chunk):
            parts.append(self.compute(frames_at(frames, indices)))
            done += len(indices)
            if progress is not None:
                progress(done, len(frames))
        return parts[0] if len(parts) == 1 else array_namespace(parts[0]).concat(parts, axis=0)


def check_finite_features(z: Array) -> None:
    """Refuse features that are NaN or infinite, and name the first frame that has such features."""
    if math.isfinite(float(z.sum())):  # quicker than to look at each; the sum may overflow
        return
    bad = np.flatnonzero(~np.isfinite(np.asarray(to_device(z, "cpu"))).all(axis=1))
    if len(bad):
        raise InputError(
            f"the backbone gives NaN or infinity for frame {bad[0]}: leave that frame out, "
            "or fix the backbone"
        )
