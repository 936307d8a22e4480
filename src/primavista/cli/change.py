"""`primavista undo`, `rename` and `forget`: changes of a saved learner that need no frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from primavista.cli.arguments import Model
from primavista.cli.learn import summary

if TYPE_CHECKING:
    from primavista.learner.learner import Learner

Known = Annotated[str, typer.Argument(metavar="NAME", help="An object that it knows.")]


def undo(model: Model) -> None:
    """Take back the last lesson, renaming or forgetting: one step, also after a restart.

    Example: `primavista undo kitchen.pv`
    """
    _change(model, lambda learner: learner.undo())


def rename(
    model: Model,
    name: Known,
    new: Annotated[str, typer.Argument(metavar="NEW", help="What it is called from now on.")],
) -> None:
    """Give a known object another name.

    Example: `primavista rename kitchen.pv mug cup`
    """
    _change(model, lambda learner: learner.rename(name, new))


def forget(model: Model, name: Known) -> None:
    """Remove a known object; `primavista undo` brings it back, until the next change.

    Example: `primavista forget kitchen.pv mug`
    """
    _change(model, lambda learner: learner.forget(name))


def _change(model: Model, change: Callable[[Learner], None]) -> None:
    """Load, change and save under the lock of the file; a change that fails leaves it as it was."""
    from primavista.learner.learner import Learner
    from primavista.storage.lock import file_lock, resolved

    target = resolved(model)
    with file_lock(target):
        learner = Learner.load(target, device="cpu")
        change(learner)
        learner.save(target)
    typer.echo(summary(learner, target))
