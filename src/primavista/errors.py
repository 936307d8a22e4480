"""What can go wrong, said so that the reader knows what to do."""

from __future__ import annotations

import importlib
from types import ModuleType


class PrimavistaError(Exception):
    """Every error that this package raises on purpose."""


class InputError(PrimavistaError, ValueError):
    """A call with wrong arguments; nothing was changed."""


class FileError(PrimavistaError, OSError):
    """A file that is missing, damaged, foreign or of a newer format; nothing was changed."""


class WeightsError(PrimavistaError):
    """Pretrained weights that are missing, unreachable or not those expected."""


class MissingExtraError(PrimavistaError, ImportError):
    """An optional package that this call needs is not installed."""


def require_extra(module: str, extra: str) -> ModuleType:
    """Import an optional `module`, or say which extra installs it.

    >>> require_extra("json", "video").__name__
    'json'
    >>> require_extra("no_such_module", "video")
    Traceback (most recent call last):
    primavista.errors.MissingExtraError: this needs the package 'no_such_module': pip install "primavista[video]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this needs the package '{module}': pip install \"primavista[{extra}]\""
        ) from error
