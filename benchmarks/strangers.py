"""Measure how often strangers are taken for a taught object, and how many known frames are kept.

    python benchmarks/first_lessons.py --features --sets core50 signs rendered   # once
    python benchmarks/strangers.py --size 128 --picture strangers.png
    python benchmarks/strangers.py --size 224 --backbone efficientnet_lite0 --sets core50 stay

K classes are taught with V lessons each; the test sessions show these and all other classes. The
table gives the AUROC of familiarity; the strangers taken and the known frames kept at the
threshold, as mean and standard deviation over the draws; the known frames that could be kept at the
threshold that takes one stranger in eight in the draw, which only an oracle knows; the strangers
taken and the known kept of whole sessions, fused as a video; and the confidence when right, when
wrong and for strangers, with its expected calibration error. `--picture` draws the share of
strangers that each threshold promises against the share that it takes. The cases are:

- `core50 KxV`: categories, each in sessions of its own, three test sessions drawn at random;
  `own place`: each in one session, tested where nothing was taught
- `signs KxV`, `rendered KxV`
- `core50 room K`, `rendered room K`: K classes taught in one session, the same for all, and seen in
  all other sessions; the strangers are seen there, or (`here`) in the session of the lessons
- `stay K`: a fixed camera: K of the objects of one session are taught, the others are
  strangers; the lessons and tests are crops of one still per object, moved, zoomed and lit anew
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from first_lessons import (
    Data,
    Floats,
    Task,
    add_network,
    auroc,
    by_lessons,
    core50_tasks,
    file_of,
    generic_features,
    network_name,
    packed,
    rendered_tasks,
    sign_tasks,
    step_of,
)
from torch.nn import functional

from primavista.heads.open_set import LESSON_THRESHOLD
from primavista.learner.watch import fused_rank
from primavista.networks.base import build
from primavista.networks.places import MiddleBackbone

LESSONS = (1, 2, 3)
SOURCES = {"own place": "core50 own place"}  # columns that do not begin with their data
SESSIONS = range(1, 12)
STAYS = (1, 2, 4, 5, 6, 8, 9, 11)  # the sessions of the fixed camera
PROMISED = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
COLOURS = {"core50": "#0072b2", "signs": "#d55e00", "rendered": "#009e73", "stay": "#cc79a7"}
SHARE = 1 / 8  # share of strangers taken at the oracle's threshold
COPIES = 12  # crops of each still; the first half is taught


def few(column: str, data: Data, task: Task, counts: tuple[int, ...], draws: int) -> Iterator[Task]:
    """Draw classes and lessons from a task in which all classes are taught, with its tests."""
    draw = random.Random(f"strangers/{column}")
    own: dict[int, list[Floats]] = {}
    for label, frames in task.lessons:
        own.setdefault(label, []).append(frames)
    for count in counts:
        for each in LESSONS:
            for _ in range(draws):
                labels = draw.sample(sorted(own), count)
                lessons = [(c, i) for c in labels for i in draw.sample(own[c], each)]
                yield Task(f"{column} {count}x{each}", data, lessons, task.tests)


def one_room(
    column: str, data: Data, frames: dict[tuple[int, int], Floats], draws: int
) -> Iterator[Task]:
    """Draw classes to teach in one session, from the frames by class and session."""
    draw = random.Random(f"room/{column}")
    labels, sessions = (sorted(set(numbers)) for numbers in zip(*frames, strict=True))
    for count in (3, 5):
        for _ in range(draws):
            room = draw.choice(sessions)
            taught = draw.sample([c for c in labels if (c, room) in frames], count)
            known = [(c, i) for (c, k), i in frames.items() if c in taught and k != room]
            others = [(c, k, i) for (c, k), i in frames.items() if c not in taught]
            lessons = [(c, frames[c, room]) for c in taught]
            elsewhere = [(c, i) for c, k, i in others if k != room]
            here = [(c, i) for c, k, i in others if k == room]
            yield Task(f"{column} room {count}", data, lessons, known + elsewhere)
            yield Task(f"{column} room {count}, here", data, lessons, known + here)


def core50(data: Data, facts: list[Any], splits: int) -> Iterator[Task]:
    names = sorted({name.partition("/")[0] for name, _, _ in facts})
    frames = {
        (names.index(n.partition("/")[0]), int(n.rpartition("/s")[2])): np.arange(a, b)
        for n, a, b in facts
    }
    wanted = ("core50 5x1", "own place", "core50 5x3")
    yield from (t for t in core50_tasks(data, facts, splits) if t.column in wanted)
    draw = random.Random("strangers/core50")
    for count in (2, 8):
        for each in LESSONS:
            for _ in range(2 * splits):
                held, labels = draw.sample(SESSIONS, 3), draw.sample(range(len(names)), count)
                lessons = []
                for c in labels:
                    own = [k for k in SESSIONS if k not in held and (c, k) in frames]
                    lessons += [(c, frames[c, k]) for k in draw.sample(own, each)]
                tests = [(c, frames[c, k]) for (c, k) in sorted(frames) if k in held]
                yield Task(f"core50 {count}x{each}", data, lessons, tests)
    yield from one_room("core50", data, frames, 2 * splits)


def tasks(name: str, data: Data, facts: Any, args: argparse.Namespace) -> Iterator[Task]:
    if name == "core50":
        yield from core50(data, facts, args.splits)
    elif name == "signs":
        whole = [t for t in sign_tasks(data, facts, 1, args.step) if t.column == "43xall"]
        yield from few(name, data, whole[0], (2, 5, 10, 30), 2 * args.splits)
    else:
        whole = [t for t in rendered_tasks(data, facts, 1) if t.column == "50xall"]
        yield from few(name, data, whole[0], (2, 5, 10, 40), args.splits)
        every = [fact for part in ("train", "test") for fact in facts[part]]
        frames = {(label, k): np.arange(start, stop) for label, k, start, stop in every}
        yield from one_room(name, data, frames, 2 * args.splits)


def still_copies(array: Path, index: Path) -> tuple[torch.Tensor, list[Any]]:
    """Return crops of one still per object and session, and (category, session, start) of each."""
    stills, draw = torch.from_numpy(np.load(array)), random.Random("stay")
    first: dict[tuple[str, int], int] = {}
    for name, start, _ in json.loads(index.read_text()):
        category, _, number = name.partition("/s")
        first[category, int(number)] = start
    copies: list[torch.Tensor] = []
    facts: list[Any] = []
    for session in STAYS:
        for category in sorted({c for c, _ in first}):
            if (category, session) not in first:
                continue
            facts.append((category, session, len(copies)))
            still = stills[first[category, session]].permute(2, 0, 1)[None].float()
            for _ in range(COPIES):
                zoom, gain = draw.uniform(0.85, 1.0), draw.uniform(0.85, 1.15)
                x, y = (draw.uniform(zoom - 1, 1 - zoom) for _ in range(2))
                grid = functional.affine_grid(
                    torch.tensor([[[zoom, 0, x], [0, zoom, y]]]),
                    list(still.shape),
                    align_corners=False,
                )
                made = functional.grid_sample(
                    still, grid, align_corners=False, padding_mode="border"
                )
                copies.append((made[0] * gain).round().clamp(0, 255).permute(1, 2, 0).byte())
    return torch.stack(copies), facts


@torch.no_grad()
def stay_tasks(args: argparse.Namespace, data: Data) -> Iterator[Task]:
    copies, facts = still_copies(*packed(args, "core50"))
    file = args.cache / f"stay_{network_name(args)}_{args.size}.npy"
    if not file.exists():
        np.save(file, torch.cat([data.backbone(c).half() for c in copies.split(64)]).numpy())
    data = replace(data, file=file)
    names, half = sorted({c for c, _, _ in facts}), COPIES // 2
    draw = random.Random("stay/draws")
    for count in (2, 5, 8):
        for session in STAYS:
            here = [(names.index(c), start) for c, s, start in facts if s == session]
            for _ in range(2):
                labels = draw.sample([c for c, _ in here], count)
                lessons = [(c, np.arange(a, a + half)) for c, a in here if c in labels]
                tests = [(c, np.arange(a + half, a + COPIES)) for c, a in here]
                yield Task(f"stay {count}", data, lessons, tests)


@torch.no_grad()
def data_of(args: argparse.Namespace, name: str, generic: Floats, backbone: MiddleBackbone) -> Data:
    """Return the features of a data set, and compute those that are not in the cache."""
    file = file_of(args, name)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        frames = torch.from_numpy(np.load(packed(args, name)[0])[:: step_of(args, name)])
        np.save(file, torch.cat([backbone(c).half() for c in frames.split(64)]).numpy())
    return Data(file, generic, backbone)


def calibration_error(confidence: Floats, right: Floats, bins: int = 15) -> float:
    """Compute the mean of |accuracy - confidence| over bins of equal width."""
    which = (confidence * bins).astype(int).clip(max=bins - 1)
    gaps = [
        abs(float(right[which == k].mean() - confidence[which == k].mean())) * (which == k).sum()
        for k in np.unique(which)
    ]
    return float(sum(gaps)) / len(confidence)


def measure(task: Task, threshold: float) -> dict[str, Any]:
    labels = np.concatenate([np.full(len(i), label) for label, i in task.tests])
    told = by_lessons(task, np.concatenate([i for _, i in task.tests]))
    known = np.isin(labels, task.taught)
    ends = np.cumsum([len(i) for _, i in task.tests])[:-1]
    videos = np.asarray(
        [fused_rank(ranks.tolist(), told.correlation) for ranks in np.split(told.familiarity, ends)]
    )
    shown = np.isin([label for label, _ in task.tests], task.taught)
    p = np.exp(told.scores - told.scores.max(1, keepdims=True))
    confidence = (p / p.sum(1, keepdims=True)).max(1)
    familiarity = told.familiarity
    best = np.quantile(familiarity[~known], 1 - SHARE)
    return {
        "auroc": 100 * auroc(familiarity[known], familiarity[~known]),
        "taken": 100 * float((familiarity[~known] >= threshold).mean()),
        "kept": 100 * float((familiarity[known] >= threshold).mean()),
        "could": 100 * float((familiarity[known] > best).mean()),
        "videos taken": 100 * float((videos[~shown] >= threshold).mean()),
        "videos kept": 100 * float((videos[shown] >= threshold).mean()),
        "frames": [float((familiarity[~known] >= 1 - share).mean()) for share in PROMISED],
        "videos": [float((videos[~shown] >= 1 - share).mean()) for share in PROMISED],
        "right": np.asarray(task.taught)[told.scores.argmax(1)][known] == labels[known],
        "confidence": confidence[known],
        "strange": confidence[~known],
    }


def line(column: str, rows: list[dict[str, Any]]) -> str:
    cells = [f"{statistics.mean(row['auroc'] for row in rows):.1f}"]
    for name in ("taken", "kept"):
        values = [row[name] for row in rows]
        cells.append(f"{statistics.mean(values):.0f} ± {statistics.pstdev(values):.0f}")
    for name in ("could", "videos taken", "videos kept"):
        cells.append(f"{statistics.mean(row[name] for row in rows):.0f}")
    right, confidence, strange = (
        np.concatenate([row[name] for row in rows]) for name in ("right", "confidence", "strange")
    )
    for some in (confidence[right], confidence[~right], strange):
        cells.append(f"{some.mean():.2f}" if len(some) else "–")
    cells.append(f"{100 * calibration_error(confidence, right):.1f}")
    return f"| {column} | {' | '.join(cells)} |"


def draw_promises(columns: dict[str, list[dict[str, Any]]], file: Path) -> None:
    """Draw the strangers that thresholds take against those that they promise, per column."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    for part, what in zip(figure.subplots(1, 2, sharey=True), ("frames", "videos"), strict=True):
        promised = 100 * np.asarray(PROMISED)
        lines = {
            name: 100 * np.mean([row[what] for row in rows], axis=0)
            for name, rows in columns.items()
        }
        for name, taken in lines.items():
            source = next(key for key in COLOURS if name.startswith(key))
            part.plot(promised, taken, color=COLOURS[source], lw=0.8, alpha=0.6)
        for source, colour in COLOURS.items():
            some = [taken for name, taken in lines.items() if name.startswith(source)]
            if some:
                part.plot(promised, np.mean(some, axis=0), color=colour, lw=2.5, label=source)
        part.plot(promised, promised, color="black", ls="--", lw=1, label="as promised")
        part.axvline(10, color="grey", lw=0.8)
        part.set_title(f"single {what}" if what == "frames" else "whole videos")
        part.set_xlabel("promised: 1 - threshold, %")
        part.set_xlim(0, 50)
        part.set_ylim(0, 80)
        part.grid(alpha=0.3)
    figure.axes[0].set_ylabel("strangers that are called known, %")
    figure.axes[0].legend(frameon=False)
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("results/packed"))
    sets = ("core50", "signs", "rendered", "stay")
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    add_network(parser)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--step", type=int, default=4, help="every so many frames of the signs")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--threshold", type=float, default=LESSON_THRESHOLD)
    parser.add_argument("--picture", type=Path, help="draw the promised and the measured shares")
    parser.set_defaults(device="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    backbone = MiddleBackbone(build(args.backbone, args.weights, size=args.size)).eval()
    generic = generic_features(args, backbone)
    print(
        "| | AUROC | taken | kept | could | videos taken | kept "
        "| sure if right | if wrong | strangers | ECE |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    columns: dict[str, list[dict[str, Any]]] = {}
    for name in args.sets:
        source = "core50" if name == "stay" else name
        data = data_of(args, source, generic, backbone)
        if name == "stay":
            found = list(stay_tasks(args, data))
        else:
            found = list(tasks(name, data, json.loads(packed(args, name)[1].read_text()), args))
        for column in dict.fromkeys(task.column for task in found):
            rows = [measure(task, args.threshold) for task in found if task.column == column]
            columns[SOURCES.get(column, column)] = rows
            print(line(column, rows), flush=True)
    for name in ("taken", "kept", "could", "videos taken", "videos kept"):
        means = [statistics.mean(row[name] for row in rows) for rows in columns.values()]
        print(f"all columns, {name}: {statistics.mean(means):.1f} ± {statistics.pstdev(means):.1f}")
    if args.picture:
        draw_promises(columns, args.picture)


if __name__ == "__main__":
    main()
