"""CORe50: its folder, archives, official lists and pickles."""

from primavista.streams.core50.dataset import CORe50

__all__ = ["CORe50"]
