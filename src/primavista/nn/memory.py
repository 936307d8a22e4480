"""A bounded memory of patterns of earlier batches, for strategies that rehearse."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from primavista.errors import InputError
from primavista.nn.class_rows import Rows


class Memory(Rows):
    """Patterns of earlier batches with their labels: frames, features, or anything else.

    A strategy that rehearses makes a memory in its constructor and replaces its contents by
    `store`. The rest is automatic: `Strategy.forget` removes the patterns of the class, the report
    of each batch counts the bytes, and the patterns are part of `state_dict()`. A state with more
    patterns than `limit`, or with fields of unequal lengths, is rejected when it is loaded.

    Args:
        limit: The largest number of patterns; `store` rejects more.
        per_class: The names of the fields whose last dimension is the classes, such as logits.
            Columns beyond the stored ones are 0, and `Strategy.forget` removes the column of the
            class.
        fields: The fields of a pattern, each declared by an empty tensor with the shape and the
            type of the field.

    >>> memory = Memory(2, frames=torch.zeros(0, 8, 8, 3, dtype=torch.uint8))
    >>> frames = torch.zeros(2, 8, 8, 3, dtype=torch.uint8)
    >>> memory.store(torch.tensor([4, 7]), frames=frames)
    >>> memory.forget(4)
    >>> memory.labels.tolist(), memory.bytes, memory.most_bytes
    ([7], 200, 400)
    """

    labels: Tensor

    def __init__(self, limit: int, *, per_class: Collection[str] = (), **fields: Tensor) -> None:
        super().__init__()
        if limit < 1:
            raise InputError(f"a memory must hold at least 1 pattern; got limit={limit}")
        if "labels" in fields or any(len(tensor) for tensor in fields.values()):
            raise InputError(
                "declare the fields of a memory by empty tensors; labels are always kept.\n"
                "  right: Memory(500, frames=torch.zeros(0, 128, 128, 3, dtype=torch.uint8))"
            )
        self.limit = limit
        self._fields, self._per_class = tuple(fields), frozenset(per_class)
        for name, empty in fields.items():
            self.register_buffer(name, empty.clone())
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self._any_size += [*fields, "labels"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def fields(self) -> dict[str, Tensor]:
        """The stored tensors by name, without the labels."""
        return {name: getattr(self, name) for name in self._fields}

    @property
    def bytes(self) -> int:
        """The size of the patterns and their labels, which the report of each batch counts."""
        stored = (*self.fields.values(), self.labels)
        return sum(tensor.numel() * tensor.element_size() for tensor in stored)

    @property
    def most_bytes(self) -> int:
        """The size of a full memory with patterns of the present shape."""
        stored = (*self.fields.values(), self.labels)
        return self.limit * sum(prod(t.shape[1:]) * t.element_size() for t in stored)

    @torch.no_grad()
    def store(self, labels: Tensor, **fields: Tensor) -> None:
        """Replace the contents.

        Args:
            labels: The label of each pattern.
            fields: The other fields, with one entry per pattern, in the same order.

        Raises:
            InputError: If there are more than `limit` patterns, or if the fields are not those that
                were declared. Nothing has changed then.
        """
        if set(fields) != set(self._fields):
            wanted = ", ".join(self._fields)
            raise InputError(f"this memory keeps {wanted}; got {', '.join(fields)}")
        if len(labels) > self.limit:
            raise InputError(
                f"{len(labels)} patterns are more than the limit of this memory, {self.limit}"
            )
        for name, tensor in fields.items():
            self._check_field(name, tensor, len(labels))
        for name, tensor in {**fields, "labels": labels}.items():
            like = getattr(self, name)
            self._set(name, tensor.detach().to(like.device, like.dtype).contiguous())

    def columns(self, classes: Tensor) -> Tensor:
        """Return the column in the scores of the class of each pattern, on the CPU."""
        return columns_of(self.labels, classes)

    def forget(self, label: int) -> None:
        """Remove the patterns of one class; `Strategy.forget` calls this."""
        wanted = self.labels != label
        self.store(self.labels[wanted], **{n: t[wanted] for n, t in self.fields.items()})

    def drop(self, row: int) -> None:
        """Remove the column of one class from the fields that have one column per class."""
        for name in self._per_class:
            tensor = getattr(self, name)
            self._set(name, torch.cat([tensor[..., :row], tensor[..., row + 1 :]], -1))

    def check_labels(self, classes: Tensor) -> None:
        """Reject patterns of classes that are not known, such as those of an altered file."""
        unknown = sorted(set(self.labels.tolist()) - set(classes.tolist()))
        if unknown:
            raise InputError(f"the memory holds patterns of class {unknown[0]}, which is not known")

    def _check_field(self, name: str, tensor: Tensor, count: int) -> None:
        declared = getattr(self, name)
        free = 1 if name in self._per_class else 0  # the number of classes may have changed
        same = tensor.shape[1 : tensor.ndim - free] == declared.shape[1 : declared.ndim - free]
        if tensor.ndim != declared.ndim or not same or len(tensor) != count:
            shape = tuple(declared.shape[1:])
            raise InputError(
                f"{name} has shape {tuple(tensor.shape)}: the memory keeps {shape} of each of "
                f"{count} patterns"
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        names = (*self._fields, "labels")
        saved: dict[str, Any] = {name: state_dict.get(prefix + name) for name in names}
        if all(isinstance(tensor, Tensor) for tensor in saved.values()):  # torch reports the others
            self._check_saved(prefix.rstrip("."), saved)
            for name in self._per_class:
                self._set(name, getattr(self, name).new_zeros(saved[name].shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _check_saved(self, where: str, saved: dict[str, Any]) -> None:
        count = len(saved["labels"]) if saved["labels"].ndim == 1 else -1
        if not 0 <= count <= self.limit:
            raise InputError(f"{where} holds {count} patterns, and its limit is {self.limit}")
        if count and int(saved["labels"].min()) < 0:
            raise InputError(f"{where} holds a label below 0")
        for name in self._fields:
            self._check_field(name, saved[name], count)


def memories(module: nn.Module) -> Iterator[Memory]:
    """Return every memory in a module tree, usually a strategy."""
    return (part for part in module.modules() if isinstance(part, Memory))


def columns_of(labels: Tensor, classes: Tensor) -> Tensor:
    """Return the column in the scores of the class of each label, on the CPU."""
    column = {label: j for j, label in enumerate(classes.tolist())}
    return torch.tensor([column[label] for label in labels.tolist()], dtype=torch.int64)
