"""The methods of the field beside prima, on several networks and data sets.

    python benchmarks/field.py --device cuda --jobs 8 --weights resnet50=resnet50_keras.safetensors
    python benchmarks/field.py --backbones mobilenet_v1 --data rendered --runs 0

Each cell learns one stream of `accuracy.py` (single sessions after batch 1) and is tested once at
the end, on every test frame. Settings are the defaults; for KLDA, whose `sigma` depends on the size
of the features, and ACIL (`gamma`), each value is a row of its own. Cells that are in `--out`
already are not run again, and `--table` runs none.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import accuracy
import torch

STRATEGIES = [
    "prima",
    "ranpac",
    "dslda",
    "lda",
    *(f"klda:sigma={sigma}" for sigma in (1e-5, 1e-4, 1e-3, 1e-2)),
    "fecam",
    "acil",
    "acil:gamma=100",
    "ridge",
    "ncm",
]
BACKBONES = ["mobilenet_v1", "efficientnet_lite0", "resnet50"]
SETTINGS = {"engine": "torch", "threads": 1, "test_thin": 1, "test_every": 10**6}
Cell = tuple[str, str, str, int]  # backbone, data set, strategy, run


def key_of(result: dict[str, Any]) -> Cell:
    return result["backbone"], result["data"], result["strategy"], result["run"]


def name_of(data: str) -> str:
    return Path(data).stem


def table(results: list[dict[str, Any]], data: str) -> str:
    """Return the table of one data set in Markdown: a row per strategy, a column per network."""
    own = [result for result in results if result["data"] == data]
    backbones = [b for b in BACKBONES if any(r["backbone"] == b for r in own)]
    lines = [f"| {data} | {' | '.join(backbones)} |", "|---" * (len(backbones) + 1) + "|"]
    for spec in [s for s in STRATEGIES if any(r["strategy"] == s for r in own)]:
        cells = []
        for backbone in backbones:
            found = {
                r["run"]: r["accuracy"]
                for r in own
                if (r["backbone"], r["strategy"]) == (backbone, spec)
            }
            values = [found[run] for run in sorted(found)]
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.1f}{spread} ({len(values)})" if values else "")
        lines.append(f"| {spec} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run_all(args: argparse.Namespace, results: list[dict[str, Any]]) -> int:
    """Run what is missing, append it to `--out`, and return how many cells failed."""
    done = {key_of(result) for result in results}
    paths = dict(pair.split("=", 1) for pair in args.weights)
    failed = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, context) as pool, args.out.open("a") as out:
        pending = {}
        for data in args.data:
            own = argparse.Namespace(**vars(args) | SETTINGS | {"data": data})
            array, index = accuracy.packed_data(own)
            for run, spec, backbone in product(args.runs, args.strategies, args.backbones):
                cell = (backbone, name_of(data), spec, run)
                if cell not in done:
                    weights = {"backbone": backbone, "weights": paths.get(backbone, "imagenet")}
                    of_cell = argparse.Namespace(**vars(own) | weights)
                    pending[pool.submit(accuracy.cell, spec, run, array, index, of_cell)] = cell
        for k, future in enumerate(as_completed(pending), 1):
            backbone, data, spec, run = pending[future]
            progress = f"[{k}/{len(pending)}] {backbone} {data} {spec} {run}"
            try:
                found = future.result()
            except Exception as error:
                failed += 1
                print(f"{progress} failed: {type(error).__name__}: {error}", flush=True)
                continue
            result = {"backbone": backbone, "data": data, "size": args.size, **found}
            result["precision"] = args.precision
            results.append(result)
            out.write(json.dumps(result) + "\n")
            out.flush()
            print(f"{progress}: {found['accuracy']:.1f} in {found['learn_seconds']:.0f} s")
    return failed


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    shared = "../shared/data/"
    sets = [f"{shared}gtsrb_tracks.tar", "rendered", f"{shared}core50_frames.tar"]
    add("--data", nargs="+", default=sets, help="tars of tracks, or 'rendered'")
    add("--frames", type=int, default=60, help="frames per session of rendered objects")
    add("--strategies", nargs="+", default=STRATEGIES)
    add("--backbones", nargs="+", default=BACKBONES)
    add("--weights", nargs="*", default=[], help="BACKBONE=FILE, other than 'imagenet'")
    add("--runs", nargs="+", type=int, default=[0, 1, 2])
    add("--size", type=int, default=128)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--precision", choices=["float32", "tf32", "bf16"], default="float32")
    add("--jobs", type=int, default=1, help="processes at once")
    add("--table", action="store_true", help="only print the tables of `--out`")
    add("--out", type=Path, default=Path("results/field.jsonl"))
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    results = [json.loads(line) for line in lines]
    failed = 0 if args.table else run_all(args, results)
    for data in dict.fromkeys(result["data"] for result in results):
        print("\n" + table(results, data))
    if failed:
        raise SystemExit(f"{failed} cells failed")


if __name__ == "__main__":
    main()
