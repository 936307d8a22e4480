"""Measure prima on a representation that learns: AR1* adapts the backbone along the stream.

    python benchmarks/prima_plus.py --data gtsrb_tracks.tar --runs 0 1 2    # in batch 1 alone
    python benchmarks/prima_plus.py --data gtsrb_tracks.tar --runs 0 1 2 --every --device cuda
    python benchmarks/prima_plus.py --data gtsrb_tracks.tar --runs 0 --every --batches 60

The split and the order are those of `accuracy.py`. The statistics of earlier batches describe
features that the adapted backbone no longer gives. They are left as they were, or moved by the
drift of the current batch (Yu et al. 2020, *Semantic Drift Compensation*), or computed anew from
all frames. The last variant is impossible without rehearsal; it is the best that a compensation
could reach.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path

import torch
from accuracy import data_set, pack
from torch import Tensor

from primavista.engine.frames import read_frames
from primavista.heads.statistics import add_gram
from primavista.media.frames import Frames
from primavista.networks.base import Backbone, build
from primavista.strategies.base import Strategy
from primavista.strategies.creation import create
from primavista.strategies.prima import Prima
from primavista.streams.protocols import nicv2


def over(backbone: Backbone, lessons: list[tuple[Tensor, Tensor]], device: str) -> Prima:
    """Teach prima over the present backbone."""
    prima = Prima(copy.deepcopy(backbone).cpu(), rule="frames").to(device)
    prima.representation.use_engine("auto")
    for frames, labels in lessons:
        prima.learn(frames, labels)
    return prima


@torch.no_grad()
def drift(head: Prima, before: Tensor, after: Tensor) -> None:
    """mu_c <- mu_c + sum_i a_ci (after_i - before_i),  sum_i a_ci = 1.

    a_ci ~ exp(-|before_i - mu_c|^2 / (2 sigma^2)) for each place by itself; sigma^2 is the mean of
    these squares. The scatter around the means stays.
    """
    m = head.head.statistics
    for gram, columns in m.squares():
        old, new = before[:, columns].double(), after[:, columns].double()
        root = m.n.clip(1).sqrt()[:, None]
        mu = m.s[:, columns] / root**2
        square = torch.cdist(mu, old) ** 2
        near = torch.softmax(-square / (2 * square.mean()), 1)
        moved = mu + near @ (new - old)
        add_gram(gram, root * moved)
        gram.mul_(-1)
        add_gram(gram, root * mu)
        gram.mul_(-1)
        m.s[:, columns] = moved * root**2


def whole(frames: Frames) -> Tensor:
    """Read all frames at once."""
    return read_frames(frames, torch.arange(len(frames)), torch.device("cpu"))


def accuracy(strategy: Strategy, scores: Tensor, truth: Tensor) -> float:
    return 100 * float((strategy.classes[scores.argmax(1)].cpu() == truth).double().mean())


def adapt_in_every_batch(
    learner: Strategy, heads: dict[str, Prima], batches: list[tuple[Tensor, Tensor]], device: str
) -> None:
    """Learn every batch with AR1* and with the heads, one of which is moved by the drift."""
    reader = over(learner.backbone, [], device)
    reader.representation.use_engine("torch")  # the weights of its network change

    def read(frames: Tensor) -> Tensor:
        """Compute features by the present weights of the learner's backbone."""
        reader.backbone.load_state_dict(learner.backbone.state_dict())
        return reader.embed(frames)

    for i, (frames, labels) in enumerate(batches):
        before = read(frames) if i else None
        learner.learn(frames, labels)
        after = read(frames)
        if before is not None:
            drift(heads["moved"], before, after)
        for head in heads.values():
            head.learn_embedded(after, labels)


def run(
    number: int, every: bool, batches: int | None, packed: tuple[Path, Path], device: str
) -> dict[str, object]:
    """Return the accuracy for each way of computing prima's sums."""
    data, first = data_set(*packed, number, "cpu")
    stream = nicv2(data, run=number, first=first)
    count = batches or len(stream)
    learner = create("ar1*", build(size=128), seed=number).to(device)
    heads = {
        name: Prima(build(size=128), rule="frames").to(device) for name in ("as they were", "moved")
    }

    seen = [(whole(stream[i].images), stream[i].labels) for i in range(count)]
    if every:
        adapt_in_every_batch(learner, heads, seen, device)
    else:
        learner.learn(*seen[0])  # the representation stays as batch 1 left it
    test = stream.test(1)
    known = torch.isin(test.labels, torch.cat([labels for _, labels in seen]))
    images, truth = whole(test.images)[known], test.labels[known]
    anew = over(learner.backbone, seen, device)
    z = anew.embed(images)
    found = {"adapted": accuracy(anew, anew.scores_embedded(z), truth)}
    if every:  # otherwise `accuracy.py --strategies prima` measures the frozen one over all batches
        frozen = over(build(size=128), seen, device)
        found["frozen"] = accuracy(frozen, frozen.scores(images), truth)
        for name, head in heads.items():
            found[f"adapted, sums {name}"] = accuracy(head, head.scores_embedded(z), truth)
        found["AR1*"] = accuracy(learner, learner.scores(images), truth)
    adapted = f"all of {count} batches" if every else "batch 1"
    return {
        "run": number,
        "adapted in": adapted,
        "batches": count,
        "classes": int(truth.unique().numel()),
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/gtsrb_tracks.tar"))
    parser.add_argument("--runs", nargs="+", type=int, default=[0])
    parser.add_argument("--every", action="store_true", help="adapt in every batch")
    parser.add_argument("--batches", type=int, help="stop after so many")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/prima_plus.jsonl"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    packed = pack(args.data, 128, args.out.parent / "packed", 2)
    for number in args.runs:
        began = time.perf_counter()
        result = run(number, args.every, args.batches, packed, args.device)
        print(f"{json.dumps(result)}   {time.perf_counter() - began:.0f} s", flush=True)
        with args.out.open("a") as out:
            out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
