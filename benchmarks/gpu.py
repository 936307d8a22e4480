"""Speed on one GPU: steps, batches, whole NICv2-391 runs, and how far they stand from what the hardware allows.

    PYTHONPATH=src python benchmarks/gpu.py --out results/gpu.json

MobileNet v1 at 128 px. Every ratio is of two medians of the same process, measured in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.backbones import Precision, build
from primavista.bench.evaluate import evaluate
from primavista.bench.features import Features
from primavista.parts.renorm import BatchRenorm
from primavista.strategies import create
from primavista.strategies.base import Batch
from primavista.streams.base import DataSet
from primavista.streams.protocols import nicv2
from primavista.streams.rendered import Scene
from primavista.streams.rendered.dataset import materialise

MINIBATCH = 128


class PlainRenorm(nn.Module):
    """Batch renormalisation in plain tensor operations, as public implementations have it: what ours is compared with."""

    mu: Tensor
    sigma: Tensor
    limits: Tensor

    def __init__(self, like: BatchRenorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = like.weight, like.bias, like.eps
        self.register_buffer("mu", like.mu)
        self.register_buffer("sigma", like.sigma)
        self.register_buffer("limits", like.limits)

    def forward(self, x: Tensor) -> Tensor:
        shape = (1, -1, 1, 1)
        mu_mb, var_mb = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        sigma_mb = (var_mb + self.eps).sqrt()
        r_max, d_max, past = self.limits
        with torch.no_grad():
            r = torch.maximum(torch.minimum(sigma_mb / self.sigma, r_max), 1 / r_max)
            d = torch.maximum(torch.minimum((mu_mb - self.mu) / self.sigma, d_max), -d_max)
        xhat = (x - mu_mb.view(shape)) / sigma_mb.view(shape) * r.view(shape) + d.view(shape)
        with torch.no_grad():
            self.mu += (1 - past) * (mu_mb - self.mu)
            self.sigma += (1 - past) * (sigma_mb - self.sigma)
        return self.weight.view(shape) * xhat + self.bias.view(shape)


def plain(module: nn.Module) -> None:
    for name, child in list(module.named_children()):
        if isinstance(child, BatchRenorm):
            setattr(module, name, PlainRenorm(child))
        else:
            plain(child)


def timed(function: Callable[[], Any], repeats: int) -> float:
    """Seconds of one call, the median of `repeats`."""
    seconds = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        function()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def in_turns(functions: dict[str, Callable[[], Any]], repeats: int = 5, rounds: int = 5) -> dict[str, float]:
    """The median seconds of each, measured in turns so that a change of the clock concerns them all."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            found[name].append(timed(function, repeats))
    return {name: statistics.median(values) for name, values in found.items()}


def strategy(name: str, precision: Precision, **options: Any) -> Any:
    made = create(name, build(), **options).to("cuda")
    made.backbone.precision = precision
    return made


def batch_of(count: int, classes: int = 50) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (count, 128, 128, 3), generator=generator, dtype=torch.uint8).cuda()
    return frames, torch.arange(count) % classes


def stepper(made: Any, eager: bool = False, first: bool = False) -> Callable[[], None]:
    """One SGD step over 128 frames in the regime of batch 2 and later (or of batch 1)."""
    frames, labels = batch_of(MINIBATCH)
    batch = Batch(1 if first else 2, frames, None, labels, torch.arange(50).cuda(), torch.ones(50).cuda(), (), None)
    weights = made._weights(batch.i)
    modulation = pull = si = None
    if hasattr(made, "importance"):
        guarded = [weight.tensor for weight in weights if weight.guarded]
        if made.options.guard == "modulate":
            modulation = made.importance.modulation()
            si = made.importance
            si.start(guarded)
        else:
            pull = made.importance.pull(1.0, guarded)
    made.head.load(batch.present, False)
    trainer = made._trainer(batch, weights, False, modulation, pull, si)
    made._train_mode()
    goal = labels.cuda()
    if made.__class__.__name__ == "LwF":
        goal = F.one_hot(goal, 50).float()
    step = trainer._step if eager else trainer.step
    for _ in range(5):
        step(frames, goal)
    return lambda: step(frames, goal)


def steps(precision: Precision) -> dict[str, float]:
    """ms a step of 128 frames."""
    functions: dict[str, Callable[[], None]] = {}
    for name, options in (("bn", {"norm": "bn"}), ("brn", {})):
        functions[name] = stepper(strategy("naive", precision, freeze="none", **options))
    functions["brn, eager"] = stepper(strategy("naive", precision, freeze="none"), eager=True)
    slow = strategy("naive", precision, freeze="none")
    plain(slow.backbone)
    for layer in slow.backbone.modules():
        layer.train(isinstance(layer, PlainRenorm))
    functions["brn in plain operations, eager"] = stepper(slow, eager=True)
    for layer in slow.backbone.modules():
        layer.train(isinstance(layer, PlainRenorm))
    functions["bn, depthwise frozen"] = stepper(strategy("naive", precision, norm="bn"))
    for name in ("naive", "lwf", "ewc", "ar1*"):
        functions[name] = stepper(strategy(name, precision))
    return {name: 1e3 * seconds for name, seconds in in_turns(functions, repeats=10).items()}


def batches(precision: Precision) -> dict[str, float]:
    """ms a 300-frame batch of one class, 2 epochs for all."""
    frames, _ = batch_of(300)
    functions: dict[str, Callable[[], Any]] = {}

    def learner(made: Any) -> Callable[[], Any]:
        for label in (*range(10), *range(3)):
            made.learn(frames, torch.full((300,), label))
        return lambda: made.learn(frames, torch.full((300,), 3))

    for name in ("naive", "lwf", "ewc", "ar1*"):
        functions[name] = learner(strategy(name, precision, epochs=2))
    functions["cwr*"] = learner(strategy("cwr*", precision))
    functions["dslda"] = learner(strategy("dslda", precision))
    return {name: 1e3 * seconds for name, seconds in in_turns(functions, repeats=3).items()}


def kernels(precision: Precision) -> list[tuple[str, float]]:
    """The costliest kernels of an AR1* step, and us."""
    step = stepper(strategy("ar1*", precision), eager=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    found = [(event.key, event.self_device_time_total / 5) for event in profile.key_averages()]
    return sorted(found, key=lambda item: -item[1])[:25]


@cache
def full_size() -> DataSet:
    """The rendered set as large as CORe50: 400 training sessions and 150 test sessions of 300 frames, on the GPU."""
    began = time.perf_counter()
    data = materialise(Scene(frames=300, size=128), device="cuda")
    print(f"rendered {len(data.frames)} frames in {time.perf_counter() - began:.0f} s", flush=True)
    return data


def run(name: str, precision: Precision, number: int = 0, features: Features | None = None, limit: int = 391) -> dict[str, Any]:
    """A whole NICv2-391 run: every batch learned, and tested on one test frame in 20."""
    stream = nicv2(full_size(), run=number)[:limit]
    made = strategy(name, precision, seed=number)
    torch.cuda.synchronize()
    began = time.perf_counter()
    learn = test = 0.0
    for step in evaluate(made, stream, test_thin=20, features=features):
        learn, test = learn + step.learn_seconds, test + step.test_seconds
    return {"seconds": time.perf_counter() - began, "learn": learn, "test": test, "accuracy": step.accuracy}


def runs(precision: Precision) -> dict[str, Any]:
    """Seconds of whole NICv2-391 runs, in learning, in testing, and the final accuracy."""
    for name in ("ar1*", "ewc", "lwf", "dslda"):
        run(name, precision, limit=4)  # kernels are compiled and recorded
    return {name: run(name, precision) for name in ("ar1*", "cwr*", "dslda", "naive", "lwf", "ewc")}


def ten(precision: Precision) -> dict[str, Any]:
    """Seconds of ten runs of a cell, one after another and in threads, beside one run alone; AR1* over 40 batches."""
    found: dict[str, Any] = {}
    for name, limit, threads in (("dslda", 391, 10), ("ar1*", 40, 2)):

        def cell(number: int, features: Features | None, name: str = name, limit: int = limit) -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                run(name, precision, number, features, limit)

        def seconds(function: Callable[[], Any]) -> float:
            torch.cuda.synchronize()
            began = time.perf_counter()
            function()
            torch.cuda.synchronize()
            return time.perf_counter() - began

        cell(0, None)
        alone = seconds(lambda: cell(0, None))
        after = seconds(lambda: [cell(number, None) for number in range(10)])
        shared = Features()
        with ThreadPoolExecutor(threads) as pool:
            beside = seconds(lambda: list(pool.map(lambda number: cell(number, shared), range(10))))  # noqa: B023
        found[name] = {"one": alone, "ten, one after another": after, f"ten, {threads} at a time": beside}
    return found


PARTS: dict[str, Callable[[Precision], Any]] = {
    "steps": steps, "batches": batches, "kernels": kernels, "runs": runs, "ten": ten
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/gpu.json"))
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--precision", nargs="+", default=["tf32", "bf16"])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for precision in args.precision:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
        for part in args.parts:
            value = PARTS[part](precision)
            found[f"{part}, {precision}"] = value
            print(f"{part}, {precision}:", flush=True)
            for name, number in value.items() if isinstance(value, dict) else value:
                text = f"{number:10.3f}" if isinstance(number, float) else json.dumps(number)
                print(f"  {text}  {name[:110]}", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
