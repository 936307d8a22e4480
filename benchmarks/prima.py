"""Ablate `prima` on three data sets; measure its lessons, its solves and its size.

    python benchmarks/prima.py                               # the table
    python benchmarks/prima.py --time                        # the times
    PYTHONPATH=src python benchmarks/prima.py --device cuda  # needs only torch, numpy, Pillow,
                                                             # safetensors and array-api-compat

Columns: traffic signs (mean of the splits of `accuracy.py`, all frames), and with only one track
per class; the 10 categories of the CORe50 frames with the test sessions 3, 7 and 10, and the mean
of four other choices of three; 50 rendered objects with 12 frames per session and the test sessions
3, 7 and 10, and with only session 1 to learn from. Every frame counts once. Nothing is chosen on
test frames.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accuracy import data_set, pack, pack_rendered
from safetensors.torch import load_file, save_file
from torch import Tensor

from primavista.heads.prima_frames import (
    OWN_FEATURES_PRIOR,
    SIGNAL_TO_NOISE_POWER,
    RidgeFit,
    fit_ridge,
    mixture_weights,
)
from primavista.heads.ridge import Regression, choose_rho, regression, ridge_weights
from primavista.heads.statistics import SufficientStatistics, packed_size
from primavista.networks.base import build
from primavista.networks.middle import ROOT_SOFTENING, grid_average_pool
from primavista.strategies.creation import create
from primavista.strategies.prima import Prima
from primavista.streams.dataset import Session

BLOCKS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
SUMS = 80  # number of sums kept: those of five heads over all splits
SETS = ("signs", "CORe50", "rendered")
COLUMNS = ("signs", "one track", "CORe50", "others", "rendered", "one video")


@dataclass(frozen=True)
class Group:
    """The features of one head: a map in grid x grid cells, mixed or picked down to `channels`."""

    block: int
    grid: int
    channels: int
    seed: int = 0
    picked: bool = False
    root: bool = True
    maximum: bool = False
    random: str = (
        ""  # "relu" or "cosine": `channels` random features of all channels, on a fixed scale
    )


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    groups: tuple[Group, ...]
    power: float = SIGNAL_TO_NOISE_POWER  # power of the signal-to-noise ratio
    own: float = OWN_FEATURES_PRIOR
    joint: bool = False
    evidence: bool = False
    lda: bool = False
    own_covariance: float = 0  # share of a class's own covariance; the rest is pooled; with `lda`
    balance: float = 1


@dataclass(frozen=True)
class Frames:
    """Input of the shipped strategy, if it differs from the plain frames at 128 px."""

    what: str
    size: int = 128
    mirrored: bool = False  # mirrored frames are added to a lesson
    smoothed: bool = False  # mean features of five frames in a row are added as further frames


@dataclass(frozen=True)
class Split:
    """Frames to learn, by index and session, and frames to recognise."""

    column: str
    data: str
    train: Tensor
    labels: Tensor
    sessions: Tensor
    test: Tensor
    truth: Tensor


SHIPPED = (
    Frames("**prima**, as shipped"),
    Frames("shipped, mirrored frames too", mirrored=True),
    Frames("shipped, means of five frames too", smoothed=True),
    Frames("shipped, 160 px", size=160),
    Frames("shipped, 192 px", size=192),
)


def rows() -> Iterator[Row]:
    depths = tuple(Group(b, 4, 96) for b in (4, 6, 8, 10))
    own = Group(12, 1, 1024)
    base = (*depths, own)
    yield Row("another draw of the mixes", base)
    yield Row("the backbone's own features alone", (own,))
    for group in depths:
        yield Row(f"block {group.block} alone", (group,))
    yield Row("regularised by the evidence", base, evidence=True)
    yield Row("linear discriminants, not ridge", base, lda=True)
    yield Row("its own features alone, linear discriminants", (own,), lda=True)
    yield Row(
        "the same, half of each covariance its class' own", (own,), lda=True, own_covariance=0.5
    )
    yield Row("the same, a tenth of it", (own,), lda=True, own_covariance=0.1)
    yield Row("every frame weighs the same", base, balance=0)
    yield Row("without the backbone's own features", depths, own=1)
    yield Row("its own features count once", base, own=1)
    yield Row("its own features count four times", base, own=4)
    yield Row("all heads count the same", base, power=0, own=1)
    yield Row("by the square of signal to noise", base, power=2)
    yield Row("blocks 6 and 10 only", (depths[1], depths[3], own))
    yield Row("no cells: the mean of each map", (*(Group(g.block, 1, 512) for g in depths), own))
    yield Row("64 channels a cell", (*(replace(g, channels=64) for g in depths), own))
    yield Row("no root", tuple(replace(g, root=False) for g in base))
    yield Row("2 x 2 cells of 384 channels", (*(Group(g.block, 2, 384) for g in depths), own))
    yield Row("and block 2", (Group(2, 4, 96), *base))
    yield Row("and block 11, mean", (*depths, Group(11, 1, 1024), own))
    yield Row("and block 12, 2 x 2 of 384", (*depths, Group(12, 2, 384), own))
    yield Row(
        "and the maxima of the maps",
        (*depths, *(Group(g.block, 1, 512, maximum=True) for g in depths), own),
    )
    for kind in ("relu", "cosine"):
        yield Row(
            f"its own features as 1,536 random ones, {kind}",
            (*depths, Group(12, 1, 1536, random=kind)),
        )
    yield Row(
        "channels picked, not mixed", (*(replace(g, channels=64, picked=True) for g in depths), own)
    )
    yield Row("blocks 3, 5, 7, 9 instead", (*(Group(b, 4, 96) for b in (3, 5, 7, 9)), own))
    yield Row(
        "one ridge on all, 32 channels a cell",
        (*(replace(g, channels=32) for g in depths), own),
        joint=True,
    )


class Maps:
    """The maps of the blocks for every frame of a data set, in half precision.

    The means in 4 x 4 cells and the maxima are computed once and kept in a file.
    """

    def __init__(self, frames: Tensor, device: str, file: Path) -> None:
        self.device = device
        if not file.exists():
            backbone = build(size=frames.shape[1]).eval().to(device)
            parts: dict[str, list[Tensor]] = {}

            def keep(name: str, x: Tensor) -> None:
                parts.setdefault(name, []).append(x.cpu())

            def hook(k: int) -> Callable[..., None]:
                def note(module: Any, inputs: Any, x: Tensor) -> None:
                    keep(f"mean {k}", grid_average_pool(x, (4, 4)).half())
                    keep(f"maximum {k}", x.amax((2, 3), keepdim=True).half())

                return note

            body: Any = backbone.body
            for k in BLOCKS:
                body.blocks[k].register_forward_hook(hook(k))
            for part in frames.split(64):
                backbone(part.to(device))
            save_file({name: torch.cat(xs).contiguous() for name, xs in parts.items()}, file)
        self.maps = load_file(file)

    def features(self, group: Group, index: Tensor) -> Tensor:
        x = (
            self.maps[f"{'maximum' if group.maximum else 'mean'} {group.block}"][index]
            .to(self.device)
            .float()
        )
        if not group.maximum:
            x = grid_average_pool(x, (group.grid, group.grid))
        x = x / (x.abs() + ROOT_SOFTENING).sqrt() if group.root else x
        channels = x.shape[1]
        if group.channels < channels and group.picked:
            x = x[:, :: channels // group.channels]
        elif group.channels < channels or group.random:
            random = np.random.RandomState(1000 * group.seed + group.block)
            draw = random.randint(0, 2, (group.channels, channels)) * 2.0 - 1
            x = torch.einsum("nchw,kc->nkhw", x, torch.from_numpy(draw).to(x) / channels**0.5)
            if group.random == "relu":
                x = x.relu()
            elif (
                group.random == "cosine"
            ):  # frames of two classes differ by about 0.5: some 60 degrees
                x = (
                    2 * x
                    + torch.from_numpy(random.uniform(0, 2 * np.pi, (group.channels, 1, 1))).to(x)
                ).cos()
        return x.flatten(1)


def split(column: str, data: str, train: list[Session], test: list[Session]) -> Split:
    """Return the frames and labels of a column of the table, from its sessions."""
    index = [torch.cat([torch.arange(s.start, s.stop) for s in part]) for part in (train, test)]
    label = [
        torch.cat([torch.full((s.stop - s.start,), s.label) for s in part])
        for part in (train, test)
    ]
    sessions = torch.cat([torch.full((s.stop - s.start,), k) for k, s in enumerate(train)])
    return Split(column, data, index[0], label[0], sessions, index[1], label[1])


def sign_splits(args: argparse.Namespace, folder: Path, size: int) -> tuple[Tensor, list[Split]]:
    """Split traffic signs: all tracks, and the first track of each class, for every run."""
    array, index = pack(Path(args.data) / "gtsrb_tracks.tar", size, folder, 2)
    found = []
    for run in args.runs:
        data, _ = data_set(array, index, run, "cpu")
        first = {s.label: s for s in reversed(data.train)}
        found.append(split("signs", "signs", list(data.train), list(data.test)))
        found.append(split("one track", "signs", list(first.values()), list(data.test)))
    frames = data.frames if isinstance(data.frames, Tensor) else torch.from_numpy(np.load(array))
    return frames, found


def core50_splits(args: argparse.Namespace, folder: Path, size: int) -> tuple[Tensor, list[Split]]:
    """Split CORe50's categories: test sessions 3, 7 and 10, and four other choices of three."""
    array, index = pack(Path(args.data) / "core50_frames.tar", size, folder, 2)
    facts = json.loads(index.read_text())
    names = sorted({name.partition("/")[0] for name, _, _ in facts})
    every = [
        Session(names.index(n.partition("/")[0]), int(n.rpartition("/s")[2]), a, b)
        for n, a, b in facts
    ]
    others = np.random.RandomState(0)
    choices = [others.choice(np.arange(1, 12), 3, replace=False).tolist() for _ in range(4)]
    found = []
    for k, held in enumerate([[3, 7, 10], *choices]):
        train = [s for s in every if s.number not in held]
        test = [s for s in every if s.number in held]
        found.append(split("others" if k else "CORe50", "CORe50", train, test))
    return torch.from_numpy(np.load(array)), found


def rendered_splits(
    args: argparse.Namespace, folder: Path, size: int
) -> tuple[Tensor, list[Split]]:
    """Split rendered objects: all training sessions, and session 1 alone."""
    array, index = pack_rendered(size, 12, folder, args.device)
    data, _ = data_set(array, index, 0, "cpu")
    train, test = list(data.train), list(data.test)
    first = [s for s in train if s.number == 1]
    found = [
        split("rendered", "rendered", train, test),
        split("one video", "rendered", first, test),
    ]
    return torch.from_numpy(np.load(array)), found


def splits(
    args: argparse.Namespace, folder: Path, size: int = 128
) -> tuple[dict[str, Tensor], list[Split]]:
    """Return the frames of each data set at `size`, and their splits."""
    frames: dict[str, Tensor] = {}
    found: list[Split] = []
    makers = {"signs": sign_splits, "CORe50": core50_splits, "rendered": rendered_splits}
    for name, make in makers.items():
        if name in args.sets:
            frames[name], some = make(args, folder, size)
            found += some
    return frames, found


class Bench:
    """Heads by split and features, each computed once, and the statistics of the last few."""

    def __init__(self, maps: dict[str, Maps], device: str) -> None:
        self.maps, self.device = maps, device
        self.known: dict[Any, tuple[RidgeFit, Tensor]] = {}
        self.sums: dict[Any, SufficientStatistics] = {}

    def statistics(self, k: int, split: Split, groups: tuple[Group, ...]) -> SufficientStatistics:
        key = (k, groups)
        if key not in self.sums:
            maps = self.maps[split.data]
            z = torch.cat([maps.features(g, split.train) for g in groups], 1)
            found = SufficientStatistics.empty(z.shape[1], like=z.to(self.device))
            found.expand(int(split.labels.max()) + 1)
            found.add(z, split.labels.to(self.device))
            if len(self.sums) >= SUMS:
                del self.sums[next(iter(self.sums))]
            self.sums[key] = found
        return self.sums[key]

    def head(
        self, k: int, split: Split, groups: tuple[Group, ...], row: Row
    ) -> tuple[RidgeFit, Tensor]:
        """Return one regression, and its scores of the test frames."""
        key = (k, groups, row.evidence, row.lda, row.balance, row.own_covariance)
        if key not in self.known:
            sums = self.statistics(k, split, groups)
            x = regression(sums.n, sums.s, sums.scatter(), sums.frames, row.balance)
            judged = self.known.get((k, groups, False, False, row.balance, 0))
            head = judged[0] if judged else fit_ridge(x, sums.frames)
            if row.evidence:
                rho = choose_rho(x)
                head = RidgeFit(*ridge_weights(x, rho), head.error, rho)
            elif row.lda:
                head = discriminants(x, head)
            z = torch.cat(
                [self.maps[split.data].features(g, split.test) for g in groups], 1
            ).double()
            scores = (z @ head.w.T + head.b).cpu()
            if row.own_covariance:
                learned = torch.cat(
                    [self.maps[split.data].features(g, split.train) for g in groups], 1
                ).double()
                scores = quadratic(x, head.rho, learned, split.labels, z, row.own_covariance)
            self.known[key] = head, scores.softmax(1) if row.lda else scores
        return self.known[key]

    def accuracy(self, row: Row, k: int, split: Split) -> float:
        groups = [row.groups] if row.joint else [(g,) for g in row.groups]
        heads = [self.head(k, split, g, row) for g in groups]
        priors = [1.0] * (len(groups) - 1) + [row.own]
        omega = mixture_weights([head.error for head, _ in heads], priors, row.power)
        scores = sum(
            (share * scores for share, (_, scores) in zip(omega, heads, strict=True)),
            torch.zeros(()),
        )
        return 100 * float((scores.argmax(1) == split.truth).double().mean())


def discriminants(x: Regression, ridge: RidgeFit) -> RidgeFit:
    """w_c = inv(W + rho I) m_c,  b_c = -m_c w_c / 2.

    W = A - sum_c r_c r_c^T / pi_c,  m_c = r_c / pi_c: linear discriminant analysis on the same
    standardised features, with the covariance within classes shrunk by the ridge's rho.
    """
    dim, r = x.dim, x.bordered[x.dim :, : x.dim]
    means = r / x.pi[:, None]
    within = x.bordered[:dim, :dim] - r.T @ means
    within.diagonal().add_(ridge.rho)
    w = torch.cholesky_solve(means.T, torch.linalg.cholesky(within)).T
    b = -(w * means).sum(1) / 2
    w = w / x.std
    return RidgeFit(w, b - w @ x.mean, ridge.error, ridge.rho)


def quadratic(
    x: Regression, rho: float, learned: Tensor, labels: Tensor, z: Tensor, share: float
) -> Tensor:
    """score_c = -(z - m_c)^T inv(W_c) (z - m_c) / 2 - log det W_c / 2.

    W_c = (1 - share) W + share S_c + rho I on the same standardised features; S_c is the covariance
    of class c, and W that within all classes.
    """
    dim, r = x.dim, x.bordered[x.dim :, : x.dim]
    means = r / x.pi[:, None]
    within = x.bordered[:dim, :dim] - r.T @ means
    learned, z = (learned - x.mean) / x.std, (z - x.mean) / x.std
    found = []
    for c, mean in enumerate(means):
        apart = learned[labels == c] - mean
        own = apart.T @ apart / max(len(apart), 1)
        factor = torch.linalg.cholesky(
            (1 - share) * within + share * own + rho * torch.eye(dim).to(own)
        )
        off = torch.linalg.solve_triangular(factor, (z - mean).T, upper=False)
        found.append(-(off * off).sum(0) / 2 - factor.diagonal().log().sum())
    return torch.stack(found, 1).cpu()


def megabytes(row: Row, split: Split, maps: Maps) -> float:
    sizes = [maps.features(g, split.test[:1]).shape[1] for g in row.groups]
    return 8e-6 * sum(map(packed_size, [sum(sizes)] if row.joint else sizes))


class Shipped:
    """The strategy itself, in batches of 300 frames, with its features kept in a file."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args

    def features(self, data: str, frames: Tensor, mirrored: bool = False) -> Tensor:
        size = frames.shape[1]
        file = self.args.out / f"{data}_{size}{'_mirrored' * mirrored}_shipped.safetensors"
        if not file.exists():
            strategy: Any = create("prima", build(size=size), rule="frames").to(self.args.device)
            strategy.representation.use_engine(self.args.engine)
            frames = frames.flip(2) if mirrored else frames
            save_file(
                {
                    "z": torch.cat(
                        [
                            strategy.embed(part.to(self.args.device)).cpu()
                            for part in frames.split(512)
                        ]
                    )
                },
                file,
            )
        return load_file(file)["z"]

    def accuracy(self, how: Frames, frames: dict[str, Tensor], _: int, split: Split) -> float:
        strategy: Any = create("prima", build(size=how.size), rule="frames").to(self.args.device)
        z = self.features(split.data, frames[split.data])
        lessons = [z[split.train]]
        if how.mirrored:
            lessons.append(self.features(split.data, frames[split.data], True)[split.train])
        if how.smoothed:
            lessons.append(smooth(lessons[0], split.sessions))
        for lesson in lessons:
            for part, labels in zip(lesson.split(300), split.labels.split(300), strict=True):
                strategy.learn_embedded(part.to(self.args.device), labels)
        best = strategy.classes[
            strategy.scores_embedded(z[split.test].to(self.args.device)).argmax(1)
        ].cpu()
        return 100 * float((best == split.truth).double().mean())


def smooth(z: Tensor, sessions: Tensor, width: int = 5) -> Tensor:
    """Replace each frame's features by the mean of `width` frames of its session around it."""
    total, count = torch.zeros_like(z), torch.zeros(len(z), 1)
    for shift in range(-(width // 2), width // 2 + 1):
        near = (torch.arange(len(z)) + shift).clamp(0, len(z) - 1)
        same = ((sessions[near] == sessions) & (near == torch.arange(len(z)) + shift)).float()[
            :, None
        ]
        total += z[near] * same
        count += same
    return total / count


def table(args: argparse.Namespace) -> None:
    frames, found = splits(args, args.out)

    def line(
        what: str, measure: Callable[[int, Split], float], size: float, of: list[Split]
    ) -> None:
        by: dict[str, list[float]] = {column: [] for column in COLUMNS}
        for k, split in enumerate(of):
            by[split.column].append(measure(k, split))
        cells = " | ".join(
            f"{statistics.mean(values):.1f}" if values else "" for values in by.values()
        )
        runs = ", ".join(f"{value:.1f}" for value in by["signs"])
        print(f"| {what} | {cells} | {size:.0f} | {runs} |", flush=True)
        with args.lines.open("a") as lines:
            lines.write(
                json.dumps({"row": what, "runs": args.runs, "MB": round(size, 1), **by}) + "\n"
            )

    heading = f"| | {' | '.join(COLUMNS)} | MB | signs, runs {args.runs} |\n"
    heading += f"|---|{'---|' * (len(COLUMNS) + 2)}"
    print(f"{where(args.device)}\n\n{heading}", flush=True)

    def wanted(what: str) -> bool:
        return not args.rows or any(word in what for word in args.rows)

    todo = [row for row in rows() if wanted(row.what)]
    if todo:
        maps = {
            name: Maps(images, args.device, args.out / f"{name}.safetensors")
            for name, images in frames.items()
        }
        bench = Bench(maps, args.device)
        for row in todo:
            line(
                row.what,
                partial(bench.accuracy, row),
                megabytes(row, found[0], maps[found[0].data]),
                found,
            )
        del maps, bench
    blocks = Prima(build("mobilenet_v1", "random"), rule="frames").head.statistics.blocks
    for how in SHIPPED:
        if wanted(how.what):
            resized, of = (frames, found) if how.size == 128 else splits(args, args.out, how.size)
            measure = partial(Shipped(args).accuracy, how, resized)
            line(how.what, measure, 8e-6 * sum(map(packed_size, blocks)), of)


def times(args: argparse.Namespace) -> None:
    """Time a lesson of 300 frames and a solve, in turn with CWR*'s lesson; the least of several."""
    frames = torch.randint(
        0, 256, (300, 128, 128, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    prima, cwr = (
        Prima(build(size=128), rule="frames").to(args.device),
        create("cwr*", build(size=128)).to(args.device),
    )
    for strategy in (prima, cwr):
        for k in range(3):
            strategy.learn(frames[:60], torch.arange(60) % 10 + 10 * k)
        strategy.representation.use_engine(args.engine)

    clock = (
        time.perf_counter if args.device == "cuda" else time.process_time
    )  # other work of the machine does not lengthen it

    def seconds(do: Callable[[], Any]) -> float:
        began = clock()
        do()
        if args.device == "cuda":
            torch.cuda.synchronize()
        return clock() - began

    lessons: dict[str, list[float]] = {"prima": [], "cwr*": []}
    for k in range(args.repeats):
        labels = torch.full((300,), 30 + k)
        lessons["prima"].append(seconds(partial(prima.learn, frames, labels)))
        lessons["cwr*"].append(seconds(partial(cwr.learn, frames, labels)))
    print(f"{where(args.device)}, {torch.get_num_threads()} threads, {args.engine}; CPU seconds\n")
    ours, theirs = (min(values) for values in lessons.values())
    print(
        f"a lesson of 300 frames: prima {ours:.2f} s, CWR* {theirs:.2f} s, "
        f"ratio {ours / theirs:.2f}"
    )
    for count in (60, 300, 1000):
        fresh = Prima(build(size=128), rule="frames").to(args.device)
        z = prima.embed(frames).repeat(4, 1)[:count]
        z += torch.randn(z.shape, generator=torch.Generator().manual_seed(1)).to(z) * 0.05
        fresh.learn_embedded(z, torch.arange(count) % 10)
        times = [seconds(partial(fresh.head.solve, 10)) for _ in range(args.repeats)]
        print(f"a solve after {count} frames: {min(times):.2f} s")
    state = sum(t.numel() * t.element_size() for t in prima.moments.state_dict().values())
    print(f"state beyond the network: {state / 1e6:.1f} MB with {len(prima.classes)} classes")


def where(device: str) -> str:
    gpu = torch.cuda.get_device_name() if device == "cuda" else ""
    return f"{gpu or f'CPU, {os.cpu_count()} cores'}, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        default="../shared/data",
        help="the folder of gtsrb_tracks.tar and core50_frames.tar",
    )
    parser.add_argument("--runs", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--rows", nargs="+", help="only rows whose name holds one of these words")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", action="store_true", help="measure times instead")
    parser.add_argument(
        "--engine",
        choices=("torch", "onnx"),
        default="torch",
        help="of the features of what is shipped",
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--lines", type=Path, default=Path("results/prima.jsonl"), help="where each row is added"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/packed"), help="where decoded frames are kept"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.time:
        times(args)
    else:
        with torch.no_grad():
            table(args)


if __name__ == "__main__":
    main()
