"""What a saved learner says of itself, checked field by field: whatever comes from a file is hostile until then."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from primavista.errors import FileError
from primavista.storage.settings import OptionValue

FORMAT = 1
Count = Annotated[int, Field(ge=0, lt=2**53)]
Triple = tuple[float, float, float]
Positive = Annotated[float, Field(gt=0)]


class Record(BaseModel):
    """Frozen; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class ClassRecord(Record):
    """A known object: a stable id, its name, how many frames it was taught with."""

    id: Count
    name: Annotated[str, Field(min_length=1, max_length=200)]
    frames: Count


class StrategyRecord(Record):
    """The strategy and all of its options."""

    name: Annotated[str, Field(max_length=100)]
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    options: dict[str, OptionValue]


class BackboneRecord(Record):
    """The backbone and how it is fed: centre square, antialiased bilinear to `size`, then (x / 255 - mean) / std."""

    name: Annotated[str, Field(max_length=100)]
    size: Annotated[int, Field(ge=1, le=2048)]
    mean: Triple
    std: tuple[Positive, Positive, Positive]
    options: dict[str, OptionValue]


class UndoRecord(Record):
    """The state before the last change; of its tensors the file holds those that differ."""

    classes: list[ClassRecord]
    next_id: Count
    lessons: list[str]
    tensors: list[str]


class Manifest(Record):
    """The whole of it."""

    format: int
    strategy: StrategyRecord
    backbone: BackboneRecord
    classes: list[ClassRecord]
    next_id: Count
    lessons: list[str]
    threshold: Annotated[float, Field(ge=0, le=1)]
    undo: UndoRecord | None
    engine: Literal["torch", "onnx"] = "torch"  # what computed the features

    def to_json(self) -> dict[str, Any]:
        """What goes into the file; torch is not named, so that files of earlier versions stay as they are."""
        return self.model_dump(mode="json", exclude={"engine"} if self.engine == "torch" else None)


def parse_manifest(raw: dict[str, Any], name: str) -> Manifest:
    """The manifest of the file `name`, or an error that says what is wrong with it."""
    version = raw.get("format")
    if not isinstance(version, int) or version < 1:
        raise FileError(f"{name} is not a learner: its manifest names no format")
    if version > FORMAT:
        raise FileError(
            f"{name} has format {version}, and this primavista reads up to {FORMAT}: pip install --upgrade primavista"
        )
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise FileError(
            f"{name} has a manifest that makes no sense at {where}: {first['msg']}"
        ) from error
