"""Measure open-set recognition: a third of the classes is never taught, all are tested.

    python benchmarks/openset.py --data gtsrb_tracks.tar core50_frames.tar rendered

Traffic signs and rendered objects are those of accuracy.py; the CORe50 frames have 10 categories
and the test sessions 3, 7 and 10. The run number draws the split, the classes that are taught, and
the order of the sessions; each session is one batch. Features are computed once, by the backbone as
it is shipped. False alarms are frames of untaught classes that count as known, at the threshold at
which 95 % of the frames of known classes count as known. strangers.py measures prima.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy import data_set, pack, pack_rendered, parse
from torch import Tensor

from primavista.heads.open_set import KNOWN_THRESHOLD
from primavista.networks.base import build
from primavista.strategies.creation import create
from primavista.streams.dataset import DataSet, Session

STRATEGIES = [
    "ridge",
    "lda",
    "ncm",
    "dslda:open_set=true",
    "cwr*:open_set=true,first_batch=false,features=fixed",
]
NONE = torch.zeros(0, 1, 1, 3, dtype=torch.uint8)  # only their features are needed
COLUMNS = [
    "accuracy",
    "AUROC",
    "false alarms",
    "AUROC of confidence",
    "known kept",
    "unknown taken",
    "confidence",
    "ECE",
    "ECE at T = 1",
]


@torch.no_grad()
def features(array: Path, strategy: Any, folder: Path) -> Tensor:
    """Compute the features of every frame by the strategy's backbone, and keep them in a file."""
    out = folder / f"{array.stem}_{strategy.backbone.dim}.npy"
    if not out.exists():
        frames = torch.from_numpy(np.load(array))
        backbone = strategy.backbone.eval()
        np.save(out, torch.cat([backbone(part) for part in frames.split(32)]).numpy())
    return torch.from_numpy(np.load(out))


def sessions(array: Path, index: Path, run: int) -> DataSet:
    facts = json.loads(index.read_text())
    if isinstance(facts, dict) or not any(
        name.partition("/")[2].startswith("s") for name, _, _ in facts
    ):
        return replace(data_set(array, index, run, "cpu")[0], frames=NONE)
    classes = tuple(sorted({name.partition("/")[0] for name, _, _ in facts}))
    parts: dict[bool, list[Session]] = {True: [], False: []}
    for name, start, stop in facts:
        number = int(name.partition("/")[2][1:])
        parts[number in (3, 7, 10)].append(
            Session(classes.index(name.partition("/")[0]), number, start, stop)
        )
    return DataSet(
        "core50", NONE, tuple(parts[False]), tuple(parts[True]), classes, tuple(range(len(classes)))
    )


def auroc(known: Tensor, unknown: Tensor) -> float:
    """Return how often a known frame has a higher score than an unknown one; ties count half."""
    order = torch.cat([known, unknown]).double()
    _, inverse, counts = order.unique(return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[inverse]
    positives = len(known)
    return float(
        (ranks[:positives].sum() - positives * (positives + 1) / 2) / (positives * len(unknown))
    )


def calibration_error(confidence: Tensor, right: Tensor, bins: int = 15) -> float:
    """Compute the expected calibration error: mean |accuracy - confidence| over equal bins."""
    which = (confidence * bins).long().clip(max=bins - 1)
    gaps = [
        float((right[which == k].double().mean() - confidence[which == k].double().mean()).abs())
        * int((which == k).sum())
        for k in which.unique().tolist()
    ]
    return sum(gaps) / len(confidence)


def taught_sessions(data: DataSet, run: int) -> tuple[set[int], list[Session]]:
    """Draw two thirds of the classes and return the sessions that teach them, in order."""
    draw = random.Random(f"taught/{run}")
    taught = set(draw.sample(range(len(data.classes)), round(len(data.classes) * 2 / 3)))
    train = [s for s in data.train if s.label in taught]
    draw.shuffle(train)
    return taught, train


def measure(
    strategy: Any, z: Tensor, data: DataSet, run: int, threshold: float
) -> dict[str, float]:
    """Teach the sessions of one run, and measure on all test frames."""
    taught, train = taught_sessions(data, run)
    for s in train:
        mine = z[s.start : s.stop]
        strategy.learn_embedded(mine, torch.full((len(mine),), s.label))
    index = torch.cat([torch.arange(s.start, s.stop) for s in data.test])
    truth = torch.cat([torch.full((s.stop - s.start,), s.label) for s in data.test])
    known = torch.tensor([label in taught for label in truth.tolist()])
    scores = strategy.scores_embedded(z[index])
    familiar = strategy.familiar()
    assert familiar is not None
    familiarity = familiar(strategy.phi(z[index]).double(), scores.argmax(1))
    right = strategy.classes[scores.argmax(1)] == truth
    shares, plain = (scores.double().div(t).softmax(1).amax(1) for t in (familiar.temperature, 1.0))
    cut = familiarity[known].quantile(0.05)
    values = [
        right[known].double().mean(),
        auroc(familiarity[known], familiarity[~known]),
        (familiarity[~known] >= cut).double().mean(),
        auroc(shares[known], shares[~known]),
        (familiarity[known] >= threshold).double().mean(),
        (familiarity[~known] >= threshold).double().mean(),
        shares[known].mean(),
        calibration_error(shares[known], right[known]),
        calibration_error(plain[known], right[known]),
    ]
    return {column: 100 * float(value) for column, value in zip(COLUMNS, values, strict=True)}


def row_text(spec: str, rows: list[dict[str, float]]) -> str:
    """Return one line of the table: means and standard deviations over the runs."""
    cells = [[row[column] for row in rows] for column in COLUMNS]
    text = " | ".join(f"{statistics.mean(c):.1f} ± {statistics.pstdev(c):.1f}" for c in cells)
    return f"| `{spec}` | {text} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", nargs="+", type=Path, required=True, help="tars of tracks, or 'rendered'"
    )
    parser.add_argument(
        "--frames", type=int, default=12, help="frames a session of rendered objects"
    )
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument(
        "--threshold", type=float, default=KNOWN_THRESHOLD, help="of what is kept and taken"
    )
    parser.add_argument("--runs", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path("results/packed"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for tar in args.data:
        if str(tar) == "rendered":
            array, index = pack_rendered(args.size, args.frames, args.cache, "cpu")
        else:
            array, index = pack(tar, args.size, args.cache, args.threads)
        print(f"\n{tar.stem}, {args.size} px, runs {args.runs}: mean ± std, %\n")
        print(
            f"| strategy | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}",
            flush=True,
        )
        data = [sessions(array, index, run) for run in args.runs]
        for spec in args.strategies:
            name, options = parse(spec)
            z = features(array, create(name, build(size=args.size), **options), args.cache)
            rows = []
            for part, run in zip(data, args.runs, strict=True):
                strategy = create(name, build(size=args.size), seed=run, **options)
                rows.append(measure(strategy, z, part, run, args.threshold))
            print(row_text(spec, rows), flush=True)


if __name__ == "__main__":
    main()
