"""Run all speed and memory benchmarks and write docs/performance.md.

python benchmarks/summary.py                  # all that this machine can run: 10 minutes, idle
python benchmarks/summary.py --gpu gpu.json   # with the figures of a GPU from elsewhere
python benchmarks/summary.py --cpu cpu.json --growth growth.json --gpu gpu.json  # only the page
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import cpu
import gpu
import growth
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """# Performance

Every ratio compares two things that were measured in turns in one process; times are printed,
never asserted. MobileNet v1 at 128 px. `python benchmarks/summary.py` writes this page: it runs
`benchmarks/cpu.py`, `benchmarks/growth.py` and, if there is a GPU, `benchmarks/gpu.py`. The raw
figures are in [results/performance.json](results/performance.json); the
[lab notes](lab/performance.md) say under which conditions they were measured and how much they
vary. Our strategies are compared with Avalanche's on the page
[Avalanche](guides/avalanche.md#side-by-side).
"""
RUNS = """Whole NICv2-391 runs, {}: 120,000 training frames, 391 tests of 2,250 frames, frames on
the GPU. The floor is bytes over the measured bandwidth, layer by layer (`work` in the script)."""
GROWTH = """{:,} batches, {:,} classes, all seen in the first {:,} batches. Operations, elements
written and bytes of state were counted at 20 moments after that. The times are the median CPU time
of a batch then and at the end, measured in turns; the ratio is the median of the ratios. (Scoring
with ridge takes seven or eight factorisations, depending on the data; scoring with the others takes
the same number throughout.)"""


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| | measured | aim | |", "|---|---|---|---|"]
    for row in rows:
        value = (
            f"{row['value']:.1e}"
            if row["unit"] == ""
            else f"{row['value']:.4g} {row['unit']}".replace(" x", " ×")
        )
        lines.append(
            f"| {row['what']} | {value} | {row['target']} | {'yes' if row['met'] else '**no**'} |"
        )
    return lines


def gpu_section(found: dict[str, Any]) -> list[str]:
    lines = [
        "",
        "## On a GPU",
        "",
        f"{found['device']}, torch {found['torch']}, minibatch 128, "
        "the step captured as a CUDA graph.",
    ]
    lines += ["", *table(found["rows"])]
    steps = by_precision(found, "steps")
    if steps:
        lines += steps_section(steps)
    for precision, runs in by_precision(found, "runs").items():
        lines += runs_section(precision, runs, found.get(f"floors, {precision}", {}))
    return lines


def by_precision(found: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the figures under "what, precision", by precision."""
    return {
        key.split(", ")[1]: value for key, value in found.items() if key.startswith(f"{what}, ")
    }


def steps_section(steps: dict[str, Any]) -> list[str]:
    lines = ["", "A training step of 128 frames, ms:", "", f"| | {' | '.join(steps)} |"]
    lines.append("|---" * (1 + len(steps)) + "|")
    for name in next(iter(steps.values())):
        lines.append(f"| {name} | {' | '.join(f'{value[name]:.2f}' for value in steps.values())} |")
    return lines


def runs_section(precision: str, runs: dict[str, Any], floors: dict[str, float]) -> list[str]:
    lines = ["", RUNS.format(precision), ""]
    lines.append("| | s | in learning | in testing | floor, s | times the floor |")
    lines.append("|---" * 6 + "|")
    for name, run in runs.items():
        floor = floors.get(name)
        beside = f"{floor:.1f} | {run['seconds'] / floor:.1f}" if floor else " | "
        times = f"{run['seconds']:.1f} | {run['learn']:.1f} | {run['test']:.1f}"
        lines.append(f"| {name} | {times} | {beside} |")
    if floors:
        lines += [
            "",
            f"Measured ceilings: {floors['copy, TB/s']:.2f} TB/s in a copy, "
            f"{floors['bf16 product, Tflop/s']:.0f} Tflop/s in a bf16 product.",
            "With these, a step of 128 frames takes at least "
            f"{floors['a step of 128 frames, ms']:.2f} ms.",
        ]
    return lines


def growth_section(found: dict[str, Any]) -> list[str]:
    first = found["rows"][0]
    lines = [
        "",
        "## Growth",
        "",
        GROWTH.format(first["batches"], first["classes"], first["classes"] // growth.PRESENT),
        "",
    ]
    lines += [
        "| | operations | bytes of state | equal throughout | ms early | ms late | ratio |",
        "|---" * 7 + "|",
    ]
    for row in found["rows"]:
        operations, _, state = list(row["counted"].values())[-1]
        lines.append(
            f"| {row['strategy']} | {operations:,} | {state:,} | "
            f"{'yes' if row['equal'] else '**no**'} | {row['milliseconds_first']:.2f} | "
            f"{row['milliseconds_last']:.2f} | {row['time']:.3f} |"
        )
    return lines


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw every ratio beside its aim."""
    rows = [
        row
        for part in ("gpu", "cpu")
        for row in found.get(part, {}).get("rows", ())
        if row["unit"] in ("x", "s", "ms", "MB")
    ]
    shares = []
    for row in rows:
        bound = float(
            next(word for word in row["target"].split() if word.replace(".", "").isdigit())
        )
        shares.append(
            bound / row["value"] if row["target"].startswith("at least") else row["value"] / bound
        )
    figure, axes = plt.subplots(figsize=(9, 0.28 * len(rows) + 1), layout="constrained")
    colours = ["#0072B2" if row["met"] else "#D55E00" for row in rows]
    axes.barh(range(len(rows)), shares, color=colours, height=0.7)
    axes.axvline(1, color="#222222", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
    axes.minorticks_off()
    axes.margins(y=0.01)
    axes.set_yticks(range(len(rows)), [row["what"] for row in rows], fontsize=7.5)
    axes.invert_yaxis()
    axes.set_xlabel("share of what is allowed (left of the line: better than aimed at)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write(found: dict[str, Any]) -> None:
    (DOCS / "results" / "performance.json").write_text(json.dumps(found, indent=1) + "\n")
    lines = [
        HEAD,
        *([found["note"], ""] if "note" in found else []),
        "![ratios beside their aims](images/performance.png)",
    ]
    if "gpu" in found:
        lines += gpu_section(found["gpu"])
    machine = found["cpu"]["machine"]
    lines += [
        "",
        "## On a CPU",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}, "
        f"load {found['cpu']['load'][0]} when it ended.",
        "",
        *table(found["cpu"]["rows"]),
    ]
    lines += growth_section(found["growth"])
    (DOCS / "performance.md").write_text("\n".join(lines) + "\n")
    draw(found, DOCS / "images" / "performance.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("cpu", "growth", "gpu"):
        parser.add_argument(
            f"--{name}", type=Path, help=f"figures of benchmarks/{name}.py instead of a new run"
        )
    parser.add_argument("--note", help="a sentence for the page, on how the figures came about")
    parser.add_argument(
        "--quick", action="store_true", help="fewer repeats, shorter streams: to see that it works"
    )
    args = parser.parse_args()
    found: dict[str, Any] = {
        "cpu": json.loads(args.cpu.read_text()) if args.cpu else cpu.measure(args.quick),
        "growth": json.loads(args.growth.read_text())
        if args.growth
        else growth.measure(*((400, 200) if args.quick else (10_000, 1_000))),
    }
    if args.gpu:
        found["gpu"] = json.loads(args.gpu.read_text())
    elif torch.cuda.is_available():
        found["gpu"] = gpu.measure(["tf32", "bf16"], list(gpu.PARTS))
    if args.note:
        found["note"] = args.note
    write(found)
    print(f"wrote {DOCS / 'performance.md'}")


if __name__ == "__main__":
    main()
