"""The frames behind `primavista.backbones.generic`: src/primavista/backbones/generic.jpg.

    python tools/generic_frames.py

It renders one frame each of 48 objects, in different sessions, as one sheet. The seed is none that
the tests or the benchmarks use, so the objects are not those on which familiarity is measured.
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

from primavista.backbones.generic import COLUMNS, ROWS, SHEET, SIDE
from primavista.streams.rendered.renderer import Scene, render

SCENE = Scene(categories=10, objects=5, sessions=11, frames=60, size=SIDE, seed=271828)


def main() -> None:
    """Render the frames and write the sheet."""
    count = ROWS * COLUMNS
    frames = torch.cat(
        [render(SCENE, 1 + k, 1 + 7 * k % SCENE.sessions, [37 * k % 60]) for k in range(count)]
    )
    tiles = frames.reshape(ROWS, COLUMNS, SIDE, SIDE, 3).permute(0, 2, 1, 3, 4)
    sheet = tiles.reshape(ROWS * SIDE, COLUMNS * SIDE, 3).numpy()
    Image.fromarray(sheet).save(SHEET, quality=75, subsampling=0, optimize=True)
    print(f"{SHEET}: {Path(SHEET).stat().st_size} bytes")


if __name__ == "__main__":
    main()
