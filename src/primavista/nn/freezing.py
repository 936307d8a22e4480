"""Depthwise layer freezing: some convolutions stay fixed (paper, sections 2.3 and 4)."""

from __future__ import annotations

from torch import nn

from primavista.errors import InputError
from primavista.heads.options import Freeze

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def is_pointwise(conv: nn.Module) -> bool:
    """Return True if a module is a 1 x 1 convolution that mixes the channels."""
    if not isinstance(conv, CONVOLUTIONS):
        return False
    return all(k == 1 for k in conv.kernel_size) and conv.groups == 1


def set_freezing(backbone: nn.Module, freeze: Freeze) -> list[str]:
    """Fix the weights of some convolutions and unfix all others; norms are not changed.

    Args:
        backbone: Any network.
        freeze: `depthwise` fixes the 14 convolutions of MobileNet v1 that are not pointwise (13
            depthwise and the first), `pointwise` the other 13, `all` both, `none` neither. In a
            vision transformer, `depthwise` fixes the embedding of the patches.

    Returns:
        The names of the fixed weights.

    >>> set_freezing(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)), "depthwise")
    ['0.weight', '0.bias']
    """
    if freeze not in ("none", "depthwise", "pointwise", "all"):
        raise InputError(f"freeze is none, depthwise, pointwise or all; got {freeze!r}")
    fixed = []
    for name, module in backbone.named_modules():
        if not isinstance(module, CONVOLUTIONS):
            continue
        kind = "pointwise" if is_pointwise(module) else "depthwise"
        freezes = freeze in ("all", kind)
        for tensor, parameter in module.named_parameters(recurse=False):
            parameter.requires_grad_(not freezes)
            if freezes:
                fixed.append(f"{name}.{tensor}" if name else tensor)
    return fixed
