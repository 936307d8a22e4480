"""Printed plates: flat things that differ in their symbol alone, for `train_objects.py`.

    python benchmarks/plates.py plates.png      # a look at some of them

A family shares shape, border and colours; each of its plates has a symbol of its own: letters,
digits, an arrow, strokes or blots. A session shows a plate in front of a part of a picture, at its
own size, tilt, light, blur and resolution; its frames differ a little in all of them.
"""

from __future__ import annotations

import argparse
import colorsys
import math
import multiprocessing
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

FAMILY = 8  # plates of one shape and colouring
SIDE = 256  # of a plate before it is filmed, in pixels
CORNERS = (3, 4, 4, 6, 8, 40, 40)  # of a plate; 40 make a disc
CHARACTERS = "ABCDEFGHJKLMNPRSTUVXYZ0123456789!?+%&"

Colour = tuple[int, int, int]
Frames = np.ndarray[Any, np.dtype[np.uint8]]


def colour(draw: random.Random, light: bool) -> Colour:
    """Return a random light or dark colour, grey in one of four cases."""
    saturation = 0.0 if draw.random() < 0.25 else draw.uniform(0.5, 1)
    value = draw.uniform(0.75, 1) if light else draw.uniform(0.05, 0.6)
    r, g, b = colorsys.hsv_to_rgb(draw.random(), saturation, value)
    return round(255 * r), round(255 * g), round(255 * b)


def polygon(corners: int, radius: float, turn: float) -> list[tuple[float, float]]:
    angles = [turn + 2 * math.pi * k / corners for k in range(corners)]
    return [
        (SIDE / 2 + radius * math.cos(angle), SIDE / 2 + radius * math.sin(angle))
        for angle in angles
    ]


def draw_symbol(pen: ImageDraw.ImageDraw, draw: random.Random, ink: Colour) -> None:
    """Draw one of five kinds of symbols in the middle of a plate."""
    kind = draw.choice(("text", "text", "arrow", "strokes", "blots", "picture"))
    middle = SIDE / 2
    if kind == "text":
        text = "".join(draw.choices(CHARACTERS, k=draw.choice((1, 1, 2, 2, 3))))
        font = ImageFont.load_default(draw.uniform(120, 170) / (0.6 + 0.35 * len(text)))
        pen.text((middle, middle), text, ink, font, anchor="mm", stroke_width=draw.randint(0, 3))
    elif kind == "arrow":
        turn = draw.randrange(8) * math.pi / 4
        shape = [(-70, -14), (14, -14), (14, -48), (76, 0), (14, 48), (14, 14), (-70, 14)]
        cos, sin = math.cos(turn), math.sin(turn)
        at = [(middle + x * cos - y * sin, middle + x * sin + y * cos) for x, y in shape]
        pen.polygon(at, ink)
    else:
        for _ in range(draw.randint(2, 4)):
            x, y, u, v = (middle + draw.uniform(-75, 75) for _ in range(4))
            box = (min(x, u), min(y, v), max(x, u), max(y, v))
            if kind == "strokes":
                pen.line((x, y, u, v), ink, draw.randint(8, 20))
            elif kind == "blots":
                pen.ellipse(box, ink)
            else:
                draw.choice((pen.ellipse, pen.rectangle))(
                    box, outline=ink, width=draw.randint(6, 14)
                )


def plate(seed: int, number: int) -> Image.Image:
    """Draw a plate, RGBA, transparent around it."""
    family, member = divmod(number, FAMILY)
    draw = random.Random(f"family/{seed}/{family}")
    light_ground = draw.random() < 0.7
    corners, turn = draw.choice(CORNERS), draw.choice((-math.pi / 2, math.pi / 4, 0.0))
    border, ground = colour(draw, draw.random() < 0.3), colour(draw, light_ground)
    ink, width = colour(draw, not light_ground), draw.choice((0, 8, 16, 26))
    picture = Image.new("RGBA", (SIDE, SIDE))
    pen = ImageDraw.Draw(picture)
    pen.polygon(polygon(corners, SIDE * 0.48, turn), border)
    pen.polygon(polygon(corners, SIDE * 0.48 - width, turn), ground)
    draw_symbol(pen, random.Random(f"symbol/{seed}/{family}/{member}"), ink)
    return picture


def perspective(draw: random.Random, side: float, x: float, y: float) -> list[float]:
    """Return the coefficients of PIL's transformation: a plate, tilted, at a place of the frame."""
    turn, tilt = draw.uniform(-0.2, 0.2), 0.12 * side
    corners = []
    for u, v in ((-1, -1), (1, -1), (1, 1), (-1, 1)):
        cos, sin = math.cos(turn) * side / 2, math.sin(turn) * side / 2
        corners.append(
            (
                x + u * cos - v * sin + draw.uniform(-tilt, tilt),
                y + u * sin + v * cos + draw.uniform(-tilt, tilt),
            )
        )
    rows, right = [], []
    for (x, y), (u, v) in zip(corners, ((0, 0), (SIDE, 0), (SIDE, SIDE), (0, SIDE)), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return [float(a) for a in np.linalg.solve(np.array(rows), np.array(right))]


def film(number: int, seed: int, pictures: Frames, frames: int, size: int) -> Frames:
    """Film a plate in two sessions.

    Args:
        number: The number of the plate.
        seed: Another seed gives other plates.
        pictures: Pictures whose parts are the backgrounds, uint8, N x H x W x 3.
        frames: The number of frames of a session.
        size: The side of the frames in pixels.

    Returns:
        uint8, 2 x frames x size x size x 3.
    """
    own = plate(seed, number)
    found = np.empty((2, frames, size, size, 3), np.uint8)
    for session in range(2):
        draw = random.Random(f"session/{seed}/{number}/{session}")
        behind = Image.fromarray(pictures[draw.randrange(len(pictures))])
        reach = draw.uniform(0.3, 1) * min(behind.size)
        left, top = (draw.uniform(0, edge - reach) for edge in behind.size)
        side, x, y = draw.uniform(0.45, 0.95), draw.uniform(0.42, 0.58), draw.uniform(0.42, 0.58)
        light, contrast, cast = (
            draw.uniform(0.35, 1.4),
            draw.uniform(0.5, 1.3),
            draw.uniform(0, 1.3),
        )
        coarse = round(math.exp(draw.uniform(math.log(28), math.log(size))))
        blur = draw.uniform(0, 0.9)
        for frame in range(frames):
            x, y = x + draw.uniform(-0.03, 0.03), y + draw.uniform(-0.03, 0.03)
            side *= draw.uniform(0.93, 1.07)
            box = (left, top, left + reach, top + reach)
            picture = behind.resize((size, size), Image.Resampling.BILINEAR, box)
            at = perspective(draw, side * size, x * size, y * size)
            shape = Image.Transform.PERSPECTIVE
            over = own.transform((size, size), shape, at, Image.Resampling.BILINEAR)
            picture.paste(over, (0, 0), over)
            picture = ImageEnhance.Brightness(picture).enhance(light)
            picture = ImageEnhance.Contrast(picture).enhance(contrast)
            picture = ImageEnhance.Color(picture).enhance(cast)
            small = picture.resize((coarse, coarse), Image.Resampling.BOX)
            small = small.filter(ImageFilter.GaussianBlur(blur))
            found[session, frame] = np.asarray(small.resize((size, size), Image.Resampling.BICUBIC))
    return found


def filmed(count: int, pictures: Frames, frames: int, size: int, seed: int, jobs: int) -> Frames:
    """Film plates in two sessions each; the arguments are those of `film`.

    Returns:
        uint8, count x 2 x frames x size x size x 3.
    """
    one = partial(film, seed=seed, pictures=pictures, frames=frames, size=size)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return np.stack(pool.map(one, range(count), chunksize=8))


def contact_sheet(found: Frames) -> Image.Image:
    """Lay the frames of plates side by side: one row per plate."""
    rows = [np.concatenate(list(both.reshape(-1, *both.shape[2:])), 1) for both in found]
    return Image.fromarray(np.concatenate(rows, 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path, help="the picture to write")
    args = parser.parse_args()
    grey = np.full((1, 128, 128, 3), 128, np.uint8)
    found = np.stack([film(number, 0, grey, 3, 96) for number in range(24)])
    contact_sheet(found).save(args.picture)


if __name__ == "__main__":
    main()
