"""Tensors with one row per class, which can grow, lose a row, and be loaded at any size."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from primavista.errors import InputError
from primavista.heads.base import ClassArrays


class AnySize(nn.Module):
    """A module that can load tensors of another length than its own.

    A subclass appends the names of these tensors to `_any_size`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._any_size: list[str] = []

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self._any_size:
            saved, own = state_dict.get(prefix + name), getattr(self, name)
            if not isinstance(saved, Tensor) or saved.shape[1:] != own.shape[1:]:
                continue
            if len(saved) != len(own):
                self._set(name, own.new_zeros(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _set(self, name: str, value: Tensor) -> None:
        old = getattr(self, name)
        if isinstance(old, nn.Parameter):
            old.data = value
        else:
            setattr(self, name, value.requires_grad_(old.requires_grad))


class Rows(AnySize):
    """A module in which some tensors have one row per class.

    Rows that are appended are 0. `Strategy` appends rows to these tensors when new
    classes come, and drops a row when a class is forgotten.

    >>> module = Rows()
    >>> module.add_rows("n", torch.tensor([3.0, 4.0]))
    >>> module.drop(0); module.grow(3); module.n.tolist()
    [4.0, 0.0, 0.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self._row_names: list[str] = []

    def add_rows(
        self, name: str, tensor: Tensor, *, parameter: bool = False, persistent: bool = True
    ) -> None:
        """Register a tensor that has one row per class, as a parameter or a buffer.

        If `persistent`, it is part of the state.
        """
        self._row_names.append(name)
        if persistent:
            self._any_size.append(name)
        if parameter:
            self.register_parameter(name, nn.Parameter(tensor))
        else:
            self.register_buffer(name, tensor, persistent=persistent)

    @property
    def rows(self) -> int:
        """The number of rows, used or not."""
        return len(getattr(self, self._row_names[0])) if self._row_names else 0

    @property
    def has_rows(self) -> bool:
        """True if any tensor has one row per class."""
        return bool(self._row_names)

    @torch.no_grad()
    def grow(self, rows: int) -> None:
        """Append rows of 0 until there are `rows` of them."""
        for name, tensor in self._each():
            if rows > len(tensor):
                self._set(
                    name,
                    torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])]),
                )

    @torch.no_grad()
    def drop(self, row: int) -> None:
        """Remove one row; the rows below it move up, and a row of 0 is appended."""
        for name, tensor in self._each():
            empty = tensor.new_zeros(1, *tensor.shape[1:])
            self._set(name, torch.cat([tensor[:row], tensor[row + 1 :], empty]))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        for name, tensor in self._each():
            # not saved, but of the same length as the others
            if name not in self._any_size and len(tensor) != self.rows:
                self._set(name, tensor.new_zeros(self.rows, *tensor.shape[1:]))

    def _each(self) -> list[tuple[str, Tensor]]:
        return [(name, getattr(self, name)) for name in self._row_names]


G = TypeVar("G", bound=ClassArrays)


class ArrayBuffers(Rows, Generic[G]):
    """A module whose buffers are the arrays of a group, such as the `ClassArrays` of a head.

    The group works directly on the mapping `_buffers`, so there is one state under one set of
    names: in `state_dict()`, and therefore in files, a buffer is named by the module and the array.
    A deep copy of the module contains a copy of the group that works on the copied buffers.

    Args:
        group: The arrays; they are moved into this module.

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
        """Append rows of 0 until there are `rows`."""
        self.group.expand(rows)

    @torch.no_grad()
    def drop(self, row: int) -> None:
        """Remove one class from the group."""
        self.group.drop(row)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Move everything except the counts that stay on the CPU."""
        counts = {name: self._buffers[name] for name in self.group.ON_CPU}
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._buffers.update(counts)
        return self


def grow_all(module: nn.Module, rows: int) -> None:
    """Append rows to all tensors in a module tree with one row per class, until all have `rows`."""
    for part in module.modules():
        if isinstance(part, Rows):
            part.grow(rows)


def drop_all(module: nn.Module, row: int) -> None:
    """Remove one class from everything in a module tree that has one row per class."""
    for part in module.modules():
        if isinstance(part, Rows):
            if row >= part.rows > 0:
                raise InputError(f"there is no class in row {row}")
            part.drop(row)
