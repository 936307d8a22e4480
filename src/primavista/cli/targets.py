"""Files that a command is told to write: refused before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

from primavista.errors import CHOOSE_FOLDER, FileError, InputError


def check_writable(path: Path | None) -> None:
    """Refuse a file in a folder that cannot be written to; None is no file."""
    if path is None:
        return
    folder = path.expanduser().absolute().parent
    if not os.access(folder, os.W_OK):
        reason = "permission denied" if folder.is_dir() else "there is no such folder"
        raise FileError(f"cannot write in {folder}: {reason}. {CHOOSE_FOLDER}")
    if path.expanduser().is_dir():
        raise FileError(f"cannot write {path}: it is a folder. Name a file in it")


def check_copy(source: Path, target: Path, otherwise: str = "", replace: bool = False) -> None:
    """Refuse a copy that cannot be written, that is its source, or that exists already.

    Args:
        source: The file that is copied.
        target: The copy.
        otherwise: More advice for a target that exists, besides another name.
        replace: Allow a target that exists, if it is not the source.
    """
    check_writable(target)
    if target.exists() and target.samefile(source):
        raise InputError(f"{target} is the source itself: give another name")
    if target.exists() and not replace:
        raise InputError(f"{target} exists: give another name{otherwise}")
