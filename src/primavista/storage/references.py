"""Code of the user's own by reference, `package.module:Name`.

Importing a module runs its code. So a reference is imported if the user names it, on the command
line, in a plan that `bench run` runs, or by `primavista.register`, and never because a saved file
or a request contains it: those may only use what was registered before.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path

from primavista.errors import InputError

_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
_REFERENCE = re.compile(f"{_NAME}:{_NAME}")


def is_reference(text: str) -> bool:
    """Return True if a text has the form of a reference.

    Args:
        text: Any text.

    >>> is_reference("my_package.heads:Nearest"), is_reference("ar1*")
    (True, False)
    """
    return _REFERENCE.fullmatch(text) is not None


def reference_to(thing: object) -> str:
    """Return the reference to a class or function.

    Args:
        thing: A class or a function.
    """
    return f"{thing.__module__}:{getattr(thing, '__qualname__', type(thing).__qualname__)}"


def load_reference(text: str) -> object:
    """Import what a reference names. The code of its module runs: the user must have named it.

    Args:
        text: `package.module:Name`. The module is looked for where Python looks for modules, and
            then in the working folder.

    Returns:
        The class or the function.

    Raises:
        InputError: If there is no such module or name, or if the module cannot be imported.
    """
    if not is_reference(text):
        raise InputError(f"{text!r} is not a reference.\n  right: my_package.my_module:MyStrategy")
    module, _, path = text.partition(":")
    _look_in_working_folder(module.partition(".")[0])
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InputError(f"{module} cannot be imported: {error}") from error
        raise InputError(
            f"there is no module {error.name!r}, which {text!r} is in: install its package, or "
            "name its folder in the environment variable PYTHONPATH"
        ) from error
    except Exception as error:  # whatever the code of the module raises
        raise InputError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise InputError(_nothing_there(module, path))
        found = getattr(found, name)
    return found


def must_be_registered(*references: str) -> str:
    """Return the message about code that a file or a request names and the user did not.

    Args:
        references: What it names.
    """
    code = " and ".join(references)
    calls = "; ".join(f'primavista.register("{text}")' for text in references)
    options = " ".join(f"--register {text}" for text in references)
    return (
        f"{code} is code of your own, which is never imported because of a name in a file or a "
        f"request: name it yourself first.\n  in Python: {calls}\n"
        f"  in a terminal: primavista {options} ..."
    )


def _look_in_working_folder(package: str) -> None:
    """Let Python find a package in the working folder, if it finds it nowhere else."""
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    here = Path.cwd()
    if (here / package).is_dir() or (here / f"{package}.py").is_file():
        sys.path.append(str(here))
        importlib.invalidate_caches()


def _nothing_there(module: str, path: str) -> str:
    if module == "__main__":
        return (
            f"{path} was defined in a notebook or a program, where other processes and files "
            "cannot find it: move it to a module of its own"
        )
    return f"{module} has no {path}: check the name after the colon"
