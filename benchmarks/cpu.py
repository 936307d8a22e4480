"""Speed and memory on a CPU, with every ratio measured side by side in one run.

    python benchmarks/cpu.py --out cpu.json          # an idle machine; about five minutes
    python benchmarks/cpu.py --quick                 # fewer repeats

A ratio is between medians over interleaved repeats, so that other work of the machine affects both
sides equally.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from primavista.bench.cell import machine
from primavista.bench.evaluate import evaluate
from primavista.bench.features import FeatureCache
from primavista.engine.representation import OnnxFeatures, onnx_installed
from primavista.heads.dslda import lda_update
from primavista.learner.learner import Learner
from primavista.networks.base import build
from primavista.strategies.creation import create
from primavista.streams.dataset import DataSet, Session, Stream

SIDE, FRAMES = 128, 300
MEMORY = """
import re
import numpy as np
from primavista import Learner
learner = Learner("cwr*", engine={engine!r})
shape = ({frames}, {side}, {side}, 3)
learner.learn(np.random.default_rng(0).integers(0, 256, shape, np.uint8), "mug")
print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]))
"""


def timed(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Measure the seconds of each function, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def row(
    point: int, what: str, value: float, unit: str, target: str, met: bool, **details: Any
) -> dict[str, Any]:
    return {
        "point": point,
        "what": what,
        "value": float(f"{value:.4g}"),
        "unit": unit,
        "target": target,
        "met": met,
        **details,
    }


def ratio(
    point: int,
    what: str,
    seconds: dict[str, list[float]],
    top: str,
    bottom: str,
    target: str,
    middle: Callable[[list[float]], float] = statistics.median,
) -> dict[str, Any]:
    """Return middle(top) / middle(bottom), and the middle, least and largest of both in ms."""
    value = middle(seconds[top]) / middle(seconds[bottom])
    bound = float(target.split()[-1])
    met = value >= bound if target.startswith("at least") else value <= bound
    spread = {
        name: [round(1e3 * f(seconds[name]), 3) for f in (middle, min, max)]
        for name in (top, bottom)
    }
    return row(point, what, value, "x", target, met, milliseconds=spread)


def random_frames(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)


def features(threads: int, repeats: int) -> list[dict[str, Any]]:
    """Measure point 6: frozen features by ONNX Runtime and by torch, eager and channels-last."""
    torch.set_num_threads(threads)
    backbone, many = build(size=SIDE).eval(), random_frames(32)
    one, onnx = many[:1].clone(), OnnxFeatures()

    @torch.no_grad()
    def chunked() -> Tensor:
        return torch.cat([onnx(backbone, part) for part in many.split(8)])

    with torch.no_grad():
        batches = timed({"torch": lambda: backbone(many), "onnx": chunked}, repeats)
        singles = timed(
            {"torch": lambda: backbone(one), "onnx": lambda: onnx(backbone, one)}, 4 * repeats
        )
        apart = float((backbone(many) - chunked()).abs().max())
    return [
        ratio(
            6,
            f"features of 32 frames, torch / onnx, {threads} threads",
            batches,
            "torch",
            "onnx",
            "at least 1.7",
        ),
        ratio(
            6,
            f"features of one frame, torch / onnx, {threads} threads",
            singles,
            "torch",
            "onnx",
            "at least 2.5",
        ),
        row(
            6,
            "features, largest difference between torch and onnx",
            apart,
            "",
            "at most 0.001",
            apart <= 1e-3,
        ),
    ]


def lessons(engine: Any, frames: int, repeats: int) -> list[dict[str, Any]]:
    """Measure point 5: a batch with frozen features against one forward pass of the same engine."""
    images, labels = random_frames(frames), torch.arange(frames) % 2
    found = []
    fixed: dict[str, Any] = {"features": "fixed"}
    for name, options in (("cwr*", fixed), ("dslda", {})):
        strategy: Any = create(name, build(size=SIDE), first_batch=False, **options)
        strategy.representation.use_engine(engine)

        def forward(strategy: Any = strategy) -> None:
            strategy.embed(images)

        def learn(strategy: Any = strategy) -> None:
            strategy.learn(images, labels)

        seconds = timed({"learn": learn, "forward": forward}, repeats)
        what = f"{name}: learning {frames} frames / one forward pass, {engine}"
        found.append(ratio(5, what, seconds, "learn", "forward", "at most 1.15"))
    return found


def guarded(frames: int, repeats: int) -> list[dict[str, Any]]:
    """Measure point 5: AR1* against Naive at equal epochs."""
    images, labels = random_frames(frames), torch.arange(frames) % 2
    makers = {
        name: create(name, build(size=SIDE), first_batch=False, epochs=1)
        for name in ("ar1*", "naive")
    }
    works: dict[str, Callable[[], Any]] = {
        name: partial(s.learn, images, labels) for name, s in makers.items()
    }
    seconds = timed(works, repeats)
    return [
        ratio(
            5, f"AR1* / Naive, {frames} frames, one epoch", seconds, "ar1*", "naive", "at most 1.1"
        )
    ]


def one_at_a_time(mu: Tensor, n: Tensor, sigma: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """Sigma <- (t Sigma + t / (t + 1) delta delta^T) / (t + 1) with each sample, as published."""
    for t, (x, j) in enumerate(zip(z, y.tolist(), strict=True)):
        delta = (x - mu[j])[None]
        sigma = (t * sigma + (delta.T @ delta) * t / (t + 1)) / (t + 1)
        mu[j] += (x - mu[j]) / (n[j] + 1)
        n[j] += 1
    return sigma


def in_place(mu: Tensor, n: Tensor, sigma: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """Update with one pass over the memory of t Sigma per sample: the fastest way one at a time."""
    for t, (x, j) in enumerate(zip(z, y.tolist(), strict=True)):
        delta = x - mu[j]
        sigma.addr_(delta, delta, alpha=t / (t + 1))
        mu[j] += delta / (n[j] + 1)
        n[j] += 1
    return sigma / len(z)


def streaming_lda(frames: int, repeats: int) -> list[dict[str, Any]]:
    """Measure point 7: DSLDA in batches against one sample at a time, on the same features."""
    z = torch.randn(frames, 1024, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(frames) % 3

    def zeros() -> tuple[Tensor, Tensor, Tensor]:
        return (
            torch.zeros(3, 1024).double(),
            torch.zeros(3).double(),
            torch.zeros(1024, 1024).double(),
        )

    works: dict[str, Callable[[], Any]] = {
        "one at a time": lambda: one_at_a_time(*zeros(), z, y),
        "in place": lambda: in_place(*zeros(), z, y),
        "batch": lambda: lda_update(*zeros(), 0, z, y),
    }
    seconds = timed(works, repeats)
    slow, fast = zeros(), zeros()
    sigma = one_at_a_time(*slow, z, y)
    t = lda_update(*fast, 0, z, y)
    apart = max(float((sigma - fast[2] / t).abs().max()), float((slow[0] - fast[0]).abs().max()))
    return [
        ratio(
            7,
            f"DSLDA: {frames} updates one at a time / as a batch",
            seconds,
            "one at a time",
            "batch",
            "at least 50",
        ),
        ratio(
            7,
            "the same, one at a time in place / as a batch",
            seconds,
            "in place",
            "batch",
            "at least 1",
        ),
        row(
            7,
            "DSLDA: largest difference between the two",
            apart,
            "",
            "at most 1e-12",
            apart <= 1e-12,
        ),
    ]


def ten_runs(
    engine: Any, frames: int, batches: int, repeats: int, name: str = "dslda"
) -> list[dict[str, Any]]:
    """Measure point 4: ten orders of the same batches, tested after each; shared features."""
    sessions = [
        Session(label=k % 5, number=k, start=k * frames, stop=(k + 1) * frames)
        for k in range(batches + 1)
    ]
    images = random_frames(frames * len(sessions))
    data = DataSet("random", images, tuple(sessions[1:]), (sessions[0],), tuple("abcde"), (0,) * 5)

    def learn(runs: int) -> None:
        features = FeatureCache()
        for run in range(runs):
            order = torch.randperm(batches, generator=torch.Generator().manual_seed(run)).tolist()
            strategy: Any = create(name, build(size=SIDE), seed=run)
            strategy.representation.use_engine(engine)
            stream = Stream(data, [[data.train[k]] for k in order], "ten", run)
            list(evaluate(strategy, stream, features=features))

    seconds = timed({"ten": lambda: learn(10), "one": lambda: learn(1)}, repeats)
    what = f"ten runs of {name} / one, {batches} batches of {frames} frames, {engine}"
    return [ratio(4, what, seconds, "ten", "one", "at most 3")]


@contextmanager
def busy_cores() -> Any:
    """Run another process on every core."""
    loads = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        time.sleep(0.5)
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


def predictions(engine: Any, threads: int, repeats: int) -> list[dict[str, Any]]:
    """Measure point 6: `Learner.predict` of a frame, idle and under load, against one pass."""
    torch.set_num_threads(threads)
    learner = Learner("cwr*", size=SIDE, engine=engine)
    frames = random_frames(8).numpy()
    for name in ("mug", "kettle", "plate"):
        learner.learn(frames, name)
    strategy, one = learner.strategy, frames[:1]

    def single(work: Callable[[], Any]) -> None:
        torch.set_num_threads(1)
        work()
        torch.set_num_threads(threads)

    def predict() -> None:
        learner.predict(frames[0])

    works: dict[str, Callable[[], Any]] = {
        "predict": predict,
        "one thread": lambda: single(predict),
        "its pass": lambda: single(lambda: strategy.features(one)),
    }
    idle = statistics.median(timed(works, repeats)["predict"]) * 1e3
    # means: a process that loses its core takes twice as long, so a median would jump
    with busy_cores():
        loaded = timed(works, 3 * repeats)
    slow = f"the same under load / on one thread, means, {engine}", loaded, "predict", "one thread"
    more = (
        f"the same under load / the network's pass alone, one thread, means, {engine}",
        loaded,
        "predict",
        "its pass",
    )
    return [
        row(
            6,
            f"predict of one frame, {engine}, {threads} threads",
            idle,
            "ms",
            "under 8 on an idle core",
            idle < 8,
        ),
        ratio(6, *slow, "at most 1.1", statistics.mean),
        ratio(6, *more, "at most 1.1", statistics.mean),
    ]


def memory(engine: str) -> list[dict[str, Any]]:
    """Measure point 8: the peak memory of a fresh process that learns one batch."""
    program = MEMORY.format(engine=engine, frames=FRAMES, side=SIDE)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    peak = int(done.stdout) / 1e6
    return [
        row(
            8,
            f"peak memory of learning {FRAMES} frames with CWR*, {engine}",
            peak,
            "MB",
            "under 600",
            peak < 600,
        )
    ]


def measure(quick: bool = False, threads: int = 2) -> dict[str, Any]:
    """Return points 4 to 8 as rows: name, value, target, target met, and the times behind them."""
    before, threads = torch.get_num_threads(), min(threads, os.cpu_count() or 1)
    repeats, frames = (3, 64) if quick else (9, FRAMES)
    rows = []
    try:
        engines = ["torch", "onnx"] if onnx_installed() else ["torch"]
        if onnx_installed():
            rows += features(threads, repeats)
        torch.set_num_threads(threads)
        for engine in engines:
            rows += lessons(engine, frames, max(3, repeats // 2))
        rows += guarded(64 if quick else 192, max(2, repeats // 3))
        rows += streaming_lda(FRAMES, repeats)
        rows += ten_runs(engines[-1], FRAMES, 3 if quick else 8, max(2, repeats // 3))
        for engine in engines:
            rows += predictions(
                engine, threads, 20 * repeats
            )  # a busy core gives time in slices: few samples jump by one
            rows += memory(engine)
    finally:
        torch.set_num_threads(before)
    return {
        "machine": machine("cpu"),
        "load": [round(x, 2) for x in os.getloadavg()],
        "numpy": np.__version__,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write all of it as JSON")
    parser.add_argument(
        "--threads", type=int, default=2, help="of torch and of batches by ONNX Runtime"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats, smaller batches")
    arguments = parser.parse_args()
    found = measure(arguments.quick, arguments.threads)
    print(f"{found['machine']['cpu']}, {found['machine']['cores']} cores, load {found['load'][0]}")
    for r in found["rows"]:
        value = f"{r['value']:.2e}" if r["unit"] == "" else f"{r['value']:.2f} {r['unit']}"
        print(
            f"{r['point']}  {r['what']:<72} {value:>12}   {r['target']}"
            f"{'' if r['met'] else '   NOT MET'}"
        )
        for name, (median, least, most) in r.get("milliseconds", {}).items():
            print(f"     {name:<20} {median:10.2f} ms   ({least:.2f} to {most:.2f})")
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
