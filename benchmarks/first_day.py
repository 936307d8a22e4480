"""Measure a person's first day: five objects taught in one place each, then carried elsewhere.

    python benchmarks/first_day.py                  # the table, over 12 draws
    python benchmarks/first_day.py --size 128 --seed other

The frames are genuine CORe50 frames, single stills. A lesson is a film of a still: the still as a
hand-held camera sees it, turned, zoomed, shifted and lit anew. Everything goes through `Learner`
with its defaults. *Said* is known or likely.

- same object: five objects of different categories, whose official numbers are known, each taught
  in one session and asked in its other sessions; the strangers are objects of other categories
- category, V lessons: five of the ten categories, each taught in V sessions, asked in five other
  sessions about every exemplar. A video is all stills of one category in one session.

The last two columns are the share of frames and of videos that are right and known at the threshold
that takes one stranger in ten in the draw, which only an oracle knows.
"""

from __future__ import annotations

import argparse
import io
import math
import random
import statistics
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from primavista import Learner
from primavista.learner.prediction import Prediction
from primavista.learner.watch import fuse
from primavista.media.images import centre_square

FILM = 20  # frames of the lesson of one still
VIEWS = 15  # frames of the lesson of one session of a category
TAUGHT = 5  # objects
HELD = 5  # sessions in which no category is taught
STRANGERS = 0.1  # the share that `known` promises
SESSIONS = range(1, 12)

Frames = np.ndarray[tuple[int, int, int, int], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Still:
    """A CORe50 frame with its category, its session and, if it is known, its object."""

    category: str
    session: int
    object: int | None
    picture: Image.Image


@dataclass(frozen=True)
class Asked:
    """The answers to the stills of a video, and what it shows; None for a stranger."""

    truth: str | None
    frames: list[Prediction]
    video: Prediction


def read_stills(tar: Path) -> list[Still]:
    """Read the frames: CATEGORY/sNN/C_SESSION_OBJECT_FRAME.jpg, or mosaic_*.jpg without object."""
    found = []
    with tarfile.open(tar) as archive:
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            data = archive.extractfile(member) if member.name.endswith(".jpg") else None
            if data is not None:
                category, session, name = Path(member.name).parts[-3:]
                number = int(name.split("_")[2]) if name.startswith("C_") else None
                picture = Image.open(io.BytesIO(data.read())).convert("RGB")
                found.append(Still(category, int(session[1:]), number, picture))
    return found


def film(still: Still, frames: int, size: int, draw: random.Random) -> Frames:
    """Draw a still as a hand-held camera sees it, at most 6 degrees and a tenth of the side off."""
    side = still.picture.size[0]
    phases = [draw.uniform(0, 2 * math.pi) for _ in range(5)]
    made = []
    for k in range(frames):
        turn, zoom, right, down, light = (
            math.sin(speed * 2 * math.pi * k / frames + phase)
            for speed, phase in zip((1, 1.3, 0.9, 1.1, 0.7), phases, strict=True)
        )
        angle, scale = math.radians(6 * turn), 0.9 + 0.1 * zoom
        cosine, sine = scale * math.cos(angle), scale * math.sin(angle)
        x, y = (side / 2 + 0.05 * side * shift for shift in (right, down))
        half = side / 2
        across = (cosine, -sine, x - half * (cosine - sine))
        along = (sine, cosine, y - half * (sine + cosine))
        matrix = (*across, *along)
        seen = still.picture.transform(
            (side, side), Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC
        )
        pixels = np.asarray(seen, np.float32) * (1 + 0.12 * light)
        made.append(centre_square(pixels.clip(0, 255).round().astype(np.uint8), size))
    return np.stack(made)


def ask(learner: Learner, stills: Sequence[Still], truth: str | None) -> Asked:
    answers = learner.predict([still.picture for still in stills])
    return Asked(truth, answers, fuse(answers, learner.answer_rule))


def same_object(stills: Sequence[Still], draw: random.Random, size: int) -> list[Asked]:
    """Teach five objects in one session each, and ask once per other session."""
    by: dict[int, dict[int, Still]] = {}
    for still in stills:
        if still.object is not None:
            by.setdefault(still.object, {}).setdefault(still.session, still)
    able = sorted(number for number, sessions in by.items() if len(sessions) > 1)
    kinds = {number: next(iter(by[number].values())).category for number in able}
    places: dict[int, int] = {}
    while len(places) < TAUGHT:
        places = {}
        for kind in draw.sample(sorted(set(kinds.values())), TAUGHT):
            number = draw.choice([one for one in able if kinds[one] == kind])
            free = [session for session in by[number] if session not in places.values()]
            if free:
                places[number] = draw.choice(free)
    learner = Learner(size=size)
    for number, session in places.items():
        learner.learn(film(by[number][session], FILM, size, draw), str(number), coach=False)
    asked = []
    taught = {kinds[number] for number in places}
    for number, sessions in by.items():
        for session, still in sessions.items():
            if number in places and session != places[number]:
                asked.append(ask(learner, [still], str(number)))
            elif still.category not in taught:
                asked.append(ask(learner, [still], None))
    return asked


def category(stills: Sequence[Still], lessons: int, draw: random.Random, size: int) -> list[Asked]:
    """Teach five categories in some sessions each, and ask in other sessions."""
    by: dict[tuple[str, int], list[Still]] = {}
    for still in stills:
        by.setdefault((still.category, still.session), []).append(still)
    names = sorted({still.category for still in stills})
    held, taught = draw.sample(SESSIONS, HELD), draw.sample(names, TAUGHT)
    learner = Learner(size=size)
    for name in taught:
        own = [k for k in SESSIONS if k not in held and (name, k) in by]
        for session in draw.sample(own, lessons):
            shown = by[name, session]
            each = -(-VIEWS // len(shown))
            views = np.concatenate([film(still, each, size, draw) for still in shown])
            learner.learn(views, name, coach=False)
    return [
        ask(learner, shown, name if name in taught else None)
        for (name, session), shown in by.items()
        if session in held
    ]


def percent(found: Sequence[bool]) -> float:
    return 100 * sum(found) / len(found)


def right_at_promise(
    known: Sequence[tuple[bool, Prediction]], strange: Sequence[Prediction]
) -> float:
    """Compute the share that is right and known where one stranger in ten is known."""
    others = [one.familiarity or 0.0 for one in strange]
    least = float(np.quantile(others, 1 - STRANGERS))
    return percent([right and (one.familiarity or 0.0) > least for right, one in known])


def row(asked: Sequence[Asked]) -> dict[str, float]:
    """Compute the columns of one draw."""
    known = [one for one in asked if one.truth is not None]
    strange = [one for one in asked if one.truth is None]
    found: dict[str, float] = {}
    for what, pairs, others in (
        (
            "frame",
            [(one.truth == answer.label, answer) for one in known for answer in one.frames],
            [answer for one in strange for answer in one.frames],
        ),
        (
            "video",
            [(one.truth == one.video.label, one.video) for one in known],
            [one.video for one in strange],
        ),
    ):
        said = [answer.answer != "unknown" for _, answer in pairs]
        found |= {
            f"{what}: right": percent([right for right, _ in pairs]),
            f"{what}: right and said": percent(
                [right and it for (right, _), it in zip(pairs, said, strict=True)]
            ),
            f"{what}: right and known": percent([right and one.known for right, one in pairs]),
            f"{what}: wrong and known": percent([not right and one.known for right, one in pairs]),
            f"{what}: right if likely": 100
            * statistics.mean([right for right, one in pairs if one.answer == "likely"] or [0]),
            f"{what}: strangers known": percent([one.known for one in others]),
            f"{what}: strangers likely": percent([one.answer == "likely" for one in others]),
            f"{what}: right and known at 10 % strangers": right_at_promise(pairs, others),
        }
    return found


def draws(args: argparse.Namespace, stills: Sequence[Still]) -> Iterator[tuple[str, list[Asked]]]:
    for k in range(args.draws):
        draw = random.Random(f"first day/{args.seed}/{k}")
        yield "same object, one lesson", same_object(stills, draw, args.size)
        for lessons in (1, 2, 3):
            title = f"category, lessons: {lessons}"
            yield title, category(stills, lessons, draw, args.size)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/core50_frames.tar"))
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--seed", default="0", help="other draws")
    args = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {}
    for title, asked in draws(args, read_stills(args.data)):
        rows.setdefault(title, []).append(row(asked))
    for title, found in rows.items():
        print(f"\n{title}")
        for name in found[0]:
            values = [one[name] for one in found]
            print(f"  {name:42} {statistics.mean(values):5.1f} ± {statistics.stdev(values):.1f}")


if __name__ == "__main__":
    main()
