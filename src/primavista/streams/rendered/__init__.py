"""Object videos that the package draws itself, with the structure of CORe50.

Drawing needs torch. The names below are imported when they are used, so that folders of written
scenes can be recognised without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from primavista.streams.rendered.dataset import rendered
    from primavista.streams.rendered.renderer import render
    from primavista.streams.rendered.scene import Scene

__all__ = ["Scene", "render", "rendered"]
_WHERE = {"Scene": "scene", "render": "renderer", "rendered": "dataset"}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    return value
