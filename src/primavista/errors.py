"""The exceptions of the package. Messages say what is wrong, where, and what to do about it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

CHOOSE_FOLDER = "Choose a folder that you can write to"


class PrimavistaError(Exception):
    """Base class of every exception that this package raises on purpose.

    Catch it to handle wrong arguments, unreadable files, missing weights and missing extras alike.
    """


class InputError(PrimavistaError, ValueError):
    """Raised if arguments are wrong; nothing was changed. The message shows a right call."""


class FileError(PrimavistaError, OSError):
    """Raised if a file is missing, damaged, foreign or of a newer format; nothing was changed."""


class WeightsError(PrimavistaError):
    """Raised if pretrained weights are missing, cannot be downloaded, or are not as expected."""


class MissingExtraError(PrimavistaError, ImportError):
    """Raised if an optional package is not installed; the message has the `pip` command."""


def file_error(action: str, path: str | Path, error: OSError, advice: str = "") -> FileError:
    """Return a `FileError` that says what could not be done with which file, why, and what to do.

    Args:
        action: The verb: "read", "write", "make", "write in", ...
        path: The file or folder, or words for it.
        error: What the system said.
        advice: A sentence on what to do, without its full stop.

    Returns:
        The exception; raise it `from error`.

    >>> print(file_error("read", "mug.pv", FileNotFoundError(2, "No such file"), "Check the path"))
    cannot read mug.pv: No such file. Check the path
    """
    reason = error.strerror or str(error)
    ending = f". {advice}" if advice else ""
    return FileError(f"cannot {action} {path}: {reason}{ending}")


@contextmanager
def file_errors(action: str, path: str | Path, advice: str = "") -> Iterator[None]:
    """Turn an `OSError` of the block into a `file_error`; errors of this package pass unchanged.

    Args:
        action: The verb: "read", "write", "make", "write in", ...
        path: The file or folder, or words for it.
        advice: A sentence on what to do, without its full stop.

    Raises:
        FileError: If the block raises an `OSError`, which is then its cause.
    """
    try:
        yield
    except PrimavistaError:
        raise
    except OSError as error:
        raise file_error(action, path, error, advice) from error


def require_extra(module: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra of primavista installs it.

    Args:
        module: The name to import.
        extra: The extra of this package that installs it.

    Returns:
        The imported module.

    Raises:
        MissingExtraError: If it is not installed; the message has the `pip` command.

    >>> require_extra("json", "video").__name__
    'json'
    >>> require_extra("no_such_module", "video")
    Traceback (most recent call last):
    primavista.errors.MissingExtraError: this needs the package 'no_such_module':
        pip install "primavista[video]"
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"this needs the package '{module}': pip install \"primavista[{extra}]\""
        ) from error
