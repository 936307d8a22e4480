"""Measure the renderer: frames per second, and a set of CORe50's size (164,866 frames).

python benchmarks/render.py                        # a sample of each category
python benchmarks/render.py --whole --device cuda
"""

from __future__ import annotations

import argparse
import time

import torch

from primavista.streams.rendered.renderer import Scene, render


def seconds(scene: Scene, pairs: list[tuple[int, int]], device: str) -> float:
    began = time.perf_counter()
    for object, session in pairs:
        frames = render(scene, object, session, device=device)
        assert frames.shape[0] == scene.frames
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--whole", action="store_true", help="all 550 sessions of 300 frames")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    scene = Scene(frames=300 if args.whole else 60, size=args.size)
    pairs = (
        [(o, s) for o in range(1, 51) for s in range(1, 12)]
        if args.whole
        else [(5 * k + 1, k % 11 + 1) for k in range(10)]
    )
    seconds(scene, pairs[:1], args.device)
    spent = seconds(scene, pairs, args.device)
    count = len(pairs) * scene.frames
    name = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {args.threads} threads"
    print(
        f"{name}: {count} frames of {args.size} px in {spent:.1f} s, {count / spent:.0f} frames/s; "
        f"164,866 would take {164866 * spent / count:.0f} s"
    )


if __name__ == "__main__":
    main()
