"""Activations in the middle of a network, and a bounded memory of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from primavista.errors import InputError
from primavista.nn.class_rows import AnySize


class Cut:
    """A network cut in two.

    The part below must reach the part above through the output of the last unit below alone.

    Args:
        body: the network; its units are its `blocks`, or its children if it has no `blocks`.
        units: the number of units below the cut; None is two thirds of them.
    """

    def __init__(self, body: nn.Module, units: int | None = None) -> None:
        blocks = list(getattr(body, "blocks", body.children()))
        count = max(1, round(len(blocks) * 2 / 3)) if units is None else units
        if not 1 <= count < max(len(blocks), 1):
            raise InputError(
                f"cut={units!r}: this backbone has {len(blocks)} units, so it can be cut after 1 "
                f"to {len(blocks) - 1} of them"
            )
        self.unit = blocks[count - 1]
        order = list(body.modules())
        self.below = order[: order.index(list(self.unit.modules())[-1]) + 1]

    def parameters_below(self) -> set[int]:
        """Return the ids of the parameters that the activations depend on."""
        return {id(p) for module in self.below for p in module.parameters(recurse=False)}

    def latents(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Compute the activations at the cut; the part above is not run.

        Args:
            network: a function that runs the body.
            x: its input.
        """
        found: list[Tensor] = []

        def catch(module: nn.Module, inputs: Any, output: Tensor) -> None:
            found.append(output)
            raise _ReachedError

        handle = self.unit.register_forward_hook(catch)
        try:
            network(x)
        except _ReachedError:
            return found[0]
        finally:
            handle.remove()
        raise InputError(
            "this backbone does not run its units one after the other, so it cannot be cut"
        )

    def above(self, network: Callable[[Tensor], Tensor], latents: Tensor, any_x: Tensor) -> Tensor:
        """Compute the output from activations at the cut.

        Args:
            network: a function that runs the body.
            latents: the activations.
            any_x: an input of the network; it has no influence on the output.
        """
        handle = self.unit.register_forward_hook(lambda module, inputs, output: latents)
        try:
            return network(any_x)
        finally:
            handle.remove()


class _ReachedError(Exception):
    pass


class LatentMemory(AnySize):
    """Activations in half precision, and their labels: never more than the `limit` of `add`.

    Args:
        shape: the shape of the activations of one pattern.
    """

    latents: Tensor
    labels: Tensor

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.register_buffer("latents", torch.zeros(0, *shape, dtype=torch.float16))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self._any_size += ["latents", "labels"]

    @property
    def bytes(self) -> int:
        """The size of the activations and labels."""
        return self.latents.numel() * 2 + self.labels.numel() * 8

    @torch.no_grad()
    def add(
        self, latents: Tensor, labels: Tensor, limit: int, i: int, random: torch.Generator
    ) -> None:
        """Add h = limit / i random patterns of batch B_i; if it is full, they replace h others.

        Args:
            latents: the activations of the batch.
            labels: their labels.
            limit: the capacity.
            i: the number of the batch.
            random: draws which patterns are added and replaced.
        """
        h = min(limit // i, len(latents))
        new = torch.randperm(len(latents), generator=random)[:h].to(latents.device)
        kept = (
            torch.randperm(len(self.labels), generator=random)[: limit - h]
            .sort()
            .values.to(latents.device)
        )
        self.latents = torch.cat([self.latents[kept], latents[new].half()])
        self.labels = torch.cat([self.labels[kept], labels[new].to(self.labels.device)])

    def forget(self, label: int) -> None:
        """Remove the patterns of one class."""
        wanted = self.labels != label
        self.latents, self.labels = self.latents[wanted], self.labels[wanted]
