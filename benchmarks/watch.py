"""Measure the benefit of several frames: windows of 1, 5, 10 and 20, and whole videos.

    python benchmarks/watch.py --data ../shared/data/core50_frames.tar rendered
    python benchmarks/watch.py --data ../shared/data/gtsrb_tracks.tar --classes 0 5 --videos 1 3 0

Every test frame is answered from the window that ends with it, and also from its whole video, as in
`Learner.predict_video`. The rows are, in %:

- `cuts known`: the window has no frame of another video; this is `primavista.learner.watch.fuse`
- `mean share`, `vote`: the same with two other rules
- `changes`: how often the answer, a name or unknown, differs from that to the frame before, of the
  same video, whether it was taught or not
- `stream`: all test videos in random order without a break, through `Watch`, which has to see the
  cuts itself; `stream, no cuts` is the same without starting anew
- `AUROC`: of the fused familiarity, between taught and other classes, if only some are taught

Below each table are the share of the cuts that `Watch` detects, and the share of the other frames
that it takes for a cut. `--classes` classes are taught (0 for all), each with `--videos` videos
drawn at random (0 for all). The test videos of CORe50 have 1 to 6 frames that are seconds apart, so
no two of them look like neighbours; the sign tracks have 30 frames in a row, the rendered videos
`--frames` of three seconds. Features are computed once and kept in `--cache`.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy import pack, pack_rendered, parse
from openset import auroc, features, sessions
from torch import Tensor

from primavista.learner.prediction import AnswerRule, Prediction
from primavista.learner.watch import SAME_SCENE, Watch, correlation, fuse, thumbnail
from primavista.networks.base import build
from primavista.strategies.creation import create
from primavista.streams.dataset import DataSet, Session

WINDOWS = (1, 5, 10, 20)
ROWS = (
    "cuts known",
    "mean share",
    "vote",
    "changes",
    "stream",
    "stream, no cuts",
    "AUROC",
)
Rule = Callable[[Sequence[Prediction], AnswerRule], Prediction]
Pixels = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Taught:
    """A strategy after its lessons, which predicts from features instead of frames."""

    strategy: Any
    answer_rule: AnswerRule

    def predict(self, z: Tensor, /) -> list[Prediction]:
        """Return what `Learner.predict` would answer for the frames of these features."""
        scores = self.strategy.scores_embedded(z)
        familiar = self.strategy.familiar()
        told = familiar(self.strategy.phi(z).double(), scores.argmax(1)).tolist()
        shares = (scores / familiar.temperature).float().softmax(1).tolist()
        names = [str(i) for i in self.strategy.classes.tolist()]
        found = []
        for row, familiarity in zip(shares, told, strict=True):
            confidence = max(row)
            answer = self.answer_rule.answer(confidence, len(names), familiarity)
            by_name = dict(zip(names, row, strict=True))
            label = names[row.index(confidence)]
            found.append(Prediction(label, confidence, answer, by_name, familiarity))
        return found


def mean_share(predictions: Sequence[Prediction], rule: AnswerRule) -> Prediction:
    """Fuse by the arithmetic mean of the probabilities, instead of the geometric one."""
    names = list(predictions[0].scores)
    rows = np.array([list(one.scores.values()) for one in predictions])
    shares = rows.mean(0).tolist()
    best = max(shares)
    return Prediction(names[shares.index(best)], best, "known")


def vote(predictions: Sequence[Prediction], rule: AnswerRule) -> Prediction:
    """Fuse by a vote of the frames; the larger mean probability decides ties."""
    labels = [one.label for one in predictions]
    label = max(
        set(labels),
        key=lambda name: (labels.count(name), sum(one.scores[str(name)] for one in predictions)),
    )
    return Prediction(label, labels.count(label) / len(labels), "known")


def lessons(data: DataSet, run: int, classes: int, videos: int) -> list[Session]:
    """Draw the classes and the videos that teach them, in random order."""
    draw = random.Random(f"watch/{run}")
    labels = range(len(data.classes))
    chosen: list[Session] = []
    for label in draw.sample(labels, classes) if classes else labels:
        own = [s for s in data.train if s.label == label]
        chosen += draw.sample(own, min(videos, len(own))) if videos else own
    draw.shuffle(chosen)
    return chosen


def windows(test: Sequence[Session], most: int) -> list[slice]:
    """Return, for each frame, the window of its video that ends with it; 0: the whole video."""
    found: list[slice] = []
    start = 0
    for s in test:
        stop = start + s.stop - s.start
        if most:
            found += [slice(max(start, k + 1 - most), k + 1) for k in range(start, stop)]
        else:
            found += [slice(start, stop)] * (stop - start)
        start = stop
    return found


def streamed(
    taught: Taught, predictions: Sequence[Prediction], images: Pixels | None, most: int
) -> list[Prediction]:
    """Return the answers of `Watch` to a stream, one frame per second; no images means no cuts."""
    watch = Watch(taught, seconds=most)  # type: ignore[arg-type]  # it only asks for the rule
    plain = np.zeros((8, 8, 3), np.uint8)
    return [
        watch.add(plain if images is None else images[k], one, at=float(k))
        for k, one in enumerate(predictions)
    ]


def measure(
    taught: Taught, z: Tensor, images: Pixels, test: list[Session]
) -> dict[tuple[str, int], float]:
    """Measure every row at every window; 0 is the whole video."""
    index = np.concatenate([np.arange(s.start, s.stop) for s in test])
    truth = np.concatenate([np.full(s.stop - s.start, s.label) for s in test])
    first = np.cumsum([0] + [s.stop - s.start for s in test[:-1]])
    known = np.isin(truth, taught.strategy.classes.numpy())
    predictions = taught.predict(z[index])
    pictures = images[index]

    def accuracy(found: list[Prediction]) -> float:
        right = np.array([one.label == str(label) for one, label in zip(found, truth, strict=True)])
        return 100 * float(right[known].mean())

    values: dict[tuple[str, int], float] = {}
    for most in (*WINDOWS, 0):
        span = windows(test, most)
        rules: dict[str, Rule] = {"cuts known": fuse, "mean share": mean_share, "vote": vote}
        for name, rule in rules.items():
            found = [rule(predictions[part], taught.answer_rule) for part in span]
            values[name, most] = accuracy(found)
            if rule is fuse and not known.all():
                told = torch.tensor([one.familiarity for one in found])
                values["AUROC", most] = 100 * auroc(told[known], told[~known])
            if rule is fuse and most:
                values["changes", most] = changes(found, first)
        if most:
            stream = streamed(taught, predictions, pictures, most)
            values["stream", most] = accuracy(stream)
            values["stream, no cuts", most] = accuracy(streamed(taught, predictions, None, most))
    return values


def changes(found: list[Prediction], first: Any) -> float:
    """Return how often an answer differs from the previous one in the same video, in %."""
    inside = np.ones(len(found), bool)
    inside[first] = False
    shown = [one.label if one.known else None for one in found]
    differs = [a != b for a, b in itertools.pairwise(shown)]
    return 100 * float(np.array([False, *differs])[inside].mean())


def cuts(images: Pixels, test: list[Session]) -> tuple[float, float]:
    """Return the shares of cuts, and of other frames, that are taken for cuts, in %."""
    thumbnails = [[thumbnail(images[k]) for k in range(s.start, s.stop)] for s in test]
    between = [correlation(a[-1], b[0]) for a, b in itertools.pairwise(thumbnails)]
    within = [correlation(a, b) for video in thumbnails for a, b in itertools.pairwise(video)]
    seen, false = (np.mean(np.array(one) < SAME_SCENE) for one in (between, within))
    return 100 * float(seen), 100 * float(false)


def table(title: str, found: list[dict[tuple[str, int], float]]) -> str:
    """Return the rows of one measurement: mean and standard deviation over the runs."""
    head = " | ".join([*(str(most) for most in WINDOWS), "whole video"])
    lines = [f"| {title} | {head} |", f"|---|{'---|' * (len(WINDOWS) + 1)}"]
    for row in ROWS:
        if (row, 1) not in found[0]:
            continue
        cells = []
        for most in (*WINDOWS, 0):
            values = [one[row, most] for one in found if (row, most) in one]
            spread = f"{statistics.pstdev(values):.1f}" if values else ""
            cells.append(f"{statistics.mean(values):.1f} ± {spread}" if values else "")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", type=Path, required=True, help="tars, or 'rendered'")
    parser.add_argument("--strategy", default="prima")
    parser.add_argument("--classes", nargs="+", type=int, default=[0, 5], help="0 for all")
    parser.add_argument("--videos", nargs="+", type=int, default=[1, 3, 0], help="0 for all")
    parser.add_argument("--runs", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--frames", type=int, default=12, help="per rendered video")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path("results/packed"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    name, options = parse(args.strategy)
    for tar in args.data:
        if str(tar) == "rendered":
            array, index = pack_rendered(args.size, args.frames, args.cache, "cpu")
        else:
            array, index = pack(tar, args.size, args.cache, args.threads)
        z = features(array, create(name, build(size=args.size), **options), args.cache)
        images = np.load(array, mmap_mode="r")
        print(f"\n{tar.stem}, {args.strategy}, {args.size} px, runs {args.runs}: mean ± std\n")
        tests = []
        for run in args.runs:
            test = list(sessions(array, index, run).test)
            random.Random(f"stream/{run}").shuffle(test)
            tests.append(test)
        for classes, videos in itertools.product(args.classes, args.videos):
            found = []
            for run, test in zip(args.runs, tests, strict=True):
                strategy: Any = create(name, build(size=args.size), seed=run, **options)
                for s in lessons(sessions(array, index, run), run, classes, videos):
                    labels = torch.full((s.stop - s.start,), s.label)
                    strategy.learn_embedded(z[s.start : s.stop], labels)
                found.append(
                    measure(
                        Taught(strategy, AnswerRule(strategy.known_from, ranked=True)),
                        z,
                        images,
                        test,
                    )
                )
            title = f"{classes or 'all'} classes, {videos or 'all'} videos each"
            print(table(title, found), flush=True)
            print(flush=True)
        seen, false = zip(*(cuts(images, test) for test in tests), strict=True)
        share = f"{statistics.mean(seen):.1f} % of the cuts seen, "
        print(
            f"{share}{statistics.mean(false):.1f} % of the other frames taken for one", flush=True
        )


if __name__ == "__main__":
    main()
