"""Frames of objects of any kind, to know the features of a backbone before anything is taught."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from primavista.backbones.base import Backbone
from primavista.frames import crop_and_resize

# both made by tools/generic_frames.py
SHEET = Path(__file__).with_name("generic.jpg")
REFERENCES = Path(__file__).with_name("data") / "generic_references.safetensors"
ROWS, COLUMNS, SIDE = 6, 8, 128


@cache
def generic_frames(size: int) -> Tensor:
    """Return 48 frames of different rendered objects in different places.

    The mean of a backbone's features over them is a centre that does not depend on what is taught.

    Args:
        size: the side of the frames, in pixels.

    Returns:
        uint8, 48 x size x size x 3. Do not write to it: it is kept for the next caller.
    """
    with Image.open(SHEET) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    tiles = pixels.reshape(ROWS, SIDE, COLUMNS, SIDE, 3).swapaxes(1, 2)
    frames = [crop_and_resize(tile, size) for tile in tiles.reshape(-1, SIDE, SIDE, 3)]
    return torch.from_numpy(np.stack(frames))


def shipped_reference(backbone: Backbone) -> tuple[Tensor, Tensor] | None:
    """Find what `LessonSample.set_reference` would make of the generic frames, computed before.

    The package has it for its own MobileNet v1 at 128, 160, 192 and 224 px, so that the first
    lesson need not wait for 48 frames.

    Args:
        backbone: the network, read at all places.

    Returns:
        The centre and the spread; None if the package does not have those of this network.
    """
    if not any(name.startswith(f"{backbone.spec.size}/") for name in _references()):
        return None
    key = reference_key(backbone)
    if f"{key}/centre" not in _references():
        return None
    return _references()[f"{key}/centre"], _references()[f"{key}/spread"]


def reference_key(backbone: Backbone) -> str:
    """Identify a network by its size, its preprocessing, its places and all of its weights.

    Args:
        backbone: the network.

    Returns:
        The size in pixels and 32 hexadecimal digits.
    """
    spec = backbone.spec
    facts = (spec.mean, spec.std, sorted(spec.options.items()), getattr(backbone, "sizes", ()))
    sha = hashlib.sha256(repr(facts).encode())
    for name, tensor in sorted(backbone.body.state_dict().items()):
        sha.update(name.encode())
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return f"{spec.size}/{sha.hexdigest()[:32]}"


@cache
def _references() -> dict[str, Tensor]:
    return load_file(REFERENCES)
