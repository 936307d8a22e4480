"""The manifest of a saved learner, checked field by field: a file may come from anybody.

The options of the strategy are checked where the strategy is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from primavista.errors import FileError
from primavista.storage.names import MAX_LABEL

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

Count: TypeAlias = Annotated[int, Field(ge=0, lt=MAX_COUNT)]
Integer: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Name: TypeAlias = Annotated[str, Field(max_length=100)]
Option: TypeAlias = bool | Integer | float | str | None
Mean: TypeAlias = Annotated[float, Field(ge=-1e6, le=1e6)]
Deviation: TypeAlias = Annotated[float, Field(ge=1e-6, le=1e6)]


class Record(BaseModel):
    """An object of the manifest: these fields and no others, of exactly these types."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class AnswerCount(Record):
    """The number of held-out frames of one lesson that were taken for the class `id`.

    `known` of them counted as known. The coach draws its advice from these numbers.
    """

    id: Count
    frames: Annotated[int, Field(ge=1, le=MAX_TEST_FRAMES)]
    known: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.known > self.frames:
            raise ValueError(f"{self.known} of {self.frames} frames are known")
        return self


TestRecord: TypeAlias = Annotated[list[AnswerCount], Field(max_length=MAX_TEST_FRAMES)]


class ClassRecord(Record):
    """A known object: its id, which never changes, its name, and its number of frames taught.

    `held_out` says how its last lessons were answered before they were learned, one list each. It
    is left out of the file if it is empty.
    """

    id: Count
    name: Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
    frames: Count
    held_out: Annotated[list[TestRecord], Field(max_length=MAX_TESTS)] = []


class StrategyRecord(Record):
    """The name of the strategy, its seed and all of its options."""

    name: Name
    seed: Integer
    options: dict[str, Option]


class BackboneRecord(Record):
    """The backbone and its preprocessing.

    The centre square of an image is resized to `size` x `size` (antialiased, bilinear), and then
    becomes (x / 255 - mean) / std.
    """

    name: Name
    size: Annotated[int, Field(ge=1, le=2048)]
    mean: Annotated[tuple[Mean, Mean, Mean], Strict(False)]
    std: Annotated[tuple[Deviation, Deviation, Deviation], Strict(False)]
    options: dict[str, Option]


class StateRecord(Record):
    """What the learner knows: the objects, the id of the next new one, the ids of the lessons."""

    classes: list[ClassRecord]
    next_id: Count
    lessons: list[Annotated[str, Field(max_length=200)]]

    @model_validator(mode="after")
    def _check(self) -> Self:
        ids = {one.id for one in self.classes}
        if not len(ids) == len({one.name for one in self.classes}) == len(self.classes):
            raise ValueError("an id or a name of a class occurs twice")
        if self.next_id <= max(ids, default=-1):
            raise ValueError("next_id is in use already")
        return self


class UndoRecord(StateRecord):
    """The state before the last change; the file holds those of its tensors that differ."""

    tensors: list[Annotated[str, Field(max_length=1000)]]


class Manifest(StateRecord):
    """The whole manifest. `engine` is what computed the features."""

    format: Annotated[int, Field(ge=1, le=FORMAT)]
    strategy: StrategyRecord
    backbone: BackboneRecord
    threshold: Annotated[float, Field(ge=0, le=1)]
    undo: UndoRecord | None
    engine: Literal["torch", "onnx"] = "torch"


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
        return Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise FileError(f"{name} has an invalid manifest field {where}: {first['msg']}") from None


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
