"""Tensors with one row a class: they grow, lose a row when a class is forgotten, and load at any size."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from primavista.errors import InputError


class AnySize(nn.Module):
    """A module some of whose tensors load at any length."""

    def __init__(self) -> None:
        super().__init__()
        self._any_size: list[str] = []

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self._any_size:
            saved, own = state_dict.get(prefix + name), getattr(self, name)
            if (
                isinstance(saved, Tensor)
                and saved.shape[1:] == own.shape[1:]
                and len(saved) != len(own)
            ):
                self._set(name, own.new_zeros(saved.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _set(self, name: str, value: Tensor) -> None:
        old = getattr(self, name)
        if isinstance(old, nn.Parameter):
            old.data = value
        else:
            setattr(self, name, value.requires_grad_(old.requires_grad))


class Rows(AnySize):
    """A module some of whose tensors have a row a class; the rows beyond the known classes are 0.

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
        """Register a tensor whose first dimension is the classes."""
        self._row_names.append(name)
        if persistent:
            self._any_size.append(name)
        if parameter:
            self.register_parameter(name, nn.Parameter(tensor))
        else:
            self.register_buffer(name, tensor, persistent=persistent)

    @property
    def rows(self) -> int:
        """How many rows there are, used or not."""
        return len(getattr(self, self._row_names[0])) if self._row_names else 0

    @property
    def has_rows(self) -> bool:
        """Whether any tensor has a row a class."""
        return bool(self._row_names)

    @torch.no_grad()
    def grow(self, rows: int) -> None:
        """Append rows of 0 until there are `rows`."""
        for name, tensor in self._each():
            if rows > len(tensor):
                self._set(
                    name,
                    torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])]),
                )

    @torch.no_grad()
    def drop(self, row: int) -> None:
        """Take one row out; those below move up, and a row of 0 is appended."""
        for name, tensor in self._each():
            empty = tensor.new_zeros(1, *tensor.shape[1:])
            self._set(name, torch.cat([tensor[:row], tensor[row + 1 :], empty]))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        for name, tensor in self._each():
            if (
                name not in self._any_size and len(tensor) != self.rows
            ):  # not saved, but as long as the others
                self._set(name, tensor.new_zeros(self.rows, *tensor.shape[1:]))

    def _each(self) -> list[tuple[str, Tensor]]:
        return [(name, getattr(self, name)) for name in self._row_names]


class PerWeight(Rows):
    """One tensor a weight, kept beside it; those of a head's weights (`row_weights`) have its rows."""

    def __init__(self, weights: Mapping[str, Tensor], row_weights: Collection[str] = ()) -> None:
        super().__init__()
        self._keys = {
            name: name.replace(".", "/") for name in weights
        }  # torch keeps dots for the module tree
        for name, tensor in weights.items():
            zeros = torch.zeros_like(tensor, requires_grad=False)
            if name in row_weights:
                self.add_rows(self._keys[name], zeros)
            else:
                self.register_buffer(self._keys[name], zeros)

    @property
    def names(self) -> list[str]:
        """The weights' names, in order."""
        return list(self._keys)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors themselves, in the order of the weights."""
        return [getattr(self, key) for key in self._keys.values()]


def grow_all(module: nn.Module, rows: int) -> None:
    """Grow everything in a module tree that has a row a class."""
    for part in module.modules():
        if isinstance(part, Rows):
            part.grow(rows)


def drop_all(module: nn.Module, row: int) -> None:
    """Take one class out of everything in a module tree that has a row a class."""
    for part in module.modules():
        if isinstance(part, Rows):
            if row >= part.rows > 0:
                raise InputError(f"there is no class in row {row}")
            part.drop(row)
