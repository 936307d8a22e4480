"""ORBIT's Clutter Video Evaluation, to the letter: frame accuracy with its 95 % interval.

    python benchmarks/orbit.py orbit_benchmark_224 --strategies prima ranpac --device cuda
    python benchmarks/orbit.py orbit_benchmark_224 --past 30        # with the 29 frames before each

The data are those of github.com/microsoft/ORBIT-Dataset, as its script downloads them, with the
extra annotations in `annotations/`: `test/USER/OBJECT/{clean,clutter}/VIDEO/FRAME.jpg`, and
`annotations/test/VIDEO.json`. The protocol is that of its README (updated in December 2022):

- Each of the 17 test users has a learner of their own for all of their objects. The clean videos
  teach, each as one lesson of evenly spread frames; annotations of clean videos are not read.
- The clutter videos test. Frames with `object_not_present_issue` are left out, and then videos with
  fewer than 50 frames. 200 random frames of each video are asked; all, if there are fewer.
- There are 50 tasks per user. All clean videos teach in each, so only the random frames differ. The
  result is the mean over all tasks and videos, with 1.96 standard errors.
- A prediction may use the frames before it in the same video, whatever they show: with `--past N`
  the scores of a frame are means over it and up to N - 1 frames before it.

The published rows are those of that README, at 224 px.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from primavista.errors import FileError
from primavista.media.frames import LazyFrames
from primavista.media.images import read_image
from primavista.networks.base import Backbone, build
from primavista.strategies.base import Strategy
from primavista.strategies.creation import create
from primavista.strategies.registry import strategy_info

TASKS, ASKED, LEAST = 50, 200, 50
ABSENT = "object_not_present_issue"
PUBLISHED = (
    ("FineTuner, frozen EfficientNet-B0", "59.60 ± 0.57"),
    ("FineTuner with FiLM, EfficientNet-B0", "61.05 ± 0.57"),
    ("ProtoNets, EfficientNet-B0 trained on ORBIT", "67.91 ± 0.56"),
    ("FineTuner, frozen ViT-B-32-CLIP", "71.89 ± 0.56"),
    ("ProtoNets (cosine), ViT-B-32 trained on ORBIT", "75.38 ± 0.51"),
)


@dataclass(frozen=True)
class User:
    """A user with the videos of each object.

    Args:
        name: The folder of the user.
        objects: The names of the objects, sorted; a label is a position in it.
        clean: The label and the frames of each clean video.
        clutter: The same of each clutter video that is asked.
        present: Of each of these videos, the positions of the frames that show the object.
    """

    name: str
    objects: tuple[str, ...]
    clean: tuple[tuple[int, tuple[Path, ...]], ...]
    clutter: tuple[tuple[int, tuple[Path, ...]], ...]
    present: tuple[tuple[int, ...], ...]


def read_users(root: Path, split: str = "test") -> Iterator[User]:
    """Read the users of a split from the official layout; no picture is opened."""
    folder = root / split
    if not folder.is_dir():
        raise FileError(f"{folder} is missing: give the folder that has train, validation and test")
    for user in _folders(folder):
        names = _folders(user)
        videos: dict[str, list[tuple[int, tuple[Path, ...]]]] = {"clean": [], "clutter": []}
        for label, one in enumerate(names):
            for kind, found in videos.items():
                found += [(label, tuple(sorted(v.glob("*.jpg")))) for v in _folders(one / kind)]
        shown = [_present(root, split, frames) for _, frames in videos["clutter"]]
        kept = [k for k, positions in enumerate(shown) if len(positions) >= LEAST]
        yield User(
            user.name,
            tuple(n.name for n in names),
            tuple(videos["clean"]),
            tuple(videos["clutter"][k] for k in kept),
            tuple(shown[k] for k in kept),
        )


def _folders(place: Path) -> list[Path]:
    return sorted(p for p in place.iterdir() if p.is_dir()) if place.is_dir() else []


def _present(root: Path, split: str, frames: tuple[Path, ...]) -> tuple[int, ...]:
    """Return the positions of the frames in which the object is present."""
    if not frames:
        return ()
    path = root / "annotations" / split / f"{frames[0].parent.name}.json"
    try:
        notes = json.loads(path.read_text())
        return tuple(k for k, frame in enumerate(frames) if not notes[frame.name][ABSENT])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"{path} does not say which frames show the object ({error}): unpack "
            "orbit_extra_annotations.zip to annotations/ beside test/"
        ) from error


def opened(paths: tuple[Path, ...], size: int) -> LazyFrames:
    """Return the pictures as frames, which are decoded when they are asked for."""
    return LazyFrames(lambda i: read_image(paths[i], size), len(paths))


def evenly(frames: tuple[Path, ...], count: int) -> tuple[Path, ...]:
    """Return at most `count` frames, evenly spread."""
    if len(frames) <= count:
        return frames
    return tuple(frames[round(k)] for k in np.linspace(0, len(frames) - 1, count))


def taught(strategy: Strategy, user: User, frames: int) -> Strategy:
    """Teach the clean videos of a user, one lesson per video."""
    size = strategy.backbone.spec.size
    for number, (label, paths) in enumerate(user.clean):
        some = evenly(paths, frames)
        labels = torch.full((len(some),), label)
        strategy.learn(opened(some, size), labels, torch.full((len(some),), number))
    return strategy


def past_means(scores: np.ndarray[Any, Any], past: int) -> np.ndarray[Any, Any]:
    """Return the mean of each row and the up to `past` - 1 rows before it."""
    sums = np.concatenate([np.zeros((1, scores.shape[1])), scores.cumsum(0)])
    stops = np.arange(1, len(scores) + 1)
    starts = (stops - past).clip(0)
    means: np.ndarray[Any, Any] = (sums[stops] - sums[starts]) / (stops - starts)[:, None]
    return means


def video_accuracies(
    strategy: Strategy, user: User, past: int, draw: np.random.Generator, tasks: int = TASKS
) -> list[float]:
    """Return the frame accuracy of every task and clutter video of a user, in %."""
    right = []
    for (label, paths), present in zip(user.clutter, user.present, strict=True):
        scores = strategy.scores(opened(paths, strategy.backbone.spec.size)).double().cpu().numpy()
        best = strategy.classes.cpu().numpy()[past_means(scores, past).argmax(1)]
        right.append((best == label)[list(present)])
    return [
        100 * float(of_video[draw.permutation(len(of_video))[:ASKED]].mean())
        for _ in range(tasks)
        for of_video in right
    ]


def summary(accuracies: list[float]) -> str:
    """Return the mean and its 95 % interval as ORBIT computes it."""
    interval = 1.96 * float(np.std(accuracies)) / len(accuracies) ** 0.5
    return f"{np.mean(accuracies):.2f} ± {interval:.2f}"


def evaluate(
    name: str, users: list[User], backbone: Backbone, frames: int, past: int, tasks: int = TASKS
) -> list[float]:
    """Return the accuracies of a strategy over all users, each with a learner of their own."""
    draw, found = np.random.default_rng(1991), []
    for user in users:
        options: dict[str, Any] = (
            {"first_batch": False} if strategy_info(name).training_options else {}
        )
        strategy = taught(create(name, backbone, **options), user, frames)
        found += video_accuracies(strategy, user, past, draw, tasks)
        print(f"{name} {user.name}: {summary(found)} so far", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("root", type=Path, help="the folder that has test/ and annotations/")
    add("--strategies", nargs="+", default=["prima"])
    add("--backbone", default="mobilenet_v1")
    add("--weights", default="imagenet")
    add("--size", type=int, default=224)
    add("--frames", type=int, default=30, help="frames of each clean video")
    add("--past", type=int, default=1, help="frames that a prediction may use, itself included")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    users = list(read_users(args.root))
    backbone = build(args.backbone, args.weights, size=args.size).to(args.device)
    rows = []
    for name in args.strategies:
        accuracies = evaluate(name, users, backbone, args.frames, args.past)
        rows.append((f"{name}, {args.backbone}", summary(accuracies)))
    print(f"\n{len(users)} users, {args.size} px, past {args.past}\n")
    print("| method | frame accuracy, % |\n|---|---|")
    for method, accuracy in [*rows, *PUBLISHED]:
        print(f"| {method} | {accuracy} |")


if __name__ == "__main__":
    main()
