"""Final accuracy of the strategies over single-session NICv2 batches, on real or rendered videos.

    python benchmarks/accuracy.py --data gtsrb_tracks.tar --device cuda --jobs 6
    python benchmarks/accuracy.py --data rendered --device cuda --jobs 6
    python benchmarks/accuracy.py ... --strategies er der++ gdumb icarl     # those that keep frames
    python benchmarks/accuracy.py ... --backbone efficientnet_lite0

Traffic signs: the run number seeds the split and the order. Batch 1 has 10 classes. A class with at
least 9 tracks has 3 test tracks; any other class has a quarter of its tracks for the test.
Frames of CORe50: 10 categories, five in batch 1; the test set is sessions 3, 7 and 10 in run 0, and
three others, drawn at random, in the other runs.
Rendered: 50 objects; sessions 3, 7 and 10 are the test set. Cells that are already in `--out` are
not run again.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import random
import statistics
import tarfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from primavista.engine.representation import free_memory
from primavista.media.images import centre_square
from primavista.networks.base import build
from primavista.strategies.creation import create
from primavista.strategies.from_scratch import FromScratch
from primavista.strategies.registry import strategy_info
from primavista.streams.dataset import DataSet, Session
from primavista.streams.protocols import nicv2
from primavista.streams.rendered.dataset import rendered
from primavista.streams.rendered.renderer import Scene

REHEARSAL = ["er", "der++", "gdumb", "icarl"]  # these keep frames
STRATEGIES = [
    "naive",
    "naive:norm=bn",
    "lwf",
    "ewc",
    "ewc:guard=modulate",
    "cwr+",
    "cwr*",
    "ar1",
    "ar1*",
    "ar1*:norm=bn",
    "ar1*:path=displacement",
    "ar1*:r_max=3,d_max=5",
    "ar1*:compat=caffe",
    "cwr*:compat=caffe",
    "dslda",
    "cumulative",
    "ncm",
    "lda",
    "ridge",
    "prima",
    *REHEARSAL,
]


def decode(entry: tuple[str, bytes, int]) -> np.ndarray[Any, Any]:
    return centre_square(Image.open(io.BytesIO(entry[1])), entry[2])


def pack(tar: Path, size: int, folder: Path, jobs: int) -> tuple[Path, Path]:
    """Decode the frames once into a uint8 array, with the tracks as (class, track, start, stop)."""
    array, index = folder / f"{tar.stem}_{size}.npy", folder / f"{tar.stem}_{size}.json"
    if not index.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(tar) as archive:
            entries = []
            for member in sorted(archive.getmembers(), key=lambda m: m.name):
                if member.name.endswith(".jpg"):
                    data = archive.extractfile(member)
                    assert data is not None
                    entries.append((member.name, data.read(), size))
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            np.save(array, np.stack(pool.map(decode, entries, chunksize=64)))
        tracks: dict[str, list[int]] = {}
        for k, (name, _, _) in enumerate(entries):
            tracks.setdefault(str(Path(name).parent), []).append(k)
        index.write_text(json.dumps([[name, ks[0], ks[-1] + 1] for name, ks in tracks.items()]))
    return array, index


def pack_rendered(size: int, frames: int, folder: Path, device: str) -> tuple[Path, Path]:
    """Draw the rendered objects once into a uint8 array with an index."""
    array, index = (
        folder / f"rendered_{size}_{frames}.npy",
        folder / f"rendered_{size}_{frames}.json",
    )
    if not index.exists():
        folder.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        data = rendered(Scene(frames=frames, size=size), device)
        np.save(array, data.frames[torch.arange(len(data.frames))].cpu().numpy())
        print(
            f"rendered {len(data.frames)} frames in {time.perf_counter() - began:.1f} s", flush=True
        )
        sessions = {
            "train": [astuple(s) for s in data.train],
            "test": [astuple(s) for s in data.test],
        }
        index.write_text(
            json.dumps({**sessions, "classes": data.classes, "categories": data.categories})
        )
    return array, index


def data_set(array: Path, index: Path, run: int, device: str) -> tuple[DataSet, list[int] | None]:
    frames = torch.from_numpy(np.load(array)).to(device)
    facts = json.loads(index.read_text())
    if isinstance(facts, dict):
        parts = [tuple(Session(*s) for s in facts[part]) for part in ("train", "test")]
        return DataSet(
            "rendered",
            frames,
            parts[0],
            parts[1],
            tuple(facts["classes"]),
            tuple(facts["categories"]),
        ), None
    draw = random.Random(f"split/{run}")
    if array.name.startswith("core50"):
        return core50_data(frames, facts, run, draw)
    by_class: dict[str, list[tuple[int, int]]] = {}
    for name, start, stop in facts:
        by_class.setdefault(name.partition("/")[0], []).append((start, stop))
    train: list[Session] = []
    test: list[Session] = []
    for label, name in enumerate(sorted(by_class)):
        tracks = by_class[name]
        draw.shuffle(tracks)
        held = 3 if len(tracks) >= 9 else len(tracks) // 4
        test += [Session(label, number, *t) for number, t in enumerate(tracks[:held], 1)]
        train += [Session(label, number, *t) for number, t in enumerate(tracks[held:], 1)]
    classes = tuple(sorted(by_class))
    first = sorted(draw.sample(range(len(classes)), 10))
    return DataSet(
        "gtsrb", frames, tuple(train), tuple(test), classes, tuple(range(len(classes)))
    ), first


def core50_data(
    frames: torch.Tensor, facts: list[Any], run: int, draw: random.Random
) -> tuple[DataSet, list[int]]:
    """Return categories of CORe50, tested in three sessions, and those of batch 1."""
    held = draw.sample(range(1, 12), 3) if run else [3, 7, 10]
    names = sorted({name.partition("/")[0] for name, _, _ in facts})
    parts: tuple[list[Session], list[Session]] = ([], [])
    for name, start, stop in facts:
        category, _, session = name.partition("/s")
        label, number = names.index(category), int(session)
        parts[number in held].append(Session(label, number, start, stop))
    train, test = map(tuple, parts)
    data = DataSet("core50", frames, train, test, tuple(names), tuple(range(len(names))))
    return data, sorted(draw.sample(range(len(names)), len(names) // 2))


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    name, _, rest = spec.partition(":")
    options: dict[str, Any] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return name, options


def cell(spec: str, run: int, array: Path, index: Path, args: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    free_memory()  # of the cell before
    data, first = data_set(array, index, run, args.device)
    stream = nicv2(data, run=run, first=first)
    name, options = parse(spec)
    if strategy_info(name).retrains:
        options = {"every": None, **options}
    backbone = build(args.backbone, args.weights, size=args.size)
    strategy = create(name, backbone, seed=run, **options).to(args.device)
    strategy.backbone.precision = args.precision
    strategy.representation.use_engine(args.engine)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = (
        args.precision != "float32"
    )
    test = stream.test(args.test_thin)
    truth = test.labels.to(args.device)

    def accuracy() -> float:
        best = strategy.classes[strategy.scores(test.images).argmax(1)]
        return 100 * float((best == truth).float().mean())

    curve, saturated, began, tested = [], None, time.perf_counter(), 0.0
    for i in range(len(stream)):
        batch = stream[i]
        report = strategy.learn(batch.images, batch.labels, batch.sessions)
        saturated = report.saturated if i == 0 else saturated
        if (i + 1) % args.test_every == 0 and not strategy_info(name).retrains:
            now = time.perf_counter()
            curve.append([i + 1, accuracy()])
            tested += time.perf_counter() - now
    if isinstance(strategy, FromScratch):
        strategy.retrain()
    if args.device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began - tested
    return {
        "strategy": spec,
        "run": run,
        "batches": len(stream),
        "accuracy": accuracy(),
        "curve": curve,
        "saturated_after_batch_1": saturated,
        "saturated": report.saturated,
        "stored_bytes": report.stored_bytes,
        "learn_seconds": seconds,
        "engine": strategy.representation.engine,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    tracks = "../shared/data/gtsrb_tracks.tar"
    add("--data", default=tracks, help="the tar of tracks, or 'rendered'")
    add("--frames", type=int, default=60, help="frames per session of rendered objects")
    add("--test-thin", type=int, default=1, help="test on one frame in so many")
    add("--test-every", type=int, default=32, help="batches between two points of the curve")
    form = "name or name:option=value,option=value"
    add("--strategies", nargs="+", default=STRATEGIES, help=form)
    add("--runs", nargs="+", type=int, default=[0, 1, 2])
    add("--backbone", default="mobilenet_v1", help="or efficientnet_lite0, or resnet50")
    add("--weights", default="imagenet", help="a file, for resnet50 for example")
    add("--size", type=int, default=128)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--precision", choices=["float32", "tf32", "bf16"], default="float32")
    engines = ["torch", "onnx", "auto"]
    add("--engine", choices=engines, default="torch", help="of frozen features on a CPU")
    add("--jobs", type=int, default=1, help="processes at once")
    add("--threads", type=int, default=1, help="CPU threads of each")
    add("--out", type=Path, default=Path("results/accuracy.jsonl"))
    return parser.parse_args()


def packed_data(args: argparse.Namespace) -> tuple[Path, Path]:
    """Pack the data set if needed; return the array of frames and its index."""
    packed = args.out.parent / "packed"
    if args.data == "rendered":
        return pack_rendered(args.size, args.frames, packed, args.device)
    return pack(Path(args.data), args.size, packed, max(args.jobs, 2))


def results_so_far(args: argparse.Namespace, what: list[Any]) -> list[dict[str, Any]]:
    """Return the results in `--out` that were measured with the same settings."""
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    return [result for result in map(json.loads, lines) if result["what"] == what]


def slow_first(cell_of: tuple[str, int]) -> tuple[bool, int]:
    """Sort slow cells first, so that the last processes end together."""
    name = cell_of[0].partition(":")[0]
    return name in ("dslda", "cwr*", "cwr+", "ncm", "lda", "ridge", "prima"), cell_of[1]


def run_cells(
    todo: list[tuple[str, int]], what: list[Any], results: list[dict[str, Any]], args: Any
) -> int:
    """Run cells, append each result to `results` and `--out`, and return how many failed."""
    array, index = packed_data(args)
    failed = 0
    with (
        ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool,
        args.out.open("a") as out,
    ):
        pending = {pool.submit(cell, s, r, array, index, args): (s, r) for s, r in todo}
        for k, future in enumerate(as_completed(pending), 1):
            progress = f"[{k}/{len(todo)}]"
            try:
                result = future.result()
            except Exception as error:
                failed += 1
                reason = f"{type(error).__name__}: {error}"
                print(f"{progress} {pending[future]} failed: {reason}", flush=True)
                continue
            result["what"] = what
            results.append(result)
            out.write(json.dumps(result) + "\n")
            out.flush()
            print(
                f"{progress} {result['strategy']} run {result['run']}: "
                f"{result['accuracy']:.1f} in {result['learn_seconds']:.0f} s",
                flush=True,
            )
    return failed


def print_table(results: list[dict[str, Any]]) -> None:
    print(
        "| strategy | final accuracy, mean ± std | runs | saturated after batch 1 | stored data | "
        "s per run |\n|---|---|---|---|---|---|"
    )
    for spec in dict.fromkeys(r["strategy"] for r in results):
        own = sorted((r for r in results if r["strategy"] == spec), key=lambda r: r["run"])
        accuracies = [r["accuracy"] for r in own]
        spread = f" ± {statistics.stdev(accuracies):.1f}" if len(own) > 1 else ""
        full = own[0]["saturated_after_batch_1"]
        saturated = "" if full is None else f"{full:.0%}"
        stored = own[0].get("stored_bytes")
        rehearses = f"{stored / 1e6:.1f} MB: rehearses" if stored else ""
        print(
            f"| {spec} | {statistics.mean(accuracies):.1f}{spread} | "
            f"{', '.join(f'{a:.1f}' for a in accuracies)} | {saturated} | "
            f"{rehearses} | {statistics.mean(r['learn_seconds'] for r in own):.0f} |"
        )


def main() -> None:
    args = arguments()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    frames = args.frames if args.data == "rendered" else 0
    what = [Path(args.data).stem, args.size, frames, args.test_thin, args.precision]
    if args.backbone != "mobilenet_v1":
        what.append(args.backbone)
    if args.weights != "imagenet":
        what.append(Path(args.weights).stem)
    results = results_so_far(args, what)
    done = {(r["strategy"], r["run"]) for r in results}
    todo = [(s, r) for r in args.runs for s in args.strategies if (s, r) not in done]
    failed = run_cells(sorted(todo, key=slow_first), what, results, args)
    gpu = torch.cuda.get_device_name() if args.device == "cuda" else ""
    device = gpu or f"CPU, {os.cpu_count()} cores"
    how = f"{args.backbone}, {args.size} px, runs {args.runs}"
    print(f"\n{device}, torch {torch.__version__}, {how}\n")
    print_table(results)
    if failed:
        raise SystemExit(f"{failed} cells failed")


if __name__ == "__main__":
    main()
