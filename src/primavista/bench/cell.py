"""A cell: one strategy over one run of a protocol. It is run in its folder, and goes on from where a stop left it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from primavista import __version__
from primavista.backbones.registry import build
from primavista.bench.data import Data, kept_data
from primavista.bench.evaluate import Step, pausing_steps
from primavista.bench.features import Features
from primavista.bench.folder import TIMINGS, CellFolder, read_lines
from primavista.bench.metrics import Tally
from primavista.bench.plan import Cell
from primavista.bench.together import Pause
from primavista.errors import InputError
from primavista.frames import read_frames
from primavista.storage import learner_file as files
from primavista.strategies import Strategy, create
from primavista.streams.dataset import DataSet, Stream
from primavista.streams.open import stream as open_stream

FORMAT = 1


@dataclass(frozen=True)
class Settings:
    """How cells are run; nothing here changes a number."""

    cache: Path  # where rendered data is kept
    checkpoint_seconds: float = 30.0
    checkpoint_batches: int = 20
    checkpoint_share: float = (
        0.02  # of the time at most: where 20 batches take less than a checkpoint, it waits
    )


class Stopped(BaseException):
    """The run was asked to stop, and has written its checkpoint."""


Tell = Callable[
    [dict[str, Any], int], None
]  # a line of metrics.jsonl, and how many batches there are


def run_cell(
    cell: Cell,
    folder: CellFolder,
    settings: Settings,
    tell: Tell = lambda line, batches: None,
    stopping: Callable[[], bool] = lambda: False,
    saved: Callable[[], None] = lambda: None,
) -> None:
    """Learn what is left of a cell, in its folder, held by the caller.

    After each batch `tell` gets its line, and where `stopping` says so, a checkpoint is written and `Stopped` raised; `saved`
    is called after each checkpoint.
    """
    for _ in pausing_cell(cell, folder, settings, tell, stopping, saved):
        pass


def pausing_cell(
    cell: Cell,
    folder: CellFolder,
    settings: Settings,
    tell: Tell,
    stopping: Callable[[], bool],
    saved: Callable[[], None] = lambda: None,
) -> Iterator[Pause]:
    """`run_cell` with a pause before each batch and each test, for cells `together`."""
    if folder.done:
        return
    with engine(cell):
        data = kept_data(cell.data, settings.cache, cell.device)
        stream, strategy = make_stream(cell, data), make_strategy(cell, data)
        state = folder.resume()
        tally, start = Tally(), 0
        if state is not None:
            arrays, manifest = state
            strategy.load_state_dict(
                {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
            )
            tally, start = Tally.from_json(manifest["tally"]), manifest["position"]
        seconds = _spent(folder, start)
        steps = pausing_steps(
            strategy,
            stream,
            test_every=cell.test_every,
            test_thin=cell.test_thin,
            retrain=cell.retrain,
            start=start,
            tally=tally,
            features=_features(
                cell.data, cell.backbone.model_dump_json(), cell.device, cell.precision, cell.engine
            ),
        )
        last, kept, at, writing = None, start, time.monotonic(), 0.0
        for step in steps:
            if isinstance(step, Pause):
                yield step
                continue
            last = step
            line = metrics_line(last)
            folder.append(
                line,
                {
                    "batch": last.batch,
                    "learn_seconds": last.learn_seconds,
                    "test_seconds": last.test_seconds,
                },
            )
            seconds = seconds[0] + last.learn_seconds, seconds[1] + last.test_seconds
            tell(line, last.batches)
            stop = stopping()
            passed = (now := time.monotonic()) - at
            worth = writing <= settings.checkpoint_share * passed
            due = (
                last.batch - kept >= settings.checkpoint_batches and worth
            ) or passed >= settings.checkpoint_seconds
            if last.batch < last.batches and (due or stop):
                folder.checkpoint(
                    _arrays(strategy),
                    {"format": FORMAT, "position": last.batch, "tally": tally.to_json()},
                )
                kept, at = last.batch, time.monotonic()
                writing = at - now
                saved()
                if stop:
                    raise Stopped
        assert last is not None  # the last batch is never in a checkpoint
        folder.finish(_result(cell, strategy, stream, last, seconds))


def make_stream(cell: Cell, data: DataSet) -> Stream:
    """The batches of a cell: official orders where the data has them."""
    stream = open_stream(data, cell.protocol, cell.run, orders=getattr(cell.data, "orders", None))
    return stream if cell.limit is None else stream[: cell.limit]


def make_strategy(cell: Cell, data: DataSet) -> Strategy:
    """The strategy of a cell as it begins."""
    spec = cell.backbone
    size = int(read_frames(data.frames, torch.tensor([0]), torch.device("cpu")).shape[1])
    options: dict[str, Any] = dict(spec.options)
    backbone = build(spec.name, spec.weights, size=size, seed=spec.seed, **options)
    chosen: dict[str, Any] = dict(cell.options)
    strategy = create(cell.strategy, backbone, seed=cell.seed, **chosen).to(cell.device)
    strategy.backbone.precision = cell.precision
    strategy.representation.use_engine(cell.engine)
    return strategy


@lru_cache(maxsize=1)
def _features(data: Data, *settings: str) -> Features:
    """Kept for the next cell of this process."""
    return Features()


def metrics_line(step: Step) -> dict[str, Any]:
    """One line of `metrics.jsonl`: only what is reproducible."""
    report = step.report
    tested = step.accuracy is not None
    return {
        "batch": step.batch,
        "patterns": report.patterns,
        "new_classes": list(report.new_classes),
        "losses": [loss if isfinite(loss) else None for loss in report.losses],
        "saturated": step.saturated,
        "state_bytes": step.state_bytes,
        "stored_bytes": step.stored_bytes,
        "accuracy": step.accuracy,
        "average": step.average,
        "forgetting": step.forgetting,
        "forward_transfer": step.forward_transfer,
        "class_accuracy": {str(label): value for label, value in step.class_accuracy.items()}
        if tested
        else None,
    }


@contextmanager
def engine(cell: Cell) -> Iterator[None]:
    """Threads, precision and determinism as the cell says, put back afterwards."""
    if cell.device == "cuda" and not torch.cuda.is_available():
        raise InputError("this cell is for a GPU, and there is none: --device cpu")
    if cell.precision != "float32" and cell.device == "cpu":
        raise InputError(f"precision {cell.precision} is the GPU's: on the CPU it is float32")
    with switches(cell):
        yield


@contextmanager
def switches(cell: Cell) -> Iterator[None]:
    """The same of whatever cell, whether or not it can run here."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (
        torch.get_num_threads(),
        cudnn.allow_tf32,
        matmul.allow_tf32,
        torch.are_deterministic_algorithms_enabled(),
    )
    if cell.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(cell.threads)
    cudnn.allow_tf32 = matmul.allow_tf32 = cell.precision != "float32"
    torch.use_deterministic_algorithms(cell.deterministic)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cudnn.allow_tf32, matmul.allow_tf32 = before[1:3]
        torch.use_deterministic_algorithms(before[3])


def machine(device: str) -> dict[str, Any]:
    """Where a cell was run."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "primavista": __version__,
    }


def _result(
    cell: Cell, strategy: Strategy, stream: Stream, last: Step, seconds: tuple[float, float]
) -> dict[str, Any]:
    assert last.confusion is not None
    arrays = _arrays(strategy)
    data = stream.data
    return {
        "format": FORMAT,
        "final": {
            "accuracy": last.accuracy,
            "average": last.average,
            "forgetting": last.forgetting,
            "forward_transfer": last.forward_transfer,
        },
        "confusion": last.confusion.tolist(),
        "classes": list(data.classes),
        "categories": list(data.categories),
        "batches": last.batches,
        "learn_seconds": seconds[0],
        "test_seconds": seconds[1],
        "state_bytes": last.state_bytes,
        "stored_bytes": last.stored_bytes,
        "parameters": sum(p.numel() for p in strategy.backbone.parameters())
        + strategy.backbone.dim * len(strategy.classes),
        "order": stream.source,
        "weights_sha256": files.digest(arrays, {}),
        "machine": machine(cell.device),
    }


def _arrays(strategy: Strategy) -> dict[str, Any]:
    return {
        name: tensor.detach().cpu().contiguous().numpy()
        for name, tensor in strategy.state_dict().items()
    }


def _spent(folder: CellFolder, batches: int) -> tuple[float, float]:
    lines = read_lines(folder.path / TIMINGS)[:batches]
    return sum(line["learn_seconds"] for line in lines), sum(line["test_seconds"] for line in lines)
