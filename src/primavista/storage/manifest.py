"""The manifest of a saved learner, checked field by field: a file may come from anybody."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from primavista.errors import FileError
from primavista.storage.settings import OptionValue

FORMAT = 1
MAX_TESTS = 16  # of one object; more than any version keeps
MAX_TEST_FRAMES = 64
Count = Annotated[int, Field(ge=0, lt=2**53)]
Triple = tuple[float, float, float]
Positive = Annotated[float, Field(gt=0)]


class ManifestRecord(BaseModel):
    """The base class of all parts of a manifest: immutable, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class AnswerRecord(ManifestRecord):
    """How many held-out frames of one lesson were taken for the class `id`.

    `known` is how many of them counted as known, which cannot be more than there were.
    """

    id: Count
    frames: Annotated[int, Field(ge=1, le=MAX_TEST_FRAMES)]
    known: Annotated[int, Field(ge=0, le=MAX_TEST_FRAMES)]

    @model_validator(mode="after")
    def _check_known(self) -> Self:
        if self.known > self.frames:
            raise ValueError(f"{self.known} of {self.frames} frames are known")
        return self


HeldOut = Annotated[list[AnswerRecord], Field(max_length=MAX_TEST_FRAMES)]


class ClassRecord(ManifestRecord):
    """A known object: its id, which never changes, its name, and its number of frames taught.

    `held_out` says how its last lessons were answered before they were learned, one list each. It
    is left out of the file if it is empty, as in files of versions that did not count that.
    """

    id: Count
    name: Annotated[str, Field(min_length=1, max_length=200)]
    frames: Count
    held_out: Annotated[list[HeldOut], Field(max_length=MAX_TESTS)] = []

    @property
    def held_out_counts(self) -> list[list[dict[str, int]]]:
        """What `held_out` says, as plain numbers."""
        return [[one.model_dump() for one in test] for test in self.held_out]

    @model_serializer(mode="wrap")
    def _without_empty(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = serialize(self)
        if not self.held_out:
            del found["held_out"]
        return found


class StrategyRecord(ManifestRecord):
    """The name of the strategy, its seed and all of its options."""

    name: Annotated[str, Field(max_length=200)]
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    options: dict[str, OptionValue]


class BackboneRecord(ManifestRecord):
    """The backbone and its preprocessing.

    The centre square of an image is resized to `size` x `size` (antialiased, bilinear), and then
    becomes (x / 255 - mean) / std.
    """

    name: Annotated[str, Field(max_length=200)]
    size: Annotated[int, Field(ge=1, le=2048)]
    mean: Triple
    std: tuple[Positive, Positive, Positive]
    options: dict[str, OptionValue]


class UndoRecord(ManifestRecord):
    """The state before the last change; the file holds those of its tensors that differ."""

    classes: list[ClassRecord]
    next_id: Count
    lessons: list[str]
    tensors: list[str]


class Manifest(ManifestRecord):
    """The whole manifest. `engine` is what computed the features."""

    format: int
    strategy: StrategyRecord
    backbone: BackboneRecord
    classes: list[ClassRecord]
    next_id: Count
    lessons: list[str]
    threshold: Annotated[float, Field(ge=0, le=1)]
    undo: UndoRecord | None
    engine: Literal["torch", "onnx"] = "torch"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that goes into the file.

        The engine torch is left out, so that files keep the bytes that they had before there was
        another one.
        """
        return self.model_dump(mode="json", exclude={"engine"} if self.engine == "torch" else None)


def parse_manifest(raw: dict[str, Any], name: str) -> Manifest:
    """Check the manifest of a file.

    Args:
        raw: The JSON object in the file.
        name: What messages call the file.

    Raises:
        FileError: If it is not the manifest of a learner, or of a newer format.
    """
    version = raw.get("format")
    if not isinstance(version, int) or version < 1:
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
        message = f"{name} has an invalid manifest field {where}: {first['msg']}"
        raise FileError(message) from error
