"""Object videos that the package draws itself, with the structure of CORe50."""

from primavista.streams.rendered.scene import Scene

__all__ = ["Scene"]
