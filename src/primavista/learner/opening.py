"""The learner of a file, or a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from primavista.errors import InputError
from primavista.learner.learner import Learner
from primavista.strategies.registry import current_names


def open_learner(path: Path, *, device: str | torch.device = "auto", **options: Any) -> Learner:
    """Load the learner of a file, or make a new one if there is no such file; nothing is written.

    Args:
        path: The file.
        device: "auto" (the GPU if there is one), "cpu", "cuda" or a torch device.
        **options: Arguments of `Learner`. If the file exists, they must be those that it was made
            with; `weights` alone is not compared, since the file does not say where they came from.

    Raises:
        InputError: If the file was made with other options.
        FileError: If the file cannot be loaded.
    """
    if not path.exists():
        return Learner(device=device, **options)
    learner = Learner.load(path, device=device)
    spec = learner.strategy.backbone.spec
    facts = {
        **spec.options,
        **learner.options,
        "seed": int(learner.strategy.seed),
        "threshold": learner.threshold,
        "engine": learner.engine,
        "strategy": learner.strategy_name,
        "backbone": spec.name,
        "size": learner.size,
    }
    for name, value in current_names(options).items():
        if name != "weights" and facts.get(name) != value:
            raise InputError(
                f"{path.name} was made with {name} {facts.get(name)}, not {value}: leave that out "
                "(it is for new files), or name another file"
            )
    return learner
