"""Decoded test frames that serve every test of every run, as many as fit into memory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from primavista.media.frames import Frames, Indices, Selection
from primavista.streams.dataset import Patterns
from primavista.streams.store.reading import PackedFrames

# Bytes of one test set. The reduced test set of CORe50 at 128 px has 110 MB, the full one 2.2 GB.
LIMIT = 2**29


# Decoded frames by position, for the frames that they were read from and their indices. They are
# freed with their data set.
_kept: WeakKeyDictionary[Frames, dict[bytes, dict[int, Tensor]]] = WeakKeyDictionary()


class KeptSelection(Selection):
    """Some frames of a larger source; each is read once and kept, if all of them are few enough.

    Selections of the same frames share what they keep, as long as the source exists.

    Args:
        source: The frames to choose from.
        indices: The index in `source` of each chosen frame, int64.
    """

    def __init__(self, source: Frames, indices: Indices) -> None:
        super().__init__(source, indices)
        self._decoded: dict[int, Tensor] = {}
        with suppress(TypeError):  # frames of another package may not be hashable
            self._decoded = _kept.setdefault(source, {}).setdefault(indices.tobytes(), {})

    def __getitem__(self, indices: Indices) -> Tensor:
        chosen = np.asarray(indices, np.int64)
        missing = np.array([i for i in np.unique(chosen) if i not in self._decoded], np.int64)
        if len(missing):
            found = torch.as_tensor(super().__getitem__(missing))
            if found[0].nbytes * len(self) > LIMIT or found.device.type != "cpu":
                return found[np.searchsorted(missing, chosen)]
            self._decoded.update(zip(missing.tolist(), found, strict=True))
        return torch.stack([self._decoded[i] for i in chosen.tolist()])


def keep_decoded(test: Patterns) -> Patterns:
    """Return test patterns whose frames are decoded once by all runs of this process.

    They are kept in memory if they take at most `LIMIT` bytes (512 MiB) together. A larger test set
    is decoded anew in each test. Frames that need no decoding are left as they are: tensors, and
    packed stores, which the system keeps in memory by itself.

    Args:
        test: The test frames, not yet read.
    """
    source = test.images.source
    if isinstance(source, Tensor | PackedFrames):
        return test
    return replace(test, images=KeptSelection(source, test.images.indices))
