"""Devices: which one a name stands for, whether this machine has it, and how to free its memory."""

from __future__ import annotations

import gc

import torch

from primavista.errors import InputError


def choose_device(device: str | torch.device, here: bool = True) -> torch.device:
    """Return the device of that name.

    Args:
        device: "auto" (the GPU if torch can use one, else the CPU), "cpu", "cuda", "cuda:1", or a
            torch device.
        here: Whether this machine must have it; False for work that another machine will do.

    Raises:
        InputError: If there is no such device.
    """
    gpu = torch.cuda.is_available()
    if str(device) == "auto":
        return torch.device("cuda" if gpu else "cpu")
    try:
        made = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"there is no device {device!r}: choose auto, cpu or cuda") from error
    if here and made.type == "cuda" and not gpu:
        raise InputError("there is no GPU here that torch can use: choose auto or cpu")
    if here:
        _check_usable(made)
    return made


def _check_usable(device: torch.device) -> None:
    """Refuse a device that torch knows of but cannot use on this machine, such as mps or xpu."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(
            f"torch cannot use the device {str(device)!r} here ({reason}): choose auto, cpu or cuda"
        ) from error


def free_memory() -> None:
    """Free what is no longer used, also on the GPU, for others that share it.

    A strategy and its captured functions refer to each other, so that they live until the garbage
    collector runs; and torch keeps the memory of a GPU that it has once had, for itself.
    """
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
