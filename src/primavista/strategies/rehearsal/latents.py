"""A network cut in two, and a bounded memory of the activations at the cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from primavista.errors import InputError
from primavista.networks.mobilenet_v1 import LAYERS, MobileNetV1
from primavista.nn.memory import Memory

INPUT = "input"


class Cut:
    """A network cut in two parts.

    The upper part may depend on the lower part only through the output of the last layer below the
    cut. If the network is cut at its input, the lower part is empty and the activations at the cut
    are the frames.

    Args:
        body: The network; its units are its `blocks`, or its children if it has no `blocks`.
        at: The number of units below the cut; the name in MobileNet v1 of the last layer below it,
            such as `conv5_4/dw`; or `input`. None stands for two thirds of the units, and so does
            the name of a layer if the network is not MobileNet v1.
    """

    def __init__(self, body: nn.Module, at: int | str | None = None) -> None:
        self.last: nn.Module | None = None
        self.below: list[nn.Module] = []
        if at != INPUT:
            self.last = _last_below(body, at)
            order = list(body.modules())
            self.below = order[: order.index(list(self.last.modules())[-1]) + 1]

    def check(self, network: Callable[[Tensor], Tensor], x: Tensor, other: Tensor) -> None:
        """Reject a cut that is bypassed, for example by a shortcut around the last layer.

        `network` runs the body in evaluation mode; x and other are two of its inputs.
        """
        whole = network(x)
        parts = self.above(network, self.latents(network, x), other)
        if not torch.allclose(parts, whole, rtol=1e-3, atol=1e-5):
            raise InputError(
                "this backbone cannot be cut there, since its upper part depends on more than the "
                "activations at the cut: choose another cut, such as 'input'"
            )

    def parameters_below(self) -> set[int]:
        """Return the ids of the parameters that the activations depend on."""
        return {id(p) for module in self.below for p in module.parameters(recurse=False)}

    def latents(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Compute the activations at the cut; `network` runs the body, up to the cut."""
        if self.last is None:
            return x
        found: list[Tensor] = []

        def catch(module: nn.Module, inputs: Any, output: Tensor) -> None:
            found.append(output)
            raise _ReachedError

        handle = self.last.register_forward_hook(catch)
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

        `network` runs the body on `any_x`, which has no influence on the output.
        """
        if self.last is None:
            return network(latents)
        handle = self.last.register_forward_hook(lambda module, inputs, output: latents)
        try:
            return network(any_x)
        finally:
            handle.remove()


class _ReachedError(Exception):
    pass


def _last_below(body: nn.Module, at: int | str | None) -> nn.Module:
    """Return the last layer below the cut."""
    if isinstance(at, str):
        if at not in LAYERS:
            raise InputError(
                f"cut={at!r}: there is no such layer in MobileNet v1: choose one of "
                f"{', '.join(LAYERS)}, {INPUT!r}, or a number of blocks"
            )
        if isinstance(body, MobileNetV1):
            return body.get_submodule(LAYERS[at])
    units: list[nn.Module] = list(getattr(body, "blocks", body.children()))
    count = at if isinstance(at, int) else max(1, round(len(units) * 2 / 3))
    if not 1 <= count < max(len(units), 1):
        raise InputError(
            f"cut={at!r}: this backbone has {len(units)} units, so it can be cut after 1 "
            f"to {len(units) - 1} of them"
        )
    return units[count - 1]


class LatentMemory(Memory):
    """RM, the memory of patterns: activations at the cut, or frames, and their labels.

    RM_size is `limit`. Activations are stored in half precision, frames as bytes.
    """

    latents: Tensor

    def __init__(self, limit: int, shape: torch.Size, dtype: torch.dtype = torch.float16) -> None:
        super().__init__(limit, latents=torch.zeros(0, *shape, dtype=dtype))

    @torch.no_grad()
    def add(self, latents: Tensor, labels: Tensor, i: int, random: torch.Generator) -> None:
        """h = RM_size / i,  RM = (RM - R_replace) u R_add

        R_add are h random patterns of batch B_i, or all of them if there are fewer. R_replace are
        random patterns of RM, as many as needed to make room; none before RM is full.
        """
        h = min(self.limit // i, len(latents))
        r_add = torch.randperm(len(latents), generator=random)[:h].to(latents.device)
        shuffled = torch.randperm(len(self), generator=random)
        kept = shuffled[: self.limit - h].sort().values.to(latents.device)  # RM - R_replace
        added = latents[r_add].to(self.latents.dtype)
        labels = torch.cat([self.labels[kept], labels[r_add].to(self.labels.device)])
        self.store(labels, latents=torch.cat([self.latents[kept], added]))
