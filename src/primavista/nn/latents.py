"""Activations in the middle of a network: taken out, put in again, and a bounded memory of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from primavista.errors import InputError
from primavista.nn.class_rows import AnySize


class Cut:
    """A network cut after the first `units` of its blocks (a body without `blocks`: of its children); None: two thirds of them.

    What lies below must reach what lies above through the output of the last of these units alone.
    """

    def __init__(self, body: nn.Module, units: int | None = None) -> None:
        blocks = list(getattr(body, "blocks", body.children()))
        count = max(1, round(len(blocks) * 2 / 3)) if units is None else units
        if not 1 <= count < max(len(blocks), 1):
            raise InputError(
                f"cut={units!r}: this backbone has {len(blocks)} units, so it can be cut after 1 to {len(blocks) - 1}"
            )
        self.unit = blocks[count - 1]
        order = list(body.modules())
        self.below = order[: order.index(list(self.unit.modules())[-1]) + 1]

    def parameters_below(self) -> set[int]:
        """The ids of the parameters that the activations depend on."""
        return {id(p) for module in self.below for p in module.parameters(recurse=False)}

    def latents(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The activations at the cut; what lies above is not run."""
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
        """The output for these activations; `any_x` is run up to the cut and has no influence."""
        handle = self.unit.register_forward_hook(lambda module, inputs, output: latents)
        try:
            return network(any_x)
        finally:
            handle.remove()


class _ReachedError(Exception):
    pass


class LatentMemory(AnySize):
    """Activations and their labels, in the same order; half precision. Never more than the `limit` given to `add`."""

    latents: Tensor
    labels: Tensor

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.register_buffer("latents", torch.zeros(0, *shape, dtype=torch.float16))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self._any_size += ["latents", "labels"]

    @property
    def bytes(self) -> int:
        """What it takes."""
        return self.latents.numel() * 2 + self.labels.numel() * 8

    @torch.no_grad()
    def add(
        self, latents: Tensor, labels: Tensor, limit: int, i: int, random: torch.Generator
    ) -> None:
        """h = limit / i patterns of batch B_i, at random; where there is no room, they take the places of as many others."""
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
        """Drop the patterns of one class."""
        wanted = self.labels != label
        self.latents, self.labels = self.latents[wanted], self.labels[wanted]
