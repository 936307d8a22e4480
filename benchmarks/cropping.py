"""Measure the benefit of a box in a lesson: recognition elsewhere, with and without a box.

    python benchmarks/cropping.py                # the table over three seeds
    python benchmarks/cropping.py --seeds 3      # one seed

Ten rendered objects are taught with one lesson each, in which a hand moves the object through the
picture of a camera that stands still. The learner learns the middle of every frame, a square around
what moves, or a square around the true box. For comparison the same objects are also taught as
usual, held in the middle. The test frames show a person who holds the object in the middle, in five
rooms that were not used for teaching.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tableau import Tableau, wandering_lesson

from primavista import Learner
from primavista.learner.boxed import moving_boxes
from primavista.streams.rendered.renderer import Scene, render

OBJECTS = range(1, 11)
LESSON = 1  # the session that is taught
ROOMS = (7, 8, 9, 10, 11)
FRAMES = 20
TEST_FRAMES = range(0, 40, 5)


def scene_of(seed: int) -> Scene:
    """Return a scene of ten objects, one per category."""
    return Scene(categories=10, objects=1, sessions=11, frames=40, size=192, seed=seed)


def whole(learner: Learner, film: list[Tableau], label: str) -> None:
    """Learn the middle of whole pictures."""
    learner.learn(np.stack([one.frame.numpy() for one in film]), label, coach=False)


def moving(learner: Learner, film: list[Tableau], label: str) -> None:
    """Learn squares around what moves."""
    frames = np.stack([one.frame.numpy() for one in film])
    learner.learn(frames, label, box="motion", coach=False)


def true_box(learner: Learner, film: list[Tableau], label: str) -> None:
    """Learn squares around the true boxes."""
    seen = [one for one in film if one.shown]
    frames = np.stack([one.frame.numpy() for one in seen])
    learner.learn(frames, label, box=[one.shown[0].box for one in seen], coach=False)


WAYS: dict[str, Callable[[Learner, list[Tableau], str], None]] = {
    "whole picture": whole,
    "what moves": moving,
    "true box": true_box,
}


def accuracies(seed: int, strategy: str) -> dict[str, float]:
    """Teach the objects of a scene in every way; return the share of test frames that are right."""
    scene = scene_of(seed)
    learners = {way: Learner(strategy, device="cpu") for way in (*WAYS, "held in the middle")}
    overlaps = []
    for object in OBJECTS:
        film = wandering_lesson(scene, object, LESSON, FRAMES)
        for way, learn in WAYS.items():
            learn(learners[way], film, str(object))
        overlaps += motion_overlaps(film)
        held = render(scene, object, LESSON, range(0, scene.frames, scene.frames // FRAMES))
        learners["held in the middle"].learn(held.numpy(), str(object), coach=False)
    right: dict[str, list[bool]] = {way: [] for way in learners}
    for object in OBJECTS:
        for room in ROOMS:
            frames = render(scene, object, room, TEST_FRAMES).numpy()
            for way, learner in learners.items():
                right[way] += [one.label == str(object) for one in learner.predict(frames)]
    found = {way: 100 * float(np.mean(told)) for way, told in right.items()}
    return found | {"overlap of what moves with the true box": 100 * float(np.mean(overlaps))}


def motion_overlaps(film: list[Tableau]) -> list[float]:
    """Return the intersection over union of the motion and the true box, for every frame."""
    boxes = moving_boxes([one.frame.numpy() for one in film])
    pairs = zip(film, boxes, strict=True)
    return [one.shown[0].box.iou(box) for one, box in pairs if one.shown]


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--strategy", default="prima")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for seed in arguments.seeds:
        began = time.perf_counter()
        rows.append(accuracies(seed, arguments.strategy))
        took = time.perf_counter() - began
        print(f"seed {seed}, {took:.0f} s: {json.dumps(rows[-1])}", flush=True)
    for name in rows[0]:
        values = [row[name] for row in rows]
        print(f"{name:42} {np.mean(values):5.1f}  ({min(values):.1f} to {max(values):.1f})")
    if arguments.out is not None:
        figures = dict(zip(map(str, arguments.seeds), rows, strict=True))
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
