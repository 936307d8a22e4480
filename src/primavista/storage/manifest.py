"""The manifest of a saved learner, checked field by field, and the names of the objects in it.

A file may come from anybody. The rules of its manifest are one table, for primavista and for
primavista-edge: `MANIFEST` and `OPTIONS`. The rule for a new name, `checked_name`, is the same in
Python, in the terminal, in the service and on the edge.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, TypeAlias

from primavista.errors import FileError, InputError
from primavista.storage.settings import OptionValue

FORMAT = 1
MAX_TESTS = 16  # of one object; more than any version keeps
MAX_TEST_FRAMES = 64
MAX_COUNT = 2**53  # counts are below it: integers in float64 are exact up to it

# What a file may cost whoever loads it, unless the user says that it is trusted.
MAX_SIZE = 512
MOST_WORK = {
    "epochs": 300,
    "epochs_1": 300,
    "rise": 100_000,
    "window": 100_000,
    "fall": 100_000,
    "most": 100_000,
}

MAX_LABEL = 200
UNKNOWN = "unknown"  # what every interface calls something that looks like nothing that was taught
# Control characters, invisible ones and those that turn the direction of writing, halves of
# surrogate pairs, line separators, paragraph separators: two names must not look the same.
REFUSED_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # of Persian, of Indian scripts and of emoji: between their letters
VARIANTS = "\ufe0e\ufe0f"  # text or emoji: after symbols
FILLERS = "\u034f\u115f\u1160\u3164\uffa0"  # letters without a shape

Triple: TypeAlias = tuple[float, float, float]
Rule: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class AnswerRecord:
    """The number of held-out frames of one lesson that were taken for the class `id`.

    `known` of them counted as known.
    """

    id: int
    frames: int
    known: int


@dataclass(frozen=True)
class ClassRecord:
    """A known object: its id, which never changes, its name, and its number of frames taught.

    `held_out` says how its last lessons were answered before they were learned, one list each. It
    is left out of the file if it is empty, as in files of versions that did not count that.
    """

    id: int
    name: str
    frames: int
    held_out: tuple[tuple[AnswerRecord, ...], ...] = ()

    @property
    def held_out_counts(self) -> list[list[dict[str, int]]]:
        """The contents of `held_out` as plain numbers."""
        return [[asdict(one) for one in test] for test in self.held_out]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that goes into the file."""
        found: dict[str, Any] = {"id": self.id, "name": self.name, "frames": self.frames}
        return found | ({"held_out": self.held_out_counts} if self.held_out else {})


@dataclass(frozen=True)
class StrategyRecord:
    """The name of the strategy, its seed and all of its options."""

    name: str
    seed: int
    options: dict[str, OptionValue]


@dataclass(frozen=True)
class BackboneRecord:
    """The backbone and its preprocessing.

    The centre square of an image is resized to `size` x `size` (antialiased, bilinear), and then
    becomes (x / 255 - mean) / std.
    """

    name: str
    size: int
    mean: Triple
    std: Triple
    options: dict[str, Any]


@dataclass(frozen=True)
class UndoRecord:
    """The state before the last change; the file holds those of its tensors that differ."""

    classes: tuple[ClassRecord, ...]
    next_id: int
    lessons: tuple[str, ...]
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """The whole manifest. `engine` is what computed the features."""

    format: int
    strategy: StrategyRecord
    backbone: BackboneRecord
    classes: tuple[ClassRecord, ...]
    next_id: int
    lessons: tuple[str, ...]
    threshold: float
    undo: UndoRecord | None
    engine: str = "torch"


class _ProblemError(ValueError):
    """A field that breaks its rule: the path to the field, and what is wrong with it."""

    def __init__(self, problem: str, *path: str | int) -> None:
        super().__init__(problem)
        self.path = path


def whole(low: int, high: int) -> Rule:
    """Return the rule of a whole number from `low` to `high`, which is not a truth value."""

    def rule(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _ProblemError(f"expected a whole number from {low} to {high}")
        return value

    return rule


def real(low: float, high: float) -> Rule:
    """Return the rule of a finite number from `low` to `high`, which becomes a float."""

    def rule(value: Any) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise _ProblemError(f"expected a number from {low:g} to {high:g}")
        return float(value)

    return rule


def text(least: int, most: int) -> Rule:
    """Return the rule of a text of `least` to `most` characters."""

    def rule(value: Any) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most:
            raise _ProblemError(f"expected a text of {least} to {most} characters")
        return value

    return rule


def one_of(*choices: Any) -> Rule:
    """Return the rule of a value that is one of some values."""

    def rule(value: Any) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise _ProblemError(f"expected one of {', '.join(map(str, choices))}")
        return value

    return rule


def optional(given: Rule) -> Rule:
    """Return the rule of a value that may be null instead."""
    return lambda value: None if value is None else given(value)


def several(item: Rule, most: int | None = None, exactly: int | None = None) -> Rule:
    """Return the rule of a list whose items all have one rule; it becomes a tuple."""

    def rule(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _ProblemError("expected a list")
        if (most is not None and len(value) > most) or exactly not in (None, len(value)):
            raise _ProblemError(f"expected a list of {exactly or most} items at most")
        return tuple(_checked(item, one, place) for place, one in enumerate(value))

    return rule


def option_values(value: Any) -> dict[str, OptionValue]:
    """Check options: an object of truth values, finite numbers, texts and nulls."""
    if not isinstance(value, dict):
        raise _ProblemError("expected an object")
    for name, one in value.items():
        finite = not isinstance(one, float) or math.isfinite(one)
        if not isinstance(one, bool | int | float | str | None) or not finite:
            raise _ProblemError("expected a truth value, a finite number, a text or null", name)
        if isinstance(one, int) and not -(2**63) <= one < 2**63:
            raise _ProblemError("the number is too large", name)
    return dict(value)


def record(kind: type[Any], **rules: Rule) -> Rule:
    """Return the rule of an object with the fields of a dataclass, and no others."""
    needed = {one.name for one in fields(kind) if one.default is MISSING}

    def rule(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _ProblemError("expected an object")
        for name in value:
            if name not in rules:
                raise _ProblemError("there is no such field", name)
        for name in sorted(needed - set(value)):
            raise _ProblemError("it is missing", name)
        return kind(**{name: _checked(rules[name], one, name) for name, one in value.items()})

    return rule


def _checked(rule: Rule, value: Any, place: str | int) -> Any:
    try:
        return rule(value)
    except _ProblemError as problem:
        raise _ProblemError(str(problem), place, *problem.path) from None


def _answer(value: Any) -> AnswerRecord:
    found: AnswerRecord = _ANSWER(value)
    if found.known > found.frames:
        raise _ProblemError(f"{found.known} of {found.frames} frames are known")
    return found


def _numbered(rule: Rule) -> Rule:
    """Return the rule of a state: ids and names occur once, and the next id is not in use."""

    def checked(value: Any) -> Any:
        found = rule(value)
        ids = [one.id for one in found.classes]
        names = {one.name for one in found.classes}
        if len(set(ids)) < len(ids) or len(names) < len(ids):
            raise _ProblemError("an id or a name occurs twice", "classes")
        if found.next_id <= max(ids, default=-1):
            raise _ProblemError("that id is in use already", "next_id")
        return found

    return checked


COUNT = whole(0, MAX_COUNT - 1)
_ANSWER = record(
    AnswerRecord, id=COUNT, frames=whole(1, MAX_TEST_FRAMES), known=whole(0, MAX_TEST_FRAMES)
)
_STATE: dict[str, Rule] = {
    "classes": several(
        record(
            ClassRecord,
            id=COUNT,
            name=text(1, MAX_LABEL),
            frames=COUNT,
            held_out=several(several(_answer, MAX_TEST_FRAMES), MAX_TESTS),
        )
    ),
    "next_id": COUNT,
    "lessons": several(text(0, 200)),
}
MANIFEST = _numbered(
    record(
        Manifest,
        format=whole(1, FORMAT),
        strategy=record(
            StrategyRecord,
            name=text(0, 100),
            seed=whole(-(2**63), 2**63 - 1),
            options=option_values,
        ),
        backbone=record(
            BackboneRecord,
            name=text(0, 100),
            size=whole(1, 2048),
            mean=several(real(-1e6, 1e6), exactly=3),
            std=several(real(1e-6, 1e6), exactly=3),
            options=option_values,
        ),
        **_STATE,
        threshold=real(0, 1),
        undo=optional(_numbered(record(UndoRecord, **_STATE, tensors=several(text(0, 1000))))),
        engine=one_of("torch", "onnx"),
    )
)
_FLAG = one_of(True, False)
_TRAINED: dict[str, Rule] = {
    "lr": real(0, 1e3),
    "lr_head": optional(real(0, 1e3)),
    "epochs": whole(1, 10_000),
    "minibatch": whole(1, 2**20),
    "momentum": real(0, 1),
    "weight_decay": real(0, 1e3),
    "head": one_of("linear", "cwr+", "cwr*"),
    "wpast": one_of("sqrt", "ratio"),
    "first_batch": _FLAG,
    "open_set": _FLAG,
}
# the options that primavista-edge learns by, by strategy
OPTIONS: dict[str, dict[str, Rule]] = {
    "ncm": {},
    "lda": {"shrinkage": optional(real(1e-12, 1))},
    "ridge": {
        "expand": optional(whole(1, 2**15)),
        "balance": real(0, 1),
        "rho": optional(real(1e-8, 1e8)),
    },
    "prima": {"balance": real(0, 1), "rule": one_of("lessons", "frames")},
    "dslda": {
        "shrinkage": real(1e-12, 1),
        "base_init": _FLAG,
        "open_set": _FLAG,
        "tune": _FLAG,
        "first_batch": _FLAG,
    },
    "cwr*": _TRAINED,
    "cwr+": _TRAINED,
}


def parse_manifest(raw: Mapping[str, Any], name: str) -> Manifest:
    """Check the manifest of a file.

    Args:
        raw: The JSON object in the file.
        name: What messages call the file.

    Raises:
        FileError: If it is not the manifest of a learner, or of a newer format.
    """
    version = raw.get("format")
    if type(version) is not int or version < 1:
        raise FileError(f"{name} is not a learner: its manifest has no format number")
    if version > FORMAT:
        raise FileError(
            f"{name} has format {version}, and this version of primavista reads up to {FORMAT}: "
            "pip install --upgrade primavista"
        )
    try:
        found: Manifest = MANIFEST(raw)
        for option, rule in OPTIONS.get(found.strategy.name, {}).items():
            if option in found.strategy.options:
                place = f"strategy.options.{option}"
                _checked(rule, found.strategy.options[option], place)
    except _ProblemError as problem:
        where = ".".join(map(str, problem.path))
        raise FileError(f"{name} has an invalid manifest field {where}: {problem}") from None
    return found


def check_cost(manifest: Manifest, name: str) -> None:
    """Refuse a file that would take much memory or time with every frame or every lesson.

    Args:
        manifest: The manifest of the file.
        name: What messages call the file.

    Raises:
        FileError: If the images are larger than `MAX_SIZE`, or a lesson takes more steps than
            `MOST_WORK` allows.
    """
    advice = "if you trust it, load it in Python with trusted=True"
    size = manifest.backbone.size
    if size > MAX_SIZE:
        raise FileError(
            f"{name} asks for images of {size} x {size} pixels, and the limit for files is "
            f"{MAX_SIZE}: {advice}"
        )
    for option, most in MOST_WORK.items():
        value = manifest.strategy.options.get(option)
        if isinstance(value, int) and value > most:
            raise FileError(
                f"{name} asks for {option}={value} in each lesson, and the limit for files is "
                f"{most}: {advice}"
            )


def checked_name(label: object, known: Collection[str] = ()) -> str:
    """Return a name in the form in which it is kept: composed (NFC), without blanks around it.

    Args:
        label: What the user calls an object.
        known: Names that are accepted as they are: files of earlier versions may hold names that
            would be refused today.

    Raises:
        InputError: If it is not a text of 1 to 200 characters, if it has control characters or
            invisible ones, or if it is the word "unknown", in capitals or not.

    >>> checked_name(" mug ")
    'mug'
    """
    if isinstance(label, str) and label in known:
        return label
    name = unicodedata.normalize("NFC", label).strip() if isinstance(label, str) else ""
    refused = any(_is_refused(name, place) for place in range(len(name)))
    if refused or not 1 <= len(name) <= MAX_LABEL:
        message = (
            f"a name must be a text of 1 to {MAX_LABEL} characters without control characters "
            f"and invisible ones; got {label!r:.80}"
        )
        if not isinstance(label, str):
            message += "\n  wrong: learner.learn(frames, 3)"
            message += '\n  right: learner.learn(frames, "mug")'
        raise InputError(message)
    if name.casefold() == UNKNOWN:
        raise InputError(
            f"{name!r} is what strangers are called, so it cannot be the name of an object: choose "
            'another one; lessons that show the empty background are called "nothing"'
        )
    return name


def _is_refused(name: str, place: int) -> bool:
    """Return True if the character at this place of a name is not allowed there."""
    letter = name[place]
    if letter in JOINERS:
        inside = 0 < place < len(name) - 1
        return not inside or name[place - 1].isascii() or name[place + 1].isascii()
    if letter in VARIANTS:
        return place == 0 or name[place - 1].isalpha() or name[place - 1].isspace()
    return letter in FILLERS or unicodedata.category(letter) in REFUSED_CATEGORIES


def checked_names(label: str | Sequence[str], count: int, known: Collection[str] = ()) -> list[str]:
    """Return one checked name per frame.

    Args:
        label: One name for all frames, or a sequence (or array) with one name per frame.
        count: The number of frames.
        known: Names that are accepted as they are.

    Raises:
        InputError: If a name is not valid, or if there are more or fewer names than frames.
    """
    # an array; numpy is not imported for it, as the terminal needs this module early
    if getattr(label, "ndim", None) == 1 and hasattr(label, "tolist"):
        label = [str(name) for name in label.tolist()]
    if isinstance(label, str) or not isinstance(label, Sequence):
        return [checked_name(label, known)] * count
    if len(label) != count:
        raise InputError(
            f"there are {count} frames but {len(label)} names: give one name for all frames, or "
            'one per frame.\n  right: learner.learn(frames, "mug")'
        )
    return [checked_name(name, known) for name in label]
