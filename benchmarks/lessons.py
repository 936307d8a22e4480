"""Measure how long three short lessons take with every strategy of `Learner`.

    python benchmarks/lessons.py                    # all strategies: about three minutes
    python benchmarks/lessons.py naive cumulative   # some of them

Three objects are drawn, taught with eight frames each, and asked in another place. The network is
MobileNet v1 of a quarter of its width with random weights, at 96 px. The times are processor
seconds of one thread; `most` is the longest lesson.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from live_parts.process import Frames, drawn

from primavista import Learner
from primavista.strategies.registry import names

OBJECTS = {"cup": 44, "ball": 31, "glasses": 26}
FRAMES = 8
SIDE = 96


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("strategies", nargs="*", help="names of strategies (default: all)")
    torch.set_num_threads(1)
    taught = {name: drawn(number, 1, FRAMES, SIDE) for name, number in OBJECTS.items()}
    asked = {name: drawn(number, 2, FRAMES, SIDE) for name, number in OBJECTS.items()}
    print("| strategy | three lessons | most | right elsewhere |\n|---|---|---|---|")
    for strategy in parser.parse_args().strategies or names():
        learner = Learner(strategy, weights="random", width=0.25, size=SIDE)
        seconds = [seconds_of_lesson(learner, frames, name) for name, frames in taught.items()]
        answers = [(name, learner.predict(list(frames))) for name, frames in asked.items()]
        right = np.mean([one.label == name for name, found in answers for one in found])
        print(f"| {strategy} | {sum(seconds):.1f} s | {max(seconds):.1f} s | {right:.0%} |")


def seconds_of_lesson(learner: Learner, frames: Frames, name: str) -> float:
    start = time.process_time()
    learner.learn(frames, name)
    return time.process_time() - start


if __name__ == "__main__":
    main()
