"""Do hyperparameters that were chosen on one data set hold on another one?

    python benchmarks/reality_check.py --device cuda --precision bf16 --jobs 8
    python benchmarks/reality_check.py --strategies ar1* ranpac prima --runs 0

These are the two phases of "Hyperparameters in Continual Learning: A Reality Check" (arXiv
2403.09066): hyperparameters are chosen on one data set and judged on another. The grid of each
strategy is `GRID`. Every point of it learns both data sets, over the same runs: 20 rendered objects
and 20 kinds of traffic sign, NICv2 with single sessions, 10 classes in batch 1 and 71 batches. The
*choice* is the point with the best mean final accuracy. The *drop* of a data set is the accuracy of
its own choice minus that of the choice of the other data set. A strategy without settings has one
point, so its drop is 0 by construction. Points that are already in `--out` are not run again, and
`--table` runs none; a run that lacks a point of a strategy does not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import accuracy
import numpy as np
import torch

from primavista.engine.representation import free_memory
from primavista.networks.base import build
from primavista.strategies.creation import create
from primavista.streams.dataset import DataSet, Session
from primavista.streams.protocols import parse_protocol

DATA = ("rendered", "signs")
CLASSES, SESSIONS, TESTS, FRAMES = 20, 4, 2, 8
NICV2 = "nicv2:first=10"
TRAINING: dict[str, list[Any]] = {"lr": [1e-4, 1e-3, 1e-2], "epochs": [2, 8]}
REPLAY: dict[str, list[Any]] = {"lr": [1e-3, 1e-2, 1e-1]}
# The grid of each strategy: every combination of these values. prima and ncm have no settings.
GRID: dict[str, dict[str, list[Any]]] = {
    "prima": {},
    "ncm": {},
    "ridge": {"rho": [None, 1e-3, 1e-2, 1e-1, 1.0]},
    "lda": {"shrinkage": [None, 1e-3, 1e-2, 1e-1]},
    "dslda": {"shrinkage": [1e-4, 1e-3, 1e-2, 1e-1]},
    "ranpac": {"expand": [1000, 10_000]},
    "acil": {"gamma": [1e-1, 1e1, 1e3]},
    "klda": {"sigma": [1e-5, 1e-4, 1e-3, 1e-2]},
    "fecam": {"power": [0.5, 1.0], "gamma_2": [0.0, 1.0]},
    "fsa": {"lr_1": [1e-3, 1e-2], "adapt": ["film", "all"]},
    "cwr*": TRAINING,
    "cwr+": TRAINING,
    "ar1*": TRAINING,
    "ar1": TRAINING,
    "ewc": TRAINING,
    "lwf": TRAINING,
    "naive": TRAINING,
    "latent-replay": TRAINING,
    "er": REPLAY,
    "der++": REPLAY,
    "icarl": REPLAY,
}
Point = tuple[tuple[str, Any], ...]
Span = tuple[int, int, int, int]  # class, category, first frame, the one after the last


def points(strategy: str) -> list[Point]:
    """Return every combination of the values in the grid of a strategy."""
    names, values = GRID[strategy].keys(), GRID[strategy].values()
    return [tuple(zip(names, found, strict=True)) for found in product(*values)]


def sessions_of(name: str, args: argparse.Namespace) -> tuple[Path, list[Span]]:
    """Return the array of all frames and every session: class, category, start and stop."""
    packed = args.out.parent / "packed"
    if name == "rendered":
        array, index = accuracy.pack_rendered(args.size, FRAMES, packed, args.device)
        facts = json.loads(index.read_text())
        sessions = [Session(*s) for s in [*facts["train"], *facts["test"]]]
        return array, [(s.label, facts["categories"][s.label], s.start, s.stop) for s in sessions]
    array, index = accuracy.pack(Path(args.signs), args.size, packed, max(args.jobs, 2))
    tracks = json.loads(index.read_text())
    names = sorted({track.partition("/")[0] for track, _, _ in tracks})
    labels = [names.index(track.partition("/")[0]) for track, _, _ in tracks]
    return array, [
        (label, label, start, stop) for label, (_, start, stop) in zip(labels, tracks, strict=True)
    ]


def small(
    array: Path, sessions: list[Span], run: int
) -> tuple[np.ndarray[Any, Any], list[list[Span]], list[int]]:
    """Draw the sessions of a run, and copy a few frames of each."""
    draw = random.Random(f"reality/{run}")
    by_class: dict[int, list[Span]] = {}
    for session in sessions:
        by_class.setdefault(session[0], []).append(session)
    enough = sorted(c for c, own in by_class.items() if len(own) >= SESSIONS + TESTS)
    categories = {c: by_class[c][0][1] for c in enough}
    # the first classes of each category, so that all categories are there
    enough.sort(key=lambda c: (sum(categories[k] == categories[c] for k in enough if k < c), c))
    frames, chosen = np.load(array, mmap_mode="r"), sorted(enough[:CLASSES])
    parts: list[list[Span]] = [[], []]
    copied: list[np.ndarray[Any, Any]] = []
    for label, c in enumerate(chosen):
        own = draw.sample(by_class[c], SESSIONS + TESTS)
        for number, (_, _, start, stop) in enumerate(own):
            indices = np.linspace(start, stop - 1, FRAMES).round().astype(int)
            begin = len(copied) * FRAMES
            copied.append(np.asarray(frames[indices]))
            parts[number >= SESSIONS].append((label, number + 1, begin, begin + FRAMES))
    return np.concatenate(copied), parts, [categories[c] for c in chosen]


def pack(args: argparse.Namespace) -> dict[str, Path]:
    """Write the frames and the sessions of each data set and run to a file, for the processes."""
    found = {}
    for name in DATA:
        array, sessions = sessions_of(name, args)
        for run in args.runs:
            frames, (train, test), categories = small(array, sessions, run)
            path = args.out.parent / "packed" / f"reality_{name}_{args.size}_{run}.npz"
            np.savez(path, frames=frames, train=train, test=test, categories=categories)
            found[f"{name}/{run}"] = path
    return found


def learn(
    strategy: str, point: Point, name: str, run: int, path: Path, args: argparse.Namespace
) -> dict[str, Any]:
    """Learn one stream with one point of the grid; return the final accuracy."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    free_memory()  # of the cell before, whose captured steps hold memory of the GPU
    with np.load(path) as file:
        frames = torch.from_numpy(file["frames"]).to(args.device)
        train, test = (tuple(Session(*s) for s in file[k].tolist()) for k in ("train", "test"))
        categories = tuple(file["categories"].tolist())
    names = tuple(map(str, range(len(categories))))
    data = DataSet(name, frames, train, test, names, categories)
    stream = parse_protocol(args.protocol).stream(data, run)
    made = create(strategy, build(args.backbone, size=args.size), seed=run, **dict(point))
    made = made.to(args.device)
    made.backbone.precision = args.precision
    began = time.perf_counter()
    for i in range(args.batches or len(stream)):
        batch = stream[i]
        made.learn(batch.images, batch.labels, batch.sessions)
    asked = stream.test()
    best = made.classes[made.scores(asked.images).argmax(1)].cpu()
    return {
        "strategy": strategy,
        "point": [list(pair) for pair in point],
        "data": name,
        "run": run,
        "accuracy": 100 * float((best == asked.labels.cpu()).float().mean()),
        "seconds": time.perf_counter() - began,
        "what": settings_of(args),
    }


def settings_of(args: argparse.Namespace) -> list[Any]:
    """Return what belongs to the identity of a result beside its point, data set and run."""
    protocol = [] if args.protocol == NICV2 else [args.protocol]
    return [args.backbone, args.size, args.precision, args.batches, *protocol]


def key_of(result: dict[str, Any]) -> tuple[str, Point, str, int]:
    point = tuple((name, value) for name, value in result["point"])
    return result["strategy"], point, result["data"], result["run"]


def run_all(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what is not in `--out` yet, and return all results with these settings."""
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    results = [r for r in map(json.loads, lines) if r["what"] == settings_of(args)]
    done = {key_of(result) for result in results}
    cells = [
        (strategy, point, name, run)
        for run, name, strategy in product(args.runs, DATA, args.strategies)
        for point in points(strategy)
    ]
    todo = [cell for cell in cells if cell not in done and not args.table]
    paths = pack(args) if todo else {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.jobs, context) as pool, args.out.open("a") as out:
        pending = {
            pool.submit(learn, *cell, paths[f"{cell[2]}/{cell[3]}"], args): cell for cell in todo
        }
        for k, future in enumerate(as_completed(pending), 1):
            try:
                result = future.result()
            except Exception as error:
                print(f"[{k}/{len(todo)}] {pending[future]} failed: {error}", flush=True)
                continue
            results.append(result)
            out.write(json.dumps(result) + "\n")
            out.flush()
            print(
                f"[{k}/{len(todo)}] {result['strategy']} {dict(result['point'])} {result['data']} "
                f"{result['run']}: {result['accuracy']:.1f} in {result['seconds']:.0f} s",
                flush=True,
            )
    return [result for result in results if key_of(result) in set(cells)]


def by_point(results: list[dict[str, Any]]) -> dict[tuple[str, str], dict[Point, list[float]]]:
    """Return the accuracies of each point by strategy and data set, over the runs of all points."""
    found: dict[tuple[str, str], dict[int, dict[Point, float]]] = {}
    for result in results:
        strategy, point, name, run = key_of(result)
        found.setdefault((strategy, name), {}).setdefault(run, {})[point] = result["accuracy"]
    complete: dict[tuple[str, str], dict[Point, list[float]]] = {}
    for (strategy, name), runs in found.items():
        grid = points(strategy)
        whole = [runs[run] for run in sorted(runs) if len(runs[run]) == len(grid)]
        if whole:
            complete[strategy, name] = {point: [of[point] for of in whole] for point in grid}
    return complete


def choice(of_points: dict[Point, list[float]]) -> Point:
    """Return the point with the highest mean accuracy; of equal ones, the first of the grid."""
    return max(of_points, key=lambda point: statistics.mean(of_points[point]))


def spread_of(values: list[float]) -> str:
    """Return the mean of some runs, and their deviation if there are two or more."""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def table(results: list[dict[str, Any]]) -> str:
    """Return the table of the drops in Markdown."""
    found = by_point(results)
    lines = [
        "| strategy | points | runs | signs, own choice | chosen on rendered | drop | "
        "rendered, own choice | chosen on signs | drop |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for strategy in GRID:
        if any((strategy, name) not in found for name in DATA):
            continue
        pairs = (("signs", "rendered"), ("rendered", "signs"))
        counts = [len(next(iter(found[strategy, name].values()))) for name, _ in pairs]
        cells = [strategy, str(len(points(strategy))), ", ".join(map(str, counts))]
        for judged, chosen_on in pairs:
            of_points = found[strategy, judged]
            own = of_points[choice(of_points)]
            other = of_points[choice(found[strategy, chosen_on])]
            drop = [a - b for a, b in zip(own, other, strict=True)]
            cells += [spread_of(values) for values in (own, other, drop)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def choices(results: list[dict[str, Any]]) -> str:
    """Return what was chosen on each data set, one line per strategy with settings."""
    found = by_point(results)
    lines = []
    for strategy in GRID:
        if GRID[strategy] and all((strategy, name) in found for name in DATA):
            both = (f"{name}: {dict(choice(found[strategy, name]))}" for name in DATA)
            lines.append(f"{strategy}: {'; '.join(both)}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--signs", default="../shared/data/gtsrb_tracks.tar", help="the tar of tracks")
    add("--strategies", nargs="+", default=list(GRID), choices=list(GRID))
    add("--runs", nargs="+", type=int, default=[0, 1, 2])
    add("--protocol", default=NICV2, help="the stream; presets were chosen on others")
    add("--batches", type=int, help="only so many batches, for a trial")
    add("--backbone", default="mobilenet_v1")
    add("--size", type=int, default=128)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--precision", choices=["float32", "tf32", "bf16"], default="float32")
    add("--jobs", type=int, default=1, help="processes at once")
    add("--table", action="store_true", help="only print the table of `--out`")
    add("--out", type=Path, default=Path("results/reality_check.jsonl"))
    return parser.parse_args()


def main() -> None:
    args = arguments()
    results = run_all(args)
    gpu = torch.cuda.get_device_name() if args.device == "cuda" else ""
    device = gpu or f"CPU, {os.cpu_count()} cores"
    how = f"{args.protocol}, {args.backbone}, {args.size} px, {args.precision}, runs {args.runs}"
    print(f"\n{device}, torch {torch.__version__}, {how}\n")
    print(table(results) + "\n\n" + choices(results))


if __name__ == "__main__":
    main()
