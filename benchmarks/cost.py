"""What a lesson costs each strategy, beside how well it learns: docs/images/cost.png.

    python benchmarks/cost.py --accuracy docs/results/gtsrb.jsonl docs/results/gtsrb_prima.jsonl

A lesson is one track of 30 frames at 128 px, after ten others, on one CPU thread; the median of five. Accuracies are those that
`benchmarks/accuracy.py` wrote. Cumulative, which trains on everything again, is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from primavista.backbones import build
from primavista.bench.evaluate import state_bytes
from primavista.strategies import PRESETS, create

LESSONS = 5
DOCS = Path(__file__).parents[1] / "docs"
COLOURS = {"paper": "#0072B2", "ours": "#D55E00", "not rehearsal-free": "#777777"}
OURS = ("prima", "ridge", "lda", "ncm")


def cost(name: str) -> tuple[float, int, int]:
    """Seconds of a lesson, bytes of state beyond the model, bytes of stored data."""
    strategy = create(name, build(size=128))
    frames = torch.randint(0, 256, (300, 128, 128, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    strategy.learn(frames, torch.arange(300) // 30)
    seconds = []
    for k in range(LESSONS):
        began = time.perf_counter()
        report = strategy.learn(frames[:30], torch.full((30,), k))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), state_bytes(strategy), report.stored_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accuracy", nargs="+", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=DOCS / "results" / "cost.json")
    parser.add_argument("--plot-only", action="store_true", help="with the costs that are in --out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    accuracy: dict[str, list[float]] = {}
    for path in args.accuracy:
        for line in path.read_text().splitlines():
            result = json.loads(line)
            accuracy.setdefault(result["strategy"], []).append(result["accuracy"])
    if args.plot_only:
        found = json.loads(args.out.read_text())
    else:
        found = {name: cost(name) for name in PRESETS if name != "cumulative"}
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    print("| strategy | accuracy | ms a lesson of 30 frames | state, MB | stored data, MB |\n|---|---|---|---|---|")
    for name, (seconds, state, stored) in sorted(found.items(), key=lambda item: -statistics.mean(accuracy.get(item[0], [0]))):
        known = accuracy.get(name)
        value = f"{statistics.mean(known):.1f} ± {statistics.pstdev(known):.1f}" if known else ""
        print(f"| {name} | {value} | {1e3 * seconds:.0f} | {state / 1e6:.1f} | {stored / 1e6:.1f} |")
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    shown: list[tuple[float, float, list[str]]] = []
    for name, (seconds, state, stored) in found.items():
        if name not in accuracy:
            continue
        kind = "not rehearsal-free" if stored else "ours" if name in OURS else "paper"
        x, y = 1e3 * seconds, statistics.mean(accuracy[name])
        axes.scatter(x, y, s=30 + 8 * (state + stored) / 1e6, color=COLOURS[kind], alpha=0.75, linewidths=0)
        beside = next((names for u, v, names in shown if abs(v - y) < 2 and 0.8 < u / x < 1.25), None)
        if beside is None:
            shown.append((x, y, [name]))
        else:
            beside.append(name)
    for x, y, names in shown:
        axes.annotate(", ".join(names), (x, y), xytext=(9, 5), textcoords="offset points", fontsize=9)
    if "cumulative" in accuracy:
        bound = statistics.mean(accuracy["cumulative"])
        axes.axhline(bound, color="#777777", linestyle="--", linewidth=1)
        axes.annotate("Cumulative, which keeps all data", (0.98, bound), xycoords=("axes fraction", "data"), ha="right",
                      xytext=(0, -11), textcoords="offset points", fontsize=9, color="#555555")  # fmt: skip
    for kind, colour in list(COLOURS.items())[:2]:
        axes.scatter([], [], s=40, color=colour, label=kind)
    axes.set_xscale("log")
    axes.set_xlim(150, 6000)
    axes.set_xticks([200, 500, 1000, 2000, 5000], ["200", "500", "1,000", "2,000", "5,000"])
    axes.minorticks_off()
    axes.set_xlabel("ms a lesson of 30 frames, one CPU thread")
    axes.set_ylabel("final accuracy on traffic signs (%)")
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower left", title="area: bytes beyond the model")
    figure.savefig(DOCS / "images" / "cost.png", dpi=110)


if __name__ == "__main__":
    main()
