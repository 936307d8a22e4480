"""Object videos that the package draws itself, with the structure of CORe50."""

from primavista.streams.rendered.dataset import rendered
from primavista.streams.rendered.renderer import Scene, render

__all__ = ["Scene", "render", "rendered"]
