"""Settings: the values that options can have, and how users write them, as `key=value`."""

from __future__ import annotations

import tomllib
from typing import Any, TypeAlias

from primavista.errors import InputError

# The value of an option of a strategy or a backbone: what a saved file can hold.
OptionValue: TypeAlias = bool | int | float | str | None


def parse_setting(text: str, example: str) -> tuple[list[str], Any]:
    """Split a text such as `data.frames=4` into its keys and its value.

    Args:
        text: The keys, separated by dots, an equals sign, and a value in TOML; what is not TOML is
            taken as a string.
        example: A right text, for the message.

    Returns:
        The keys and the value.

    Raises:
        InputError: If there is no equals sign or no key.

    >>> parse_setting("data.frames=4", "balance=0.5")
    (['data', 'frames'], 4)
    >>> parse_setting("norm=bn", "balance=0.5")
    (['norm'], 'bn')
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"{text!r}: write key=value, for example {example}")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value
    return key.split("."), parsed
