"""Writes small files in the official layouts of other data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import python2

# Four classes in two superclasses, numbered across as the official ones are.
COARSE = [1, 0, 1, 0]
FINE_NAMES = ["apple", "bear", "chair", "dolphin"]
COARSE_NAMES = ["animals", "things"]
EACH = {"train": 6, "test": 2}


def _cifar(name: str) -> dict[str, Any]:
    """One file: pictures of every class in turn, so that the classes are mixed."""
    fine = [i % 4 for i in range(4 * EACH[name])]
    draw = np.random.default_rng(len(name))
    return {
        "batch_label": f"{name}ing batch 1 of 1",
        "coarse_labels": [COARSE[label] for label in fine],
        "data": draw.integers(0, 256, (len(fine), 3072), np.uint8),
        "filenames": [f"{FINE_NAMES[label]}_s_{i:06d}.png" for i, label in enumerate(fine)],
        "fine_labels": fine,
    }


CIFAR = {
    "train": _cifar("train"),
    "test": _cifar("test"),
    "meta": {"coarse_label_names": COARSE_NAMES, "fine_label_names": FINE_NAMES},
}


def write_cifar(root: Path, **changed: bytes) -> Path:
    """Write the folder that the official archive of CIFAR-100 unpacks to."""
    home = root / "cifar-100-python"
    home.mkdir(parents=True, exist_ok=True)
    for name, content in CIFAR.items():
        (home / name).write_bytes(changed.get(name, python2.dumps(content)))
    return home
