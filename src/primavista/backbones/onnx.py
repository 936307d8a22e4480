"""MobileNet v1 and exported networks through ONNX Runtime: the representation that needs no torch.

A graph says how a network computes; its weights are separate arrays, those of the weights file or
of a learner's file. The graph of MobileNet v1 is in the package. Other networks bring theirs in the
file of the learner (`primavista export --format portable`).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from primavista.arrays import Array
from primavista.backbones.base import FixedRepresentation
from primavista.backbones.places import PLACES, PRIORS, Floats, Place, WindowReader
from primavista.backbones.reference import shipped_reference
from primavista.backbones.spec import Spec
from primavista.errors import FileError, InputError
from primavista.media.frames import FrameArray

# Without this, the official builds of ONNX Runtime send telemetry about each process to their
# maker (see its Privacy.md). The variable is read when ONNX Runtime is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
INPUT = "frames"  # the name of the input of a graph
GRAPH_FILE = Path(__file__).with_name("data") / "mobilenet_v1.onnx"
MAPS_READ = (12, 10, 8, 6)  # the blocks of MobileNet v1 whose maps are read, the last one first
NORMALISATION = ("scale", "shift")  # x = scale frame + shift
LEAST_SIZE = 64  # smaller frames leave no map of more than one pixel at the end of MobileNet v1
BODY = "body."  # prefix of the names of weights in files: the network is `Backbone.body`
GRAPH_ARRAYS = ("onnx/graph", "onnx/facts")  # the arrays of a graph in a file, as bytes


@dataclass(frozen=True)
class NetworkGraph:
    """How a network computes, without its weights.

    Args:
        model: A serialised ONNX model whose weights are external.
        weights: The name in files of each weight, by its name in the graph.
        reader: What is read of the maps that the model computes; None if it computes the features
            themselves, so that objects cannot be located.
        sizes: The lengths of the parts of the features.
        priors: The prior weight of each part.
    """

    model: bytes
    weights: Mapping[str, str]
    reader: WindowReader | None
    sizes: tuple[int, ...]
    priors: tuple[float, ...]

    @classmethod
    def from_bytes(cls, model: bytes, facts: bytes, size: int) -> Self:
        """Read the graph that a file holds beside its weights.

        Args:
            model: The ONNX model.
            facts: The JSON object that `facts` returned.
            size: The side of taught frames, in pixels.

        Raises:
            FileError: If the facts are not those of a graph.
        """
        try:
            told = json.loads(facts)
            reader = None
            if told["places"] is not None:
                places = tuple(
                    Place(int(k), float(share), bool(quarters))
                    for k, share, quarters in told["places"]
                )
                reader = WindowReader(places, bool(told["root"]), size)
            names = {str(name): str(own) for name, own in told["weights"].items()}
            sizes = tuple(int(n) for n in told["sizes"])
            return cls(model, names, reader, sizes, tuple(float(p) for p in told["priors"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"the graph of the file is damaged: {error!r}") from error

    def facts(self) -> bytes:
        """Return everything but the model as a JSON object, for a file."""
        told = {
            "weights": dict(self.weights),
            "places": None if self.reader is None else [list(p) for p in self.reader.places],
            "root": self.reader is not None and self.reader.root,
            "sizes": list(self.sizes),
            "priors": list(self.priors),
        }
        return json.dumps(told, sort_keys=True).encode()


def shipped_graph(size: int, weights: Mapping[str, Array], *, places: bool) -> NetworkGraph:
    """Return the graph of MobileNet v1.

    Args:
        size: The side of the frames, in pixels.
        weights: The arrays of the network by their names in files.
        places: True to read the centre of maps too, as prima does.

    Raises:
        InputError: If the frames are too small for the places.
    """
    if places and size < LEAST_SIZE:
        raise InputError(
            f"without torch the frames have at least {LEAST_SIZE} pixels; got size={size}: "
            'choose a larger size, or pip install "primavista[train]"'
        )
    last = len(weights[f"{BODY}blocks.{MAPS_READ[0]}.1.bn.bias"])
    read = [Place(0, 1.0)]
    sizes = [last]
    if places:
        for depth, share, quarters in PLACES:
            block = -(-13 * depth // 6) - 1
            read.append(Place(MAPS_READ.index(block), share, quarters))
            sizes.append(len(weights[f"{BODY}blocks.{block}.1.bn.bias"]))
    names = {name.removeprefix(BODY): name for name in weights}
    priors = PRIORS if places else (1.0,)
    reader = WindowReader(tuple(read), places, size)
    return NetworkGraph(_shipped_model(), names, reader, tuple(sizes), priors)


@cache
def _shipped_model() -> bytes:
    return GRAPH_FILE.read_bytes()


class OnnxRepresentation(FixedRepresentation):
    """Features by ONNX Runtime on the CPU, in numpy.

    A single frame is computed by one thread, in a session of its own: a second thread would gain a
    millisecond on idle cores and lose more on busy ones.

    Args:
        spec: The size of the frames and their normalisation.
        weights: The arrays of the network by their names in files; float16 or float32.
        graph: How the network computes.

    Raises:
        InputError: If ONNX Runtime cannot run the graph with these weights.
    """

    engine = "onnx"

    def __init__(
        self, spec: Spec, weights: Mapping[str, np.ndarray[Any, Any]], graph: NetworkGraph
    ) -> None:
        super().__init__(spec, graph.sizes, graph.priors)
        self.graph = graph
        self._weights = dict(weights)
        self._sessions: dict[int, Any] = {}
        self._making = threading.Lock()

    def weights(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return the arrays of the network by their names in files."""
        return self._weights

    def compute(self, frames: FrameArray) -> Floats:
        """Compute the features of a few frames in one pass, N x `dim`."""
        threads = 1 if len(frames) == 1 else thread_count()
        found = self._session(threads).run(None, {INPUT: np.ascontiguousarray(frames)})
        z: Floats = found[0] if self.graph.reader is None else self.graph.reader.whole(found)
        return z

    def maps(self, picture: FrameArray) -> Sequence[Floats]:
        """Compute the maps of one picture by all threads; see `FixedRepresentation.maps`."""
        found = self._session(thread_count()).run(None, {INPUT: picture[None]})
        return [x[0] for x in found]

    def window_reader(self) -> WindowReader:
        """Return what is read of a window."""
        if self.graph.reader is None:
            raise no_maps(self.spec.name)
        return self.graph.reader

    def reference(self) -> tuple[Array, Array] | None:
        """Return the shipped centre and spread of generic frames, or None if there are none."""
        return shipped_reference(self.spec, self.sizes, self._weights)

    def graph_arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the graph for a file, unless it is the one in the package."""
        if self.graph.model == _shipped_model():
            return {}
        parts = (self.graph.model, self.graph.facts())
        arrays = [np.frombuffer(part, np.uint8) for part in parts]
        return dict(zip(GRAPH_ARRAYS, arrays, strict=True))

    def _session(self, threads: int) -> Any:
        with self._making:
            if threads not in self._sessions:
                self._sessions[threads] = self._made_session(threads)
            return self._sessions[threads]

    def _made_session(self, threads: int) -> Any:
        is_shipped = self.graph.model == _shipped_model()
        constants = normalisation(self.spec) if is_shipped else {}
        return weighted_session(self.graph, self._weights, constants, threads)


def weighted_session(
    graph: NetworkGraph,
    weights: Mapping[str, np.ndarray[Any, Any]],
    constants: Mapping[str, np.ndarray[Any, Any]],
    threads: int,
) -> Any:
    """Make the session of a graph with its weights.

    Args:
        graph: How the network computes.
        weights: The arrays of the network by their names in files.
        constants: More arrays, by their names in the graph.
        threads: The number of threads of one operation.

    Raises:
        InputError: If ONNX Runtime cannot run the graph with these weights.
    """
    arrays = {
        name: np.ascontiguousarray(weights[own], np.float32) for name, own in graph.weights.items()
    }
    try:
        return make_session(graph.model, threads, {**arrays, **constants})
    except Exception as error:  # ONNX Runtime has exceptions of its own
        raise InputError(f"ONNX Runtime cannot compute this network: {error}") from error


def normalisation(spec: Spec) -> dict[str, np.ndarray[Any, Any]]:
    """Return the constants of (x / 255 - mean) / std = scale x + shift by name."""
    mean, std = np.asarray(spec.mean, np.float32), np.asarray(spec.std, np.float32)
    constants = (1 / (255 * std), -mean / std)
    return {
        name: x.astype(np.float32).reshape(1, 3, 1, 1)
        for name, x in zip(NORMALISATION, constants, strict=True)
    }


def make_session(
    model: bytes, threads: int, weights: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> Any:
    """Make an ONNX Runtime session on the CPU.

    Args:
        model: A serialised ONNX model.
        threads: The number of threads of one operation.
        weights: The arrays that the model leaves out, by their names in it.
    """
    import onnxruntime  # after the variable above is set

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # waiting threads must not occupy the cores
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False  # it allocates one block per pass, by which the heap grows
    if weights:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(x) for x in weights.values()]
        options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@cache
def thread_count() -> int:
    """Return the number of threads of one operation: OMP_NUM_THREADS, or else one per core."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted):
        return int(wanted)
    return usable_cores()


def usable_cores() -> int:
    """Return the number of processors that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def no_maps(network: str) -> InputError:
    """Return the error for a network whose features are not means of maps."""
    return InputError(
        f"the features of {network} are not means of maps that grow with the picture, "
        "so objects cannot be located: use a convolutional network such as mobilenet_v1"
    )
