"""Rehearse the plan `paper` on a full-size CORe50 with made-up pixels, as folder and store.

    python benchmarks/core50_dry_run.py OUT

This command writes all 164,866 official names (about 30 MB, because the frames of a video are one
picture) and the authors' 30 orders of NICv2 as their file lists. It runs the plan on the folder,
packs a store (6 GB), runs the plan on the store, and writes both reports. The names and orders come
from two files beside the project (`--facts`). It prints the number of cells, the time per test, the
memory, the frames in each test and the source of the orders. It exits with 1 if a cell fails, if
the folder and the store give different numbers, or if a test does not have the official frames.

The data are complete, but learning is reduced to `--limit` batches per run, one epoch, and a
MobileNet v1 of width 1/16 that sees the frames at a quarter of their size. `--objects` and
`--frames` make a part of CORe50, with orders drawn at random; `--set` changes the plan as
`primavista bench run --set` does.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from primavista.bench.data import data_settings, why_not_comparable
from primavista.bench.folder import RUN, read_json, read_lines, read_result, write_json
from primavista.bench.local import Inline
from primavista.bench.plan import Cell, Group, Plan, load_plan
from primavista.bench.run import Suite
from primavista.cli.progress import progress_bar
from primavista.networks.base import NETWORKS
from primavista.networks.mobilenet_v1 import MobileNetV1
from primavista.report import write_report
from primavista.report.write import FIGURE_KINDS
from primavista.streams.core50 import CORe50
from primavista.streams.store import pack

FACTS = Path(__file__).resolve().parents[2] / "shared" / "data"
ORDERS = "nicv2_official_orders.json"
REDUCED = "core50_test_filelist_reduced.txt"
SIDE = 128  # pixels
TEST_SESSIONS = (3, 7, 10)
LIMITED = ("options.epochs_1=1", "options.epochs=1", 'backbone.name="quarter"')
TINY = ('backbone.weights="random"', "backbone.options.width=0.0625")
SHORT_CUMULATIVE = {"rise": 2, "window": 2, "fall": 4, "most": 8}

Key = tuple[int, int]  # session and object, from 1


class QuarterMobileNet(MobileNetV1):
    """MobileNet v1 on frames at a quarter of their height and width, at 1/16 of the cost."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.avg_pool2d(x, 4))


NETWORKS["quarter"] = QuarterMobileNet


def official_numbers(facts: Path) -> dict[Key, range]:
    """Return the frame numbers of each video.

    The orders give the number of frames per video. Frames are numbered from 0. In the test
    sessions, the numbers are such that every 20th test frame, in the order of the official list, is
    a frame that the list names.
    """
    counts = json.loads((facts / ORDERS).read_text())["frames"]
    firsts: dict[Key, int] = {}
    for line in (facts / REDUCED).read_text().splitlines():
        session, thing, number = map(int, Path(line.split()[0]).stem.split("_")[1:])
        firsts.setdefault((session, thing), number)
    keys = [(int(a), int(b)) for a, b in (key.split("/") for key in counts)]
    numbers: dict[Key, range] = {}
    place = 0  # in the list of all test frames
    for key in sorted(keys, key=lambda key: (key[0], str(key[1]))):
        count, start = counts[f"{key[0]}/{key[1]}"], 0
        if key[0] in TEST_SESSIONS:
            start = firsts[key] - -place % 20
            place += count
        numbers[key] = range(start, start + count)
    return numbers


def frame_name(key: Key, number: int) -> str:
    return f"s{key[0]}/o{key[1]}/C_{key[0]:02d}_{key[1]:02d}_{number:03d}.png"


def write_folder(numbers: Mapping[Key, range], folder: Path, report: Callable[..., None]) -> None:
    """Write one noisy picture per video, coloured by its object, under the name of each frame."""
    images, done = folder / "core50_128x128", 0
    total = sum(map(len, numbers.values()))
    for key, frames in numbers.items():
        (images / f"s{key[0]}" / f"o{key[1]}").mkdir(parents=True, exist_ok=True)
        first = images / frame_name(key, frames[0])
        picture(key).save(first)
        for number in frames[1:]:
            os.link(first, images / frame_name(key, number))
        done += len(frames)
        report(done, total)


def picture(key: Key) -> Image.Image:
    colour = np.random.default_rng(key[1]).integers(40, 216, 3)
    noise = np.random.default_rng(key).integers(-40, 40, (SIDE, SIDE, 3))
    return Image.fromarray((colour + noise).astype(np.uint8))


def write_orders(facts: Path, numbers: Mapping[Key, range], folder: Path) -> None:
    """Write the authors' orders in their own form: one list of files per batch."""
    lines = {
        key: "".join(f"{frame_name(key, number)} {key[1] - 1}\n" for number in frames)
        for key, frames in numbers.items()
    }
    for batches, runs in json.loads((facts / ORDERS).read_text())["orders"].items():
        for run, order in enumerate(runs):
            home = folder / "batches_filelists" / f"NIC_v2_{batches}" / f"run{run}"
            home.mkdir(parents=True)
            for i, batch in enumerate(order):
                text = "".join(lines[session, thing] for session, thing in batch)
                (home / f"train_batch_{i:02d}_filelist.txt").write_text(text)


def dry_plan(source: Path, arguments: argparse.Namespace) -> Plan:
    settings = (f"runs={arguments.runs}", f"limit={arguments.limit}", *LIMITED, *TINY)
    data = data_settings(str(source), size=SIDE)
    plan = load_plan("paper", (*settings, *arguments.set), device="cpu", data=data)
    groups = [short for group in plan.groups for short in _short_cumulative(group)]
    return plan.model_copy(update={"groups": groups})


def _short_cumulative(group: Group) -> Iterator[Group]:
    """Give Cumulative, which trains to convergence, a few steps instead of the other options."""
    others = [name for name in group.strategies if name != "cumulative"]
    if others:
        yield group.model_copy(update={"strategies": others})
    if "cumulative" in group.strategies:
        own = {"strategies": ["cumulative"], "options": SHORT_CUMULATIVE}
        yield group.model_copy(update=own)


def run_and_report(source: Path, out: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the plan in this process, one cell after the other, and write the report."""
    torch.set_num_threads(1)
    began = time.monotonic()
    suite = Suite(dry_plan(source, arguments), out)
    with progress_bar(f"cells, {source.name}") as report:
        finished = iter(range(1, len(suite.states) + 1))

        def on_event(_: object, event: Any) -> None:
            if event.kind in ("done", "failed"):
                report(next(finished), len(suite.states))

        failed = suite.run(Inline(), on_event)
    ran = time.monotonic()
    page = write_report(out, against=arguments.facts, figures=arguments.figures)
    return {
        "cells": len(suite.states),
        "failed": [f"{state.planned.title}: {state.reason}" for state in failed],
        "run_seconds": ran - began,
        "report_seconds": time.monotonic() - ran,
        "report": str(page),
        "peak_bytes": peak_bytes(),
        **measurements([state.path for state in suite.states if state.status == "done"]),
    }


def peak_bytes() -> int:
    """Return the peak resident memory of this process, mapped files included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measurements(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the time per test of each strategy, the test frames, and the order sources."""
    tests: dict[str, list[float]] = {}
    cells = [_cell(folder) for folder in folders]
    for cell, folder in zip(cells, folders, strict=True):
        times = [line["test_seconds"] for line in read_lines(folder / "timings.jsonl")]
        tests.setdefault(cell.strategy, []).extend(times)
    facts = [_facts(folder) for folder in folders]
    return {
        "seconds_per_test": {name: statistics.median(times) for name, times in tests.items()},
        "frames_per_test": sorted({one.test_frames for one in facts}),
        "not_comparable": sorted({why_not_comparable(one) for one in facts}),
        "orders": sorted(
            {f"{cell.protocol}: {one.order}" for cell, one in zip(cells, facts, strict=True)},
            key=str.casefold,
        ),
    }


def _cell(folder: Path) -> Cell:
    return Cell.model_validate(read_json(folder / RUN))


def _facts(folder: Path) -> Any:
    result = read_result(folder)
    assert result is not None
    return result.data


def metrics_by_cell(out: Path) -> dict[str, str]:
    """Return `metrics.jsonl` of each cell by everything its numbers depend on except the data."""
    found = {}
    for path in out.rglob("result.json"):
        cell = _cell(path.parent)
        key = cell.model_dump(mode="json", exclude={"data", "data_sha256", "test_thin"})
        found[json.dumps(key, sort_keys=True)] = (path.parent / "metrics.jsonl").read_text()
    return found


def in_own_process(stage: Callable[..., Any], *arguments: Any) -> Any:
    """Run a stage in its own process, so that its memory is measured separately."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(stage, *arguments).result()


def pack_store(folder: Path, store: Path, full_test: bool) -> dict[str, Any]:
    began = time.monotonic()
    with progress_bar("packing frames") as report:
        pack(CORe50(folder, test="full" if full_test else "reduced"), store, 1, report)
    size = sum(path.stat().st_size for path in store.iterdir())
    return {"seconds": time.monotonic() - began, "bytes": size, "peak_bytes": peak_bytes()}


def chosen_numbers(arguments: argparse.Namespace) -> dict[Key, range]:
    """Return the frames to write: all of CORe50, or the first frames of the first objects."""
    numbers = official_numbers(arguments.facts)
    return {
        key: frames[: arguments.frames]
        for key, frames in numbers.items()
        if key[1] <= arguments.objects
    }


def summary(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['frames']:,} frames written in {found['write_seconds']:.0f} s"
    for name in ("folder", "store"):
        one = found[name]
        yield (
            f"{name}: {one['cells']} cells, {len(one['failed'])} failed, "
            f"{one['run_seconds']:.0f} s, report {one['report_seconds']:.0f} s, "
            f"peak memory {one['peak_bytes'] / 2**20:.0f} MiB"
        )
        yield f"  frames per test: {', '.join(map(str, one['frames_per_test']))}"
        yield f"  comparable with the authors: {', '.join(one['not_comparable']) or 'yes'}"
        yield f"  orders: {', '.join(one['orders'])}"
        times = (f"{key} {value:.2f}" for key, value in one["seconds_per_test"].items())
        yield f"  seconds per test (median): {', '.join(times)}"
        yield from (f"  failed: {line}" for line in one["failed"])
        yield f"  {one['report']}"
    packed = found["pack"]
    yield (
        f"packed {packed['bytes'] / 1e9:.2f} GB in {packed['seconds']:.0f} s, "
        f"peak memory {packed['peak_bytes'] / 2**20:.0f} MiB"
    )
    yield f"folder and store give the same numbers: {found['same_numbers']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("out", type=Path, help="an empty or new folder")
    parser.add_argument("--facts", type=Path, default=FACTS, help="folder with the two files")
    parser.add_argument("--objects", type=int, default=50)
    parser.add_argument("--frames", type=int, default=1000, help="largest number per video")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--limit", type=int, default=2, help="batches per run")
    parser.add_argument("--full-test", action="store_true", help="pack all test frames")
    parser.add_argument(
        "--figures", nargs="*", choices=FIGURE_KINDS, default=FIGURE_KINDS, help="files to write"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    folder, store = arguments.out / "data", arguments.out / "packed"
    numbers = chosen_numbers(arguments)
    began = time.monotonic()
    if not folder.exists():
        with progress_bar("writing names") as report:
            write_folder(numbers, arguments.out / "part", report)
        if numbers == official_numbers(arguments.facts):
            write_orders(arguments.facts, numbers, arguments.out / "part")
        (arguments.out / "part").rename(folder)
    tested = sum(len(frames) for key, frames in numbers.items() if key[0] in TEST_SESSIONS)
    found: dict[str, Any] = {"frames": sum(map(len, numbers.values()))}
    found["write_seconds"] = time.monotonic() - began
    stages: dict[str, tuple[Any, ...]] = {
        "folder": (run_and_report, folder, arguments.out / "folder", arguments),
        "pack": (pack_store, folder, store, arguments.full_test),
        "store": (run_and_report, store, arguments.out / "store", arguments),
    }
    for name, stage in stages.items():
        found[name] = in_own_process(*stage)
        write_json(arguments.out / "dry_run.json", found)
    metrics = [metrics_by_cell(arguments.out / name) for name in ("folder", "store")]
    found["same_numbers"] = bool(metrics[0]) and metrics[0] == metrics[1]
    write_json(arguments.out / "dry_run.json", found)
    print("\n".join(summary(found)))
    both = found["folder"], found["store"]
    as_official = all(one["frames_per_test"] == [-(-tested // 20)] for one in both)
    if any(one["failed"] for one in both) or not found["same_numbers"] or not as_official:
        sys.exit(1)


class _Plain(argparse.RawDescriptionHelpFormatter):
    """Keep the lines of the description."""


if __name__ == "__main__":
    main()
