"""Learner: the file of a learner, its graph by ONNX Runtime, its head in numpy. A lesson that fails changes nothing."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]

from . import files
from .analytic import LDA, Analytic, Prima, Ridge
from .errors import FileError, InputError
from .heads import CWR, DSLDA, Head, softmax
from .images import chunks, model_frames

Array = np.ndarray[Any, Any]
FORMAT = 1
MAX_LABEL = 200
UNDO = "undo/"
HEADS: dict[str, Any] = {
    "cwr*": CWR, "cwr+": CWR, "dslda": DSLDA, "ncm": Analytic, "lda": LDA, "ridge": Ridge, "prima": Prima,
}  # fmt: skip


@dataclass(frozen=True)
class Prediction:
    """What one frame shows: the likeliest name, how sure that is among the known ones, and the share of each."""

    label: str | None
    confidence: float
    known: bool
    scores: dict[str, float] = field(default_factory=dict)
    familiarity: float | None = None  # near 1: like the mean of what was taught of it; towards 0: like nothing that was taught


@dataclass
class _State:
    """Everything that a lesson may change. It is replaced whole, never changed in place."""

    classes: list[int]  # ids in the order of the columns
    names: dict[int, str]
    counts: dict[int, int]
    batches: int
    next_id: int
    lessons: list[str]
    head: Head | None


class Learner:
    """Predicts, and goes on learning, from a file that `primavista export --format edge` wrote."""

    @classmethod
    def load(cls, path: str | Path, *, threads: int | None = None) -> Learner:
        """The learner of a file; `threads` of the network (default: one a core)."""
        arrays, manifest = files.read(path)
        if files.GRAPH not in arrays:
            raise FileError(f"{path} has no graph to compute with. Where primavista is: primavista export {path} --format edge")
        if manifest.get("format") != FORMAT:
            raise FileError(f"{path} has format {manifest.get('format')!r}, and this version reads {FORMAT}: upgrade it")
        self = cls.__new__(cls)
        try:
            self._open(arrays, manifest, threads or os.cpu_count() or 1)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, InputError) as error:
            raise FileError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
        except Exception as error:  # of ONNX Runtime, which has classes of its own
            raise FileError(f"{path} holds a graph that cannot be run: {error}") from error
        return self

    def _open(self, arrays: dict[str, Array], manifest: dict[str, Any], threads: int) -> None:
        self._writing = Lock()
        self._manifest = manifest
        self._graph = arrays.pop(files.GRAPH)
        self.strategy, self._options = str(manifest["strategy"]["name"]), manifest["strategy"]["options"]
        self.size, self.threshold = int(manifest["backbone"]["size"]), float(manifest["threshold"])
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(f"{name} holds NaN or infinity")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.enable_mem_pattern = threads, 1, False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = self._graph.tobytes()
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        now = {name: array for name, array in arrays.items() if not name.startswith(UNDO)}
        records = manifest["classes"]
        names, ids = {int(c["id"]): str(c["name"]) for c in records}, [int(i) for i in now.pop("classes")]
        if len(set(ids)) < len(ids) or not set(names) <= set(ids) or len(set(names.values())) < len(records):
            raise InputError("its names do not belong to its classes")
        batches = int(now.pop("batches").item())
        head_names = [name for name in now if name.startswith(("head.", "statistics.", "seen.", "moments."))]
        self._frozen = {name: array for name, array in now.items() if name not in head_names}
        head: Head | None = None
        if self.strategy in HEADS:
            about = json.loads(self._session.get_modelmeta().custom_metadata_map["primavista"])
            own: dict[str, Any] = {"blocks": about["blocks"]} if self.strategy == "prima" else {}
            seed = int(manifest["strategy"]["seed"])
            head = HEADS[self.strategy]({n: now[n] for n in head_names}, self._options, seed, **own)
        else:
            self._frozen |= {name: now[name] for name in head_names}
        counts = {int(c["id"]): int(c["frames"]) for c in records}
        self._state = _State(ids, names, counts, batches, int(manifest["next_id"]), list(manifest["lessons"]), head)
        self._before: _State | None = None

    @property
    def labels(self) -> list[str]:
        """The known names, in the order in which they were first taught."""
        return list(self._state.names.values())

    @property
    def counts(self) -> dict[str, int]:
        """How many frames each name was taught with."""
        return {name: self._state.counts[i] for i, name in self._state.names.items()}

    @property
    def learns(self) -> bool:
        """Whether it can go on learning here, without torch."""
        return self._state.head is not None

    def learn(self, frames: Any, label: str | Sequence[str]) -> None:
        """One lesson: frames of one object (uint8, N x H x W x 3, RGB, any size) and its name, or a name a frame."""
        images, _ = model_frames(frames, self.size)
        given = [_label(label)] * len(images) if isinstance(label, str) else [_label(name) for name in label]
        if len(given) != len(images):
            raise InputError(f"there are {len(images)} frames but {len(given)} names: give one name for all, or one a frame")
        with self._writing:
            state = self._copy()
            z = self._features(images)
            ids = {name: i for i, name in state.names.items()}
            for name in given:
                if name not in ids:
                    ids[name] = state.next_id
                    state.next_id += 1
            numbers = np.array([ids[name] for name in given])
            state.classes += sorted(set(numbers.tolist()) - set(state.classes))
            assert state.head is not None
            state.head.grow(len(state.classes))
            place = {number: column for column, number in enumerate(state.classes)}
            i = state.batches + (1 if self._options.get("first_batch", True) else 2)  # the number of the batch
            state.head.learn(z, np.array([place[number] for number in numbers.tolist()]), i)
            state.batches += 1
            state.names = dict(sorted((number, name) for name, number in ids.items()))
            for number in numbers.tolist():
                state.counts[number] = state.counts.get(number, 0) + 1
            state.lessons.append(lesson_id(images))
            self._before, self._state = self._state, state

    def predict(self, frames: Any) -> Any:
        """A `Prediction` of one image, or a list of them of several."""
        images, single = model_frames(frames, self.size)
        state = self._state
        columns = [j for j, i in enumerate(state.classes) if i in state.names]
        names = [state.names[state.classes[j]] for j in columns]
        if not names:
            unknown = Prediction(None, 0.0, False)
            return unknown if single else [unknown] * len(images)
        told: list[float | None] = [None] * len(images)
        temperature = 1.0
        if state.head is None:  # the graph has the columns of the names that it was exported with
            raw = np.concatenate([self._session.run(["scores"], {"frames": part})[0] for part in chunks(images)])
        else:
            z = self._features(images)
            raw = state.head.scores(z, len(state.classes))
            familiar = state.head.familiar(len(state.classes))
            if familiar is not None:
                temperature = familiar.temperature
                told = familiar(state.head.phi(z).astype(np.float64), raw.argmax(1)).tolist()
            raw = raw[:, columns]
        shares = softmax((raw / temperature).astype(np.float32))
        found = [
            Prediction(names[int(row.argmax())], float(row.max()), self._is_known(float(row.max()), len(names), f),
                       dict(zip(names, row.tolist(), strict=True)), f)
            for row, f in zip(shares, told, strict=True)
        ]  # fmt: skip
        return found[0] if single else found

    def rename(self, old: str, new: str) -> None:
        """Give a known object another name; its id stays."""
        with self._writing:
            i = self._id(old)
            if _label(new) in self.labels:
                raise InputError(f"there is a {new!r} already: forget it first, or choose another name")
            state = copy.copy(self._state)
            state.names = {**state.names, i: new}
            self._before, self._state = self._state, state

    def forget(self, label: str) -> None:
        """Take an object out."""
        with self._writing:
            i = self._id(label)
            state = self._copy()
            assert state.head is not None
            state.head.drop(state.classes.index(i))
            state.classes.remove(i)
            del state.names[i], state.counts[i]
            self._before, self._state = self._state, state

    def undo(self) -> None:
        """Take the last lesson, renaming or forgetting back; one level, until the program ends."""
        with self._writing:
            if self._before is None:
                raise InputError("there is nothing to undo: only the last change can be taken back")
            self._state, self._before = self._before, None

    def save(self, path: str | Path) -> None:
        """Write everything into one file, whole or not at all; `primavista.Learner.load` reads it too."""
        state = self._state
        arrays = {**self._frozen, **(state.head.arrays if state.head else {}), files.GRAPH: self._graph}
        arrays["classes"] = np.array(state.classes, np.int64)
        arrays["batches"] = np.array(state.batches, np.int64)
        records = [{"id": i, "name": name, "frames": state.counts[i]} for i, name in state.names.items()]
        changed = {"classes": records, "next_id": state.next_id, "lessons": state.lessons, "undo": None, "engine": "onnx"}
        files.write(path, arrays, {**self._manifest, **changed})

    def _features(self, images: Array) -> Array:
        return np.concatenate([self._session.run(["z"], {"frames": part})[0] for part in chunks(images)])

    def _copy(self) -> _State:
        if self._state.head is None:
            raise InputError(
                f"{self.strategy} trains the network itself, which needs torch: learn with primavista and export again. "
                f"On the edge {', '.join(HEADS)} learn"
            )
        return copy.deepcopy(self._state)

    def _is_known(self, p: float, k: int, familiar: float | None) -> bool:
        if familiar is not None:
            return familiar >= self.threshold
        return k == 1 or (p - 1 / k) / (1 - 1 / k) >= self.threshold

    def _id(self, label: str) -> int:
        for i, name in self._state.names.items():
            if name == label:
                return i
        raise InputError(f"there is no {label!r}; known are {', '.join(self.labels) or 'none yet'}")


def lesson_id(images: Array) -> str:
    """Names a lesson by what was shown, eight frames of it: the same as primavista gives it."""
    last, steps = len(images) - 1, min(8, len(images))
    step = np.float32(last / max(steps - 1, 1))  # in single precision, from both ends, as torch spaces numbers
    places = [
        step * np.float32(k) if 2 * k < steps else np.float32(last) - step * np.float32(steps - 1 - k) for k in range(steps)
    ]
    sha = hashlib.sha256(repr(len(images)).encode())
    for k in sorted({int(place) for place in places}):
        sha.update(np.ascontiguousarray(images[k]).tobytes())
    return sha.hexdigest()[:32]


def _label(label: Any) -> str:
    if not isinstance(label, str) or not label.strip() or len(label) > MAX_LABEL:
        raise InputError(f"a name is a text of 1 to {MAX_LABEL} characters; got {label!r:.80}")
    return label
