"""The settings of the rendered sessions: cluttered backgrounds, light and camera response.

A session number stands for one setting (style, light, colour cast, blur) that all objects share.
The layout and the clutter of the background differ between objects, as if the camera had moved.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from dataclasses import dataclass
from math import cos, hypot, pi, sin

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from primavista.streams.rendered.canvas import Canvas
from primavista.streams.rendered.shapes import turned
from primavista.streams.rendered.traits import Colour, Dice

OUTDOOR_SESSIONS = (4, 10, 11)  # out of every eleven sessions


@dataclass(frozen=True)
class Light:
    """The light of a session and the response of its camera.

    Args:
        direction: The direction to the light in the camera's frame, a unit vector.
        strength: The strength of the directed light.
        ambient: The strength of the ambient light.
        cast: A factor for each colour: exposure and tint.
        gamma: The contrast; 1 for no change.
        blur: The blur of the whole image, as a standard deviation in pixels.
        defocus: The blur of the background alone, before that of the whole image.
        noise: The amplitude of the grain.
    """

    direction: Colour
    strength: float
    ambient: float
    cast: Colour
    gamma: float
    blur: float
    defocus: float
    noise: float


class Backdrop(Canvas):
    """The canvas of a background, a square; x goes right and y down.

    Args:
        side: The side of the canvas in pixels.
        dice: The source of all random numbers of this background.
        device: The device to paint on.
    """

    def __init__(self, side: int, dice: Dice, device: torch.device) -> None:
        super().__init__(side, side, dice, device)
        self.side = side

    def shade(self, factor: Tensor) -> None:
        """Make the canvas darker or lighter.

        Args:
            factor: A factor for each pixel.
        """
        self.canvas = self.canvas * factor

    def noise(self, across: int, up: int) -> Tensor:
        """Draw smooth noise.

        Args:
            across: The number of bumps along x.
            up: The number of bumps along y.

        Returns:
            A value in [0, 1] for each pixel.
        """
        grid = self.dice.table(1, 1, up + 1, across + 1).to(self.device)
        return interpolate(grid, size=self.x.shape, mode="bilinear", align_corners=True)[0, 0]

    def fractal(self, bumps: int, stretch: float = 1.0) -> Tensor:
        """Draw noise of three octaves.

        Args:
            bumps: The number of bumps of the lowest octave.
            stretch: A factor > 1 stretches the bumps along x.

        Returns:
            A value in [0, 1] for each pixel.
        """
        layers = [
            self.noise(max(1, round(bumps * f / stretch)), max(1, bumps * f)) / w
            for f, w in ((1, 2), (2, 4), (4, 4))
        ]
        return torch.stack(layers).sum(0)

    def cells(self, across: int, up: int) -> tuple[Tensor, Tensor]:
        """Draw the Voronoi cells of a jittered grid.

        Args:
            across: The number of cells along x.
            up: The number of cells along y.

        Returns:
            A random value of the nearest cell, and the distance from its centre, for each pixel.
        """
        table = self.dice.table(3, up + 2, across + 2).to(self.device)
        gx, gy = self.x * across, self.y * up
        column, row = gx.long().clamp(0, across - 1), gy.long().clamp(0, up - 1)
        best = torch.full_like(gx, 9.0)
        value = torch.zeros_like(gx)
        for i in range(3):
            for j in range(3):
                dx, dy, v = table[:, row + i, column + j].unbind(0)
                far = ((dx + column + (j - 1) - gx) ** 2 + (dy + row + (i - 1) - gy) ** 2).sqrt()
                value = torch.where(far < best, v, value)
                best = torch.minimum(far, best)
        return value, best

    def turned(self, angle: float) -> tuple[Tensor, Tensor]:
        """Return the coordinates x and y of each pixel in axes turned about the centre.

        Args:
            angle: The angle in radians.
        """
        x, y = turned(self.x - 0.5, self.y - 0.5, angle)
        return x + 0.5, y + 0.5

    def rectangle(
        self, x: float, y: float, wide: float, tall: float, angle: float = 0.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Make a rectangle with soft edges.

        Args:
            x: Its centre.
            y: Its centre.
            wide: Half its width.
            tall: Half its height.
            angle: Its rotation in radians.

        Returns:
            The mask, and two coordinates in the rectangle, which go from -1 to 1 inside it.
        """
        dx, dy = turned(self.x - x, self.y - y, angle)
        a, b = dx / wide, dy / tall
        edge = torch.minimum((1 - a.abs()) * wide, (1 - b.abs()) * tall) * self.side
        return (edge + 0.5).clamp(0, 1), a, b

    def lively(self) -> Colour:
        """Draw a random colour of a thing in a room, as red, green and blue in [0, 1]."""
        hue, saturation, value = self.dice.table(3).tolist()
        return colorsys.hsv_to_rgb(hue, 0.85 * saturation, 0.1 + 0.85 * value)

    def poster(self, x: float, y: float, wide: float, tall: float) -> None:
        """Paint a sheet of paper with lines of text and a picture.

        Args:
            x: Its centre.
            y: Its centre.
            wide: Half its width.
            tall: Half its height.
        """
        mask, a, b = self.rectangle(x, y, wide, tall, self.dice.between(-0.05, 0.05))
        papers = ((0.9, 0.9, 0.87), (0.8, 0.82, 0.86), (0.2, 0.22, 0.3), self.lively())
        self.paint(mask, self.dice.pick(papers))
        lines = (b * self.dice.between(4, 9)) % 1 < 0.35
        text = lines * (a.abs() < 0.8) * (self.noise(30, 40) > 0.4)
        self.paint(mask * text, (0.25, 0.25, 0.3), 0.7)
        across = (a - self.dice.between(-0.4, 0.4)).abs() < 0.35
        along = (b + self.dice.between(-0.4, 0.4)).abs() < 0.3
        self.paint(mask * (across & along), self.lively())

    def thing(self, x: float, y: float, size: float, strength: float) -> None:
        """Paint a box, a ball or a bottle with its shadow, somewhere in the clutter.

        Args:
            x: Its centre.
            y: Its centre.
            size: About half its height.
            strength: Its opacity.
        """
        wide, tall = size * self.dice.between(0.5, 1.0), size * self.dice.between(0.6, 1.6)
        kind = self.dice.pick(("box", "box", "ball", "bottle"))
        angle = self.dice.between(-0.25, 0.25)
        shadow, _, _ = self.rectangle(x + 0.02, y + 0.015, wide * 1.05, tall, angle)
        self.paint(shadow, (0.05, 0.05, 0.06), 0.4 * strength)
        if kind == "ball":
            wide = tall = size
        mask, a, b = self.rectangle(x, y, wide, tall, angle)
        if kind == "ball":
            mask = ((1 - (a * a + b * b).sqrt()) * size * self.side).clamp(0, 1)
            shade = (1 - (a * 0.4 + b * 0.6).clamp(-0.3, 1) * 0.8) * 0.9
        elif kind == "bottle":
            mask = mask * ((b > -0.45) | (a.abs() < 0.4))
            shade = (1 - a * a).clamp_min(0).sqrt() * 0.7 + 0.35 * (a + 0.4).abs().lt(0.12) + 0.2
        else:
            shade = torch.where(a > self.dice.between(-0.1, 0.6), 0.55, 1.0) - 0.1 * b
        tone, band = self.colour(self.lively()), self.colour(self.lively())
        at, broad = self.dice.between(-0.5, 0.6), self.dice.between(0.0, 0.4)
        speckled = self.noise(50, 30) > self.dice.between(0, 0.5)
        surface = torch.lerp(tone, band, (((b - at).abs() < broad) & speckled).float()) * shade
        self.canvas = torch.lerp(self.canvas, surface, mask * strength)


def _wood(b: Backdrop, tone: Colour, planks: int, upright: bool) -> Tensor:
    """Return planks of wood over the whole canvas, as a colour image."""
    along, over = (b.x, b.y) if upright else (b.y, b.x)
    grain = b.fractal(5, 6.0) if not upright else b.fractal(5, 6.0).t()
    rings = torch.sin((along * 9 + grain * 2.5) * 2 * pi) * 0.5 + 0.5
    row = (along * planks).floor()
    shade = 0.75 + 0.2 * rings * grain + 0.12 * torch.sin(row * 37.7) + 0.1 * torch.sin(over * 3)
    seam = ((along * planks) % 1 - 0.5).abs() > 0.485
    return b.colour(tone) * (shade * (1 - 0.6 * seam.float()))


def _below(b: Backdrop, picture: Tensor, line: Tensor) -> None:
    """Lay a picture over the part of the canvas below the line, with the line's shadow above."""
    mask = ((b.y - line) * b.side).clamp(0, 1)
    shadow = 0.3 * ((b.y - line + 0.04) / 0.04).clamp(0, 1)
    b.canvas = torch.lerp(b.canvas * (1 - shadow), picture, mask)


def _cupboard(b: Backdrop) -> None:
    b.canvas = _wood(b, (0.82, 0.76, 0.68), 3, True)
    b.paint(b.rectangle(b.dice.between(0.2, 0.8), 0.55, 0.015, 0.08)[0], (0.3, 0.3, 0.32))
    b.poster(b.dice.between(0.0, 1.0), b.dice.between(0.0, 0.4), 0.16, 0.2)


def _notices(b: Backdrop) -> None:
    b.fill((0.85, 0.83, 0.76))
    b.shade(0.9 + 0.15 * b.fractal(3))
    for i in range(7):
        right, down = b.dice.between(0.0, 0.25), b.dice.between(0, 0.25)
        b.poster((i % 3) * 0.36 + right, (i // 3) * 0.4 + down, 0.13, 0.17)


def _bookshelf(b: Backdrop) -> None:
    b.canvas = _wood(b, (0.5, 0.34, 0.22), 5, False) * 0.5
    for shelf in range(4):
        books = 22
        edges = torch.cumsum(b.dice.table(books) + 0.35, 0).to(b.device)
        index = torch.bucketize(b.x[0] * float(edges[-1]), edges).clamp(max=books - 1)
        tones = (b.dice.table(3, books) * 0.75 + 0.08).to(b.device)
        tall = (0.13 + 0.08 * b.dice.table(books)).to(b.device)[index]
        floor = 0.235 + shelf * 0.25
        standing = ((b.y < floor) & (b.y > floor - tall)).float()
        near = (b.x[0] * float(edges[-1]) - edges[index]).abs()
        band = (((b.y - floor) * 25 + index) % 5 < 0.7).float()
        spine = (0.6 + 0.4 * (near * 6).clamp(0, 1)) * (1 - 0.5 * band)
        b.canvas = torch.lerp(b.canvas, tones[:, None, index] * spine, standing)
        b.paint(((b.y - floor - 0.008).abs() < 0.009), (0.62, 0.45, 0.3))


def _desk(b: Backdrop) -> None:
    b.fill((0.75, 0.74, 0.8))
    b.shade(0.85 + 0.2 * b.fractal(2))
    b.poster(b.dice.between(0.1, 0.9), 0.2, 0.2, 0.15)
    table = _wood(b, (0.7, 0.5, 0.32), 7, False)
    _below(b, table, 0.5 + 0.1 * (b.x - 0.5) + b.dice.between(-0.1, 0.1))
    screen, _, _ = b.rectangle(b.dice.between(0.2, 0.8), 0.33, 0.22, 0.16)
    b.paint(screen, (0.08, 0.09, 0.1))


def _tiles(b: Backdrop) -> None:
    b.fill((0.68, 0.44, 0.22))
    u, v = b.turned(b.dice.between(0.3, 1.1))
    depth = 1.2 - 0.4 * b.y
    column, row = u * 5 * depth, v * 5 * depth
    tone = torch.sin(column.floor() * 12.9 + row.floor() * 78.2)
    b.shade(0.85 + 0.12 * tone + 0.25 * (b.fractal(12) - 0.5))
    joint = ((column % 1 - 0.5).abs() > 0.46) | ((row % 1 - 0.5).abs() > 0.46)
    b.paint(joint, (0.85, 0.72, 0.5), 0.8)


def _rug(b: Backdrop) -> None:
    b.fill((0.5, 0.2, 0.2))
    u, v = b.turned(b.dice.between(-0.3, 0.3))
    lozenge = ((u * 6) % 1 - 0.5).abs() + ((v * 8) % 1 - 0.5).abs()
    band = (v * 8).floor() % 3
    b.paint(lozenge < 0.42, (0.2, 0.2, 0.27))
    b.paint(lozenge < 0.27, (0.75, 0.6, 0.52))
    b.paint(lozenge < 0.14, (0.5, 0.14, 0.16))
    b.paint((band == 0) & (lozenge > 0.7), (0.65, 0.4, 0.35))
    b.shade(0.7 + 0.3 * b.noise(60, 90) + 0.3 * b.fractal(6))


def _sunny_room(b: Backdrop) -> None:
    b.fill((0.97, 0.96, 0.94))
    b.paint((b.x - b.dice.between(0.1, 0.9)).abs() < 0.006, (0.6, 0.6, 0.6))
    _below(b, _wood(b, (0.72, 0.3, 0.12), 6, False), b.dice.between(0.45, 0.65) - 0.3 * (b.x - 0.5))
    edge = (b.x * b.dice.between(0.5, 1.2) + b.y - b.dice.between(0.7, 1.2)) * 14
    b.shade(0.55 + 0.55 * edge.clamp(0, 1))


def _dark_room(b: Backdrop) -> None:
    b.fill((0.3, 0.3, 0.38))
    b.shade(0.7 + 0.5 * b.fractal(3))
    for _ in range(3):
        mask, a, c = b.rectangle(b.dice.between(0, 1), b.dice.between(0.1, 0.6), 0.2, 0.14)
        b.paint(mask, (0.04, 0.04, 0.05))
        b.paint(mask * (a.abs() < 0.9) * (c.abs() < 0.85), (0.2, 0.35, 0.55), 0.8)
        b.paint(mask * ((c * 6) % 1 < 0.3) * (a < 0.4) * (a > -0.8), (0.85, 0.88, 0.9), 0.7)
    _below(b, _wood(b, (0.35, 0.3, 0.28), 3, False), b.dice.between(0.6, 0.75) + 0.0 * b.x)


def _lawn(b: Backdrop) -> None:
    blades, far = b.cells(60, 22)
    b.fill((0.36, 0.62, 0.27))
    b.shade(0.55 + 0.5 * blades + 0.25 * (b.fractal(5) - 0.5) + 0.2 * (0.5 - far))
    leaves, distance = b.cells(26, 26)
    hedge = b.colour((0.12, 0.26, 0.12)) * (0.3 + 1.3 * leaves * (1 - distance).clamp(0, 1))
    line = b.dice.between(0.05, 0.4) + 0.08 * b.noise(8, 2)
    b.canvas = torch.lerp(hedge, b.canvas, ((b.y - line) * b.side / 3).clamp(0, 1))


def _foliage(b: Backdrop) -> None:
    b.canvas = b.colour((0.75, 0.83, 0.93)) * (0.8 + 0.3 * (1 - b.y))
    for across, up, tone in (
        (12, 20, (0.13, 0.2, 0.09)),
        (22, 16, (0.24, 0.34, 0.14)),
        (22, 34, (0.36, 0.45, 0.2)),
    ):
        value, distance = b.cells(across, up)
        there = (b.fractal(4) + 0.35 * b.y > 0.52) & (distance < 0.55)
        leaves = b.colour(tone) * (0.35 + value - 0.5 * distance)
        b.canvas = torch.lerp(b.canvas, leaves, there.float())
    b.paint((b.x - b.dice.between(0.1, 0.9) - 0.05 * b.y).abs() < 0.035, (0.2, 0.15, 0.1), 0.8)


def _bricks(b: Backdrop) -> None:
    row = (b.y * 13).floor()
    column = b.x * 6 + (row % 2) * 0.5
    tone = torch.sin(row * 127.1 + column.floor() * 311.7) * 0.5 + 0.5
    b.canvas = b.colour((0.6, 0.32, 0.24)) * (0.65 + 0.5 * tone + 0.4 * (b.fractal(20) - 0.5))
    joint = (((b.y * 13) % 1 - 0.5).abs() > 0.43) | ((column % 1 - 0.5).abs() > 0.47)
    b.paint(joint, (0.72, 0.7, 0.66))
    value, distance = b.cells(24, 24)
    ivy = (b.fractal(3) > b.dice.between(0.5, 0.62)) & (distance < 0.6)
    b.canvas = torch.lerp(b.canvas, b.colour((0.25, 0.42, 0.18)) * (0.4 + value), ivy.float())


def _pavement(b: Backdrop) -> None:
    value, distance = b.cells(48, 48)
    b.canvas = b.colour((0.66, 0.63, 0.58)) * (0.45 + 0.6 * value + 0.2 * (0.6 - distance))
    u, v = b.turned(b.dice.between(-0.6, 0.6))
    slab = b.colour((0.74, 0.73, 0.7)) * (0.75 + 0.4 * (b.fractal(16) - 0.3))
    joint = (((u * 4) % 1 - 0.5).abs() > 0.48) | (((v * 4) % 1 - 0.5).abs() > 0.48)
    paved = (v < b.dice.between(0.4, 0.8)).float()
    b.canvas = torch.lerp(b.canvas, slab * (1 - 0.5 * joint.float()), paved)


BackgroundPainter = Callable[[Backdrop], None]
INDOORS: tuple[BackgroundPainter, ...] = (
    _cupboard,
    _notices,
    _bookshelf,
    _tiles,
    _desk,
    _rug,
    _sunny_room,
    _dark_room,
)
OUTDOORS: tuple[BackgroundPainter, ...] = (_lawn, _foliage, _bricks, _pavement)


def is_outdoors(session: int) -> bool:
    """Return True if a session is outdoors; three of every eleven are.

    Args:
        session: The number of the session, from 1.
    """
    return (session - 1) % 11 + 1 in OUTDOOR_SESSIONS


def _background_of(seed: int, session: int) -> BackgroundPainter:
    """Return the painter of a session, in an order drawn from the seed.

    No painter is repeated before all painters of its kind were used.
    """
    outdoors = is_outdoors(session)
    painters = OUTDOORS if outdoors else INDOORS
    rank = sum(is_outdoors(s) == outdoors for s in range(1, session))
    # The keys of dice never change: they decide what is drawn.
    dice = Dice("places", seed, int(outdoors), rank // len(painters))
    order = torch.randperm(len(painters), generator=dice.generator)
    return painters[int(order[rank % len(painters)])]


def paint_background(
    seed: int, session: int, object: int, side: int, clutter: float, device: torch.device
) -> Tensor:
    """Paint the background of one session of one object.

    Args:
        seed: The seed of the scene.
        session: The number of the session, which decides the kind of background.
        object: The number of the object, which decides its layout.
        side: The side of the picture in pixels.
        clutter: The amount of other things in the picture, from 0 (none) to 1 (many).
        device: The device to paint on.

    Returns:
        3 x side x side, with values in [0, 1].
    """
    b = Backdrop(side, Dice("background", seed, session, object), device)
    _background_of(seed, session)(b)
    outdoors = is_outdoors(session)
    strength = min(1.0, 0.5 + 0.5 * clutter)
    for _ in range(round((6 if outdoors else 12) * clutter)):
        x, y, size = b.dice.between(0, 1), b.dice.between(0.2, 1), b.dice.between(0.04, 0.11)
        b.thing(x, y, size, strength)
    if outdoors:
        b.shade(0.7 + 0.6 * b.fractal(4))
    style = Dice("place", seed, session)
    warmth = (style.between(0.92, 1.08), style.between(0.92, 1.08), style.between(0.92, 1.08))
    return (b.canvas * b.colour(warmth)).clamp(0, 1)


def light_of(seed: int, session: int, light_range: float, cast: float, blur: float) -> Light:
    """Draw the light of a session; the ranges set how much sessions differ.

    Args:
        seed: The seed of the scene.
        session: The number of the session, from 1.
        light_range: The range of exposure and contrast, from 0 to 1.
        cast: The range of the colour cast, from 0 to 1.
        blur: The largest blur, as a standard deviation in pixels.

    Returns:
        The light, the same for all objects of the session.
    """
    dice = Dice("light", seed, session)
    outdoors = is_outdoors(session)
    turn, height = dice.between(0, 2 * pi), dice.between(0.35, 0.9)
    flat = (1 - height * height) ** 0.5
    direction = (flat * cos(turn), 0.35 * flat * sin(turn) + 0.5, height)
    norm = hypot(*direction)
    x, y, z = (v / norm for v in direction)
    exposure = 1.08 + light_range * dice.between(-0.4, 0.35)
    # Lamps differ from warm to cold most, from green to magenta a little.
    warm, green = cast * dice.between(-0.2, 0.2), cast * dice.between(-0.06, 0.06)
    tints = [1 + warm, 1 + green, 1 - warm]
    return Light(
        direction=(x, y, z),
        strength=dice.between(0.7, 0.9) if outdoors else dice.between(0.4, 0.75),
        ambient=dice.between(0.4, 0.55) if outdoors else dice.between(0.45, 0.7),
        cast=(tints[0] * exposure, tints[1] * exposure, tints[2] * exposure),
        gamma=1 + light_range * dice.between(-0.2, 0.25),
        blur=blur * dice.between(0.2, 1.0),
        defocus=blur * dice.between(0.0, 2.0),
        noise=dice.between(0.004, 0.025),
    )
