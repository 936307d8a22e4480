"""Draw docs/images/cost.png: the accuracy of each strategy against the cost of a lesson.

    python benchmarks/cost.py --signs docs/results/gtsrb.jsonl docs/results/gtsrb_latent.jsonl \\
        --rendered docs/results/claims.jsonl docs/results/reasons.jsonl
    python benchmarks/cost.py ... --strategies latent-replay  # measures this one again
    python benchmarks/cost.py --solves prima dslda  # what the first prediction after a lesson costs

A lesson is one track of 30 frames at 128 px, after ten others. Its cost is in seconds of one CPU
thread, the median of five. A memory for rehearsal is full, as it is late in a stream. The
accuracies are from raw lines, such as those that `benchmarks/accuracy.py` writes; if a strategy is
in several files, the first one counts. Cumulative, which trains on everything again, is a line.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from primavista.bench.cost import state_bytes
from primavista.networks.base import build
from primavista.nn.memory import memories
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.creation import create

LESSONS = 5
DOCS = Path(__file__).parents[1] / "docs"
COLOURS = {"paper": "#0072B2", "ours": "#D55E00", "not rehearsal-free": "#777777"}
OURS = ("prima", "ridge", "lda", "ncm")
NAMES = {
    "naive": "Naive",
    "lwf": "LwF",
    "ewc": "EWC",
    "cwr+": "CWR+",
    "cwr*": "CWR*",
    "ar1": "AR1",
    "ar1*": "AR1*",
    "dslda": "DSLDA",
    "latent-replay": "latent replay",
}
RETRAINED = ("cumulative", "every")  # how often it trains changes no final accuracy
APART = 4.5  # percent between two labels


def cost(name: str, lessons: int) -> tuple[float, int, int]:
    """Measure the seconds of a lesson, the bytes beyond the model, and the stored bytes in them."""
    strategy = create(name, build(size=128))
    frames = torch.randint(
        0, 256, (300, 128, 128, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    strategy.learn(frames, torch.arange(300) // 30)
    for memory in memories(strategy):
        full = torch.arange(memory.limit) % len(memory)
        memory.store(memory.labels[full], **{n: t[full] for n, t in memory.fields.items()})
    seconds = []
    for k in range(lessons):
        began = time.process_time()
        report = strategy.learn(frames[:30], torch.full((30,), k))
        seconds.append(time.process_time() - began)
    return (
        statistics.median(seconds),
        state_bytes(strategy, report.stored_bytes) + report.stored_bytes,
        report.stored_bytes,
    )


def solve_cost(name: str, lessons: int) -> tuple[float, float]:
    """Measure a lesson, and how much longer the first prediction after it takes than the second."""
    strategy = create(name, build(size=128))
    draw = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (300, 128, 128, 3), dtype=torch.uint8, generator=draw)
    for k in range(10):
        strategy.learn(frames[30 * k : 30 * k + 30], torch.full((30,), k))
    times: list[tuple[float, float]] = []
    for k in range(lessons):
        moments = [time.process_time()]
        strategy.learn(frames[:30], torch.full((30,), k))
        moments.append(time.process_time())
        for _ in range(2):
            strategy.scores(frames[:1])
            moments.append(time.process_time())
        learned, first, second = (b - a for a, b in pairwise(moments))
        times.append((learned, first - second))
    learning, solving = zip(*times, strict=True)
    return statistics.median(learning), statistics.median(solving)


def accuracies(paths: Sequence[Path]) -> dict[str, list[float]]:
    """Return the accuracies of each strategy with its defaults, one per run."""
    found: dict[str, list[float]] = {}
    for path in paths:
        here: dict[str, list[float]] = {}
        for line in path.read_text().splitlines():
            result = json.loads(line)
            if "protocol" not in result:
                here.setdefault(result["strategy"], []).append(result["accuracy"])
            elif is_default(result):
                here.setdefault(result["strategy"], []).append(result["final"]["accuracy"])
        found = {**here, **found}
    return found


def is_default(cell: dict[str, Any]) -> bool:
    """Return True for a cell of NICv2-391 with the reduced test set and the default options."""
    changed = {name for name in cell["changed"] if (cell["strategy"], name) != RETRAINED}
    return cell["protocol"] == "nicv2-391" and cell["test_thin"] == 20 and not changed


def cell(values: list[float] | None) -> str:
    if values is None:
        return "not run"
    return f"{statistics.mean(values):.1f}" + (
        f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else " (one run)"
    )


Shown = tuple[str, float, float, int, int]  # name, accuracy, seconds, state, stored data


def kind_of(name: str, stored: int) -> str:
    """Return the group of a strategy, which decides its colour."""
    if stored:
        return "not rehearsal-free"
    return "ours" if name in OURS else "paper"


def label_place(
    x: float, y: float, others: list[tuple[float, float]], taken: list[tuple[float, float]]
) -> tuple[bool, float, float]:
    """Find the place of a label, and decide if it goes to the left of the circle.

    It goes to the left if another circle is in the way, or if the picture ends. It moves down below
    labels that were placed before.
    """
    left = x > 15_000 or any(1.25 <= u / x < 2 and abs(v - y) < 8 for u, v in others)
    if left:
        beside = min(u for u, _ in others if u > x / 1.25)
    else:
        beside = max(u for u, _ in others if u < 1.25 * x)
    height = min([y, *(h - APART for u, h in taken if u == beside)])
    taken.append((beside, height))
    return left, beside, height


def draw_circles(axes: Axes, shown: list[Shown]) -> None:
    """Draw one circle per strategy, larger if it keeps more, with labels from the top down."""
    taken: list[tuple[float, float]] = []
    others = [(1e3 * seconds, y) for _, y, seconds, _, _ in shown]
    for name, y, seconds, state, stored in sorted(shown, key=lambda item: -item[1]):
        colour = COLOURS[kind_of(name, stored)]
        x, area = 1e3 * seconds, 20 + 6 * state / 1e6  # the state includes what is stored
        axes.scatter(x, y, s=area, color=colour, alpha=0.75, linewidths=0)
        left, beside, height = label_place(x, y, others, taken)
        gap = 4 + math.sqrt(area) / 2
        axes.annotate(
            NAMES.get(name, name),
            (beside, height),
            xytext=(-gap if left else gap, -3),
            fontsize=9,
            ha="right" if left else "left",
            textcoords="offset points",
            color=colour,
        )


def draw_bound(axes: Axes, bound: float) -> None:
    """Draw the line of Cumulative."""
    axes.axhline(bound, color="#777777", linestyle="--", linewidth=1)
    axes.annotate(
        "Cumulative, which keeps all data",
        (0.98, bound),
        xycoords=("axes fraction", "data"),
        ha="right",
        xytext=(0, 4),
        textcoords="offset points",
        fontsize=9,
        color="#555555",
    )


def panel(
    axes: Axes,
    title: str,
    accuracy: dict[str, list[float]],
    found: dict[str, tuple[float, int, int]],
) -> None:
    """Draw the panel of one data set."""
    measured = [name for name in found if name in accuracy]
    draw_circles(axes, [(n, statistics.mean(accuracy[n]), *found[n]) for n in measured])
    if "cumulative" in accuracy:
        draw_bound(axes, statistics.mean(accuracy["cumulative"]))
    axes.set_title(title, fontsize=10)
    axes.set_xscale("log")
    axes.set_xlim(60, 70_000)
    ticks = [0.2, 0.5, 1, 2, 5, 10, 20, 50]
    axes.set_xticks([1000 * tick for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("seconds per lesson of 30 frames, one CPU thread")
    axes.grid(alpha=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--signs", nargs="+", type=Path, default=[], help="accuracies on traffic signs"
    )
    parser.add_argument(
        "--rendered", nargs="+", type=Path, default=[], help="accuracies on rendered objects"
    )
    parser.add_argument("--out", type=Path, default=DOCS / "results" / "cost.json")
    parser.add_argument(
        "--strategies",
        nargs="*",
        default=[name for name in STRATEGIES if name != "cumulative"],
        help="to be measured; none: the figure alone, with the costs that are in --out",
    )
    parser.add_argument("--lessons", type=int, default=LESSONS)
    parser.add_argument("--solves", nargs="+", default=[], help="measure only the solves of these")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.solves:
        learning, solving = solve_cost(name, args.lessons)
        print(f"{name}: lesson {1e3 * learning:.0f} ms, solve {1e3 * solving:.0f} ms", flush=True)
    if args.solves:
        return
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name in args.strategies:
        found[name] = cost(name, args.lessons)
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    signs, rendered = accuracies(args.signs), accuracies(args.rendered)
    print(
        "| strategy | signs | rendered | ms per lesson of 30 frames | state, MB | stored, MB |\n"
        "|---|---|---|---|---|---|"
    )
    for name, (seconds, state, stored) in sorted(
        found.items(), key=lambda item: -statistics.mean(signs.get(item[0], [0]))
    ):
        costs = f"{1e3 * seconds:.0f} | {(state - stored) / 1e6:.1f} | {stored / 1e6:.1f}"
        print(f"| {name} | {cell(signs.get(name))} | {cell(rendered.get(name))} | {costs} |")
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.9), sharey=True, layout="constrained")
    panel(left, "traffic signs", signs, found)
    panel(right, "rendered objects, 300 frames per video", rendered, found)
    for kind, colour in COLOURS.items():
        right.scatter([], [], s=40, color=colour, label=kind)
    left.set_ylabel("final accuracy (%)")
    left.set_ylim(-4, 100)
    figure.legend(
        frameon=False, loc="outside lower center", ncols=3, title="area: bytes beyond the model"
    )
    figure.savefig(DOCS / "images" / "cost.png", dpi=110)


if __name__ == "__main__":
    main()
