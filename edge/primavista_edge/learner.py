"""The learner of a file: its graph computed by ONNX Runtime, its head in numpy."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn, overload

import numpy as np

from .coach import (
    NOTHING,
    Advice,
    HeldOutTests,
    advise,
    count_answers,
    frames_to_test,
    from_records,
    to_records,
    with_ids,
    with_tests,
)
from .errors import FileError, InputError
from .heads.base import ClassArrays, Head, restored_beside, stored_beside
from .heads.dslda import DSLDAHead, StreamingStatistics
from .heads.frozen_cwr import ConsolidatedWeights, FrozenCWRHead, Training, softmax
from .heads.lda import LDAHead
from .heads.ncm import NCMHead
from .heads.prima import LessonHead, LessonSample, LessonStatistics
from .heads.prima_frames import FrameHead
from .heads.ridge import RidgeHead
from .heads.statistics import AnalyticHead, SufficientStatistics
from .images import Clip, Frame, chunks, model_frames, resize, whole_picture
from .lesson_report import LessonReport
from .locating import Floats, Judged, Level, Located, Place, WindowReader, find, level_sizes
from .prediction import Prediction, is_known
from .storage import learner_file as files
from .storage.disk import remove_leftovers
from .storage.learner_file import same_bits
from .storage.manifest import check_cost, checked_name, checked_names, parse_manifest
from .storage.validate import check_deviations, check_finite
from .watch import SECONDS, Watch, fuse

Array = np.ndarray[Any, Any]
UNDO = "undo/"
NAMES_SHOWN = 8
# Otherwise official builds of ONNX Runtime send events about each process to their maker (its
# Privacy.md). The variable is read when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# the groups of arrays that a lesson changes
LEARNS = ("head", "statistics", "seen", "moments", "lessons")


@dataclass(frozen=True)
class _Saved:
    """The parts of a file that make a head.

    Args:
        groups: Its arrays by group.
        options: The options of the strategy.
        seed: Its seed.
        facts: What the graph says about its features.
    """

    groups: dict[str, dict[str, Array]]
    options: dict[str, Any]
    seed: int
    facts: dict[str, Any]

    @property
    def statistics(self) -> SufficientStatistics:
        """The sums of an analytic head."""
        return SufficientStatistics(self.groups["moments"])


def _cwr(saved: _Saved) -> Head:
    options = saved.options
    if options.get("compat") is not None:
        raise InputError("a learner with compat= is learned with torch only")
    training = Training(
        lr=options["lr"] if options.get("lr_head") is None else options["lr_head"],
        epochs=options["epochs"],
        minibatch=options["minibatch"],
        momentum=options["momentum"],
        weight_decay=options["weight_decay"],
        seed=saved.seed,
    )
    weights = ConsolidatedWeights(saved.groups["head"])
    seen = SufficientStatistics(saved.groups["seen"]) if options.get("open_set") else None
    return FrozenCWRHead(weights, training, options["head"], options["wpast"], seen)


def _dslda(saved: _Saved) -> Head:
    options = saved.options
    statistics = StreamingStatistics(saved.groups["statistics"])
    open_set = bool(options.get("open_set"))
    return DSLDAHead(statistics, options["shrinkage"], options["base_init"], open_set)


def _ncm(saved: _Saved) -> Head:
    return NCMHead(saved.statistics)


def _lda(saved: _Saved) -> Head:
    return LDAHead(saved.statistics, saved.options["shrinkage"])


def _ridge(saved: _Saved) -> Head:
    names = ("expand", "balance", "rho")
    options = {name: saved.options[name] for name in names}
    return RidgeHead(saved.statistics, seed=saved.seed, **options)


def _prima(saved: _Saved) -> Head:
    blocks = saved.facts["blocks"]
    if saved.options.get("rule", "frames") == "frames":  # the only rule of version 0.1
        statistics = SufficientStatistics(saved.groups["moments"], blocks)
        return FrameHead(statistics, saved.options["balance"])
    sums = LessonStatistics.from_file("moments.", saved.groups["moments"])
    lessons = LessonStatistics(sums, blocks)
    kept = LessonSample.from_file("lessons.", saved.groups["lessons"])
    sample = LessonSample(kept, lessons.blocks)
    return LessonHead(lessons, sample, saved.facts["priors"])


MERGEABLE: dict[str, Callable[[_Saved], Head]] = {
    "ncm": _ncm,
    "lda": _lda,
    "ridge": _ridge,
    "prima": _prima,
}
HEADS: dict[str, Callable[[_Saved], Head]] = {
    "cwr*": _cwr,
    "cwr+": _cwr,
    "dslda": _dslda,
    **MERGEABLE,
}


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
    # how the last lessons of each id were answered before they were learned
    held_out: HeldOutTests = field(default_factory=dict)
    # what a file has of it, if it was restored as the state before the last change
    stored: dict[str, Array] | None = None

    @property
    def groups(self) -> Mapping[str, ClassArrays]:
        """The groups of arrays of its head by name."""
        return self.head.groups if self.head else {}

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays of the state in the file."""
        own = {
            "classes": np.array(self.classes, np.int64),
            "batches": np.array(self.batches, np.int64),
        }
        return {**self.frozen, **(self.head.named_arrays() if self.head else {}), **own}

    @property
    def record(self) -> dict[str, Any]:
        """The fields of the state in the manifest."""
        classes: list[dict[str, Any]] = []
        for i, name in self.names.items():
            told = {"held_out": to_records(self.held_out[i])} if i in self.held_out else {}
            classes.append({"id": i, "name": name, "frames": self.counts[i], **told})
        return {"classes": classes, "next_id": self.next_id, "lessons": self.lessons}

    def identify(self, names: Sequence[str]) -> list[int]:
        """Find the id of each name; a new name gets the next id."""
        ids = {name: i for i, name in self.names.items()}
        for name in names:
            if name not in ids:
                ids[name] = self.next_id
                self.next_id += 1
        self.names = dict(sorted((i, name) for name, i in ids.items()))
        return [ids[name] for name in names]

    def columns_of(self, ids: Sequence[int]) -> Array:
        """Find the column of each id; new ids get new columns, in the order of the ids."""
        self.classes += sorted(set(ids) - set(self.classes))
        columns = {i: column for column, i in enumerate(self.classes)}
        return np.array([columns[i] for i in ids])


class Learner:
    """Predicts, and continues to learn, from a file that `primavista export --format edge` wrote.

    A lesson that fails changes nothing.
    """

    @classmethod
    def load(
        cls, path: str | Path, *, threads: int | None = None, trusted: bool = False
    ) -> Learner:
        """Open the file of a learner.

        Args:
            path: The file.
            threads: The threads that compute the network; None for one per core.
            trusted: Whether the file may ask for images of more than 512 x 512 pixels and for
                hundreds of epochs in each lesson.

        Returns:
            The learner.

        Raises:
            FileError: If the file cannot be read, is damaged, or is not for the edge.
        """
        arrays, manifest = files.read(path)
        checked = parse_manifest(manifest, str(path))
        if not trusted:
            check_cost(checked, str(path))
        if files.GRAPH not in arrays:
            raise FileError(
                f"{path} has no graph to compute with. "
                f"Run, where primavista is installed: primavista export {path} --format edge"
            )
        self = cls.__new__(cls)
        try:
            self._open(arrays, manifest, threads or os.cpu_count() or 1)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, InputError) as error:
            raise FileError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
        except Exception as error:  # ONNX Runtime has exceptions of its own
            raise FileError(f"{path} holds a graph that cannot be run: {error}") from error
        return self

    def _open(self, arrays: dict[str, Array], manifest: dict[str, Any], threads: int) -> None:
        self._writing = Lock()
        self._manifest = manifest
        # earlier versions have no weights apart, and no maps
        self._graph = {name: arrays.pop(name) for name in files.GRAPHS if name in arrays}
        self._threads = threads
        self._maps: tuple[Any, WindowReader] | None = None
        self.strategy = str(manifest["strategy"]["name"])
        self._options = manifest["strategy"]["options"]
        self.size, self.threshold = int(manifest["backbone"]["size"]), float(manifest["threshold"])
        check_finite(arrays)
        check_deviations(arrays)
        now = {name: array for name, array in arrays.items() if not name.startswith(UNDO)}
        self._session = _session(self._graph, now, threads)
        self._state = self._restored(now, manifest)
        self._before: _State | None = None
        undo = manifest["undo"]
        if undo is not None:
            stored = {
                name.removeprefix(UNDO): array
                for name, array in arrays.items()
                if name.startswith(UNDO)
            }
            different = restored_beside(self._state.groups, stored)
            before = {
                name: different[name] if name in different else now[name]
                for name in undo["tensors"]
            }
            self._before = self._restored(before, undo)
            self._before.stored = stored

    def _restored(self, arrays: dict[str, Array], record: dict[str, Any]) -> _State:
        """The state of some arrays of the file and their part of the manifest, checked."""
        frozen, records = dict(arrays), record["classes"]
        names = {int(c["id"]): str(c["name"]) for c in records}
        ids = [int(i) for i in frozen.pop("classes")]
        if len(set(ids)) < len(ids) or not set(names) <= set(ids):
            raise InputError("its names do not belong to its classes")
        counts = {int(c["id"]): int(c["frames"]) for c in records}
        batches = int(frozen.pop("batches").item())
        head = self._restored_head(frozen)
        if head is not None:
            taught = {column: counts[i] for column, i in enumerate(ids) if i in names}
            head.check(len(ids), list(taught))
            for name, group in head.groups.items():
                group.check_frames(f"{name}.", taught)
        next_id, lessons = int(record["next_id"]), list(record["lessons"])
        held_out = from_records({int(c["id"]): c.get("held_out", []) for c in records})
        return _State(ids, names, counts, batches, next_id, lessons, frozen, head, held_out)

    def _restored_head(self, arrays: dict[str, Array]) -> Head | None:
        """The head of the strategy; it takes what it learns out of `arrays`, and copies it."""
        if self.strategy not in HEADS:
            return None
        groups: dict[str, dict[str, Array]] = {}
        for name in list(arrays):
            group, _, own = name.partition(".")
            if group in LEARNS and own:
                groups.setdefault(group, {})[own] = arrays.pop(name).copy()
        told = self._session.get_modelmeta().custom_metadata_map
        facts = json.loads(told.get("primavista", "{}"))
        seed = int(self._manifest["strategy"]["seed"])
        return HEADS[self.strategy](_Saved(groups, self._options, seed, facts))

    def __repr__(self) -> str:
        objects = ", ".join(f"{name!r}: {n}" for name, n in list(self.counts.items())[:NAMES_SHOWN])
        more = f", ... ({len(self.counts)} in all)" if len(self.counts) > NAMES_SHOWN else ""
        return f"Learner({self.strategy!r}, size={self.size}, objects={{{objects}{more}}})"

    def __copy__(self) -> Learner:
        """Return a learner that knows the same; states are shared and never modified."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        made._writing = Lock()
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Learner:
        """Return a learner that knows the same, as `copy.copy` does."""
        return copy.copy(self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise InputError(
            "a learner is not pickled: whoever loads a pickle runs the code in it.\n"
            '  right: learner.save("kitchen.edge.pv"); learner = Learner.load("kitchen.edge.pv")'
        )

    @property
    def labels(self) -> list[str]:
        """The known names, in the order in which they were first taught."""
        return list(self._state.names.values())

    @property
    def counts(self) -> dict[str, int]:
        """The number of frames that each name was taught with."""
        return {name: self._state.counts[i] for i, name in self._state.names.items()}

    @property
    def learns(self) -> bool:
        """True if it can continue to learn here, without torch."""
        return self._state.head is not None

    def learn(
        self,
        frames: Frame | Clip,
        label: str | Sequence[str],
        *,
        bgr: bool = False,
        coach: bool = True,
    ) -> LessonReport:
        """Learn one lesson.

        Args:
            frames: Frames of one object, uint8, N x H x W x 3, RGB, of any size.
            label: Its name, or one name per frame.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.
            coach: Whether to predict some frames of a known object first, for `advice`.

        Returns:
            The frames per name, and which names are new.

        Raises:
            InputError: If the frames or names are not valid, or the lesson needs torch.
        """
        images, _ = model_frames(frames, self.size, bgr)
        names = checked_names(label, len(images), self.labels)
        with self._writing:
            state, head = self._copy()
            i = state.batches + (1 if self._options.get("first_batch", True) else 2)
            if i == 1 and self._options.get("tune"):
                raise InputError(
                    "tune=True trains the network on batch 1, which needs torch: "
                    "teach the first objects there"
                )
            z, lesson = self._features(images), lesson_id(images)
            if coach and lesson not in state.lessons:
                tests = self._held_out(self._state, z, names)
                state.held_out = with_tests(state.held_out, tests)
            ids = state.identify(names)
            columns = state.columns_of(ids)
            head.expand(len(state.classes))
            head.learn(z, columns, i)
            state.batches += 1
            for number in ids:
                state.counts[number] = state.counts.get(number, 0) + 1
            state.lessons.append(lesson)
            before = set(self.labels)
            self._before, self._state = self._state, state
        new = tuple(name for name in dict.fromkeys(names) if name not in before)
        return LessonReport(lesson, dict(Counter(names)), new)

    @overload
    def predict(self, frames: Frame, *, bgr: bool = False) -> Prediction: ...

    @overload
    def predict(self, frames: Clip, *, bgr: bool = False) -> list[Prediction]: ...

    def predict(self, frames: Frame | Clip, *, bgr: bool = False) -> Prediction | list[Prediction]:
        """Recognise what frames show.

        Args:
            frames: One image (H x W x 3, RGB, uint8, any size), or several (an array
                N x H x W x 3, or a list).
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            A `Prediction` for one image, a list of them for several.
        """
        images, single = model_frames(frames, self.size, bgr)
        found = self._predictions(images)
        return found[0] if single else found

    def predict_video(self, frames: Frame | Clip, *, bgr: bool = False) -> Prediction:
        """Recognise what a clip of one object shows: one answer from all its frames.

        Args:
            frames: Its frames, as for `predict`.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            The answer of their mean scores and mean familiarity, as primavista gives it.
        """
        images, _ = model_frames(frames, self.size, bgr)
        return fuse(self._predictions(images), self.threshold)

    def watch(self, seconds: float = SECONDS, *, bgr: bool = False) -> Watch:
        """Recognise the frames of a camera, steadied over the last second.

        Args:
            seconds: How long a frame counts; 0 answers each frame by itself.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            An object whose `predict` takes the next frame; it starts anew when the scene changes.
        """
        return Watch(self, seconds, bgr=bgr)

    def locate(
        self, frame: Frame, *, threshold: float | None = None, bgr: bool = False
    ) -> list[Located]:
        """Find where in a frame taught objects are, several of them at once.

        Args:
            frame: One image (H x W x 3, RGB, uint8, any size); all of it is searched.
            threshold: The familiarity (or confidence) from which on a window counts as known; by
                default that of the learner.
            bgr: Whether the colours are in the order blue, green, red, as OpenCV has them.

        Returns:
            What was found, the best first, as primavista finds it.

        Raises:
            InputError: If it is not one image, or the learner cannot locate.
            FileError: If the maps of the file cannot be computed.
        """
        picture = whole_picture(frame, bgr)
        state, limit = self._state, self.threshold if threshold is None else threshold
        if not 0 <= limit <= 1:
            raise InputError(f"threshold must be from 0 to 1; got {limit!r}")
        head = state.head
        if not state.names:
            return []
        if head is None:
            raise InputError(f"{self.strategy} trains its network, so it cannot locate")
        session, reader = self._map_session()
        height, width = picture.shape[:2]
        levels = []
        for size in level_sizes(width, height, reader.size):
            maps = session.run(None, {"frames": resize(picture, *size)[None]})
            scale = width / size[0], height / size[1]
            levels.append(Level([x[0] for x in maps], size, scale))
        names = [state.names[i] for i in state.classes if i in state.names]

        def judge(z: Floats) -> Judged:
            found = self._judged(state, head, z)
            shares = np.array([list(one.scores.values()) for one in found])
            told = [one.familiarity for one in found]
            return Judged(shares, None if told[0] is None else np.array(told))

        def known(confidence: float, familiarity: float | None) -> bool:
            return is_known(confidence, len(names), familiarity, limit)

        return [
            Located(names[window.column], box, window.confidence, window.familiarity)
            for window, box in find(levels, reader, judge, known)
            if names[window.column] != NOTHING
        ]

    def _map_session(self) -> tuple[Any, WindowReader]:
        """The session that computes the maps of pictures, and what is read of a window."""
        if self._maps is not None:
            return self._maps
        if files.MAPS not in self._graph:
            raise InputError(
                "this file has no maps to locate with: export it again with a newer primavista; "
                "a network without maps cannot locate"
            )
        try:
            names = (files.MAPS, files.MAPS_WEIGHTS)
            session = _session(self._graph, self._state.frozen, self._threads, names)
            told = json.loads(session.get_modelmeta().custom_metadata_map["windows"])
            places = tuple(Place(int(k), float(share)) for k, share in told["places"])
            maps = len(session.get_outputs())
            if not all(0 <= place.map < maps and 0 < place.share <= 1 for place in places):
                raise InputError("its places are not those of its maps")
            self._maps = session, WindowReader(places, bool(told["root"]), self.size)
        except Exception as error:  # ONNX Runtime has exceptions of its own
            raise FileError(f"the maps of the file cannot be computed: {error}") from error
        return self._maps

    def _predictions(self, images: Array) -> list[Prediction]:
        state = self._state
        if not state.names:
            return [Prediction(None, 0.0, False)] * len(images)
        if state.head is None:  # the graph has the columns of the names that it was exported with
            parts = [self._session.run(["scores"], {"frames": part})[0] for part in chunks(images)]
            return self._named(state, np.concatenate(parts), 1.0, [None] * len(images))
        return self._judged(state, state.head, self._features(images))

    def _judged(self, state: _State, head: Head, z: Array) -> list[Prediction]:
        """The predictions for features."""
        classes = len(state.classes)
        columns = [j for j, i in enumerate(state.classes) if i in state.names]
        scores = head.scores(z, classes)
        familiarity = head.familiarity(classes)
        if familiarity is None:
            return self._named(state, scores[:, columns], 1.0, [None] * len(z))
        told = familiarity(head.features(z).astype(np.float64), scores.argmax(1)).tolist()
        return self._named(state, scores[:, columns], familiarity.temperature, told)

    def _named(
        self, state: _State, scores: Array, temperature: float, told: Sequence[float | None]
    ) -> list[Prediction]:
        """The predictions for scores, one column per name, and the familiarity of each frame."""
        names = [state.names[i] for i in state.classes if i in state.names]
        probabilities = softmax((scores / temperature).astype(np.float32))
        return [
            self._prediction(names, row, familiarity)
            for row, familiarity in zip(probabilities, told, strict=True)
        ]

    def _held_out(self, state: _State, z: Array, names: Sequence[str]) -> HeldOutTests:
        """Predict some frames of known objects, which have not been learned yet, and count."""
        ids = {name: i for i, name in state.names.items()}
        chosen = frames_to_test([ids.get(name, -1) for name in names], state.names)
        if not chosen or state.head is None:
            return {}
        found = self._judged(state, state.head, z[chosen])
        answers = [ids[prediction.label] for prediction in found if prediction.label is not None]
        labels = [ids[names[position]] for position in chosen]
        return count_answers(labels, answers, [prediction.known for prediction in found])

    def advice(self) -> list[Advice]:
        """Say what to teach next, urgent things first.

        Returns:
            One `Advice` per pair of objects that are confused, and one per other object.
        """
        state = self._state
        return advise(state.held_out, state.names)

    def _prediction(self, names: list[str], row: Array, familiarity: float | None) -> Prediction:
        best, confidence = names[int(row.argmax())], float(row.max())
        known = is_known(confidence, len(names), familiarity, self.threshold)
        scores = dict(zip(names, row.tolist(), strict=True))
        return Prediction(best, confidence, known, scores, familiarity)

    def rename(self, old: str, new: str) -> None:
        """Give a known object another name; its id stays.

        Args:
            old: Its name.
            new: The other name.

        Raises:
            InputError: If there is no such object, or the other name is taken or not valid.
        """
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
        """Take an object out.

        Args:
            label: Its name.

        Raises:
            InputError: If there is no such object, or forgetting it needs torch.
        """
        with self._writing:
            i = self._id(label)
            state, head = self._copy()
            head.forget(state.classes.index(i))
            state.classes.remove(i)
            del state.names[i], state.counts[i]
            state.held_out = with_ids(state.held_out, {k: k for k in state.names})
            self._before, self._state = self._state, state

    def untaught(self) -> Learner:
        """Make a learner with the same network and options that was taught nothing.

        Teach it here, and merge it elsewhere with primavista.

        Returns:
            The new learner.

        Raises:
            InputError: If learners of this strategy cannot be merged.
        """
        head = copy.deepcopy(self._state.head)
        if not isinstance(head, AnalyticHead):
            raise InputError(
                f"{self.strategy} depends on the order of its lessons and cannot be merged; "
                f"these can: {', '.join(MERGEABLE)}"
            )
        head.clear()
        fresh = copy.copy(self)
        fresh._before = None
        fresh._state = _State([], {}, {}, 0, 0, [], self._state.frozen, head)
        return fresh

    def undo(self) -> None:
        """Take the last change back, made here or with torch.

        There is one level, and it survives saving and loading.

        Raises:
            InputError: If there is nothing to take back, or taking it back needs torch.
        """
        with self._writing:
            if self._before is None:
                raise InputError("there is nothing to undo: only the last change can be taken back")
            if not self.learns and self._network_changed(self._before):
                raise InputError(
                    f"the last change trained the network of {self.strategy}: "
                    "take it back with primavista"
                )
            self._state, self._before = replace(self._before, stored=None), None

    def _network_changed(self, before: _State) -> bool:
        old = before.arrays
        return any(not same_bits(a, old.get(name)) for name, a in self._state.arrays.items())

    def save(self, path: str | Path) -> None:
        """Write everything into one file, whole or not at all; `primavista.Learner` reads it too.

        Args:
            path: The file.

        Raises:
            FileError: If it cannot be written.
        """
        arrays, undo = {**self._state.arrays, **self._graph}, None
        if self._before is not None:
            before = self._before.arrays
            different = {n: a for n, a in before.items() if not same_bits(a, arrays.get(n))}
            stored = self._before.stored
            if stored is None:
                stored = stored_beside(self._before.groups, self._state.groups, different)
            arrays |= {UNDO + name: a for name, a in stored.items()}
            undo = {**self._before.record, "tensors": sorted(before)}
        record = {**self._manifest, **self._state.record, "undo": undo, "engine": "onnx"}
        target = Path(os.path.realpath(path))
        remove_leftovers(target.parent, target.name)  # of saves that were killed
        files.write(target, arrays, record)

    def _features(self, images: Array) -> Array:
        return np.concatenate(
            [self._session.run(["z"], {"frames": part})[0] for part in chunks(images)]
        )

    def _copy(self) -> tuple[_State, Head]:
        """A state to change, and its head."""
        frozen = self._state.frozen
        state = copy.deepcopy(self._state, {id(frozen): frozen})
        if state.head is None:
            raise InputError(
                f"{self.strategy} trains the network itself, which needs torch: "
                f"learn with primavista and export again. On the edge {', '.join(HEADS)} learn"
            )
        return state, state.head

    def _id(self, label: str) -> int:
        label = checked_name(label, self.labels)
        for i, name in self._state.names.items():
            if name == label:
                return i
        raise InputError(f"there is no {label!r}; known are {', '.join(self.labels) or 'none yet'}")


def _session(
    graph: dict[str, Array],
    arrays: dict[str, Array],
    threads: int,
    names: tuple[str, str] = (files.GRAPH, files.GRAPH_WEIGHTS),
) -> Any:
    """A session of the graph of a file, whose constants are arrays of the file."""
    import onnxruntime  # type: ignore[import-untyped]  # after the variable above is set

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    weights = json.loads(graph[names[1]].tobytes()) if names[1] in graph else {}
    if weights:
        values = [
            onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(arrays[name], np.float32))
            for name in weights.values()
        ]
        options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(
        graph[names[0]].tobytes(), options, providers=["CPUExecutionProvider"]
    )


def lesson_id(images: Array) -> str:
    """Name a lesson by eight of its frames; primavista gives it the same name.

    Args:
        images: The frames as the network sees them, N x size x size x 3.

    Returns:
        32 hexadecimal digits.
    """
    last, steps = len(images) - 1, min(8, len(images))
    # in single precision, from both ends, as torch spaces numbers
    step = np.float32(last / max(steps - 1, 1))
    first_half = [step * np.float32(k) for k in range(steps) if 2 * k < steps]
    second_half = [
        np.float32(last) - step * np.float32(steps - 1 - k) for k in range(len(first_half), steps)
    ]
    sha = hashlib.sha256(repr(len(images)).encode())
    for k in sorted({int(place) for place in first_half + second_half}):
        sha.update(np.ascontiguousarray(images[k]).tobytes())
    return sha.hexdigest()[:32]
