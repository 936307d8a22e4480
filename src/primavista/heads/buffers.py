"""The arrays of a head as buffers of a torch module."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch

from primavista.heads.base import ClassArrays
from primavista.nn.class_rows import Rows

G = TypeVar("G", bound=ClassArrays)


class ArrayBuffers(Rows, Generic[G]):
    """A module whose buffers are the arrays of a `ClassArrays`.

    The group works on the mapping `_buffers` itself, so there is one state under one set of names:
    the name of a buffer in `state_dict()`, and so in files, is the name of the module followed by
    the name of the array. A deep copy of both is again such a pair.

    Args:
        group: the arrays; they are moved into this module.

    >>> from primavista.heads.statistics import SufficientStatistics
    >>> module = ArrayBuffers(SufficientStatistics.empty(2, gram=False))
    >>> module.group.expand(1)
    >>> module.group.add(torch.ones(3, 2), torch.zeros(3, dtype=torch.int64))
    >>> module.state_dict()["s"].tolist()
    [[3.0, 3.0]]
    """

    def __init__(self, group: G) -> None:
        super().__init__()
        self.group = group
        for name, array in group.arrays.items():
            if name in group.row_names:
                self.add_rows(name, torch.as_tensor(array))
            else:
                self.register_buffer(name, torch.as_tensor(array))
        group.arrays = self._buffers

    def grow(self, rows: int) -> None:
        """Append rows of 0 until there are `rows`.

        Args:
            rows: the number of rows wanted.
        """
        self.group.expand(rows)

    @torch.no_grad()
    def drop(self, row: int) -> None:
        """Take one class out, as the group does that.

        Args:
            row: the row of the class.
        """
        self.group.drop(row)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Move everything but the counts that stay on the CPU."""
        counts = {name: self._buffers[name] for name in self.group.ON_CPU}
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._buffers.update(counts)
        return self
