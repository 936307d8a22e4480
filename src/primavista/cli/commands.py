"""Groups of commands whose help, with that of their options, is in the docstrings of functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from primavista.cli import arguments

Function = TypeVar("Function", bound=Callable[..., None])
DESCRIBED = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


class CommandGroup(typer.Typer):
    """A group of commands.

    Args:
        text: The help of the group, in Markdown.
        **options: Other arguments of `typer.Typer`.
    """

    def __init__(self, text: str, **options: Any) -> None:
        super().__init__(
            no_args_is_help=True,
            rich_markup_mode="markdown",
            pretty_exceptions_enable=False,
            help=text,
            **options,
        )

    def add(self, function: Function) -> Function:
        """Add a function as a command of its name; return the function.

        The text of its docstring is the help of the command, and the section `Args` has the help of
        its parameters; that of parameters which many commands have is in the docstring of
        `arguments`. A parameter without a default is an argument, every other one is an option, and
        a truth value is an option without an opposite. The annotation of a parameter says what else
        Typer should know.
        """
        self.command(help=document(function))(function)
        return function


def document(function: Callable[..., None]) -> str:
    """Put the help of parameters into the annotations of a function; return the help of the rest.

    A parameter that the docstring does not describe has the help that is common to all commands.
    """
    text, _, described = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    parameters = inspect.signature(function).parameters
    helps = dict(DESCRIBED.findall(arguments.__doc__ or "")) | dict(DESCRIBED.findall(described))
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in parameters.items():
        if name in helps:
            hints[name] = _with_help(hints[name], parameter, " ".join(helps[name].split()))
    function.__annotations__ = hints
    return text


def _with_help(hint: Any, parameter: inspect.Parameter, text: str) -> Any:
    """Return the annotation of a parameter with its help."""
    kind, *given = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if given:
        info = copy(given[0])
    elif parameter.default is parameter.empty:
        info = typer.Argument(metavar=parameter.name.upper())
    elif kind is bool:
        info = typer.Option(f"--{parameter.name.replace('_', '-')}")
    else:
        info = typer.Option()
    info.help = text
    described: Any = Annotated[kind, info]
    return described
