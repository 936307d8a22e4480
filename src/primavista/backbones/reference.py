"""What frames of arbitrary objects look like to a network: the reference of prima's familiarity.

It does not depend on what is taught. The package contains it for its own weights at the usual
sizes, so that the first lesson need not wait for 48 frames; see `tools/generic_frames.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

from primavista.backbones.places import PLACES
from primavista.backbones.spec import Spec
from primavista.media.frames import FrameArray
from primavista.media.images import centre_square
from primavista.storage.validate import NumpyArray

DATA = Path(__file__).with_name("data")
SHEET = DATA / "generic.jpg"  # the frames on one sheet
REFERENCES = DATA / "generic_references.safetensors"
SHEET_ROWS, SHEET_COLUMNS, TILE_SIDE = 6, 8, 128


@cache
def generic_frames(size: int) -> FrameArray:
    """Return 48 frames of different rendered objects in different places.

    Args:
        size: The side of the frames, in pixels.

    Returns:
        uint8, 48 x size x size x 3. Do not modify the array, which is cached for the next caller.
    """
    with Image.open(SHEET) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    tiles = pixels.reshape(SHEET_ROWS, TILE_SIDE, SHEET_COLUMNS, TILE_SIDE, 3).swapaxes(1, 2)
    frames = [centre_square(tile, size) for tile in tiles.reshape(-1, TILE_SIDE, TILE_SIDE, 3)]
    return np.stack(frames)


def shipped_reference(
    spec: Spec, sizes: Sequence[int], weights: Mapping[str, NumpyArray]
) -> tuple[NumpyArray, NumpyArray] | None:
    """Return the shipped result of `LessonSample.set_reference` for the generic frames.

    Args:
        spec: The size and the preprocessing of the network.
        sizes: The lengths of its places.
        weights: All of its weights, in float32.

    Returns:
        The centre and the spread; None if the package does not contain those of this network.
    """
    if not any(name.startswith(f"{spec.size}/") for name in _references()):
        return None
    key = reference_key(spec, sizes, weights)
    if f"{key}/centre" not in _references():
        return None
    return _references()[f"{key}/centre"], _references()[f"{key}/spread"]


def reference_key(spec: Spec, sizes: Sequence[int], weights: Mapping[str, NumpyArray]) -> str:
    """Return the size in pixels and 32 hexadecimal digits, which identify a network."""
    sha = hashlib.sha256(repr((spec.mean, spec.std, tuple(sizes), PLACES)).encode())
    for name in sorted(weights):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(weights[name], np.float32).tobytes())
    return f"{spec.size}/{sha.hexdigest()[:32]}"


@cache
def _references() -> dict[str, NumpyArray]:
    return load_file(REFERENCES)
