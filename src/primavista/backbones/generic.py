"""Frames of objects of any kind, to know the features of a backbone before anything is taught."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from primavista.frames import crop_and_resize

SHEET = Path(__file__).with_name("generic.jpg")  # made by tools/generic_frames.py
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
