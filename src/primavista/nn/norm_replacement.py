"""Replacement of the batch norms of a network by batch renormalisation, before training."""

from __future__ import annotations

import torch
from torch import nn

from primavista.errors import InputError
from primavista.nn.renorm import BATCH_NORMS, BatchRenorm


def replace_batch_norm(module: nn.Module, kind: type[BatchRenorm] = BatchRenorm) -> nn.Module:
    """Replace every batch norm of a module tree; scale, shift, moments and eps stay the same.

    The tree is changed in place; if `module` itself is a batch norm, its replacement is returned. A
    layer that occurs in several places stays one layer.

    Args:
        module: any module.
        kind: the class of the new layers.

    Raises:
        InputError: if a batch norm does more than normalise, or has no channels yet.

    >>> replace_batch_norm(nn.Sequential(nn.Sequential(nn.BatchNorm2d(4))))[0][0]
    BatchRenorm(4, eps=1e-05)
    """
    made: dict[nn.Module, nn.Module] = {}

    def replaced(old: nn.Module) -> nn.Module:
        if isinstance(old, BATCH_NORMS):
            if old not in made:
                made[old] = _renorm_like(old, kind)
            return made[old]
        # named_children would skip the second occurrence of a layer
        for name, child in list(old._modules.items()):
            if child is not None:
                old._modules[name] = replaced(child)
        return old

    return replaced(module)


def _renorm_like(old: nn.Module, kind: type[BatchRenorm]) -> BatchRenorm:
    assert isinstance(old, BATCH_NORMS)
    _check_plain(old)
    new = kind(old.num_features, old.eps)
    like = old.weight if old.running_mean is None else old.running_mean
    if like is not None:
        new.to(like.device, like.dtype)
    with torch.no_grad():
        if old.affine:
            new.weight.copy_(old.weight)
            new.bias.copy_(old.bias)
        if old.running_mean is not None and old.running_var is not None:
            new.start_from(old.running_mean, old.running_var)
    new.weight.requires_grad_(old.affine)
    new.bias.requires_grad_(old.affine)
    new.train(old.training)
    return new


def _check_plain(old: nn.Module) -> None:
    name = type(old).__name__
    if isinstance(old, nn.modules.lazy.LazyModuleMixin):
        raise InputError(
            f"{name} has no channels yet: run the network once before it becomes a backbone"
        )
    plain = {kind.forward for kind in (*BATCH_NORMS, nn.modules.batchnorm._BatchNorm)}
    if type(old).forward not in plain:
        raise InputError(
            f"{type(old).__module__}.{name} is a batch norm that does more than normalise, so it "
            "cannot be replaced by batch renormalisation: make it a plain nn.BatchNorm2d and a "
            "layer for the rest, or choose norm='bn'"
        )
