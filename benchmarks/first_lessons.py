"""Measure the first lessons: recognition after each object was shown one, two or three times.

    python benchmarks/first_lessons.py --features                # once: the features of every frame
    python benchmarks/first_lessons.py                           # the table
    python benchmarks/first_lessons.py --size 192 --rules lessons --sets core50 signs
    python benchmarks/first_lessons.py --backbone resnet50 --weights FILE --features  # another one

A lesson is one session of one object. The columns give the accuracy in % of test frames and, in
brackets, after averaging the scores of a test session:

- `core50 5x1`: five categories, one lesson each, three test sessions drawn at random; `own place`:
  each taught in a session of its own, tested in all sessions where nothing was taught; `10xV`: ten
  categories, V lessons each; `3, 7, 10`: all lessons, these test sessions
- `signs 5x1`: five classes, one track each; `43xV`: all classes, V tracks each; `--step` frames
- `rendered 5x1`, `50x1`, `all`: 50 objects, 12 frames per session

If only some classes are taught, the columns also give the AUROC of familiarity between test frames
of these classes and of the others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy import pack, pack_rendered

from primavista.backbones.reference import generic_frames
from primavista.heads.prima import LessonHead, LessonSample, LessonStatistics
from primavista.heads.strangers import LessonFamiliarity
from primavista.networks.base import build
from primavista.networks.places import MiddleBackbone

DEFAULT = ("mobilenet_v1", "imagenet")
SETS = ("core50", "signs", "rendered")
Floats = np.ndarray[Any, Any]


@torch.no_grad()
def extract(array: Path, reader: MiddleBackbone, step: int, file: Path, device: str) -> None:
    """Keep the features of every `step`-th frame in a file, in half precision."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    frames = torch.from_numpy(np.load(array)[::step])
    began, parts = time.perf_counter(), []
    reader.to(device)
    for k, chunk in enumerate(frames.split(64)):
        parts.append(reader(chunk.to(device)).half().cpu().numpy())
        if k % 20 == 19:
            each = (time.perf_counter() - began) / (k + 1)
            left = each * (len(frames) / 64 - k - 1)
            print(f"{file}: {64 * (k + 1)} of {len(frames)} frames, {left:.0f} s left")
    np.save(file, np.concatenate(parts))


@dataclass
class Data:
    """The features of a data set, N x D, and facts about the network that computed them."""

    file: Path
    generic: Floats
    backbone: MiddleBackbone

    @cached_property
    def features(self) -> Floats:
        found: Floats = np.load(self.file).astype(np.float32)
        return found


Session = tuple[int, Floats]  # the label and the numbers of the frames


@dataclass(frozen=True)
class Task:
    """Lessons to learn, and sessions to recognise, some of which may show classes never taught."""

    column: str
    data: Data
    lessons: list[Session]
    tests: list[Session]

    @property
    def taught(self) -> list[int]:
        return sorted({label for label, _ in self.lessons})


def core50_tasks(data: Data, facts: list[Any], splits: int) -> Iterator[Task]:
    """Yield the tasks of CORe50 categories, by sessions."""
    names = sorted({name.partition("/")[0] for name, _, _ in facts})
    frames = {
        (names.index(n.partition("/")[0]), int(n.rpartition("/s")[2])): np.arange(a, b)
        for n, a, b in facts
    }
    categories, numbers = range(len(names)), range(1, 12)

    def of(labels: Sequence[int], which: Sequence[int]) -> list[Session]:
        return [(c, frames[c, k]) for c in labels for k in which if (c, k) in frames]

    for run in range(splits):
        draw = random.Random(f"core50/{run}")
        held = draw.sample(numbers, 3)
        rest = [k for k in numbers if k not in held]

        def lessons(labels: Sequence[int], count: int) -> list[Session]:
            found = []
            for c in labels:
                own = [k for k in rest if (c, k) in frames]  # noqa: B023
                found += of([c], draw.sample(own, count))  # noqa: B023
            return found

        for _ in range(4):
            few = draw.sample(categories, 5)
            yield Task("core50 5x1", data, lessons(few, 1), of(categories, held))
            few, places = draw.sample(categories, 5), draw.sample(numbers, 5)
            own = [s for c, k in zip(few, places, strict=True) for s in of([c], [k])]
            other = [k for k in numbers if k not in places]
            yield Task("own place", data, own, of(categories, other))
        yield Task("core50 5x3", data, lessons(few, 3), of(categories, held))
        for count in (1, 2, 3):
            yield Task(f"10x{count}", data, lessons(categories, count), of(categories, held))
        yield Task("10xall", data, of(categories, rest), of(categories, held))
    held = [3, 7, 10]
    rest = [k for k in numbers if k not in held]
    yield Task("3, 7, 10", data, of(categories, rest), of(categories, held))


def sign_tasks(data: Data, facts: list[Any], splits: int, step: int) -> Iterator[Task]:
    """Yield the tasks of traffic signs, split as in `accuracy.py`."""
    for run in range(splits):
        draw = random.Random(f"split/{run}")
        by_class: dict[str, list[Floats]] = {}
        for name, start, stop in facts:
            every = np.arange(start, stop)
            kept = every[every % step == 0] // step
            by_class.setdefault(name.partition("/")[0], []).append(kept)
        train: dict[int, list[Floats]] = {}
        test: list[Session] = []
        for label, name in enumerate(sorted(by_class)):
            tracks = by_class[name]
            draw.shuffle(tracks)
            held = 3 if len(tracks) >= 9 else len(tracks) // 4
            test += [(label, track) for track in tracks[:held]]
            train[label] = tracks[held:]
        few = random.Random(f"signs/{run}")
        for count in (1, 3):
            for _ in range(4):
                labels = few.sample(sorted(train), 5)
                lessons = [(c, t) for c in labels for t in few.sample(train[c], count)]
                yield Task(f"signs 5x{count}", data, lessons, test)
        for most in (1, 2, 3, None):
            lessons = [(c, t) for c, tracks in train.items() for t in tracks[:most]]
            yield Task(f"43x{most or 'all'}", data, lessons, test)


def rendered_tasks(data: Data, facts: dict[str, Any], splits: int) -> Iterator[Task]:
    """Yield the tasks of rendered objects; the test sessions are 3, 7 and 10."""
    parts = {
        part: [(label, number, np.arange(a, b)) for label, number, a, b in facts[part]]
        for part in ("train", "test")
    }
    test = [(label, frames) for label, _, frames in parts["test"]]
    for run in range(splits):
        draw = random.Random(f"rendered/{run}")
        for _ in range(4):
            labels = draw.sample(range(50), 5)
            lessons = [
                draw.choice([(c, frames) for label, _, frames in parts["train"] if label == c])
                for c in labels
            ]
            yield Task("rendered 5x1", data, lessons, test)
    first = [(label, frames) for label, number, frames in parts["train"] if number == 1]
    yield Task("50x1", data, first, test)
    yield Task("50xall", data, [(label, frames) for label, _, frames in parts["train"]], test)


class Scored:
    """Test frames with scores and familiarity, made by a rule."""

    def __init__(self, scores: Floats, familiarity: Floats, correlation: float = 1.0) -> None:
        self.scores, self.familiarity, self.correlation = scores, familiarity, correlation


Rule = Callable[[Task, Floats], Scored]


def taught_head(head: Any, z: Floats, task: Task) -> Any:
    head.expand(len(task.taught))
    for i, (label, frames) in enumerate(task.lessons, 1):
        head.learn(z[frames], np.full(len(frames), task.taught.index(label)), i)
    return head


def cosine(task: Task, frames: Floats) -> Scored:
    """Cosine similarity to the class means in the backbone's own features."""
    z = task.data.features[:, : task.data.backbone.sizes[0]]
    means = np.stack(
        [
            np.mean([z[i].mean(0) for label, i in task.lessons if label == c], axis=0)
            for c in task.taught
        ]
    )

    def similarity(centre: Any) -> Floats:
        x, mu = z[frames] - centre, means - centre
        found: Floats = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (
            mu / np.linalg.norm(mu, axis=1, keepdims=True)
        ).T
        return found

    return Scored(similarity(means.mean(0)), similarity(0).max(1))


def by_lessons(task: Task, frames: Floats) -> Scored:
    """Weigh the places by lessons that they have not seen."""
    z, backbone = task.data.features, task.data.backbone
    statistics = LessonStatistics.empty(backbone.dim, blocks=backbone.sizes)
    sample = LessonSample.empty(backbone.sizes)
    head = LessonHead(statistics, sample, backbone.priors)
    head.set_reference(task.data.generic)
    taught_head(head, z, task)
    count = len(task.taught)
    scores = head.scores(z[frames], count)
    familiar = head.familiarity(count)
    assert isinstance(familiar, LessonFamiliarity)
    told = familiar(z[frames].astype(np.float64), scores.argmax(1))
    return Scored(scores, told, familiar.correlation)


RULES: dict[str, Rule] = {"cosine": cosine, "lessons": by_lessons}


def auroc(known: Floats, unknown: Floats) -> float:
    """Return how often a known frame is more familiar than an unknown one; ties count half."""
    order = np.concatenate([known, unknown])
    _, inverse, counts = np.unique(order, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    count = len(known)
    return float((ranks[:count].sum() - count * (count + 1) / 2) / (count * len(unknown)))


def measure(rule: Rule, task: Task) -> tuple[float, float, float | None]:
    """Return the accuracy of frames, of averaged sessions, and the AUROC if there are strangers."""
    labels = np.concatenate([np.full(len(i), label) for label, i in task.tests])
    scored = rule(task, np.concatenate([i for _, i in task.tests]))
    known = np.isin(labels, task.taught)
    taught = np.asarray(task.taught)
    right = taught[scored.scores.argmax(1)] == labels
    clips, start = [], 0
    for label, i in task.tests:
        if label in task.taught:
            mean = scored.scores[start : start + len(i)].mean(0)
            clips += [taught[mean.argmax()] == label] * len(i)
        start += len(i)
    told = None
    if not known.all():
        told = 100 * auroc(scored.familiarity[known], scored.familiarity[~known])
    return 100 * float(right[known].mean()), 100 * float(np.mean(clips)), told


def all_tasks(args: argparse.Namespace) -> list[Task]:
    """Return the tasks of the data sets, over the features in the cache."""
    found: list[Task] = []
    network = build(args.backbone, args.weights, size=args.size)
    backbone = MiddleBackbone(network).eval()
    generic = generic_features(args, backbone)
    for name in args.sets:
        array, index = packed(args, name)
        data = Data(file_of(args, name), generic, backbone)
        if args.features:
            extract(array, backbone, step_of(args, name), data.file, args.device)
            continue
        facts = json.loads(index.read_text())
        if name == "core50":
            found += core50_tasks(data, facts, args.splits)
        elif name == "signs":
            found += sign_tasks(data, facts, args.splits, args.step)
        else:
            found += rendered_tasks(data, facts, args.splits)
    return found


def packed(args: argparse.Namespace, name: str) -> tuple[Path, Path]:
    if name == "rendered":
        return pack_rendered(args.size, 12, args.cache, args.device)
    tar = {"core50": "core50_frames.tar", "signs": "gtsrb_tracks.tar"}[name]
    return pack(args.data / tar, args.size, args.cache, 1)


@torch.no_grad()
def generic_features(args: argparse.Namespace, backbone: MiddleBackbone) -> Floats:
    """Return the features of the generic frames, as the strategy computes them."""
    frames = torch.from_numpy(generic_frames(args.size))
    parts = [backbone(chunk) for chunk in frames.split(16)]
    found: Floats = torch.cat(parts).numpy()
    return found


def step_of(args: argparse.Namespace, name: str) -> int:
    return int(args.step) if name == "signs" else 1


def file_of(args: argparse.Namespace, name: str) -> Path:
    folder = f"places_{name}_{args.size}_{step_of(args, name)}"
    if (args.backbone, args.weights) != DEFAULT:
        folder += f"_{network_name(args)}"
    file: Path = args.cache / folder / "middle.npy"
    return file


def network_name(args: argparse.Namespace) -> str:
    """Return a name for a network with its weights, which depends on the content of a file."""
    path = Path(args.weights)
    if not path.is_file():
        return f"{args.backbone}_{args.weights}"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{args.backbone}_{path.stem}_{digest[:8]}"


def add_network(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the network."""
    parser.add_argument("--backbone", default=DEFAULT[0])
    parser.add_argument("--weights", default=DEFAULT[1], help="their name or file")


def task_options(about: str | None, rules: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of the options that choose data sets, columns and rules."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("results/packed"))
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--rules", nargs="+", default=list(rules), choices=list(rules))
    parser.add_argument("--columns", nargs="+", help="only these")
    add_network(parser)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--step", type=int, default=4, help="every so many frames of the signs")
    parser.add_argument("--splits", type=int, default=3)
    return parser


def main() -> None:
    parser = task_options(__doc__, list(RULES))
    parser.add_argument("--features", action="store_true", help="compute the features and stop")
    parser.add_argument("--device", default="cpu", help="of the network and the renderer")
    parser.add_argument("--lines", type=Path, default=Path("results/first_lessons.jsonl"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = all_tasks(args)
    columns = args.columns or list(dict.fromkeys(task.column for task in tasks))
    for column in columns:
        for name in args.rules:
            began = time.perf_counter()
            found = [measure(RULES[name], task) for task in tasks if task.column == column]
            frames, clips, told = zip(*found, strict=True)
            line = f"{column} | {name} | {args.size} px | {statistics.mean(frames):.1f} "
            line += f"({statistics.mean(clips):.1f})"
            if told[0] is not None:
                line += f" | AUROC {statistics.mean(told):.1f}"
            print(f"{line} | {time.perf_counter() - began:.0f} s", flush=True)
            row = {"column": column, "rule": name, "size": args.size, "step": args.step}
            row |= {"backbone": args.backbone, "weights": args.weights}
            row |= {"frames": frames, "clips": clips, "auroc": told}
            args.lines.parent.mkdir(parents=True, exist_ok=True)
            with args.lines.open("a") as lines:
                lines.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
