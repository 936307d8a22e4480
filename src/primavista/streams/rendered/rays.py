"""Ray casting for the rendered data set: culling, sphere tracing, the hand, and shading.

In the camera's frame, x points right and y up; the camera is at (0, 0, CAMERA) and looks along -z
at the object near the origin. A point p of a body is at R p + T in this frame. Points and colours
are tuples or 3 x P tensors over the rays that remain after culling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from primavista.streams.rendered.backgrounds import Light
from primavista.streams.rendered.hands import Hand, Moves, distance, meet, surface
from primavista.streams.rendered.looks import ObjectLook
from primavista.streams.rendered.shapes import FAMILIES, Hold, Points, Vector, length

CAMERA = 4.5  # decimetres from the camera to the object
STEPS = 16  # steps of sphere tracing; grazing rays that need more count as edge pixels
CONTACT = 0.14  # decimetres: the distance at which hand and object begin to darken each other


@dataclass(frozen=True)
class Bodies:
    """The poses of N frames as tables to gather from.

    A pose has twelve rows: the nine entries of R, then the camera in the body's frame.

    Args:
        thing: The poses of the object.
        wrist: The poses of the wrist.
        spin: The nine entries of the rotation from object to wrist.
        position: The position of the bodies in the camera's frame, 3 x N.
    """

    thing: Tensor
    wrist: Tensor
    spin: Tensor
    position: Tensor


@dataclass(frozen=True)
class Hits:
    """The rays that met a body.

    Args:
        index: The index of the pixel of each ray among N * size * size.
        frame: The frame of each ray.
        alpha: The coverage of each pixel, from 0 to 1.
        depth: The distance from the camera.
        point: The point on the body, in the body's frame.
    """

    index: Tensor
    frame: Tensor
    alpha: Tensor
    depth: Tensor
    point: Points


class Rays:
    """The rays of one image: unit directions (3 x size²) in the camera's frame.

    Args:
        size: The side of the image in pixels.
        tan: The tangent of half the field of view.
        device: The device of the tensors.
    """

    def __init__(self, size: int, tan: float, device: torch.device) -> None:
        self.size, self.tan, self.device = size, tan, device
        line = (torch.arange(size, device=device) + 0.5) * (2 / size) - 1
        self.x = line.repeat(size)
        self.y = -line.repeat_interleave(size)
        scale = ((self.x * tan) ** 2 + (self.y * tan) ** 2 + 1).rsqrt()
        self.ray = torch.stack([self.x * tan * scale, self.y * tan * scale, -scale])
        self.pixel = 2 * tan * CAMERA / size

    def near(
        self, table: Tensor, position: Tensor, bounds: Sequence[tuple[Vector, Vector, float]]
    ) -> Tensor:
        """Find the pixels whose rays may meet one of the bounding capsules.

        Args:
            table: The poses of the body.
            position: The position of the body, 3 x N.
            bounds: The capsules as (low, high, radius) in the body's frame.

        Returns:
            Indices of pixels over all frames.
        """
        shape = position.shape[1], len(self.x)
        mask = torch.zeros(shape, dtype=torch.bool, device=self.device)
        for low, high, radius in bounds:
            ax, ay, ar = self._seen(table, position, low, radius)
            bx, by, br = self._seen(table, position, high, radius)
            ex, ey = bx - ax, by - ay
            x, y = self.x - ax, self.y - ay
            share = ((x * ex).addcmul_(y, ey) / (ex * ex + ey * ey).clamp_min(1e-9)).clamp_(0, 1)
            x.addcmul_(share, ex, value=-1)
            y.addcmul_(share, ey, value=-1)
            mask.logical_or_(x.square_().add_(y.square_()) < torch.maximum(ar, br) ** 2)
        return mask.view(-1).nonzero().view(-1)

    def _seen(
        self, table: Tensor, position: Tensor, point: Vector, radius: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project a point of a body, and the radius of a ball around it, to the image (N x 1)."""
        x, y, z = (
            table[3 * i] * point[0]
            + table[3 * i + 1] * point[1]
            + table[3 * i + 2] * point[2]
            + position[i]
            for i in range(3)
        )
        scale = 1 / ((CAMERA - z).clamp_min(0.5) * self.tan)
        reach = radius * scale * 1.08 + 2.5 / self.size
        return (x * scale).unsqueeze(1), (y * scale).unsqueeze(1), reach.unsqueeze(1)

    def cast(self, table: Tensor, index: Tensor) -> tuple[Tensor, Points, Points]:
        """Transform rays into the body's frame.

        Args:
            table: The poses of the body.
            index: The pixels, over all frames.

        Returns:
            The frame, origin and direction of each ray.
        """
        frame = index.div(self.size**2, rounding_mode="floor")
        pose = table.index_select(1, frame)
        vx, vy, vz = self.ray.index_select(1, index - frame * self.size**2)
        return frame, (pose[9], pose[10], pose[11]), turn_back(pose, (vx, vy, vz))


def bodies_of(moves: Moves, device: torch.device) -> Bodies:
    """Tabulate poses in float64, so that they do not depend on the number of frames.

    Args:
        moves: The poses of the frames.
        device: The device of the tables.
    """
    camera = -moves.position.clone()
    camera[:, 2] += CAMERA
    whole = (moves.wrist.unsqueeze(-1) * moves.spin.unsqueeze(-3)).sum(-2)

    def columns(rows: Tensor) -> Tensor:
        return rows.t().contiguous().to(device, torch.float32)

    def table(turn: Tensor) -> Tensor:
        origin = (turn * camera.unsqueeze(-1)).sum(-2)
        return columns(torch.cat([turn.reshape(-1, 9), origin], 1))

    spin = columns(moves.spin.reshape(-1, 9))
    return Bodies(table(whole), table(moves.wrist), spin, columns(moves.position))


def turn(pose: Tensor, p: Points) -> Points:
    """Return R p.

    Args:
        pose: The entries of R in the first nine rows, for each point.
        p: The points.
    """
    x, y, z = p
    a, b, c = (
        (pose[3 * i] * x).addcmul_(pose[3 * i + 1], y).addcmul_(pose[3 * i + 2], z)
        for i in range(3)
    )
    return a, b, c


def turn_back(pose: Tensor, p: Points) -> Points:
    """Return R^T p, the inverse of `turn`.

    Args:
        pose: The entries of R in the first nine rows, for each point.
        p: The points.
    """
    x, y, z = p
    a, b, c = ((pose[i] * x).addcmul_(pose[3 + i], y).addcmul_(pose[6 + i], z) for i in range(3))
    return a, b, c


def outside(look: ObjectLook, p: Points) -> Tensor:
    """Return the signed distance of points from an object, negative inside.

    Args:
        look: The object.
        p: The points, in the object's frame.
    """
    parts = FAMILIES[look.family][1](p, look.measures)
    nearest = parts[0]
    for part in parts[1:]:
        nearest = torch.minimum(nearest, part)
    return nearest


def meet_object(look: ObjectLook, hold: Hold, rays: Rays, bodies: Bodies) -> Hits:
    """Intersect rays with an object by sphere tracing, t <- t + distance(o + t r).

    Coverage is 1 - d / pixel at the nearest approach d.

    Args:
        look: The object.
        hold: The bounds of the object.
        rays: The rays of an image.
        bodies: The poses of the frames.

    Returns:
        The rays that meet it.
    """
    index = rays.near(bodies.thing, bodies.position, [(hold.low, hold.high, hold.radius)])
    frame, origin, ray = rays.cast(bodies.thing, index)
    ends = list(zip(hold.low, hold.high, strict=True))
    middle = [(a + b) / 2 for a, b in ends]
    reach = hold.radius + sum((b - a) ** 2 for a, b in ends) ** 0.5 / 2
    x, y, z = (o - m for o, m in zip(origin, middle, strict=True))
    near = (x * ray[0]).addcmul_(y, ray[1]).addcmul_(z, ray[2]).neg_()
    gap = length(x, y, z).square_().addcmul_(near, near, value=-1)
    depth = near - (reach * reach - gap).clamp_min_(0).sqrt_()
    closest, at = torch.full_like(depth, 1e3), depth
    for _ in range(STEPS):
        step = outside(look, _along(origin, ray, depth))
        at = torch.where(step < closest, depth, at)
        closest = torch.minimum(closest, step)
        depth = depth + step
    alpha = closest.div_(-rays.pixel).add_(1).clamp_(0, 1)
    keep = alpha.nonzero().view(-1)
    index, frame, alpha, at = (v.index_select(0, keep) for v in (index, frame, alpha, at))
    _, origin, ray = rays.cast(bodies.thing, index)
    return Hits(index, frame, alpha, at, _along(origin, ray, at))


def meet_hand(hand: Hand, rays: Rays, bodies: Bodies) -> Hits:
    """Intersect rays with the hand.

    Args:
        hand: The hand.
        rays: The rays of an image.
        bodies: The poses of the frames.

    Returns:
        The rays that meet it.
    """
    index = rays.near(bodies.wrist, bodies.position, hand.bounds)
    frame, origin, ray = rays.cast(bodies.wrist, index)
    depth, alpha = meet(hand, origin, ray, rays.pixel)
    keep = alpha.nonzero().view(-1)
    index, frame, alpha, depth = (v.index_select(0, keep) for v in (index, frame, alpha, depth))
    _, origin, ray = rays.cast(bodies.wrist, index)
    return Hits(index, frame, alpha, depth, _along(origin, ray, depth))


def _along(origin: Points, ray: Points, depth: Tensor) -> Points:
    x, y, z = (torch.addcmul(o, depth, r) for o, r in zip(origin, ray, strict=True))
    return x, y, z


def _normal(look: ObjectLook, p: Points, step: float) -> Points:
    """Estimate the gradient of the distance from four samples at the corners of a tetrahedron.

    With a step of one pixel, this is also the mean normal over the pixel, which keeps thin edges
    from sparkling.
    """
    total = [torch.zeros_like(p[0]) for _ in range(3)]
    for signs in ((1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1)):
        x, y, z = (v + sign * step for v, sign in zip(p, signs, strict=True))
        value = outside(look, (x, y, z))
        for axis in range(3):
            total[axis].add_(value, alpha=signs[axis])
    scale = length(*total).clamp_min_(1e-9).reciprocal_()
    return total[0] * scale, total[1] * scale, total[2] * scale


def _lit(
    base: Tensor,
    normal: Points,
    light: Light,
    gloss: Tensor | float,
    metal: Tensor | float,
    open_: Tensor,
) -> Tensor:
    """base * open * (ambient + strength * wrapped Lambert) plus a Blinn highlight.

    Metals reflect a banded room.
    """
    nx, ny, nz = normal
    lx, ly, lz = light.direction
    facing = (nx * lx).add_(ny, alpha=ly).add_(nz, alpha=lz)
    diffuse = facing.add(0.2).div_(1.2).clamp_min_(0).mul_(light.strength)
    diffuse.add_(ny, alpha=0.25 * light.ambient).add_(light.ambient)
    twice = nz.clamp_min(0) * 2
    mirror = torch.sin((twice * ny).mul_(4.5).add_(twice * nx, alpha=2.5))
    mirror.mul_(0.5).add_(0.55).mul_(light.ambient + light.strength * 0.7)
    body = torch.lerp(diffuse, mirror, metal) if isinstance(metal, Tensor) else diffuse
    size = (lx * lx + ly * ly + (lz + 1) ** 2) ** 0.5
    shine = (nx * (lx / size)).add_(ny, alpha=ly / size).add_(nz, alpha=(lz + 1) / size)
    broad = shine.clamp_min_(0).square_().square_().square_()
    sharp = broad.square().square_()
    glint = (broad * 0.12 + sharp * sharp * 0.8).mul_(light.strength) * gloss
    rim = (1 - nz.abs()).clamp_(0, 1).pow_(3).mul_(0.25 * light.ambient) * gloss
    glint = (glint + rim) * open_
    return torch.addcmul(glint, base, body * open_)


def object_colour(
    look: ObjectLook,
    label: Tensor,
    hand: Hand,
    hits: Hits,
    bodies: Bodies,
    light: Light,
    pixel: float,
) -> tuple[Tensor, Tensor]:
    """Shade an object.

    Args:
        look: The object.
        label: Its label.
        hand: The hand, which darkens the object where it touches it.
        hits: The rays that met the object.
        bodies: The poses of the frames.
        light: The light of the session.
        pixel: The width of a pixel at the object, in decimetres.

    Returns:
        The colour (3 x P) and the opacity of each hit.
    """
    device = hits.alpha.device
    parts = torch.stack(FAMILIES[look.family][1](hits.point, look.measures)).argmin(0)
    rows = [(*m.colour, m.gloss, m.metal, m.alpha, float(m.labelled)) for m in look.materials]
    made = torch.tensor(rows, device=device).t().contiguous().index_select(1, parts)
    base = torch.lerp(made[:3], *_printed(look, label, hits.point, made[6]))
    normal = _normal(look, hits.point, pixel)
    above = _along(hits.point, normal, torch.full_like(hits.alpha, 0.1))
    room = outside(look, above).div_(0.1).clamp_(0.25, 1)
    pose = bodies.thing.index_select(1, hits.frame)
    held = turn(bodies.spin.index_select(1, hits.frame), hits.point)
    touch = distance(hand, held).div_(CONTACT).add_(0.35).clamp_(0.35, 1)
    colour = _lit(base, turn(pose, normal), light, made[3], made[4], room.mul_(touch))
    return colour, hits.alpha * made[5]


def _printed(look: ObjectLook, label: Tensor, p: Points, labelled: Tensor) -> tuple[Tensor, Tensor]:
    """Return the colour of the label at points (3 x P), and a mask of the printed points.

    The label is printed all around the object, or on the front and back of flat things.
    """
    x, y, z = p
    k, name = look.measures, FAMILIES[look.family][0]
    if name == "balls":
        tall = k.size * k.stretch
    else:
        tall = k.half if name in ("cans", "cups", "markers") else getattr(k, "tall", 1.0)
    if name in ("mobile phones", "remote controls", "plug adapters"):
        wide, thick = (k.half, k.half * k.depth) if "depth" in vars(k) else (k.wide, k.thick)
        front = (z > 0).to(torch.float32)
        u = (x / wide).clamp_(-1, 1).mul_(front - 0.5).add_(0.5 - front)
        labelled = labelled * ((z + y * y * getattr(k, "bow", 0.0)).abs() > 0.6 * thick)
    else:
        u = torch.atan2(x, z).mul_(1 / pi)
    grid = torch.stack([u, (y / tall).clamp_(-1, 1)], -1).view(1, -1, 1, 2)
    colours = grid_sample(label, grid, padding_mode="border", align_corners=False)
    return colours.view(3, -1), labelled


def hand_colour(look: ObjectLook, hand: Hand, hits: Hits, bodies: Bodies, light: Light) -> Tensor:
    """Shade the hand: darker between fingers and where it touches, redder at the tips.

    Args:
        look: The object.
        hand: The hand.
        hits: The rays that met the hand.
        bodies: The poses of the frames.
        light: The light of the session.

    Returns:
        The colour of each hit, 3 x P.
    """
    normal, openness, fingertip = surface(hand, hits.point)
    pose = bodies.wrist.index_select(1, hits.frame)
    inside = turn_back(bodies.spin.index_select(1, hits.frame), hits.point)
    touch = outside(look, inside).div_(CONTACT).add_(0.4).clamp_(0.4, 1)
    skin = torch.tensor(hand.skin, device=openness.device).view(3, 1)
    flush = torch.tensor((0.03, -0.05, -0.03), device=openness.device).view(3, 1)
    mottle = torch.sin(hits.point[0] * 23 + torch.sin(hits.point[1] * 31) * 2).mul_(0.02)
    shade = openness.add(0.35).clamp_(0, 1).mul_(touch)
    return _lit(skin + flush * fingertip + mottle, turn(pose, normal), light, 0.18, 0.0, shade)
