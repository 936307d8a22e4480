"""`primavista undo`, `rename`, `forget` and `merge`: changes of saved learners without frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from primavista.cli.learn import summary

if TYPE_CHECKING:
    from primavista.learner.learner import Learner


def undo(model: Path) -> None:
    """Take back the last lesson, renaming or forgetting: one step, also after a restart.

    Example: `primavista undo kitchen.pv`
    """
    _change(model, lambda learner: learner.undo())


def rename(model: Path, name: str, new: str) -> None:
    """Give a known object another name.

    Example: `primavista rename kitchen.pv mug cup`

    Args:
        new: What it is called from now on.
    """
    _change(model, lambda learner: learner.rename(name, new))


def forget(model: Path, name: str) -> None:
    """Remove a known object; `primavista undo` brings it back, until the next change.

    Example: `primavista forget kitchen.pv mug`
    """
    _change(model, lambda learner: learner.forget(name))


def merge(
    models: Annotated[list[Path], typer.Argument(metavar="A B ...")],
    output: Annotated[Path, typer.Option("--output", "-o")],
) -> None:
    """Merge what several learners were taught into a new file, as if one had had all lessons.

    Objects are joined by name. All must have the same strategy that can be merged (prima, ridge,
    lda, ncm), with the same options, seed, network and image size; the threshold is that of the
    first. Lessons that two of them have had are refused: they would count twice.

    Example: `primavista merge kitchen.pv garage.pv -o home.pv`

    Args:
        models: The files of the learners, at least two.
        output: The file to write, e.g. all.pv; not one of them.
    """
    from primavista.errors import InputError
    from primavista.learner.learner import Learner
    from primavista.storage.disk import file_lock

    if len(models) < 2:
        raise InputError("one learner is not merged: give two or more files")
    with file_lock(output) as target:
        if target.exists():
            raise InputError(f"{target} exists: give the merged learner another name")
        first, *others = models
        merged = Learner.load(first.expanduser(), device="cpu")
        for other in others:
            try:
                merged.merge(other.expanduser())
            except InputError as error:
                raise InputError(f"{other} cannot be merged: {error}") from error
        merged.without_undo().save(target)
    typer.echo(summary(merged, target))


def _change(model: Path, change: Callable[[Learner], None]) -> None:
    """Load, change and save under the lock of the file; a change that fails leaves it as it was."""
    from primavista.learner.learner import Learner
    from primavista.storage.disk import file_lock

    with file_lock(model) as target:
        learner = Learner.load(target, device="cpu")
        change(learner)
        learner.save(target)
    typer.echo(summary(learner, target))
