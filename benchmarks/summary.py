"""All speed and memory benchmarks, and docs/performance.md made of them.

python benchmarks/summary.py                          # runs what this machine can: about 10 minutes, idle
python benchmarks/summary.py --gpu gpu.json           # with the GPU's figures from another machine (benchmarks/gpu.py --out)
python benchmarks/summary.py --cpu cpu.json --growth growth.json --gpu gpu.json     # only writes the page
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

Every ratio is of two things measured in turns in one process; times are printed, never asserted. MobileNet v1 at 128 px.
Made by `python benchmarks/summary.py`, which runs `benchmarks/cpu.py`, `benchmarks/growth.py` and, where there is a GPU,
`benchmarks/gpu.py`; the raw figures are in `docs/results/performance.json`.
"""
RUNS = (
    "Whole NICv2-391 runs, {}: 120,000 training frames, 391 tests of 2,250 frames, frames on the GPU; the floor is bytes over "
    "the measured bandwidth, each layer by itself (`work` in the script)."
)
TEN = "Ten of these runs in one process, {}, s: features are computed once, the ten learn, are solved and are tested as a stack."
GROWTH = (
    "{:,} batches, {:,} classes, all seen in the first {:,}: operations, elements written and bytes of state at 20 moments "
    "after that; the median processor time of a batch then and at the end, taken in turns, and the median of the ratios. "
    "(A score of ridge takes seven factorisations or eight, as the data have it; the others' scores take the same throughout.)"
)


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
        f"{found['device']}, torch {found['torch']}, minibatch 128, the step recorded as a CUDA graph.",
    ]
    lines += ["", *table(found["rows"])]
    steps = {key.split(", ")[1]: value for key, value in found.items() if key.startswith("steps, ")}
    if steps:
        lines += [
            "",
            "A training step of 128 frames, ms:",
            "",
            f"| | {' | '.join(steps)} |",
            "|---" * (1 + len(steps)) + "|",
        ]
        for name in next(iter(steps.values())):
            lines.append(
                f"| {name} | {' | '.join(f'{value[name]:.2f}' for value in steps.values())} |"
            )
    runs = {key.split(", ")[1]: value for key, value in found.items() if key.startswith("runs, ")}
    for precision, value in runs.items():
        floors = found.get(f"floors, {precision}", {})
        lines += [
            "",
            RUNS.format(precision),
            "",
            "| | s | in learning | in testing | floor, s | times the floor |",
            "|---" * 6 + "|",
        ]
        for name, run in value.items():
            floor = floors.get(name)
            known = f"{floor:.1f} | {run['seconds'] / floor:.1f}" if floor else " | "
            lines.append(
                f"| {name} | {run['seconds']:.1f} | {run['learn']:.1f} | {run['test']:.1f} | {known} |"
            )
        if floors:
            copy, product, step = (
                floors[key]
                for key in ("copy, TB/s", "bf16 product, Tflop/s", "a step of 128 frames, ms")
            )
            lines += [
                "",
                f"Measured ceilings: {copy:.2f} TB/s in a copy, {product:.0f} Tflop/s in a bf16 product.",
            ]
            lines += [f"By them a step of 128 frames takes at least {step:.2f} ms."]
    for key, by_name in found.items():
        if key.startswith("ten, "):
            lines += [
                "",
                TEN.format(key.split(", ")[1]),
                "",
                "| | one run | ten side by side |",
                "|---|---|---|",
            ]
            lines += [
                f"| {name} | {seconds['one']:.2f} | {seconds['ten']:.2f} |"
                for name, seconds in by_name.items()
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
            f"| {row['strategy']} | {operations:,} | {state:,} | {'yes' if row['equal'] else '**no**'} | "
            f"{row['milliseconds_first']:.2f} | {row['milliseconds_last']:.2f} | {row['time']:.3f} |"
        )
    return lines


def draw(found: dict[str, Any], path: Path) -> None:
    """Every ratio beside its aim."""
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
