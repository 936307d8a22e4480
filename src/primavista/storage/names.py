"""The names of objects: the rule for a new one is the same in Python, terminal and service."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

from primavista.errors import InputError

MAX_LABEL = 200
UNKNOWN = "unknown"  # what every interface calls something that looks like nothing that was taught
# Control characters, invisible ones and those that turn the direction of writing, halves of
# surrogate pairs, line separators, paragraph separators: two names must not look the same.
REFUSED_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # of Persian, of Indian scripts and of emoji: between their letters
VARIANTS = "\ufe0e\ufe0f"  # text or emoji: after symbols
FILLERS = "\u034f\u115f\u1160\u3164\uffa0"  # letters without a shape


def checked_name(label: object, known: Collection[str] = ()) -> str:
    """Return a name in the form in which it is kept: composed (NFC), without blanks around it.

    Args:
        label: What the user calls an object.
        known: Names that are accepted as they are: those of the objects that a learner knows, since
            the file of a learner may come from anybody.

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
