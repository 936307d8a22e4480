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

from .analytic import LDA, Analytic, Prima, Ridge
from .errors import FileError, InputError
from .images import chunks, model_frames
from .storage import learner_file as files
from .storage.names import checked_name, checked_names
from .storage.tensors import same_bits
from .storage.validate import check_finite
from .streaming import CWR, DSLDA, Head, softmax

Array = np.ndarray[Any, Any]
FORMAT = 1
UNDO = "undo/"
LEARNS = (
    "head.",
    "statistics.",
    "seen.",
    "moments.",
)  # how the names of what a lesson changes begin
HEADS: dict[str, Any] = {
    "cwr*": CWR,
    "cwr+": CWR,
    "dslda": DSLDA,
    "ncm": Analytic,
    "lda": LDA,
    "ridge": Ridge,
    "prima": Prima,
}


@dataclass(frozen=True)
class Prediction:
    """What one frame shows: the likeliest name, how sure that is among the known ones, and the share of each."""

    label: str | None
    confidence: float
    known: bool
    scores: dict[str, float] = field(default_factory=dict)
    familiarity: float | None = (
        None  # near 1: like the mean of what was taught of it; towards 0: like nothing that was taught
    )


@dataclass
class _State:
    """Everything that a lesson may change. It is replaced whole, never changed in place."""

    classes: list[int]  # ids in the order of the columns
    names: dict[int, str]
    counts: dict[int, int]
    batches: int
    next_id: int
    lessons: list[str]
    frozen: dict[str, Array]  # what no lesson here changes
    head: Head | None

    @property
    def arrays(self) -> dict[str, Array]:
        """Its part of the file."""
        own = {
            "classes": np.array(self.classes, np.int64),
            "batches": np.array(self.batches, np.int64),
        }
        return {**self.frozen, **(self.head.arrays if self.head else {}), **own}

    @property
    def record(self) -> dict[str, Any]:
        """Its part of the manifest."""
        classes = [
            {"id": i, "name": name, "frames": self.counts[i]} for i, name in self.names.items()
        ]
        return {"classes": classes, "next_id": self.next_id, "lessons": self.lessons}


class Learner:
    """Predicts, and goes on learning, from a file that `primavista export --format edge` wrote."""

    @classmethod
    def load(cls, path: str | Path, *, threads: int | None = None) -> Learner:
        """The learner of a file; `threads` of the network (default: one a core)."""
        arrays, manifest = files.read(path)
        if files.GRAPH not in arrays:
            raise FileError(
                f"{path} has no graph to compute with. Where primavista is: primavista export {path} --format edge"
            )
        if manifest.get("format") != FORMAT:
            raise FileError(
                f"{path} has format {manifest.get('format')!r}, and this version reads {FORMAT}: upgrade it"
            )
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
        self.strategy, self._options = (
            str(manifest["strategy"]["name"]),
            manifest["strategy"]["options"],
        )
        self.size, self.threshold = int(manifest["backbone"]["size"]), float(manifest["threshold"])
        check_finite(arrays)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.enable_mem_pattern = (
            threads,
            1,
            False,
        )
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = self._graph.tobytes()
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        now = {name: array for name, array in arrays.items() if not name.startswith(UNDO)}
        self._state = self._restored(now, manifest)
        self._before: _State | None = None
        if (undo := manifest["undo"]) is not None:
            before = {
                name: arrays[UNDO + name] if UNDO + name in arrays else now[name]
                for name in undo["tensors"]
            }
            self._before = self._restored(before, undo)

    def _restored(self, arrays: dict[str, Array], record: dict[str, Any]) -> _State:
        """The state of some arrays of the file and their part of the manifest, checked."""
        rest, records = dict(arrays), record["classes"]
        names, ids = (
            {int(c["id"]): str(c["name"]) for c in records},
            [int(i) for i in rest.pop("classes")],
        )
        if (
            len(set(ids)) < len(ids)
            or not set(names) <= set(ids)
            or len(set(names.values())) < len(records)
        ):
            raise InputError("its names do not belong to its classes")
        batches = int(rest.pop("batches").item())
        head: Head | None = None
        if self.strategy in HEADS:
            own = {
                name: rest.pop(name).copy() for name in arrays if name.startswith(LEARNS)
            }  # no two states share them
            more: dict[str, Any] = {}
            if self.strategy == "prima":
                more = {
                    "blocks": json.loads(
                        self._session.get_modelmeta().custom_metadata_map["primavista"]
                    )["blocks"]
                }
            head = HEADS[self.strategy](
                own, self._options, int(self._manifest["strategy"]["seed"]), **more
            )
            assert head is not None
            head.check(len(ids), [column for column, i in enumerate(ids) if i in names])
        counts = {int(c["id"]): int(c["frames"]) for c in records}
        return _State(
            ids, names, counts, batches, int(record["next_id"]), list(record["lessons"]), rest, head
        )

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
        given = checked_names(label, len(images), self.labels)
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
            i = state.batches + (
                1 if self._options.get("first_batch", True) else 2
            )  # the number of the batch
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
            raw = np.concatenate(
                [self._session.run(["scores"], {"frames": part})[0] for part in chunks(images)]
            )
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
            Prediction(
                names[int(row.argmax())],
                float(row.max()),
                self._is_known(float(row.max()), len(names), f),
                dict(zip(names, row.tolist(), strict=True)),
                f,
            )
            for row, f in zip(shares, told, strict=True)
        ]
        return found[0] if single else found

    def rename(self, old: str, new: str) -> None:
        """Give a known object another name; its id stays."""
        with self._writing:
            i, new = self._id(old), checked_name(new)
            if new in self.labels:
                raise InputError(
                    f"there is a {new!r} already: forget it first, or choose another name"
                )
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

    def untaught(self) -> Learner:
        """A learner with the same network and options that was taught nothing: to be taught here, and merged by primavista."""
        head = copy.deepcopy(self._state.head)
        if not isinstance(head, Analytic):
            able = ", ".join(name for name, kind in HEADS.items() if issubclass(kind, Analytic))
            raise InputError(
                f"{self.strategy} depends on the order of its lessons and cannot be merged; these can: {able}"
            )
        head.clear()
        fresh = copy.copy(self)
        fresh._writing, fresh._before = Lock(), None
        fresh._state = _State([], {}, {}, 0, 0, [], self._state.frozen, head)
        return fresh

    def undo(self) -> None:
        """Take the last change back, made here or with torch; one level, and it survives saving and loading."""
        with self._writing:
            if self._before is None:
                raise InputError("there is nothing to undo: only the last change can be taken back")
            if not self.learns and any(
                not same_bits(a, self._before.arrays.get(n)) for n, a in self._state.arrays.items()
            ):
                raise InputError(
                    f"the last change trained the network of {self.strategy}: take it back with primavista"
                )
            self._state, self._before = self._before, None

    def save(self, path: str | Path) -> None:
        """Write everything into one file, whole or not at all; `primavista.Learner.load` reads it too."""
        arrays, undo = {**self._state.arrays, files.GRAPH: self._graph}, None
        if self._before is not None:
            before = self._before.arrays
            arrays |= {
                UNDO + name: a for name, a in before.items() if not same_bits(a, arrays.get(name))
            }
            undo = {**self._before.record, "tensors": sorted(before)}
        files.write(
            path, arrays, {**self._manifest, **self._state.record, "undo": undo, "engine": "onnx"}
        )

    def _features(self, images: Array) -> Array:
        return np.concatenate(
            [self._session.run(["z"], {"frames": part})[0] for part in chunks(images)]
        )

    def _copy(self) -> _State:
        if self._state.head is None:
            raise InputError(
                f"{self.strategy} trains the network itself, which needs torch: learn with primavista and export again. "
                f"On the edge {', '.join(HEADS)} learn"
            )
        return copy.deepcopy(self._state, {id(self._state.frozen): self._state.frozen})

    def _is_known(self, p: float, k: int, familiar: float | None) -> bool:
        if familiar is not None:
            return familiar >= self.threshold
        return k == 1 or (p - 1 / k) / (1 - 1 / k) >= self.threshold

    def _id(self, label: str) -> int:
        label = checked_name(label, self.labels)
        for i, name in self._state.names.items():
            if name == label:
                return i
        raise InputError(f"there is no {label!r}; known are {', '.join(self.labels) or 'none yet'}")


def lesson_id(images: Array) -> str:
    """Names a lesson by what was shown, eight frames of it: the same as primavista gives it."""
    last, steps = len(images) - 1, min(8, len(images))
    step = np.float32(
        last / max(steps - 1, 1)
    )  # in single precision, from both ends, as torch spaces numbers
    places = [
        step * np.float32(k)
        if 2 * k < steps
        else np.float32(last) - step * np.float32(steps - 1 - k)
        for k in range(steps)
    ]
    sha = hashlib.sha256(repr(len(images)).encode())
    for k in sorted({int(place) for place in places}):
        sha.update(np.ascontiguousarray(images[k]).tobytes())
    return sha.hexdigest()[:32]
