"""The hand that holds an object, and the movements of hand, object and camera in a session.

In the coordinate system of the wrist, the hand is rigid and the object turns slowly. The hand is a
set of tapered capsules; a ray meets a capsule if it passes the segment of the capsule within the
radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin

import torch
from torch import Tensor

from primavista.streams.rendered.shapes import Hold, Points, Vector
from primavista.streams.rendered.traits import Colour, Dice

FINGER = 0.082  # decimetres, a finger's radius
FINGER_LENGTH = 0.68
BLEND = 22.0  # sharpness of the blend of normals of neighbouring capsules, per decimetre


@dataclass(frozen=True)
class Hand:
    """A hand as K tapered capsules from start to end.

    Args:
        start: The start of each segment, 3 x K x 1.
        edge: The vector from its start to its end, 3 x K x 1.
        radii: The radius at the start, and its increase towards the end, K x 1 each.
        skin: The colour of the skin.
        bounds: Two capsules (low, high, radius) that bound the whole hand.
    """

    start: Tensor
    edge: Tensor
    radii: tuple[Tensor, Tensor]
    skin: Colour
    bounds: tuple[tuple[Vector, Vector, float], ...]


@dataclass(frozen=True)
class Moves:
    """The poses of N frames.

    Args:
        wrist: The rotations from wrist to camera, N x 3 x 3.
        spin: The rotations from object to wrist, N x 3 x 3.
        position: The position of the object, N x 3, in decimetres.
        backdrop: The shift (x, y), zoom and turn of the background, N x 4.
    """

    wrist: Tensor
    spin: Tensor
    position: Tensor
    backdrop: Tensor


def _add(a: Vector, b: Vector) -> Vector:
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


def hand_of(seed: int, session: int, object: int, hold: Hold, device: torch.device) -> Hand:
    """Make a hand that grips an object; the session draws its side and handedness.

    Args:
        seed: The seed of the scene.
        session: The number of the session, from 1.
        object: The number of the object, from 1.
        hold: The grip of the object.
        device: The device of the tensors.

    Returns:
        The hand in the coordinate system of the wrist.
    """
    dice = Dice("hand", seed, session, object)
    side = dice.pick((-1.0, 1.0))
    # Never from straight in front (90 degrees): the palm would hide the object.
    facing = -pi / 2 + dice.between(-0.75, 0.75) * pi * 0.75
    size = dice.between(0.92, 1.08)
    finger = FINGER * size
    grip = _add(hold.grip, (0.0, dice.between(-0.06, 0.06), 0.0))

    def around(angle: float, height: float, gap: float) -> Vector:
        return _add(grip, ((hold.wide + gap) * cos(angle), height, (hold.deep + gap) * sin(angle)))

    longest = min(2.3, FINGER_LENGTH * size / (max(hold.wide, hold.deep) + finger))
    reach = longest * dice.between(0.85, 1.05)
    segments: list[tuple[Vector, Vector, float, float]] = []
    knuckles: list[Vector] = []
    for i in range(4):
        height, bend = (1.5 - i) * finger * 2.02, reach * (0.9, 1.0, 0.95, 0.8)[i]
        second, third = facing + side * (0.55 + bend * 0.55), facing + side * (0.55 + bend)
        knuckle = around(facing + side * 0.55, height * 0.95 - 0.03, finger * 1.6)
        middle = around(second, height + 0.02, finger * 1.25)
        tip = around(third, height * 0.97, finger * 0.75)
        knuckles.append(knuckle)
        segments += [(knuckle, middle, finger * 1.08, finger), (middle, tip, finger, finger * 0.82)]
    palm = around(facing, -0.06, finger * 2.1)
    heel = around(facing - side * 0.25, -0.36, finger * 2.3)
    root = around(facing - side * 0.5, -0.2, finger * 1.6)
    joint = around(facing - side * (0.5 + reach * 0.45), -0.02, finger * 1.35)
    thumb = around(facing - side * (0.5 + reach * 0.8), dice.between(0.0, 0.2), finger * 0.85)
    wrist = _add(heel, (0.12 * cos(facing), -0.28, 0.12 * sin(facing)))
    elbow = _add(wrist, (1.1 * cos(facing) * dice.between(0.4, 1.4), -2.2, 0.5 + 0.5 * sin(facing)))
    segments += [
        (knuckles[0], knuckles[3], finger * 1.25, finger * 1.15),
        (palm, heel, finger * 2.0, finger * 2.1),
        (root, joint, finger * 1.5, finger * 1.12),
        (joint, thumb, finger * 1.1, finger * 0.9),
        (heel, wrist, finger * 2.2, finger * 2.1),
        (wrist, elbow, finger * 2.15, finger * 3.4),
        (knuckles[1], heel, finger * 1.4, finger * 1.7),
        (root, heel, finger * 1.5, finger * 2.0),
    ]
    tone = dice.between(0.0, 1.0)
    skin = (0.88 - 0.22 * tone, 0.66 - 0.22 * tone, 0.54 - 0.22 * tone)
    spread = max(hold.wide, hold.deep) + finger * 4.6
    bounds = ((grip, _add(grip, (0.0, -0.1, 0.0)), max(spread, 0.5)), (palm, elbow, finger * 3.4))
    return Hand(
        _columns([s[0] for s in segments], device),
        _columns([(b[0] - a[0], b[1] - a[1], b[2] - a[2]) for a, b, _, _ in segments], device),
        (
            _columns([s[2] for s in segments], device),
            _columns([s[3] - s[2] for s in segments], device),
        ),
        skin,
        bounds,
    )


def _columns(values: list[Vector] | list[float], device: torch.device) -> Tensor:
    """Return numbers as K x 1, or vectors as 3 x K x 1."""
    return torch.tensor(values, device=device).t().contiguous().unsqueeze(-1)


def _dot(a: Sequence[Tensor] | Tensor, b: Sequence[Tensor] | Tensor) -> Tensor:
    return (a[0] * b[0]).addcmul_(a[1], b[1]).addcmul_(a[2], b[2])


def meet(hand: Hand, origin: Points, ray: Points, pixel: float) -> tuple[Tensor, Tensor]:
    """Intersect rays with the hand.

    A ray passes segment k at the distance g = min_{s,t} |o + t r - a_k - s e_k|. Coverage is
    (radius - g) / pixel + 1/2, clipped to [0, 1]; depth is where the ray enters.

    Args:
        hand: The hand.
        origin: The start of each ray, in the wrist's frame.
        ray: The direction of each ray, a unit vector.
        pixel: The width of a pixel at the object, in decimetres.

    Returns:
        The depth along each ray, and its coverage.
    """
    near = _dot(origin, ray).neg_()
    # Starting at the point nearest the wrist's origin, float32 is precise at any camera distance.
    at = tuple(o + near * r for o, r in zip(origin, ray, strict=True))
    start, edge = hand.start, hand.edge
    size, ray_edge = _dot(edge, edge), _dot(edge, ray)
    ray_gap = _dot(start, ray).neg_()
    edge_gap = _dot(edge, at).sub_(_dot(edge, start))
    far = _dot(start, at).mul_(-2).add_(_dot(at, at)).add_(_dot(start, start))

    def passing(share: Tensor) -> tuple[Tensor, Tensor]:
        """t = r·(s e - w) and |w + t r - s e|² = |w - s e|² - t² at the fraction s of a segment."""
        along = ray_edge * share - ray_gap
        gap = torch.addcmul(far, share, edge_gap, value=-2).addcmul_(share * share, size)
        return along, gap.addcmul_(along, along, value=-1).clamp_min_(0)

    slant = (size - ray_edge * ray_edge).clamp_min_(1e-6)
    share = (edge_gap - ray_edge * ray_gap).div_(slant).clamp_(0, 1)
    radius = hand.radii[0] + hand.radii[1] * share
    square, gap = radius * radius, passing(share)[1]
    coverage = (radius - gap.sqrt()).div_(pixel).add_(0.5).clamp_(0, 1)
    # A ray enters a slanted cylinder before it passes the axis, where another point of the axis
    # is nearest.
    before = (square - gap).clamp_min_(0).div_(slant * size).sqrt_()
    along, gap = passing(share.addcmul_(before, ray_edge, value=-1).clamp_(0, 1))
    depth = along.sub_(square.sub_(gap).clamp_min_(0).sqrt_())
    depth.add_((coverage <= 0).to(depth.dtype), alpha=1e3)
    return depth.amin(0).add_(near), coverage.amax(0)


def surface(hand: Hand, p: Points) -> tuple[Points, Tensor, Tensor]:
    """Describe the skin at points on the hand.

    Args:
        hand: The hand.
        p: The points, in the wrist's frame.

    Returns:
        The blended unit normal, the openness of the surroundings (1, towards 0 between fingers),
        and the closeness to a fingertip.
    """
    (x, y, z), share = _from_axes(hand, p)
    far = _dot((x, y, z), (x, y, z)).sqrt_()
    outside = far - hand.radii[0] - hand.radii[1] * share
    weight = outside.clamp_(-0.2, 0.4).mul_(-BLEND).exp_()
    total = weight.sum(0)
    openness = weight.amax(0) / total
    fingertip = (weight[1:8:2] * share[1:8:2]).amax(0) / total
    weight = weight / far.clamp_min(1e-4)
    nx, ny, nz = ((weight * v).sum(0) for v in (x, y, z))
    norm = _dot((nx, ny, nz), (nx, ny, nz)).clamp_min_(1e-12).rsqrt_()
    return (nx * norm, ny * norm, nz * norm), openness, fingertip


def distance(hand: Hand, p: Points) -> Tensor:
    """Return the distance of points from the hand's skin, negative inside.

    Args:
        hand: The hand.
        p: The points, in the wrist's frame.
    """
    far, share = _from_axes(hand, p)
    return _dot(far, far).sqrt_().sub_(hand.radii[0] + hand.radii[1] * share).amin(0)


def _from_axes(hand: Hand, p: Points) -> tuple[Points, Tensor]:
    """Return the vectors to points from the nearest point of each axis, and its share of the axis.

    The share is 0 at the start of the axis and 1 at its end.
    """
    x, y, z = (v - s for v, s in zip(p, hand.start, strict=True))
    share = _dot(hand.edge, (x, y, z)).div_(_dot(hand.edge, hand.edge)).clamp_(0, 1)
    x, y, z = (v.addcmul_(share, e, value=-1) for v, e in zip((x, y, z), hand.edge, strict=True))
    return (x, y, z), share


def _turn(axis: int, angle: Tensor) -> Tensor:
    """Return N x 3 x 3 rotations about x, y or z."""
    one, zero, c, s = torch.ones_like(angle), torch.zeros_like(angle), angle.cos(), angle.sin()
    rows = (
        [one, zero, zero, zero, c, -s, zero, s, c],
        [c, zero, s, zero, one, zero, -s, zero, c],
        [c, -s, zero, s, c, zero, zero, zero, one],
    )[axis]
    return torch.stack(rows, -1).view(-1, 3, 3)


def _product(a: Tensor, b: Tensor) -> Tensor:
    # A sum of products, because the rounding of a matrix product depends on the number of frames.
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def _sway(dice: Dice, u: Tensor, size: float) -> Tensor:
    """Return a smooth path within +-size that covers most of that range for u in [0, 1]."""
    phase, second = dice.between(0, 1), dice.between(0, 1)
    slow = torch.sin((u * dice.between(0.7, 1.2) + phase) * (2 * pi))
    return size * (0.75 * slow + 0.25 * torch.sin((u * dice.between(1.8, 2.6) + second) * (2 * pi)))


def moves_of(seed: int, session: int, object: int, u: Tensor, free: str) -> Moves:
    """Compute the paths of wrist, object and camera.

    Args:
        seed: The seed of the scene.
        session: The number of the session, from 1.
        object: The number of the object, from 1.
        u: The time of each frame as a fraction of the session, float64.
        free: The freedom of the object in the hand: "any" way, "round" its long axis, or "flat"
            with its face or back outwards.

    Returns:
        The poses of the frames.
    """
    dice = Dice("moves", seed, session, object)
    lean, nod, look = dice.between(-0.5, 0.5), dice.between(-0.1, 0.45), dice.between(-0.35, 0.35)
    roll, pitch, yaw = _sway(dice, u, 0.3), _sway(dice, u, 0.35), _sway(dice, u, 0.55)
    wrist = _product(_turn(2, lean + roll), _product(_turn(0, nod + pitch), _turn(1, look + yaw)))
    if free == "flat":
        about = dice.pick((0.0, 0.0, 0.0, pi)) + _sway(dice, u, 0.25)
        over = torch.zeros_like(u)
    else:
        about = dice.between(0, 2 * pi) + _sway(dice, u, 1.4)
        over = dice.between(0, pi) + _sway(dice, u, 0.5) if free == "any" else torch.zeros_like(u)
    spin = _product(_turn(0, over), _turn(1, about))
    x, y, z = _sway(dice, u, 0.13), _sway(dice, u, 0.1) + 0.08, _sway(dice, u, 0.35)
    right, down = _sway(dice, u, 0.22), _sway(dice, u, 0.22)
    zoom, lie = 0.62 + _sway(dice, u, 0.06), _sway(dice, u, 0.15)
    position, backdrop = torch.stack([x, y, z], -1), torch.stack([right, down, zoom, lie], -1)
    return Moves(wrist, spin, position, backdrop)
