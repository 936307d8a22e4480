"""Measure open-set recognition: a third of the classes is never taught, all are tested.

    python benchmarks/openset.py --data gtsrb_tracks.tar core50_frames.tar rendered
    python benchmarks/openset.py --data gtsrb_tracks.tar rendered --classes 3 6 10 --videos 1 2 4

`--classes` is the number of classes to teach instead of two thirds; `--videos` is the number of
videos per class, in the same places; `--here` also tests in those places.

Traffic signs and rendered objects are those of accuracy.py; the CORe50 frames have 10 categories
and the test sessions 3, 7 and 10. The run number draws the split, the classes that are taught, the
places and the order of the sessions; each session is one batch. Features are computed once, by the
backbone as it is shipped. False alarms are frames of untaught classes that count as known, at the
threshold at which 95 % of the frames of known classes count as known.
"""

from __future__ import annotations

import argparse
import itertools
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
    "prima",
    "ridge",
    "lda",
    "ncm",
    "dslda:open_set=true",
    "cwr*:open_set=true,first_batch=false",
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


def taught_sessions(
    data: DataSet, run: int, classes: int, videos: int
) -> tuple[set[int], list[Session]]:
    """Draw the classes that are taught and the sessions that teach them, in order.

    0 classes means two thirds of them, 0 videos means all.
    """
    draw = random.Random(f"taught/{run}")
    taught = set(draw.sample(range(len(data.classes)), classes or round(len(data.classes) * 2 / 3)))
    train = [s for s in data.train if s.label in taught]
    if videos:
        numbers = [{s.number for s in train if s.label == label} for label in taught]
        chosen = draw.sample(sorted(set.intersection(*numbers)), videos)
        train = [s for s in train if s.number in chosen]
    draw.shuffle(train)
    return taught, train


def test_frames(data: DataSet, train: list[Session], here: bool) -> tuple[Tensor, Tensor]:
    """Return the indices and labels of the test frames; `here`: every other frame of lessons."""
    step = 2 if here else 1
    numbers = {s.number for s in train}
    test = [s for s in data.train if s.number in numbers] if here else data.test
    ranges = [range(s.start + step - 1, s.stop, step) for s in test]
    index = torch.cat([torch.arange(r.start, r.stop, r.step) for r in ranges])
    labels = [torch.full((len(r),), s.label) for r, s in zip(ranges, test, strict=True)]
    return index, torch.cat(labels)


def measure(
    strategy: Any,
    z: Tensor,
    data: DataSet,
    run: int,
    classes: int,
    videos: int,
    here: bool,
    threshold: float,
) -> dict[str, float]:
    """Measure one run. 0 classes means two thirds of them, and 0 videos means all."""
    taught, train = taught_sessions(data, run, classes, videos)
    for s in train:
        mine = z[s.start : s.stop : 2 if here else 1]
        strategy.learn_embedded(mine, torch.full((len(mine),), s.label))
    index, truth = test_frames(data, train, here)
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


def row_text(spec: str, classes: int, videos: int, rows: list[dict[str, float]]) -> str:
    """Return one line of the table: means and standard deviations over the runs."""
    cells = [[row[column] for row in rows] for column in COLUMNS]
    text = " | ".join(f"{statistics.mean(c):.1f} ± {statistics.pstdev(c):.1f}" for c in cells)
    return f"| `{spec}` | {classes or 'two thirds'} | {videos or 'all'} | {text} |"


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
        "--classes", nargs="+", type=int, default=[0], help="how many are taught; 0: two thirds"
    )
    parser.add_argument(
        "--videos", nargs="+", type=int, default=[0], help="how many of each; 0: all"
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="test in the places of the lessons: every other frame is taught",
    )
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
            f"| strategy | classes | videos | {' | '.join(COLUMNS)} |\n"
            f"|{'---|' * (len(COLUMNS) + 3)}",
            flush=True,
        )
        data = [sessions(array, index, run) for run in args.runs]
        for spec in args.strategies:
            name, options = parse(spec)
            z = features(array, create(name, build(size=args.size), **options), args.cache)
            for classes, videos in itertools.product(args.classes, args.videos):
                if classes >= len(data[0].classes):
                    continue
                rows = []
                for part, run in zip(data, args.runs, strict=True):
                    strategy = create(name, build(size=args.size), seed=run, **options)
                    given = run, classes, videos, args.here, args.threshold
                    rows.append(measure(strategy, z, part, *given))
                print(row_text(spec, classes, videos, rows), flush=True)


if __name__ == "__main__":
    main()
