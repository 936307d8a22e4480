"""The first lessons: accuracy and strangers when each object was shown once, twice, three times.

    python benchmarks/first_lessons.py --features --size 128    # once: the places of every frame
    python benchmarks/first_lessons.py --size 128               # the table

`--features` reads CORe50 frames, traffic signs and rendered objects at many places of MobileNet v1
and keeps them in `--cache`, in half precision; the table is then computed from these files.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from accuracy import pack, pack_rendered
from torch import Tensor

from primavista.backbones.multidepth import MultiDepthBackbone
from primavista.backbones.registry import build

ZOOM = 2 / 3  # the share of the side that the second, enlarged pass sees


def cells(x: Tensor, share: float, grid: int) -> Tensor:
    """The means of grid x grid cells over the middle `share` of the side of the maps.

    Pixels on the border of a cell count in part.
    """

    def weights(side: int) -> Tensor:
        edges = side * (1 - share) / 2 + side * share / grid * torch.arange(grid + 1)
        at = torch.arange(side)
        low, high = edges[:-1, None], edges[1:, None]
        w = (torch.minimum(at + 1, high) - torch.maximum(at.float(), low)).clamp(min=0)
        return w / w.sum(1, keepdim=True)

    rows, columns = weights(x.shape[2]).to(x), weights(x.shape[3]).to(x)
    return torch.einsum("nchw,gh,kw->ncgk", x, rows, columns)


def zoomed(frames: Tensor) -> Tensor:
    """The middle of uint8 frames N x H x W x 3, enlarged to the same size."""
    side = frames.shape[1]
    margin = round(side * (1 - ZOOM) / 2)
    x = frames[:, margin : side - margin, margin : side - margin].permute(0, 3, 1, 2).float()
    x = F.interpolate(x, size=(side, side), mode="bilinear", align_corners=False)
    return x.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


class Reader:
    """All candidate places of a pass: the maps of some blocks are read by hooks."""

    def __init__(self, size: int) -> None:
        self.deep = MultiDepthBackbone(build(size=size)).eval()
        self.maps: dict[int, Tensor] = {}
        body: Any = self.deep.body
        for k in (2, 4, 6, 8, 10, 11, 12):
            body.blocks[k].register_forward_hook(self._note(k))

    def _note(self, k: int) -> Any:
        def hook(module: Any, inputs: Any, output: Tensor) -> None:
            self.maps[k] = output

        return hook

    def __call__(self, frames: Tensor, zoom: bool) -> dict[str, Tensor]:
        z = self.deep(frames)
        depth = sum(self.deep.sizes[:-1])
        found = {"own": self.maps[12].mean((2, 3)), "depths": z[:, :depth]}
        for k in (2, 4, 6, 8, 10, 11, 12):
            found[f"b{k}mid"] = cells(self.maps[k], 1 / 2, 1)
            if not zoom and k > 2:
                found[f"b{k}m2"] = cells(self.maps[k], 1 / 2, 2)
                found[f"b{k}t"] = cells(self.maps[k], 1 / 3, 1)
                found[f"b{k}mid3"] = cells(self.maps[k], 2 / 3, 1)
        if zoom:
            return {f"zoom_{n}": x.flatten(1) for n, x in found.items()}
        return {n: x.flatten(1) for n, x in found.items()}


@torch.no_grad()
def extract(array: Path, size: int, cache: Path, name: str) -> None:
    out = cache / f"{name}_{size}x"
    if (out / "done").exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    frames = torch.from_numpy(np.load(array))[:: 4 if name == "signs" else 1]
    reader, began = Reader(size), time.perf_counter()
    parts: dict[str, list[np.ndarray]] = {}
    for k, chunk in enumerate(frames.split(64)):
        for zoom in (False, True):
            for place, x in reader(zoomed(chunk) if zoom else chunk, zoom).items():
                parts.setdefault(place, []).append(x.half().numpy())
        if k % 20 == 0:
            print(
                f"{name} {size} px: {k * 64} of {len(frames)}, {time.perf_counter() - began:.0f} s",
                flush=True,
            )
    for place, xs in parts.items():
        np.save(out / f"{place}.npy", np.concatenate(xs))
    (out / "done").touch()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("results/first_lessons"))
    parser.add_argument("--sets", nargs="+", default=["core50", "signs", "rendered"])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--features", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    makers = {
        "core50": lambda: pack(args.data / "core50_frames.tar", args.size, args.cache, 1),
        "signs": lambda: pack(args.data / "gtsrb_tracks.tar", args.size, args.cache, 1),
        "rendered": lambda: pack_rendered(args.size, 12, args.cache, "cpu"),
    }
    for name in args.sets:
        array, _ = makers[name]()
        extract(array, args.size, args.cache, name)


if __name__ == "__main__":
    main()
