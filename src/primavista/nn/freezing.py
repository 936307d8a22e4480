"""Depthwise layer freezing: some convolutions stay fixed (paper, section 2.3; `fig:NI`)."""

from __future__ import annotations

from typing import Literal

from torch import nn

from primavista.errors import InputError

Freeze = Literal["none", "depthwise", "pointwise", "all"]
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def is_pointwise(conv: nn.Module) -> bool:
    """Return whether a module is a 1 x 1 convolution that mixes the channels.

    All other convolutions are spatial: the depthwise ones, and the first, full one.

    Args:
        conv: any module.
    """
    return (
        isinstance(conv, CONVOLUTIONS)
        and all(k == 1 for k in conv.kernel_size)
        and conv.groups == 1
    )


def _is_transformer(network: nn.Module) -> bool:
    """Return True if a network has layer norms and no pointwise convolution."""
    modules = list(network.modules())
    has_norm = any(isinstance(module, nn.LayerNorm) for module in modules)
    return has_norm and not any(is_pointwise(module) for module in modules)


def set_freezing(backbone: nn.Module, freeze: Freeze) -> list[str]:
    """Fix the weights of some convolutions and free those of the others; norms are left alone.

    Args:
        backbone: any network.
        freeze: `depthwise` fixes the 14 convolutions of MobileNet v1 that are not pointwise (13
            depthwise and the first), `pointwise` the other 13, `all` both, `none` neither. Of a
            vision transformer, `depthwise` fixes the embedding of the patches.

    Returns:
        The names of the fixed weights.

    Raises:
        InputError: If there is no such scheme, or the network is a transformer, which has no
            pointwise convolutions to fix.

    >>> set_freezing(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)), "depthwise")
    ['0.weight', '0.bias']
    """
    if freeze not in ("none", "depthwise", "pointwise", "all"):
        raise InputError(f"freeze is none, depthwise, pointwise or all; got {freeze!r}")
    if freeze in ("pointwise", "all") and _is_transformer(backbone):
        raise InputError(
            f"freeze='{freeze}' fixes pointwise convolutions, and this network is a transformer: "
            "it has none. Choose 'depthwise', which fixes the embedding of its patches, or 'none'; "
            "cwr* and the analytic strategies fix the whole network after batch 1 or from the start"
        )
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
