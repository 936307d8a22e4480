"""The ten shape families of the rendered data set, as signed-distance functions.

The function of a family maps points in the object's own frame (decimetres; y along the object, z
towards the viewer) and the measures of the object to one distance per part. The object is the union
of its parts, distance(p) = min_i part_i(p), and the nearest part determines the material.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, hypot, pi, sin
from types import SimpleNamespace

import torch
from torch import Tensor

Points = tuple[Tensor, Tensor, Tensor]
Measures = SimpleNamespace  # the measures of an object by name, as floats
Vector = tuple[float, float, float]
Shape = Callable[[Points, Measures], list[Tensor]]


@dataclass(frozen=True)
class Hold:
    """The grip of a hand on an object, and the capsule that bounds the object.

    Args:
        grip: The centre of the grip.
        wide: The half-axis of the grip along x.
        deep: The half-axis of the grip along z.
        low: One end of the bounding capsule.
        high: The other end of the bounding capsule.
        radius: The radius of the bounding capsule.
    """

    grip: Vector
    wide: float
    deep: float
    low: Vector
    high: Vector
    radius: float


def length(first: Tensor, *rest: Tensor) -> Tensor:
    """Return sqrt(a² + b² + ...), the length of vectors given by their coordinates.

    Args:
        first: The first coordinates.
        *rest: The others.
    """
    total = first * first
    for part in rest:
        total.addcmul_(part, part)
    return total.sqrt_()


def corner(a: Tensor, b: Tensor, round_by: float = 0.0) -> Tensor:
    """Return the distance to the intersection of two perpendicular half-spaces.

    Args:
        a: The distances from the first half-space.
        b: The distances from the second.
        round_by: The radius of the edge.
    """
    if round_by:
        a, b = a + round_by, b + round_by
    outside = length(a.clamp_min(0), b.clamp_min(0))
    return outside.add_(torch.maximum(a, b).clamp_max_(0)).sub_(round_by)


def box(p: Points, half: Vector, round_by: float) -> Tensor:
    """Return the distance to a box with rounded edges.

    Args:
        p: The points.
        half: Half its sides.
        round_by: The radius of its edges.
    """
    a, b, c = (v.abs().sub_(h - round_by) for v, h in zip(p, half, strict=True))
    inside = torch.maximum(torch.maximum(a, b), c).clamp_max_(0)
    return length(a.clamp_min_(0), b.clamp_min_(0), c.clamp_min_(0)).add_(inside).sub_(round_by)


def tube(
    radial: Tensor, y: Tensor, radius: float, low: float, high: float, round_by: float = 0.0
) -> Tensor:
    """Return the distance to a solid cylinder about y.

    Args:
        radial: The distance of the points from the axis.
        y: Their height.
        radius: The radius of the cylinder.
        low: Its lower end.
        high: Its upper end.
        round_by: The radius of its edges.
    """
    return corner(radial - radius, (y - (low + high) / 2).abs_().sub_((high - low) / 2), round_by)


def capsule(p: Points, a: Vector, b: Vector, radius: float) -> Tensor:
    """Return the distance to a capsule.

    Args:
        p: The points.
        a: One end of its axis.
        b: The other end.
        radius: Its radius.
    """
    edge = [v - u for u, v in zip(a, b, strict=True)]
    size = sum(e * e for e in edge)
    x, y, z = (v - u for v, u in zip(p, a, strict=True))
    along = (x * edge[0]).add_(y, alpha=edge[1]).add_(z, alpha=edge[2]).div_(size).clamp_(0, 1)
    x.sub_(along, alpha=edge[0])
    y.sub_(along, alpha=edge[1])
    z.sub_(along, alpha=edge[2])
    return length(x, y, z).sub_(radius)


def turned(a: Tensor, b: Tensor, angle: float) -> tuple[Tensor, Tensor]:
    """Return coordinates of the plane in axes turned by an angle.

    Args:
        a: The first coordinates.
        b: The second coordinates.
        angle: The angle in radians.
    """
    return (a * cos(angle)).add_(b, alpha=sin(angle)), (b * cos(angle)).sub_(a, alpha=sin(angle))


def oval(x: Tensor, y: Tensor, wide: float, tall: float) -> Tensor:
    """Return a distance to an ellipse: exact for a circle, otherwise a lower bound near it.

    Args:
        x: The coordinates along the first axis.
        y: The coordinates along the second axis.
        wide: The half-axis along x.
        tall: The half-axis along y.
    """
    return length(x / wide, y / tall).sub_(1).mul_(min(wide, tall))


def plug_adapter(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of a plug adapter: body, neck and pins.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    half, tall, tip = k.half, k.tall, k.tall + k.neck + k.reach
    square = box(p, (half, tall, half * k.depth), 0.05)
    barrel = tube(length(x, z), y, half, -tall, tall, 0.05)
    body = torch.lerp(square, barrel, k.roundness)
    neck = tube(length(x, z), y, half * 0.7, tall - 0.05, tall + k.neck, 0.03)
    side = x.abs().sub_(half * k.spread)
    pins = tube(length(side, z), y, k.pin, tall, tip, 0.02)
    if k.earth > 0.5:
        earth = tube(length(x, z - half * 0.25), y, k.pin, tall, tip, 0.02)
        pins = torch.minimum(pins, earth)
    return [body, neck, pins]


def mobile_phone(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of a mobile phone: body and bump.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    slab = box(p, (k.wide, k.tall, k.thick), k.edge)
    bump = box((x, y - k.tall * 0.72, z + k.thick), (k.wide * k.camera, 0.07, 0.025), 0.02)
    if k.aerial > 0.5:
        side = k.wide * 0.7
        stub = capsule(p, (side, k.tall, 0.0), (side, k.tall + 0.16, 0.0), 0.045)
        bump = torch.minimum(bump, stub)
    return [slab, bump]


def scissors(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of scissors: blades, grips and pivot.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    # The halves are mirror images, so only one is drawn; the blades lean over the pivot and cross.
    fold = x.abs()
    u, v = turned(fold, y, -k.open)
    taper = (v - k.blade * 0.15).clamp_min_(0).mul_(0.09 / k.blade)
    across = u.abs().sub_(k.broad).add_(taper)
    along = (v - k.blade / 2).abs_().sub_(k.blade / 2 + 0.05)
    blade = corner(corner(across, along), z.abs().sub_(0.018))
    cx, cy = k.ring + 0.05, -k.shank
    hole = oval(*turned(fold - cx, y - cy, 0.35), k.ring, k.ring * k.oval)
    ring = length(hole, z).sub_(k.grip)
    joint = (cx * 0.8, cy + k.ring * k.oval, 0.0)
    shank = capsule((fold, y, z), (0.0, 0.0, 0.0), joint, k.grip)
    pivot = corner(length(x, y) - 0.05, z.abs().sub_(0.04), 0.01)
    return [blade, torch.minimum(ring, shank), pivot]


def light_bulb(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of a light bulb: glass, collar and thread.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    radial = length(x, z)
    style, size = int(k.style), k.size
    if style == 3:
        turn = torch.atan2(z, x).mul_(k.pitch / (2 * pi))
        lap = torch.remainder(y - turn, k.pitch).sub_(k.pitch / 2)
        coil = length(radial - size * 0.62, lap).sub_(k.pitch * 0.36)
        glass = corner(coil, (y - 0.1).abs_().sub_(0.42))
        glass = torch.minimum(glass, tube(radial, y, size * 0.6, -0.36, -0.3))
    elif style == 2:
        cone = radial - size * 0.95 + (0.3 - y).clamp_min(0) * 0.55
        glass = corner(cone, (y - 0.02).abs_().sub_(0.34), 0.04).mul_(0.85)
    else:
        tall = size * k.stretch
        globe = length(radial / size, (y - 0.12) / tall).sub_(1).mul_(min(size, tall))
        neck = (radial - 0.13 - (y + 0.35).clamp_min(0).mul_(0.35)).clamp_min(-0.2)
        stem = corner(neck, (y + 0.15).abs_().sub_(0.22))
        near = (0.12 - (globe - stem).abs_()).clamp_min_(0)
        glass = torch.minimum(globe, stem) - near * near * 2
    collar = tube(radial, y, k.collar, -0.42, -0.42 + k.skirt, 0.03)
    thread = torch.sin(y * 75).mul_(0.012)
    screw = tube(radial - thread, y, 0.125, -0.66, -0.4, 0.02).mul_(0.8)
    tip = tube(radial, y, 0.05, -0.71, -0.6, 0.02)
    return [glass, collar, torch.minimum(screw, tip)]


def can(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of a can: body, and rim with lid.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    radial, height = length(x, z), y.abs()
    half, radius = k.half, k.radius
    side = radial - radius + (height - half + 0.09).clamp_min_(0).mul_(0.6)
    body = corner(side, height - half + 0.03, 0.01).mul_(0.9)
    rim = length(radial - radius + 0.06, height - half).sub_(0.02)
    lid = tube(radial, y, radius - 0.07, 0.012 - half, half - 0.012)
    tab = box((x, y - half - 0.015, z - 0.06), (0.055, 0.014, 0.1), 0.012)
    return [body, torch.minimum(torch.minimum(rim, lid), tab)]


def glasses(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of glasses: frame, lenses and temples.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    wide, tall, wire = k.wide, k.tall, k.wire
    fold = x.abs()
    centre = wide + k.bridge
    dip = y + (fold - centre).mul_(k.slant)
    bent = z + (fold * fold).mul_(0.12)
    a, b = (fold - centre).abs_().sub_(wide), dip.abs().sub_(tall)
    outline = corner(a, b, k.curve * tall)
    rim = length(outline, bent).sub_(wire)
    lens = corner(outline, bent.abs().sub_(0.006))
    across = (fold, y - tall * 0.45, bent)
    nose = capsule(across, (0.0, 0.03, 0.0), (k.bridge + 0.02, 0.0, 0.0), wire)
    outer = centre + wide
    depth = -0.12 * outer * outer
    folded = k.fold
    hinge = (outer, tall * 0.5, depth)
    ear = (outer - folded, tall * 0.5, depth - 1.0 + folded * 0.6)
    end = (ear[0] - 0.05, ear[1] - 0.3, ear[2] - 0.2)
    points = (fold, y, z)
    temple, tip = capsule(points, hinge, ear, k.temple), capsule(points, ear, end, k.temple)
    return [torch.minimum(rim, nose), lens, torch.minimum(temple, tip)]


def ball(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of a ball, which has only one.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    size, tall = k.size, k.size * k.stretch
    return [length(x / size, y / tall, z / size).sub_(1).mul_(min(size, tall))]


def marker(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of a marker: body, cap with clip, and end.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    radius, half, split = k.radius, k.half, k.split * k.half
    radial = length(x, z * k.flat)
    body = tube(radial, y, radius, -half, split + 0.02, 0.02)
    tapered = radial + (y - split).clamp_min_(0).mul_(k.taper)
    cap = tube(tapered, y, radius * 1.1, split, half, 0.025)
    above = (x, y - split - (half - split) * 0.5, z - radius * 1.15)
    clip = box(above, (0.03, (half - split) * 0.45, k.clip), 0.01)
    end = tube(radial, y, radius * k.plug, -half - 0.06, -half + 0.1, 0.02)
    return [body.mul_(0.9), torch.minimum(cap, clip).mul_(0.9), end]


def cup(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of a cup: shell, handle and lining.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    radius, half = k.radius, k.half
    radial = length(x, z)
    level = y / half
    wall = radial - radius - level * k.flare - (1 - level * level).mul_(k.belly)
    outer = corner(wall, y.abs().sub_(half), 0.025)
    inner = corner(wall + 0.045, (y - 0.06).abs_().sub_(half)).neg_()
    shell = torch.maximum(outer, inner)
    lining = torch.maximum(outer + 0.012, inner - 0.003)
    loop = oval(x - radius - k.belly * 0.6, y - half * k.lift, k.reach, half * k.loop)
    hoop = length(loop, z * k.strap).sub_(k.grip)
    handle = torch.maximum(hoop, -wall - 0.02)
    return [shell.mul_(0.85), handle.mul_(0.8), lining.mul_(0.85)]


def remote_control(p: Points, k: Measures) -> list[Tensor]:
    """Return the distance of points from each part of a remote control: body, knob and eye.

    Args:
        p: The points, in the object's frame.
        k: Its measures.
    """
    x, y, z = p
    waist = 1 - k.waist * torch.cos(y * (pi / k.tall))
    back = z + (y * y).mul_(k.bow)
    body = box((x / waist, y, back), (k.wide, k.tall, k.thick), k.edge).mul_(0.85)
    eye = box((x, y - k.tall, back), (0.09, 0.02, 0.04), 0.01)
    across = length(x, y - k.tall * k.pad) - k.wide * 0.5
    knob = corner(across, (back - k.thick).abs_().sub_(k.knob), 0.01)
    return [body, knob, eye]


def _upright(reach: float, radius: float, at: float, wide: float, deep: float) -> Hold:
    """Return the hold of an object along y, bounded by |y| <= reach and radius, gripped at `at`."""
    span = max(reach - radius, 0.01)
    return Hold((0.0, at, 0.0), wide, deep, (0.0, -span, 0.0), (0.0, span, 0.0), radius)


def hold_of(family: int, k: Measures) -> Hold:
    """Return the grip and the bounds of an object.

    Args:
        family: The index of its shape in `FAMILIES`.
        k: Its measures.
    """
    name = FAMILIES[family][0]
    if name == "plug adapters":
        reach, half = k.tall + k.neck + k.reach + 0.05, k.half
        return _upright(reach, half * 1.3 + 0.03, -k.tall - 0.02, half * 0.8, half * k.depth)
    if name == "mobile phones":
        return _upright(k.tall + 0.3, k.wide + 0.07, -k.tall * 0.5, k.wide, k.thick)
    if name == "scissors":
        low, high = (0.0, 0.05 - k.shank, 0.0), (0.0, k.blade - 0.1, 0.0)
        return Hold((0.0, -k.shank, 0.0), k.ring * 1.6, 0.05, low, high, 2 * k.ring + 0.2)
    if name == "light bulbs":
        return _upright(0.78, k.size * 1.05, -0.52, 0.14, 0.14)
    if name == "glasses":
        outer = 2 * k.wide + k.bridge
        low, high = (-outer * 0.45, 0.0, -0.5), (outer * 0.45, 0.0, -0.5)
        return Hold((outer, 0.0, -0.25), 0.05, 0.05, low, high, 0.98)
    if name == "balls":
        size, tall = k.size, k.size * k.stretch
        return _upright(tall + 0.02, size + 0.02, -tall * 0.35, size * 0.93, size * 0.93)
    if name == "markers":
        return _upright(k.half + 0.1, k.radius * 1.3 + 0.06, -k.half * 0.7, k.radius, k.radius)
    if name == "cans":
        return _upright(k.half + 0.2, k.radius + 0.05, -k.half * 0.3, k.radius, k.radius)
    if name == "cups":
        grip, low, high = (0.0, -k.half * 0.35, 0.0), (-0.05, 0.0, 0.0), (k.reach * 0.8, 0.0, 0.0)
        radius = hypot(k.radius + k.flare + k.belly, k.half) + 0.03
        return Hold(grip, k.radius, k.radius, low, high, radius)
    return _upright(k.tall + 0.1, k.wide * 1.3 + 0.05, -k.tall * 0.6, k.wide, k.thick)


FAMILIES: tuple[tuple[str, Shape], ...] = (
    ("plug adapters", plug_adapter),
    ("mobile phones", mobile_phone),
    ("scissors", scissors),
    ("light bulbs", light_bulb),
    ("cans", can),
    ("glasses", glasses),
    ("balls", ball),
    ("markers", marker),
    ("cups", cup),
    ("remote controls", remote_control),
)
