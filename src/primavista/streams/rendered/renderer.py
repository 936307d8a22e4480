"""The renderer of the built-in data set: object videos with the structure of CORe50.

There are ten families of hand-held things with any number of objects each, filmed at 20 frames per
second in sessions that differ in background, light, colour cast, blur, grip and camera path.
Everything follows from the `Scene`, in particular from its seed, so the data set needs no download
and no disk, and looks the same on CPU and CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate, pad

from primavista.streams.rendered.backgrounds import Light, light_of, paint_background
from primavista.streams.rendered.hands import Hand, Moves, hand_of, moves_of
from primavista.streams.rendered.looks import ObjectLook, look_of
from primavista.streams.rendered.rays import (
    CAMERA,
    Rays,
    bodies_of,
    hand_colour,
    meet_hand,
    meet_object,
    object_colour,
)
from primavista.streams.rendered.scene import Scene as Scene
from primavista.streams.rendered.shapes import FAMILIES, Hold, hold_of
from primavista.streams.rendered.traits import Dice

# The version of the renderer. Every change of pixels raises it, so that stored frames and results
# of different versions never mix.
VERSION = 1

# The difficulty of the data set; each number may be changed independently.
IDENTITY = 0.8  # 0-1: the difference of the objects of a category in shape and colour
CLUTTER = 0.8  # 0-1: the number of other things in the background, and their contrast
LIGHT_RANGE = 0.9  # 0-1: the difference of exposure and contrast between sessions
CAST = 0.8  # 0-1: the difference of the colour cast between sessions
BLUR = 0.9  # pixels at size 128: the standard deviation of the most blurred session
ZOOM = (0.85, 1.3)  # the range of object sizes; at 1 the image shows 22 cm

CATEGORIES: tuple[str, ...] = tuple(name for name, _ in FAMILIES)
# The freedom of objects in the hand (see moves_of); the others turn around their long axis.
FREEDOM = {
    "balls": "any",
    "mobile phones": "flat",
    "remote controls": "flat",
    "scissors": "flat",
    "glasses": "flat",
}

HALF_WIDTH = 1.1  # decimetres from the image's centre to its side, at the object and at zoom 1
PIXELS_AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 23}  # a CPU's cache, a GPU's memory


@dataclass(frozen=True)
class _Stage:
    """Everything that is the same for all frames of one session of one object."""

    look: ObjectLook
    hold: Hold
    hand: Hand
    light: Light
    label: Tensor
    background: Tensor
    grain: Tensor
    rays: Rays


def render(
    scene: Scene,
    object: int,
    session: int,
    frames: Sequence[int] | None = None,
    device: str | torch.device = "cpu",
) -> Tensor:
    """Render frames of one session of one object.

    The pixels of a frame do not depend on the other frames requested. Frame f shows the path at
    u = f / scene.frames, so the range of poses of a session does not depend on its length.

    Args:
        scene: The scene to render.
        object: The object, from 1 like o1 .. o50 of CORe50; objects 1 .. scene.objects are
            category 1, and so on.
        session: The session, from 1 like s1 .. s11 of CORe50.
        frames: Indices within the session; by default all frames.
        device: The device to render on.

    Returns:
        uint8, N x size x size x 3, RGB, on `device`.

    Raises:
        ValueError: If there is no such object, session or frame.
    """
    chosen = list(range(scene.frames)) if frames is None else [int(f) for f in frames]
    _check(scene, object, session, chosen)
    device = torch.device(device)
    stage = _stage(scene, object, session, device)
    free = FREEDOM.get(CATEGORIES[stage.look.family], "round")
    pictures = torch.empty(len(chosen), scene.size, scene.size, 3, dtype=torch.uint8, device=device)
    at_once = max(1, PIXELS_AT_ONCE.get(device.type, 1 << 20) // scene.size**2)
    for first in range(0, len(chosen), at_once):
        part = torch.tensor(chosen[first : first + at_once])
        moves = moves_of(scene.seed, session, object, part.double() / scene.frames, free)
        pictures[first : first + at_once] = _draw(stage, moves, part.to(device))
    return pictures


def _check(scene: Scene, object: int, session: int, frames: list[int]) -> None:
    given = [("object", object, 1, scene.categories * scene.objects)]
    given += [("session", session, 1, scene.sessions)]
    given += [("frames", frame, 0, scene.frames - 1) for frame in frames]
    for name, value, low, high in given:
        if not low <= value <= high:
            raise ValueError(f"{name} must be in {low}..{high}, got {value}")


def _stage(scene: Scene, object: int, session: int, device: torch.device) -> _Stage:
    category, member = divmod(object - 1, scene.objects)
    look = look_of(scene.seed, category, member, IDENTITY)
    hold = hold_of(look.family, look.measures)
    camera = Dice("camera", scene.seed, session, object)
    tan = HALF_WIDTH / (camera.between(*ZOOM) * CAMERA)
    side = max(24, round(scene.size * 1.6))
    background = paint_background(scene.seed, session, object, side, CLUTTER, device)
    light = light_of(scene.seed, session, LIGHT_RANGE, CAST, BLUR * scene.size / 128)
    return _Stage(
        look=look,
        hold=hold,
        hand=hand_of(scene.seed, session, object, hold, device),
        light=light,
        label=label_of(look, scene.size, device),
        background=blurred(background.unsqueeze(0), light.defocus),
        grain=(camera.table(2 * scene.size, 2 * scene.size) * 2 - 1).to(device),
        rays=Rays(scene.size, tan, device),
    )


def label_of(look: ObjectLook, size: int, device: torch.device) -> Tensor:
    """Return the label of an object, at a resolution that the image can show.

    Args:
        look: The object.
        size: The side of the image in pixels.
        device: The device of the label.

    Returns:
        1 x 3 x H x W.
    """
    label = look.label.unsqueeze(0)
    if size < 128:  # as fine as the image can show, so that it does not shimmer
        height, width = (max(4, n * size // 128) for n in label.shape[-2:])
        label = interpolate(label, size=(height, width), mode="area")
    return label.to(device)


def _draw(stage: _Stage, moves: Moves, frames: Tensor) -> Tensor:
    """Draw the background, then hand and object by depth, then apply the camera's response."""
    canvas = _backdrop(stage, moves)
    bodies = bodies_of(moves, canvas.device)
    thing = meet_object(stage.look, stage.hold, stage.rays, bodies)
    hand = meet_hand(stage.hand, stage.rays, bodies)
    pixels = canvas.view(3, -1)
    depths = torch.full_like(pixels[0], 1e3).index_copy_(0, thing.index, thing.depth)
    in_front = (hand.depth < depths.index_select(0, hand.index)).to(torch.float32)
    skin = hand_colour(stage.look, stage.hand, hand, bodies, stage.light)
    colour, opacity = object_colour(
        stage.look, stage.label, stage.hand, thing, bodies, stage.light, stage.rays.pixel
    )
    blend(pixels, hand.index, skin, hand.alpha * (1 - in_front))
    blend(pixels, thing.index, colour, opacity)
    blend(pixels, hand.index, skin, hand.alpha * in_front)
    return _develop(canvas, stage, frames)


def _backdrop(stage: _Stage, moves: Moves) -> Tensor:
    """Return the background as the moving camera sees it, 3 x N x size x size."""
    rays, count = stage.rays, len(moves.backdrop)
    right, down, zoom, turn = moves.backdrop.to(torch.float64).unbind(1)
    rows = torch.stack([zoom * turn.cos(), zoom * turn.sin(), right, down], 0).to(
        rays.device, torch.float32
    )
    cos, sin, right, down = rows.unsqueeze(-1).unbind(0)
    x = (rays.x * cos).addcmul_(rays.y, sin).add_(right)
    y = (rays.x * sin).addcmul_(rays.y, cos, value=-1).add_(down)
    grid = torch.stack([x, y], -1).view(1, count * rays.size, rays.size, 2)
    seen = grid_sample(stage.background, grid, padding_mode="reflection", align_corners=False)
    return seen.view(3, count, rays.size, rays.size)


def blend(pixels: Tensor, index: Tensor, colour: Tensor, alpha: Tensor) -> None:
    """Draw colours over some pixels, in place.

    Args:
        pixels: The picture, 3 x P.
        index: The indices of the pixels to draw over.
        colour: The colour of each of these pixels, 3 x their number.
        alpha: The opacity of each of these pixels, from 0 to 1.
    """
    below = pixels.index_select(1, index)
    pixels.index_copy_(1, index, torch.lerp(below, colour, alpha.expand_as(below)))


def _develop(canvas: Tensor, stage: _Stage, frames: Tensor) -> Tensor:
    """Apply blur, exposure and cast, contrast x (1 + c (1 - x)) and grain; round to 8 bits."""
    light, size = stage.light, stage.rays.size
    cast = torch.tensor(light.cast, device=canvas.device).view(3, 1, 1, 1)
    x = blurred(canvas, light.blur).mul_(cast).clamp_(0, 1)
    x = x.addcmul_(x, 1 - x, value=1 - light.gamma)
    # Each frame takes its own window of one sheet of grain.
    row, column = (frames * 37) % size, (frames * 53) % size
    line = torch.arange(size, device=canvas.device)
    grain = stage.grain[(row[:, None] + line)[:, :, None], (column[:, None] + line)[:, None, :]]
    x = x.add_(grain, alpha=light.noise).clamp_(0, 1).mul_(255).add_(0.5)
    return x.to(torch.uint8).permute(1, 2, 3, 0)


def blurred(canvas: Tensor, deviation: float) -> Tensor:
    """Blur by a Gaussian with shifted sums, whose rounding, unlike a convolution's, never varies.

    Args:
        canvas: 3 x N x H x W.
        deviation: The standard deviation in pixels.

    Returns:
        The blurred pictures.
    """
    reach = ceil(2 * deviation)
    weights = [exp(-0.5 * (i / max(deviation, 1e-3)) ** 2) for i in range(-reach, reach + 1)]
    weights = [w / sum(weights) for w in weights]
    for axis in (2, 3):
        edges = (reach, reach, 0, 0) if axis == 3 else (0, 0, reach, reach)
        wide = pad(canvas, edges, mode="replicate")
        canvas = wide.narrow(axis, 0, canvas.shape[axis]) * weights[0]
        for i, weight in enumerate(weights[1:], 1):
            canvas.add_(wide.narrow(axis, i, canvas.shape[axis]), alpha=weight)
    return canvas
