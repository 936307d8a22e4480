"""Render the frames behind `primavista.backbones.reference`: generic.jpg.

    python tools/generic_frames.py                 # the frames
    python tools/generic_frames.py --references    # what prima makes of them

The references are in src/primavista/backbones/data; make them again if the frames, the weights of
the package or the places that prima reads have changed (a test says so).

The script renders one frame each of 48 objects, in different sessions, as one sheet. Neither the
tests nor the benchmarks use its seed, so familiarity is measured on other objects.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file

from primavista.backbones.reference import (
    REFERENCES,
    SHEET,
    SHEET_COLUMNS,
    SHEET_ROWS,
    TILE_SIDE,
    generic_frames,
    reference_key,
)
from primavista.backbones.weights import SHIPPED
from primavista.heads.prima import LessonSample
from primavista.networks.base import build, named_weights
from primavista.networks.places import MiddleBackbone
from primavista.nn.class_rows import ArrayBuffers
from primavista.streams.rendered.renderer import Scene, render

SIZES = (128, 160, 192, 224)
SCENE = Scene(categories=10, objects=5, sessions=11, frames=60, size=TILE_SIDE, seed=271828)


def write_references() -> None:
    """Compute the references of familiarity, for MobileNet v1 at the usual sizes."""
    found = {}
    for weights, size in itertools.product(SHIPPED, SIZES):
        backbone = MiddleBackbone(build(*weights.split("/"), size=size))
        sample = LessonSample.empty(backbone.sizes)
        with torch.no_grad():
            ArrayBuffers(sample)  # its arrays become tensors
            sample.set_reference(backbone.eval()(torch.from_numpy(generic_frames(size))))
        key = reference_key(backbone.spec, backbone.sizes, named_weights(backbone))
        for name in sample.REFERENCE:
            found[f"{key}/{name}"] = sample.arrays[name].contiguous()
    save_file(found, REFERENCES)
    print(f"{REFERENCES}: {REFERENCES.stat().st_size} bytes")


def main() -> None:
    """Render the frames and write the sheet, or the references."""
    if "--references" in sys.argv[1:]:
        write_references()
        return
    count = SHEET_ROWS * SHEET_COLUMNS
    frames = torch.cat(
        [render(SCENE, 1 + k, 1 + 7 * k % SCENE.sessions, [37 * k % 60]) for k in range(count)]
    )
    tiles = frames.reshape(SHEET_ROWS, SHEET_COLUMNS, TILE_SIDE, TILE_SIDE, 3).permute(
        0, 2, 1, 3, 4
    )
    sheet = tiles.reshape(SHEET_ROWS * TILE_SIDE, SHEET_COLUMNS * TILE_SIDE, 3).numpy()
    Image.fromarray(sheet).save(SHEET, quality=75, subsampling=0, optimize=True)
    print(f"{SHEET}: {Path(SHEET).stat().st_size} bytes")


if __name__ == "__main__":
    main()
