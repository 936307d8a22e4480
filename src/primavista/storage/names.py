"""The names of objects: one rule for Python, the terminal, the service and the edge."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

from ..errors import (
    InputError,
)  # relative: the distribution for the edge has this module too, under its own name

MAX_LABEL = 200
REFUSED = (
    "Cc",
    "Cs",
    "Zl",
    "Zp",
)  # control characters, halves of surrogate pairs, ends of lines and paragraphs


def checked_name(label: Any, known: Collection[str] = ()) -> str:
    """A name as it is kept, composed (NFC) and without blanks around it, or an error.

    One that is `known` is taken as it stands: files of earlier versions may hold names that would be refused today.

    >>> checked_name(" mug ")
    'mug'
    """
    if isinstance(label, str) and label in known:
        return label
    name = unicodedata.normalize("NFC", label).strip() if isinstance(label, str) else ""
    if not 1 <= len(name) <= MAX_LABEL or any(
        unicodedata.category(letter) in REFUSED for letter in name
    ):
        example = (
            ""
            if isinstance(label, str)
            else '\n  wrong: learner.learn(frames, 3)\n  right: learner.learn(frames, "mug")'
        )
        raise InputError(
            f"a name is a text of 1 to {MAX_LABEL} characters, none a control character; got {label!r:.80}{example}"
        )
    return name


def checked_names(label: Any, count: int, known: Collection[str] = ()) -> list[str]:
    """A name a frame: one for all, or as many as there are frames."""
    if (
        getattr(label, "ndim", None) == 1
    ):  # an array; numpy is not imported for it, as the terminal needs this module early
        label = [str(name) for name in label.tolist()]
    if isinstance(label, str) or not isinstance(label, Sequence):
        return [checked_name(label, known)] * count
    if len(label) != count:
        raise InputError(
            f"there are {count} frames but {len(label)} names: give one name for all, or one a frame.\n"
            '  right: learner.learn(frames, "mug")'
        )
    return [checked_name(name, known) for name in label]
