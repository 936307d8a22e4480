"""Pictures of several objects in one room with their true boxes: the test set of localisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from primavista.media.boxes import Box
from primavista.streams.rendered.backgrounds import Light, light_of, paint_background
from primavista.streams.rendered.hands import Hand, hand_of, moves_of
from primavista.streams.rendered.looks import ObjectLook, look_of
from primavista.streams.rendered.rays import (
    CAMERA,
    Bodies,
    Hits,
    Rays,
    bodies_of,
    hand_colour,
    meet_hand,
    meet_object,
    object_colour,
)
from primavista.streams.rendered.renderer import (
    BLUR,
    CAST,
    CATEGORIES,
    CLUTTER,
    FREEDOM,
    HALF_WIDTH,
    IDENTITY,
    LIGHT_RANGE,
    Scene,
    blend,
    blurred,
    label_of,
)
from primavista.streams.rendered.shapes import hold_of
from primavista.streams.rendered.traits import Dice

SIZES = (0.2, 1.0)  # range of the longer side of a true box, in heights of the picture
FIELD = 2.2  # the side of the square in which an object is drawn, in units of 22 cm
MARGIN = 4  # the fewest pixels between an object and the edge of the picture
TRIES = 40  # positions tried for one object before it is left out
OVERLAP = 0.15  # the largest fraction of a box that other objects may cover
HELD = 0.5  # the fraction of objects that a hand holds
ROOMS = 10_000  # background numbers from here on belong to pictures, not to lessons
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shown:
    """One object in a picture.

    Args:
        object: Its number in the scene, from 1.
        box: The box around its visible part.
    """

    object: int
    box: Box


@dataclass(frozen=True)
class Tableau:
    """One picture of several objects.

    Args:
        frame: uint8, H x W x 3, RGB.
        shown: The objects in it, the largest first.
    """

    frame: Tensor
    shown: tuple[Shown, ...]


@dataclass(frozen=True)
class _Posed:
    """An object in one pose, in front of the camera of a square picture."""

    object: int
    look: ObjectLook
    hand: Hand
    held: bool
    bodies: Bodies
    rays: Rays
    thing: Hits


def tableau(
    scene: Scene,
    objects: Sequence[int],
    session: int,
    number: int,
    size: tuple[int, int] = (640, 480),
    sizes: tuple[float, float] = SIZES,
) -> Tableau:
    """Draw several objects at random places and sizes in the room of a session.

    Half of them are held by a hand, the others are in the air. Everything follows from the
    arguments.

    Args:
        scene: The objects; its `size` and `frames` do not matter.
        objects: The numbers of the objects to show, from 1. An object without a free position is
            left out.
        session: The session, which determines the background, the light and the grips.
        number: The number of the picture; each number gives another picture.
        size: The width and the height of the picture.
        sizes: The range of the longer sides of boxes, in heights of the picture; their logarithm
            is uniform.

    Returns:
        The picture with the true boxes.
    """
    dice = Dice("tableau", scene.seed, session, number)
    light = light_of(scene.seed, session, LIGHT_RANGE, CAST, BLUR * 1.5)
    canvas = _room(scene, session, number, size, light)
    owner = torch.zeros(size[1], size[0], dtype=torch.int64)
    for posed, left, top in _places(scene, objects, session, size, sizes, dice):
        _draw(canvas, owner, posed, (left, top), light)
    return Tableau(_developed(canvas, light, dice), _shown(objects, owner))


def _shown(objects: Sequence[int], owner: Tensor) -> tuple[Shown, ...]:
    """Return the true boxes of objects, largest first, from the object visible in each pixel."""
    shown = []
    for one in objects:
        rows, columns = (owner == one).nonzero(as_tuple=True)
        if len(rows):
            left, right = int(columns.min()), int(columns.max()) + 1
            shown.append(Shown(one, Box(left, int(rows.min()), right, int(rows.max()) + 1)))
    return tuple(sorted(shown, key=lambda one: -one.box.area))


def _room(scene: Scene, session: int, number: int, size: tuple[int, int], light: Light) -> Tensor:
    """Return the background, 3 x H x W, painted as for lessons."""
    (width, height), side = size, max(size)
    painted = paint_background(scene.seed, session, ROOMS + number, side, CLUTTER, CPU)
    top, left = (side - height) // 2, (side - width) // 2
    soft = blurred(painted[:, None], light.defocus)[:, 0]
    return soft[:, top : top + height, left : left + width].clone()


def _places(
    scene: Scene,
    objects: Sequence[int],
    session: int,
    size: tuple[int, int],
    sizes: tuple[float, float],
    dice: Dice,
) -> list[tuple[_Posed, int, int]]:
    """Pose each object and find a free position for it, the largest first."""
    (width, height), (low, high) = size, sizes
    wanted = sorted((low * (high / low) ** dice.between(0, 1), one) for one in objects)
    taken: list[Box] = []
    found = []
    for share, one in reversed(wanted):
        u, held = dice.between(0, 1), dice.between(0, 1) < HELD
        sketch = _outline(_posed(scene, one, session, u, held, 96))
        side = max(16, round(96 * share * height / max(sketch.width, sketch.height)))
        posed = _posed(scene, one, session, u, held, side)
        outline = _outline(posed)
        for _ in range(TRIES):
            across, down = dice.between(0, 1), dice.between(0, 1)
            left = round(MARGIN + across * (width - outline.width - 2 * MARGIN) - outline.left)
            top = round(MARGIN + down * (height - outline.height - 2 * MARGIN) - outline.top)
            ends = (outline.left + left, outline.top + top)
            box = Box(*ends, ends[0] + outline.width, ends[1] + outline.height)
            free = all(box.overlap(other) <= OVERLAP * min(box.area, other.area) for other in taken)
            if free and min(box.left, box.top, width - box.right, height - box.bottom) >= 0:
                taken.append(box)
                found.append((posed, left, top))
                break
    return found


def _posed(scene: Scene, object: int, session: int, u: float, held: bool, side: int) -> _Posed:
    category, member = divmod(object - 1, scene.objects)
    look = look_of(scene.seed, category, member, IDENTITY)
    hold = hold_of(look.family, look.measures)
    free = FREEDOM.get(CATEGORIES[look.family], "round")
    moves = moves_of(scene.seed, session, object, torch.tensor([u], dtype=torch.float64), free)
    bodies, rays = bodies_of(moves, CPU), Rays(side, HALF_WIDTH * FIELD / CAMERA, CPU)
    hand = hand_of(scene.seed, session, object, hold, CPU)
    if not held:
        hand = replace(hand, start=hand.start + 1e3)  # far away, hence invisible
    thing = meet_object(look, hold, rays, bodies)
    return _Posed(object, look, hand, held, bodies, rays, thing)


def _outline(posed: _Posed) -> Box:
    """Return the box around a posed object in its square."""
    index = posed.thing.index[posed.thing.alpha > 0.5]
    rows, columns = index // posed.rays.size, index % posed.rays.size
    left, right = int(columns.min()), int(columns.max()) + 1
    return Box(left, int(rows.min()), right, int(rows.max()) + 1)


def _draw(
    canvas: Tensor, owner: Tensor, posed: _Posed, corner: tuple[int, int], light: Light
) -> None:
    """Draw an object and its hand into a picture, and mark the pixels that show the object."""
    side, (left, top) = posed.rays.size, corner
    height, width = owner.shape
    # the part of its square that is inside the picture
    y0, y1, x0, x1 = max(top, 0), min(top + side, height), max(left, 0), min(left + side, width)
    square = canvas.new_zeros(3, side, side)
    mine = owner.new_zeros(side, side)
    inside = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    square[(slice(None), *inside)] = canvas[:, y0:y1, x0:x1]
    mine[inside] = owner[y0:y1, x0:x1]
    pixels, owners, thing = square.view(3, -1), mine.view(-1), posed.thing
    label = label_of(posed.look, max(128, side), CPU)
    colour, opacity = object_colour(
        posed.look, label, posed.hand, thing, posed.bodies, light, posed.rays.pixel
    )
    if not posed.held:
        blend(pixels, thing.index, colour, opacity)
        owners[thing.index[thing.alpha > 0.5]] = posed.object
    else:
        hand = meet_hand(posed.hand, posed.rays, posed.bodies)
        depths = torch.full_like(pixels[0], 1e3).index_copy_(0, thing.index, thing.depth)
        in_front = (hand.depth < depths.index_select(0, hand.index)).to(torch.float32)
        skin = hand_colour(posed.look, posed.hand, hand, posed.bodies, light)
        blend(pixels, hand.index, skin, hand.alpha * (1 - in_front))
        blend(pixels, thing.index, colour, opacity)
        blend(pixels, hand.index, skin, hand.alpha * in_front)
        owners[hand.index[hand.alpha > 0.5]] = 0
        owners[thing.index[thing.alpha > 0.5]] = posed.object
        owners[hand.index[hand.alpha * in_front > 0.5]] = 0
    canvas[:, y0:y1, x0:x1] = square[(slice(None), *inside)]
    owner[y0:y1, x0:x1] = mine[inside]


def _developed(canvas: Tensor, light: Light, dice: Dice) -> Tensor:
    """Apply blur, exposure and cast, contrast and grain, as in lessons."""
    x = blurred(canvas[:, None], light.blur)[:, 0] * torch.tensor(light.cast).view(3, 1, 1)
    x = x.clamp(0, 1)
    x = x + x * (1 - x) * (1 - light.gamma)
    grain = dice.table(*canvas.shape[1:]) * 2 - 1
    x = (x + grain * light.noise).clamp(0, 1)
    return (x * 255 + 0.5).to(torch.uint8).permute(1, 2, 0).contiguous()
