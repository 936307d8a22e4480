"""Our strategies beside Avalanche's: processor time, memory and accuracy on the same stream.

    python benchmarks/peers.py [--quick] [--repeat 3] [--environment FOLDER]

It makes its own environment (`peer_environment.py`) and needs nothing but Python. Every cell runs
in a process of its own with one thread, ours and Avalanche's in turns. Both see the same rendered
frames of 64 pixels in the same 14 batches, and train the same MobileNet v1 with the same ImageNet
weights, epochs, learning rates, momentum, decay and minibatch. Times are processor seconds per
batch, the median over all batches but the first, then over repetitions; memory is the peak of the
resident set over what it was before the first batch. Avalanche runs without loggers and metrics.

Avalanche's AR1 builds a network of its own and fetches its weights from the network; here it starts
from random ones, so no accuracy is given for it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peer_environment import make_environment

SIZE, CLASSES, BATCHES = 64, 8, 14
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "primavista" / "peers"
PLAIN = {"norm": "bn", "freeze": "none"}
# row: Avalanche's strategy, ours, our options
ROWS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "StreamingLDA / dslda": ("slda", "dslda", {}),
    "CWR*": ("cwr", "cwr*", {}),
    "Naive, batch norm, nothing frozen": ("naive", "naive", PLAIN),
    "Naive, our defaults": ("naive", "naive", {}),
    "LwF, batch norm, nothing frozen": ("lwf", "lwf", PLAIN),
    "LwF, our defaults": ("lwf", "lwf", {}),
    "EWC online, batch norm, nothing frozen": ("ewc", "ewc", PLAIN),
    "EWC online, our defaults": ("ewc", "ewc", {}),
    "AR1 / ar1*": ("ar1", "ar1*", {}),
}


def resident(field: str) -> float:
    """A field of /proc/self/status in MB; elsewhere 0."""
    path = Path("/proc/self/status")
    if not path.exists():
        return 0.0
    line = next(line for line in path.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


class Ours:
    """One of our strategies."""

    def __init__(self, name: str, options: dict[str, Any], classes: int) -> None:
        import primavista as pv

        backbone = pv.build_backbone("mobilenet_v1", "imagenet", size=SIZE)
        self.strategy = pv.create(name, backbone, **options)

    def learn(self, i: int, x: Any, y: Any) -> None:
        self.strategy.learn(x, y)

    def answers(self, x: Any) -> Any:
        return self.strategy.classes[self.strategy.scores(x).argmax(1)]


class Theirs:
    """One of Avalanche's strategies, with the hyperparameters of ours of that name."""

    def __init__(self, name: str, ours: str, classes: int) -> None:
        import torch
        from avalanche.training.plugins import EvaluationPlugin
        from torch import nn

        import primavista as pv

        self.name = name
        backbone = pv.build_backbone("mobilenet_v1", "imagenet", size=SIZE)
        self.options: Any = getattr(pv.create(ours, backbone), "options", None)
        self.model = nn.Sequential(backbone, nn.Linear(backbone.dim, classes))
        common = {"evaluator": EvaluationPlugin(loggers=[]), "train_mb_size": 128}
        if name == "slda":
            self.strategy = self._slda(backbone, classes, common)
            return
        if name == "ar1":
            self.strategy = self._ar1(classes, common)
            self.model = self.strategy.model
            return
        o: Any = self.options
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), o.lr_of(1), o.momentum, weight_decay=o.weight_decay
        )
        common |= {"model": self.model, "optimizer": self.optimizer}
        self.strategy = self._gradient(name, {**common, "criterion": nn.CrossEntropyLoss()})

    def _gradient(self, name: str, common: dict[str, Any]) -> Any:
        from avalanche.training import supervised

        if name == "cwr":
            return supervised.CWRStar(cwr_layer_name="1", **common)
        if name == "lwf":
            return supervised.LwF(alpha=1.0, temperature=2.0, **common)
        if name == "ewc":
            return supervised.EWC(ewc_lambda=1.0, mode="online", decay_factor=1.0, **common)
        return supervised.Naive(**common)

    def _slda(self, backbone: Any, classes: int, common: dict[str, Any]) -> Any:
        from avalanche.training.supervised import StreamingLDA
        from torch import nn

        return StreamingLDA(
            slda_model=backbone,
            criterion=nn.CrossEntropyLoss(),
            input_size=backbone.dim,
            num_classes=classes,
            **common,
        )

    def _ar1(self, classes: int, common: dict[str, Any]) -> Any:
        from avalanche.models import mobilenetv1
        from avalanche.training.supervised import AR1
        from torch import nn

        build = mobilenetv1.mobilenet_w1
        mobilenetv1.mobilenet_w1 = lambda pretrained: build(pretrained=False)
        strategy = AR1(rm_sz=1, ewc_lambda=1.0, train_epochs=4, **common)
        pools = [
            (parent, name)
            for parent in strategy.model.modules()
            for name, child in parent.named_children()
            if isinstance(child, nn.AvgPool2d)
        ]
        for parent, name in pools:
            setattr(parent, name, nn.AdaptiveAvgPool2d(1))
        return strategy

    def learn(self, i: int, x: Any, y: Any) -> None:
        if self.name not in ("ar1", "slda"):
            o = self.options
            self.strategy.train_epochs = o.epochs_of(i)
            for group in self.optimizer.param_groups:
                group["lr"] = o.lr_of(i)
            if self.name == "cwr":
                self.model[0].requires_grad_(i == 1)
        self.strategy.train(self.experiences[i - 1], num_workers=0)

    def prepare(self, batches: list[tuple[Any, Any]]) -> None:
        """Make the experiences before the clock runs."""
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.utils import AvalancheDataset, DataAttribute
        from torch.utils.data import TensorDataset

        parts = []
        for x, y in batches:
            # its network takes floats
            pictures = x.permute(0, 3, 1, 2).float() / 127.5 - 1 if self.name == "ar1" else x
            tasks = DataAttribute([0] * len(y), "targets_task_labels", use_in_getitem=True)
            marks = [DataAttribute(y.tolist(), "targets"), tasks]
            parts.append(AvalancheDataset([TensorDataset(pictures, y)], data_attributes=marks))
        benchmark = benchmark_from_datasets(train=parts, test=parts[:1])
        self.experiences = _with_classes(benchmark.train_stream)

    def answers(self, x: Any) -> Any:
        if self.name == "slda":
            return self.strategy.predict(self.strategy.model(x)).argmax(1)
        return self.model.eval()(x).argmax(1)


def _with_classes(stream: Any) -> list[Any]:
    """The experiences with the attributes that Avalanche's plugins read."""
    found, seen = [], set()
    for experience in stream:
        here = sorted(set(experience.dataset.targets))
        seen |= set(here)
        experience.classes_in_this_experience = here
        experience.classes_seen_so_far = sorted(seen)
        experience.task_labels = [0]
        found.append(experience)
    return found


def render(path: Path) -> None:
    """Write the frames that both learn: the first batches of a NICv2 stream, and its test set."""
    import numpy as np
    import torch

    import primavista as pv
    from primavista.streams.rendered.dataset import materialise
    from primavista.streams.rendered.renderer import Scene

    scene = Scene(categories=CLASSES, objects=1, sessions=6, frames=30, size=SIZE)
    stream = pv.nicv2(materialise(scene), run=0)
    arrays: dict[str, Any] = {}
    for i, part in enumerate([stream.test(every=2), *(stream[i] for i in range(BATCHES))]):
        arrays[f"x{i}"] = part.images[torch.arange(len(part.labels))].numpy()
        arrays[f"y{i}"] = part.labels.numpy()
    np.savez(path, **arrays)


def batches_of(path: Path, count: int) -> tuple[list[tuple[Any, Any]], tuple[Any, Any]]:
    """Read the first batches, and the test set."""
    import numpy as np
    import torch

    with np.load(path) as arrays:
        test, *parts = (
            (torch.from_numpy(arrays[f"x{i}"]), torch.from_numpy(arrays[f"y{i}"]))
            for i in range(count + 1)
        )
    return parts, test


def run_cell(side: str, row: str, frames: Path, count: int) -> dict[str, float]:
    """Learn the stream once; runs in its own process."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    batches, test = batches_of(frames, count)
    theirs, ours, options = ROWS[row]
    learner: Any
    if side == "ours":
        learner = Ours(ours, options, CLASSES)
    else:
        learner = Theirs(theirs, ours, CLASSES)
        learner.prepare(batches)
    start, seconds = resident("VmRSS"), []
    for i, (x, y) in enumerate(batches, 1):
        before = time.process_time()
        learner.learn(i, x, y)
        seconds.append(time.process_time() - before)
    peak = resident("VmHWM") - start
    accuracy = float("nan")
    if not (side == "theirs" and theirs == "ar1"):
        with torch.no_grad():
            accuracy = 100 * float((learner.answers(test[0]) == test[1]).float().mean())
    return {"seconds": statistics.median(seconds[1:]), "peak": peak, "accuracy": accuracy}


def measure(python: Path, rows: list[str], repeat: int, count: int) -> list[str]:
    """Run all cells in turns; return the rows of the table."""
    frames = python.parent.parent / "frames.npz"
    if not frames.exists():
        subprocess.run([str(python), __file__, "--render", str(frames)], check=True)
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    begun, total = time.monotonic(), repeat * len(rows) * 2
    for _ in range(repeat):
        for row in rows:
            for side in ("theirs", "ours"):
                found.setdefault((row, side), []).append(_cell(python, side, row, frames, count))
                done = sum(map(len, found.values()))
                left = (time.monotonic() - begun) / done * (total - done)
                print(f"{done} of {total} cells, {left:.0f} s left", file=sys.stderr)
    lines = []
    for row in rows:
        a, p = (found[row, side] for side in ("theirs", "ours"))
        ta, tp = (statistics.median(cell["seconds"] for cell in cells) for cells in (a, p))
        ma, mp = (max(cell["peak"] for cell in cells) for cells in (a, p))
        right = [f"{cells[0]['accuracy']:.1f}".replace("nan", "-") for cells in (a, p)]
        spread = [_spread([cell["seconds"] for cell in cells]) for cells in (a, p)]
        lines.append(
            f"| {row} | {ta:.3f} {spread[0]} | {tp:.3f} {spread[1]} | {ta / tp:.2f} | "
            f"{right[0]}, {right[1]} | {ma:.0f}, {mp:.0f} |"
        )
    return lines


def _spread(values: list[float]) -> str:
    return f"({min(values):.3f} to {max(values):.3f})"


def _cell(python: Path, side: str, row: str, frames: Path, count: int) -> dict[str, float]:
    cell = [side, row, str(frames), str(count)]
    command = [str(python), "-W", "ignore", __file__, "--cell", *cell]
    limits = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=limits, check=False)
    if done.returncode:
        print(f"{side}, {row} failed:\n{done.stderr[-1000:]}", file=sys.stderr)
        return dict.fromkeys(("seconds", "peak", "accuracy"), float("nan"))
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="5 batches, once")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--environment", type=Path, default=CACHE)
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--render", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        side, row, frames, number = given.cell
        print(json.dumps(run_cell(side, row, Path(frames), int(number))))
        return
    if given.render:
        render(given.render)
        return
    python = make_environment(given.environment.resolve())
    repeat, count = (1, 5) if given.quick else (given.repeat, BATCHES)
    lines = measure(python, given.rows, repeat, count)
    print("| strategy | Avalanche s | ours s | A / ours | accuracy A, ours (%) | peak MB A, ours |")
    print("|---|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
