"""Measure whether the cost of a batch grows along a stream of 10,000 batches, 1,000 classes.

    python benchmarks/growth.py --out growth.json      # every rehearsal-free strategy; 5 minutes
    python benchmarks/growth.py --strategies "cwr*" dslda

All classes are seen by batch 100. Strategies with a frozen representation get the features
directly; the other strategies get them as pixels of a one-layer network. For each batch the script
counts the operations of learning, the elements that they write, the bytes of the state, and the
operations of scoring. The operations of scoring are equal too, except for ridge, which tries more
or fewer values of its regularisation, depending on the data. At the end, the strategy as it was
after batch 100 and the final one learn and score the same batches in turns, in changing order. The
ratio is the median of the ratios of their processor times, batch by batch, so that other work of
the machine affects both sides equally.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from primavista.backbones.spec import Spec
from primavista.networks.base import Backbone
from primavista.strategies.base import Strategy, is_frozen
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.conformance import CountOperations, hidden_size
from primavista.strategies.creation import create
from primavista.strategies.registry import names

SIDE, DIM, PRESENT, EACH = 4, 32, 10, 2  # ten classes per batch, two patterns of each


def backbone() -> Backbone:
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Flatten(), nn.Linear(3 * SIDE**2, DIM, bias=False), nn.BatchNorm1d(DIM), nn.ReLU()
    )
    return Backbone(body, Spec("custom", SIDE, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))


def patterns(batch: int, classes: int, seen_by: int) -> tuple[Tensor, Tensor]:
    """Return frames and labels of one batch: new classes until all are seen, then ten at random."""
    generator = torch.Generator().manual_seed(batch)
    fresh = torch.arange(PRESENT) + PRESENT * batch
    present = (
        fresh % classes
        if batch < seen_by
        else torch.randperm(classes, generator=generator)[:PRESENT]
    )
    frames = torch.randint(
        0, 256, (PRESENT * EACH, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator
    )
    return frames, present.repeat(EACH)


def learn(strategy: Strategy, frames: Tensor, labels: Tensor) -> None:
    if is_frozen(strategy):
        strategy.learn_embedded(frames.flatten(1)[:, :DIM].float() / 255, labels)
    else:
        strategy.learn(frames, labels)


def score(strategy: Strategy, frames: Tensor) -> None:
    if is_frozen(strategy):
        strategy.scores_embedded(frames[:1].flatten(1)[:, :DIM].float() / 255)
    else:
        strategy.scores(frames[:1])


def is_constant(counts: Iterable[Sequence[int]]) -> bool:
    """Return True if elements and bytes are equal, and operations within 2 %.

    By chance, batch renormalisation recomputes a mean that lies halfway between two float32
    numbers.
    """
    operations, elements, state = zip(*counts, strict=True)
    steady = max(operations) <= 1.02 * min(operations)
    return steady and len(set(elements)) == len(set(state)) == 1


def follow(name: str, batches: int, classes: int, repeats: int = 400) -> dict[str, Any]:
    """Measure the cost of every batch of one stream, after all classes are seen and at the end."""
    options: dict[str, Any] = (
        {"first_batch": False} if name in STRATEGIES and STRATEGIES[name].training_options else {}
    )
    strategy = create(name, backbone(), **options)
    seen_by = classes // PRESENT
    stretch = max(10, (batches - seen_by) // 20)
    counted: dict[int, list[int]] = {}
    scoring: list[int] = []
    early: Strategy | None = None
    for k in range(batches):
        frames, labels = patterns(k, classes, seen_by)
        if k < seen_by or ((k - seen_by) % stretch and k < batches - 1):
            learn(strategy, frames, labels)
            continue
        with CountOperations() as counter:
            learn(strategy, frames, labels)
        with CountOperations() as asked:
            score(strategy, frames)
        scoring.append(asked.operations)
        state = sum(t.numel() * t.element_size() for t in strategy.state_dict().values())
        counted[k + 1] = [counter.operations, counter.elements, state + hidden_size(strategy)]
        early = early or copy.deepcopy(strategy)
    assert early is not None
    later = (patterns(batches + k, classes, seen_by) for k in range(repeats))
    seconds = in_turns(early, strategy, later)
    pairs = [last / first for first, last in zip(seconds[early], seconds[strategy], strict=True)]
    return {
        "strategy": name,
        "batches": batches,
        "classes": len(strategy.classes),
        "scoring": scoring,
        "counted": counted,
        "equal": is_constant(counted.values()),
        "milliseconds_first": 1e3 * statistics.median(seconds[early]),
        "milliseconds_last": 1e3 * statistics.median(seconds[strategy]),
        "time": statistics.median(pairs),
    }


def in_turns(
    early: Strategy, late: Strategy, batches: Iterable[tuple[Tensor, Tensor]]
) -> dict[Strategy, list[float]]:
    """Measure the processor times of learning and scoring the same batches, in changing order."""
    seconds: dict[Strategy, list[float]] = {early: [], late: []}
    for k, (frames, labels) in enumerate(batches):
        for each in (early, late) if k % 2 else (late, early):
            began = time.process_time()
            learn(each, frames, labels)
            score(each, frames)
            seconds[each].append(time.process_time() - began)
    return seconds


def measure(
    batches: int = 10_000, classes: int = 1_000, strategies: list[str] | None = None
) -> dict[str, Any]:
    """Measure every rehearsal-free strategy, or those named."""
    chosen = strategies or [name for name in names() if create(name, backbone()).rehearsal_free]
    return {"rows": [follow(name, batches, classes) for name in chosen]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--strategies", nargs="+")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(arguments.batches, arguments.classes, arguments.strategies)
    print(
        f"{'':12} {'operations':>10} {'elements':>10} {'bytes':>10}   "
        "equal     ms early   ms late   ratio"
    )
    for row in found["rows"]:
        operations, elements, state = list(row["counted"].values())[-1]
        print(
            f"{row['strategy']:12} {operations:10} {elements:10} {state:10}   {row['equal']!s:5}"
            f" {row['milliseconds_first']:10.2f} {row['milliseconds_last']:10.2f}"
            f" {row['time']:8.3f}"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
