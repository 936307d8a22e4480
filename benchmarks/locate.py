"""Measure how well and how fast taught objects are located, and how often one is found in vain.

    python benchmarks/locate.py --time               # the table, over three seeds
    python benchmarks/locate.py --seeds 11           # one seed
    python benchmarks/locate.py --annotate FILE.jpg  # ten pictures with boxes
    python benchmarks/locate.py --core50 ../shared/data/core50_frames.tar --seeds 0 1 2

Ten objects are taught with two lessons each, held in the middle of the frames as usual. The test
pictures show one to four of them and up to two strangers, in rooms that were not used for teaching,
at sizes from a fifth of the height of the picture to the full height. There are two baselines: the
answer of `predict` with the whole picture as its box, and a sliding window of separate passes, 24
crops per picture.

Other pictures show no taught object: only a room, or a room with one or two strangers. A stranger
is another object of the category of a taught one. Everything that is found there is wrong.

With `--core50` the pictures are genuine frames of CORe50: of ten categories, three or five are
taught, each in places of its own. Frames of the other categories, alone and side by side, are
pictures without a taught object; frames of the taught ones in other places show how much is found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageDraw
from tableau import Shown, Tableau, tableau

from primavista import Learner
from primavista.learner.locating import Located
from primavista.media.boxes import Box, non_maximum_suppression
from primavista.streams.rendered.renderer import Scene, render

SIZES = ((0.2, 0.25), (0.25, 0.4), (0.4, 0.6), (0.6, 1.01))  # in heights of the picture
TILE = (400, 300)  # pixels of a picture on the sheet
AIM_FROM = 0.25  # the aims are for objects at least this large
LESSONS = (1, 2)
ROOMS = (7, 8, 9, 10, 11)
CATEGORIES = 10
OBJECT_NAMES = (
    "adapter",
    "phone",
    "scissors",
    "bulb",
    "can",
    "glasses",
    "ball",
    "marker",
    "cup",
    "remote",
)


@dataclass(frozen=True)
class Picture:
    """A test picture: the frame, the taught objects in it, and the strangers."""

    frame: np.ndarray
    taught: tuple[Shown, ...]
    strangers: tuple[Shown, ...]


@dataclass(frozen=True)
class Answer:
    """One box that a method found in one picture."""

    picture: int
    label: str
    box: Box
    rank: float


def average_precision(
    answers: Sequence[Answer], truths: Sequence[tuple[int, str, Box]], iou: float = 0.5
) -> float:
    """Compute the area under the precision-recall curve, with interpolated precision.

    Answers are taken in the order of their rank, over all labels. An answer is right if it overlaps
    by at least `iou` with an object of its label that no better answer has taken. Interpolated
    precision is the best at that recall or beyond.
    """
    taken: set[int] = set()
    right = []
    for answer in sorted(answers, key=lambda one: -one.rank):
        best, at = 0.0, -1
        for k, (picture, label, box) in enumerate(truths):
            if k not in taken and (picture, label) == (answer.picture, answer.label):
                overlap = box.iou(answer.box)
                if overlap > best:
                    best, at = overlap, k
        right.append(best >= iou)
        if best >= iou:
            taken.add(at)
    hits = np.cumsum(right)
    precision = hits / np.arange(1, len(right) + 1)
    best_beyond = np.maximum.accumulate(precision[::-1])[::-1] if len(right) else precision
    return float((best_beyond * right).sum() / len(truths)) if truths else float("nan")


def pointing(answers: Sequence[Answer], picture: int, label: str, box: Box) -> bool:
    """Return True if an object's box contains the centre of the best box of its label."""
    own = [one for one in answers if (one.picture, one.label) == (picture, label)]
    if not own:
        return False
    best = max(own, key=lambda one: one.rank).box
    x, y = (best.left + best.right) / 2, (best.top + best.bottom) / 2
    return box.left <= x <= box.right and box.top <= y <= box.bottom


def size_of(box: Box, height: int) -> float:
    """Return the longer side of a box, in heights of the picture."""
    return max(box.width, box.height) / height


def in_range(box: Box, height: int, sizes: tuple[float, float]) -> bool:
    """Return True if the size of a box lies in a range."""
    return sizes[0] <= size_of(box, height) < sizes[1]


def score(
    pictures: Sequence[Picture], answers: Sequence[Answer], sizes: tuple[float, float]
) -> dict[str, float]:
    """Compute the pointing accuracy and AP50 of a method for objects in a range of sizes.

    As usual, two kinds of answers do not count: right answers for an object of another size, and
    wrong answers that are themselves of another size.
    """
    height = pictures[0].frame.shape[0]
    truths = [
        (k, str(one.object), one.box)
        for k, picture in enumerate(pictures)
        for one in picture.taught
    ]
    wanted = [one for one in truths if in_range(one[2], height, sizes)]
    others = [one for one in truths if not in_range(one[2], height, sizes)]

    def counts(answer: Answer) -> bool:
        def meant(truth: tuple[int, str, Box]) -> bool:
            same = (answer.picture, answer.label) == truth[:2]
            return same and answer.box.iou(truth[2]) >= 0.5

        if any(meant(truth) for truth in wanted):
            return True
        return in_range(answer.box, height, sizes) and not any(meant(truth) for truth in others)

    own = [answer for answer in answers if counts(answer)]
    pointed = [pointing(answers, *truth) for truth in wanted]
    return {
        "objects": len(wanted),
        "pointing": 100 * float(np.mean(pointed)) if pointed else float("nan"),
        "AP50": 100 * average_precision(own, wanted),
    }


def scene_of(seed: int) -> Scene:
    """Return the objects: the first of each category is taught, the second is a stranger."""
    return Scene(categories=CATEGORIES, objects=2, sessions=11, frames=40, size=192, seed=seed)


def teach(seed: int, strategy: str, engine: Literal["torch", "onnx", "auto"]) -> Learner:
    """Teach one object of each category with two lessons of 20 frames, in two rooms."""
    learner, scene = Learner(strategy, device="cpu", engine=engine), scene_of(seed)
    for object in range(1, 2 * CATEGORIES, 2):
        for session in LESSONS:
            frames = render(scene, object, session, range(0, scene.frames, 2))
            learner.learn(frames.numpy(), str(object), coach=False)
    return learner


def test_pictures(seed: int, count: int) -> list[Picture]:
    """Draw the test pictures: one to four taught objects, and up to two strangers."""
    found = []
    for number in range(count):
        drawn = torch.Generator().manual_seed(1000 + number)
        some = int(torch.randint(0, 3, (1,), generator=drawn))
        taught = torch.randperm(CATEGORIES, generator=drawn)[: 1 + number % 4] * 2 + 1
        strangers = torch.randperm(CATEGORIES, generator=drawn)[:some] * 2 + 2
        objects = [*taught.tolist(), *strangers.tolist()]
        drawing = tableau(scene_of(seed), objects, ROOMS[number % len(ROOMS)], number)
        found.append(_picture(drawing))
        if (number + 1) % 10 == 0:
            print(f"drew {number + 1} of {count} pictures", flush=True)
    return found


def pictures_without(seed: int, count: int, strangers: bool) -> list[Picture]:
    """Draw pictures without a taught object: only a room, or a room with one or two strangers."""
    found = []
    for number in range(count):
        drawn = torch.Generator().manual_seed(5000 + number)
        shown = torch.randperm(CATEGORIES, generator=drawn)[: 1 + number % 2] * 2 + 2
        objects = shown.tolist() if strangers else []
        room, first = ROOMS[number % len(ROOMS)], 1500 if strangers else 1000
        found.append(_picture(tableau(scene_of(seed), objects, room, first + number)))
    return found


def _picture(drawing: Tableau) -> Picture:
    taught = tuple(one for one in drawing.shown if one.object % 2)
    return Picture(
        drawing.frame.numpy(), taught, tuple(one for one in drawing.shown if one not in taught)
    )


Method = Callable[[Learner, np.ndarray], list[Located]]


def located(learner: Learner, frame: np.ndarray) -> list[Located]:
    """Call `learner.locate` without a threshold, since average precision ranks the boxes."""
    return learner.locate(frame, threshold=0)


def whole_frame(learner: Learner, frame: np.ndarray) -> list[Located]:
    """Return the answer of `predict` for the centre square, with the whole picture as its box."""
    said = learner.predict(frame)
    height, width = frame.shape[:2]
    box = Box(0, 0, width, height)
    return [Located(str(said.label), box, said.confidence, said.familiarity)]


def sliding_window(learner: Learner, frame: np.ndarray) -> list[Located]:
    """Predict 24 squares of three sizes separately; boxes are the middle 60 % of the squares."""
    height, width = frame.shape[:2]
    crops, boxes = [], []
    for share, rows, columns in ((0.5, 3, 5), (0.75, 2, 3), (1.0, 1, 3)):
        side = round(share * height)
        for top in np.linspace(0, height - side, rows).round().astype(int):
            for left in np.linspace(0, width - side, columns).round().astype(int):
                crops.append(frame[top : top + side, left : left + side])
                edge = 0.2 * side
                boxes.append(Box(left + edge, top + edge, left + side - edge, top + side - edge))
    said = learner.predict(crops)
    ranks = [one.confidence * (one.familiarity or 0) for one in said]
    kept = [k for k in range(len(said)) if (said[k].familiarity or 0) >= 0.5]
    best = non_maximum_suppression([boxes[k] for k in kept], [ranks[k] for k in kept], 0.3)
    chosen = [kept[i] for i in best]
    return [
        Located(str(said[k].label), boxes[k], said[k].confidence, said[k].familiarity)
        for k in chosen
    ]


METHODS: dict[str, Method] = {
    "locate": located,
    "whole frame": whole_frame,
    "sliding window": sliding_window,
}


def rank(one: Located) -> float:
    """Return the number by which boxes are ranked."""
    return one.confidence * (1.0 if one.familiarity is None else one.familiarity)


def milliseconds(function: Callable[[], object], repeat: int = 15) -> float:
    """Measure the median wall time of a call, after one call to warm up."""
    function()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - began))
    return float(np.median(times))


def measure(seed: int, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Teach and draw the objects of a seed, search the pictures, and return the figures."""
    learner = teach(seed, arguments.strategy, arguments.engine)
    pictures = test_pictures(seed, arguments.pictures)
    rows: dict[str, dict[str, float]] = {}
    ranges = {"all": (0.0, 9.0), "from 0.25": (AIM_FROM, 9.0)}
    ranges |= {f"{low:g} to {min(high, 1):g}": (low, high) for low, high in SIZES}
    for name, method in METHODS.items():
        answers = [
            Answer(k, one.label, one.box, rank(one))
            for k, picture in enumerate(pictures)
            for one in method(learner, picture.frame)
        ]
        for text, sizes in ranges.items():
            rows[f"{name}, {text}"] = score(pictures, answers, sizes)
    rows["at the threshold"] = at_threshold(learner, pictures)
    for name, strangers in (("empty rooms", False), ("only strangers", True)):
        others = pictures_without(seed, arguments.without, strangers)
        rows[name] = found_in(learner, [picture.frame for picture in others])
    if arguments.time:
        rows["ms per frame"] = times(learner, pictures)
    for name, row in rows.items():
        print(f"seed {seed}: {name:28} {json.dumps(row)}", flush=True)
    return rows


def times(learner: Learner, pictures: Sequence[Picture]) -> dict[str, float]:
    """Measure the milliseconds per frame of each method, and the load of the machine."""
    frames = [picture.frame for picture in pictures[:5]]
    return {
        "predict": milliseconds(lambda: learner.predict(frames[0])),
        "locate": float(np.mean([milliseconds(partial(learner.locate, f)) for f in frames])),
        "sliding window": milliseconds(lambda: sliding_window(learner, frames[0]), 3),
        "load of the machine": os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan"),
    }


def summary(runs: Sequence[dict[str, dict[str, float]]]) -> list[str]:
    """Return one line per method and range of sizes: the mean, least and most over seeds."""
    lines = []
    for name in runs[0]:
        parts = []
        for key in runs[0][name]:
            values = [run[name][key] for run in runs]
            text = f"{key} {np.mean(values):.1f}"
            if len(values) > 1:
                text += f" ({min(values):.1f} to {max(values):.1f})"
            parts.append(text)
        lines.append(f"{name:28} {', '.join(parts)}")
    return lines


def at_threshold(learner: Learner, pictures: Sequence[Picture]) -> dict[str, float]:
    """Count the boxes at the learner's own threshold, which a user sees, by kind of error."""
    kinds = {"right": 0, "right name, box too loose": 0, "stranger": 0, "elsewhere": 0}
    objects = sum(len(picture.taught) for picture in pictures)
    for picture in pictures:
        for one in learner.locate(picture.frame):
            same = [t.box.iou(one.box) for t in picture.taught if str(t.object) == one.label]
            strange = [t.box.iou(one.box) for t in picture.strangers]
            if max(same, default=0) >= 0.5:
                kinds["right"] += 1
            elif max(same, default=0) >= 0.1:
                kinds["right name, box too loose"] += 1
            elif max(strange, default=0) >= 0.1:
                kinds["stranger"] += 1
            else:
                kinds["elsewhere"] += 1
    return {"objects": objects, "boxes": sum(kinds.values()), **kinds}


def found_in(learner: Learner, frames: Sequence[np.ndarray]) -> dict[str, float]:
    """Return how many pictures have a box at the learner's own threshold, and count the boxes."""
    boxes = [len(learner.locate(frame)) for frame in frames]
    return {
        "pictures": len(boxes),
        "with a box, %": 100 * float(np.mean([count > 0 for count in boxes])),
        "boxes per 100 pictures": 100 * float(np.mean(boxes)),
    }


Sessions = dict[tuple[str, int], list[np.ndarray]]


def core50_sessions(archive: Path) -> Sessions:
    """Read the frames of CORe50 by category and session."""
    found: Sessions = {}
    with tarfile.open(archive) as tar:
        for name in sorted(name for name in tar.getnames() if name.endswith(".jpg")):
            category, session, _ = name.split("/")
            stored = tar.extractfile(name)
            assert stored is not None
            frame = np.array(Image.open(stored).convert("RGB"))
            found.setdefault((category, int(session[1:])), []).append(frame)
    return found


def film(stills: Sequence[np.ndarray], draw: random.Random) -> np.ndarray:
    """Make a lesson of 15 frames from stills, by turns: moved, zoomed and lit anew."""
    frames = []
    for k in range(15):
        still = stills[k % len(stills)]
        side = draw.randint(108, 128)
        left, top = (draw.randint(0, 128 - side) for _ in range(2))
        part = Image.fromarray(still).crop((left, top, left + side, top + side))
        pixels = np.asarray(part.resize((192, 192), Image.Resampling.BICUBIC), np.float64)
        frames.append((pixels * draw.uniform(0.85, 1.15)).clip(0, 255).astype(np.uint8))
    return np.stack(frames)


def measure_core50(sessions: Sessions, seed: int, blank: Learner) -> dict[str, dict[str, float]]:
    """Teach some categories of CORe50, and count what is found in frames of all of them."""
    rows: dict[str, dict[str, float]] = {}
    for count, lessons in ((3, 1), (5, 1), (5, 3)):
        draw = random.Random(f"{seed}/{count}/{lessons}")
        learner, used = blank.untaught(), set()
        taught = draw.sample(sorted({category for category, _ in sessions}), count)
        places = draw.sample(range(1, 12), 11)
        for i, category in enumerate(taught):
            own = [place for place in places if (category, place) in sessions]
            for place in (own[i:] + own[:i])[:lessons]:
                learner.learn(film(sessions[category, place], draw), category, coach=False)
                used.add(place)
        others = [draw.choice(stills) for (c, _), stills in sessions.items() if c not in taught]
        draw.shuffle(others)
        pairs = [
            np.concatenate(two, axis=1) for two in zip(others[::2], others[1::2], strict=False)
        ]
        known = [(c, k) for c, k in sessions if c in taught and k not in used]
        name = f"{count} categories, lessons each: {lessons}"
        rows[f"{name}, strangers"] = found_in(learner, others)
        rows[f"{name}, two strangers"] = found_in(learner, pairs)
        rows[f"{name}, taught"] = found_in(learner, [draw.choice(sessions[key]) for key in known])
    for name, row in rows.items():
        print(f"seed {seed}: {name:28} {json.dumps(row)}", flush=True)
    return rows


def annotate(seed: int, arguments: argparse.Namespace) -> None:
    """Write a sheet of ten test pictures with the found boxes and, in white, the true ones."""
    from primavista.cli.annotate import draw_boxes

    learner = teach(seed, arguments.strategy, arguments.engine)
    names = {str(k): name for k, name in zip(range(1, 21, 2), OBJECT_NAMES, strict=True)}
    width, height = TILE
    sheet = Image.new("RGB", (2 * width, 5 * height))
    for number, picture in enumerate(test_pictures(seed, 10)):
        canvas = Image.fromarray(picture.frame)
        pen = ImageDraw.Draw(canvas)
        for one in picture.taught:
            box = one.box
            pen.rectangle((box.left, box.top, box.right, box.bottom), outline="white", width=1)
        found = [
            Located(names[one.label], one.box, one.confidence, one.familiarity)
            for one in learner.locate(picture.frame)
        ]
        drawn = draw_boxes(canvas, found, list(names.values())).resize(TILE)
        row, column = divmod(number, 2)
        sheet.paste(drawn, (column * width, row * height))
    sheet.save(arguments.annotate, quality=80)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pictures", type=int, default=40, help="of each seed")
    parser.add_argument(
        "--without", type=int, default=20, help="pictures without a taught object, of each kind"
    )
    parser.add_argument("--core50", type=Path, help="the archive with frames of CORe50")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--strategy", default="prima")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--time", action="store_true", help="measure milliseconds too")
    parser.add_argument("--annotate", type=Path, help="a JPEG with ten pictures instead")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.annotate is not None:
        annotate(arguments.seeds[0], arguments)
        return
    if arguments.core50 is not None:
        sessions = core50_sessions(arguments.core50)
        blank = Learner(arguments.strategy, device="cpu", engine=arguments.engine)
        runs = [measure_core50(sessions, seed, blank) for seed in arguments.seeds]
    else:
        runs = [measure(seed, arguments) for seed in arguments.seeds]
    print("\n".join(summary(runs)))
    if arguments.out is not None:
        figures = dict(zip(map(str, arguments.seeds), runs, strict=True))
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
