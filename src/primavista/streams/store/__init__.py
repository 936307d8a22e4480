"""The packed store: the frames of any data set, decoded once into one memory-mapped array.

A store is a folder with two files: `frames.npy` (uint8, N x H x W x 3; `numpy.load` reads it too)
and `index.json` (names, classes, sessions, one sha256 per 256 frames). The frames get
their name last, so that both files mean that the store is complete.
"""

from primavista.streams.store.packing import pack
from primavista.streams.store.reading import Store, damaged_sessions, is_store, open_store

__all__ = ["Store", "damaged_sessions", "is_store", "open_store", "pack"]
