"""Speed on one GPU: steps, batches, whole NICv2-391 runs, and their distance from the hardware.

    PYTHONPATH=src python benchmarks/gpu.py --out results/gpu.json

MobileNet v1 at 128 px. Every ratio is between two medians, measured in turns in the same process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from primavista.bench.evaluate import evaluate
from primavista.networks.base import Precision, build
from primavista.nn.guards import UNGUARDED, Fisher, SynapticIntelligence
from primavista.nn.renorm import BatchRenorm
from primavista.strategies.base import Batch
from primavista.strategies.creation import create
from primavista.streams.dataset import DataSet
from primavista.streams.protocols import nicv2
from primavista.streams.rendered.dataset import rendered
from primavista.streams.rendered.renderer import Scene

MINIBATCH = 128
FIXED = "cwr*, fixed features"


class PlainRenorm(nn.Module):
    """Batch renormalisation in plain tensor operations, as in public implementations."""

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
    """Measure the seconds of one call, as the median of `repeats`."""
    seconds = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        function()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def in_turns(
    functions: dict[str, Callable[[], Any]], repeats: int = 5, rounds: int = 5
) -> dict[str, float]:
    """Measure the median seconds of each, in turns so that a change of the clock affects all."""
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
    frames = torch.randint(
        0, 256, (count, 128, 128, 3), generator=generator, dtype=torch.uint8
    ).cuda()
    return frames, torch.arange(count) % classes


def stepper(made: Any, eager: bool = False, first: bool = False) -> Callable[[], None]:
    """Build one SGD step over 128 frames in the regime of batch 2 and later (or of batch 1)."""
    frames, labels = batch_of(MINIBATCH)
    batch = Batch(
        1 if first else 2,
        frames,
        labels,
        torch.arange(50).cuda(),
        torch.ones(50).cuda(),
    )
    made.head.load(batch.present)
    weights = made.set_trainable(batch.i)
    if isinstance(made.importance, Fisher):
        made.importance.count_batch()  # it guards after the first batch
    guard = UNGUARDED if made.importance is None else made.importance.guard(weights)
    sgd = made.sgd(batch, weights, guard)

    def eager_step(x: Tensor, y: Tensor) -> None:
        g = sgd.gradient(made.cross_entropy(x, y))
        dtheta = sgd.step(g)
        if isinstance(made.importance, SynapticIntelligence):
            made.importance.observe(g, dtheta)

    made._train_mode(batch)
    goal = labels.cuda()
    if made.__class__.__name__ == "LwF":
        goal = F.one_hot(goal, 50).float()
    step = eager_step if eager else partial(sgd.run, eager_step)
    for _ in range(5):
        step(frames, goal)
    return lambda: step(frames, goal) and None


def steps(precision: Precision) -> dict[str, float]:
    """Measure the ms per step of 128 frames."""
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
    """Measure the ms per 300-frame batch of one class, with 2 epochs for all strategies."""
    frames, _ = batch_of(300)
    functions: dict[str, Callable[[], Any]] = {}

    def learner(made: Any) -> Callable[[], Any]:
        for label in (*range(10), *range(3)):
            made.learn(frames, torch.full((300,), label))
        return lambda: made.learn(frames, torch.full((300,), 3))

    for name in ("naive", "lwf", "ewc", "ar1*"):
        functions[name] = learner(strategy(name, precision, epochs=2))
    functions["cwr*"] = learner(strategy("cwr*", precision, features="fixed"))
    functions["dslda"] = learner(strategy("dslda", precision))
    return {name: 1e3 * seconds for name, seconds in in_turns(functions, repeats=3).items()}


def kernels(precision: Precision) -> list[tuple[str, float]]:
    """Return the costliest kernels of an AR1* step, with their microseconds."""
    step = stepper(strategy("ar1*", precision), eager=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    found = [(event.key, event.self_device_time_total / 5) for event in profile.key_averages()]
    return sorted(found, key=lambda item: -item[1])[:25]


def ceilings() -> dict[str, float]:
    """Measure this GPU: bytes per second in a copy, bf16 operations in a matrix product."""
    a, b = (torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(2))
    copied = 2 * 2**30 / timed(lambda: b.copy_(a), 10)
    m = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    return {"bytes": copied, "operations": 2 * 8192**3 / timed(lambda: m @ m, 10)}


def work(frames: int, training: bool) -> dict[str, float]:
    """Count the least bytes and operations of one pass, layer by layer, activations in bf16.

    In the forward pass, a convolution reads its input and writes its output; the norm with its
    ReLU6 reads this output twice (moments, map; in evaluation once) and writes it. In the backward
    pass, the norm reads x and dy twice and writes dx; a convolution reads dy and writes dx, and a
    pointwise one (the others are frozen) reads both once more for its weights.
    """
    body = build().body
    found = {"bytes": 0.0, "operations": 0.0}

    def note(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        assert isinstance(module, nn.Conv2d)
        into, out = 2 * inputs[0].numel(), 2 * output.numel()
        macs = output.numel() * module.weight[0].numel()
        moved = into + out + (3 if training else 2) * out
        passes = 1
        if training:
            moved += 5 * out + out + into + (out + into if module.groups == 1 else 0)
            passes = 3 if module.kernel_size == (1, 1) else 2
        found["bytes"] += frames * moved
        found["operations"] += frames * 2 * macs * passes

    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(note)
    with torch.no_grad():
        body.eval()(torch.zeros(1, 3, 128, 128))
    return found


def floors(precision: Precision) -> dict[str, float]:
    """Compute the least seconds of a NICv2-391 run: bytes or operations over the ceilings."""
    top = ceilings()

    def least(frames: int, training: bool) -> float:
        needed = work(frames, training)
        return max(needed[what] / top[what] for what in top)

    step, test, new = least(100, True), least(2250, False), least(120_000, False)
    first = 96 * least(125, True)
    return {
        "copy, TB/s": top["bytes"] / 1e12,
        "bf16 product, Tflop/s": top["operations"] / 1e12,
        "a step of 128 frames, ms": 1e3 * least(MINIBATCH, True),
        "testing 2,250 frames, ms": 1e3 * test,
        "ar1*": first + 390 * 12 * step + 391 * test,
        "naive": first / 2 + 390 * 6 * step + 391 * test,
        FIXED: first + new + 2 * test,
        "dslda": new + test,
    }


@cache
def full_size() -> DataSet:
    """Render a set of CORe50's size on the GPU: 400 training and 150 test sessions."""
    began = time.perf_counter()
    scene = rendered(Scene(frames=300, size=128), "cuda")
    data = replace(scene, frames=scene.frames[torch.arange(len(scene.frames))])
    print(f"rendered {len(data.frames)} frames in {time.perf_counter() - began:.0f} s", flush=True)
    return data


def run(
    name: str,
    precision: Precision,
    number: int = 0,
    limit: int = 391,
    **options: Any,
) -> dict[str, Any]:
    """Do a whole NICv2-391 run: learn every batch, and test on one test frame in 20."""
    stream = nicv2(full_size(), run=number)[:limit]
    made = strategy(name, precision, seed=number, **options)
    torch.cuda.synchronize()
    began = time.perf_counter()
    learn = test = 0.0
    for step in evaluate(made, stream, test_thin=20):
        learn, test = learn + step.learn_seconds, test + step.test_seconds
    return {
        "seconds": time.perf_counter() - began,
        "learn": learn,
        "test": test,
        "accuracy": step.accuracy,
    }


def runs(precision: Precision) -> dict[str, Any]:
    """Measure whole NICv2-391 runs: seconds, in learning, in testing, and the final accuracy."""
    for name in ("ar1*", "ewc", "lwf", "dslda"):
        run(name, precision, limit=4)  # kernels are compiled and recorded
    names = ("ar1*", "cwr*", "dslda", "naive", "lwf", "ewc")
    found = {name: run(name, precision) for name in names}
    return {**found, FIXED: run("cwr*", precision, features="fixed")}


PARTS: dict[str, Callable[[Precision], Any]] = {
    "floors": floors,
    "steps": steps,
    "batches": batches,
    "kernels": kernels,
    "runs": runs,
}


def targets(found: dict[str, Any], precision: str) -> list[dict[str, Any]]:
    """Compare the measurements with their targets."""
    rows: list[dict[str, Any]] = []

    def add(point: int, what: str, value: float, unit: str, most: float, **details: Any) -> None:
        target = f"at most {most:g}"
        rows.append(
            {
                "point": point,
                "what": f"{what}, {precision}",
                "value": float(f"{value:.4g}"),
                "unit": unit,
                "target": target,
                "met": value <= most,
                **details,
            }
        )

    if step := found.get(f"steps, {precision}"):
        plain_step = step["brn in plain operations, eager"]
        add(1, "a step with BRN / with BN", step["brn"] / step["bn"], "x", 1.10)
        add(
            1, "the same, depthwise frozen", step["naive"] / step["bn, depthwise frozen"], "x", 1.10
        )
        add(
            1,
            "a step with BRN / with BRN in plain operations, eager",
            step["brn"] / plain_step,
            "x",
            0.20,
        )
        for name, most in (("ar1*", 1.05), ("lwf", 1.05), ("ewc", 1.10)):
            add(2, f"a step of {name} / of Naive", step[name] / step["naive"], "x", most)
    if batch := found.get(f"batches, {precision}"):
        for name, most in (("ar1*", 1.05), ("lwf", 1.2), ("ewc", 1.5)):
            add(2, f"a batch of {name} / of Naive", batch[name] / batch["naive"], "x", most)
    for name, most in (("ar1*", 40), (FIXED, 12), ("dslda", 10)):
        if whole := found.get(f"runs, {precision}"):
            floor = found.get(f"floors, {precision}", {}).get(name)
            add(3, f"a NICv2-391 run of {name}", whole[name]["seconds"], "s", most, floor=floor)
    return rows


def measure(precisions: list[Precision], parts: list[str]) -> dict[str, Any]:
    """Measure some parts in some precisions, and print each result when it is done."""
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rows": [],
    }
    for precision in precisions:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = (
            precision != "float32"
        )
        for part in parts:
            value = PARTS[part](precision)
            found[f"{part}, {precision}"] = value
            print(f"{part}, {precision}:", flush=True)
            for name, number in value.items() if isinstance(value, dict) else value:
                text = f"{number:10.3f}" if isinstance(number, float) else json.dumps(number)
                print(f"  {text}  {name[:110]}", flush=True)
        found["rows"] += targets(found, precision)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/gpu.json"))
    parser.add_argument("--parts", nargs="+", default=[*PARTS], choices=[*PARTS])
    parser.add_argument("--precision", nargs="+", default=["tf32", "bf16"])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found = measure(args.precision, args.parts)
    for row in found["rows"]:
        print(
            f"{row['point']}  {row['what']:<70} {row['value']:8.3f} {row['unit']}   {row['target']}"
            f"{'' if row['met'] else '   NOT MET'}"
        )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
