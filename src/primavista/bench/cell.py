"""Running one cell in its folder; an interrupted cell resumes from its checkpoint."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from primavista import __version__
from primavista.bench.cost import PeakMemory, count_flops
from primavista.bench.data import Data, data_facts, kept_data, split_of
from primavista.bench.evaluate import Step, evaluate
from primavista.bench.features import FeatureCache
from primavista.bench.folder import (
    TIMES,
    TIMINGS,
    BatchMetrics,
    CellFolder,
    CellResult,
    failure_reason,
    read_lines,
)
from primavista.bench.metrics import Tally
from primavista.bench.plan import Cell, side_of
from primavista.errors import InputError
from primavista.storage import learner_file
from primavista.strategies.base import Strategy
from primavista.strategies.creation import create
from primavista.strategies.registry import register_all
from primavista.strategies.state import strategy_arrays
from primavista.streams.dataset import DataSet, Stream
from primavista.streams.open import stream as open_stream


@dataclass(frozen=True)
class RunSettings:
    """The settings of running cells; none of them changes a number.

    Args:
        cache: The folder where rendered data is kept.
        checkpoint_seconds: The time between two checkpoints.
        registered: The references of strategies, backbones and protocols of the user's own, by
            name, which the process that runs a cell registers first.
    """

    cache: Path
    checkpoint_seconds: float = 30.0
    registered: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CellJob:
    """A cell to be run in a folder.

    Args:
        number: The number of the job, which its events carry.
        cell: The cell.
        folder: Its folder.
    """

    number: int
    cell: Cell
    folder: Path


@dataclass(frozen=True)
class CellEvent:
    """Something that happened to a job.

    Args:
        job: The number of the job.
        kind: It started, learned a batch, wrote a checkpoint, is done, failed, or was restarted
            after its machine was lost.
        line: The line of `metrics.jsonl`, if it is about a batch.
        batches: The number of batches of the cell, if it is about a batch.
        reason: Why it failed or was restarted.
    """

    job: int
    kind: Literal["start", "batch", "checkpoint", "done", "failed", "restarted"]
    line: dict[str, Any] = field(default_factory=dict)
    batches: int = 0
    reason: str = ""


OnEvent: TypeAlias = Callable[[CellEvent], None]


class Interrupted(BaseException):
    """Raised if a run was asked to stop; its checkpoint is written."""


def run_cell(
    job: CellJob,
    settings: RunSettings,
    on_event: OnEvent = lambda event: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run a cell in its folder, from its checkpoint if there is one.

    An error ends only this cell: it becomes a "failed" event and `failed.json` in the folder.

    Args:
        job: The cell and its folder.
        settings: How cells are run.
        on_event: Called with every event.
        should_stop: Asked after every batch but the last; True writes a checkpoint and raises
            `Interrupted`.

    Raises:
        Interrupted: If `should_stop` asked for it.
    """
    on_event(CellEvent(job.number, "start"))
    try:
        with CellFolder(job.folder, job.cell) as folder, torch_settings(job.cell):
            if not folder.done:
                _learn_and_record(job, folder, settings, on_event, should_stop)
    except Exception as error:
        on_event(CellEvent(job.number, "failed", reason=failure_reason(error)))
    else:
        on_event(CellEvent(job.number, "done"))


def _learn_and_record(
    job: CellJob,
    folder: CellFolder,
    settings: RunSettings,
    on_event: OnEvent,
    should_stop: Callable[[], bool],
) -> None:
    """Learn the batches that are left; write a line for each, checkpoints, and the result."""
    cell = job.cell
    if cell.device == "cuda" and not torch.cuda.is_available():
        raise InputError("this cell is for a GPU, and there is none: choose --device cpu")
    register_all(settings.registered)
    data = kept_data(cell.data, settings.cache, cell.device, split_of(cell.data, cell.run))
    memory = PeakMemory(cell.device)
    stream, strategy = cell_stream(cell, data), cell_strategy(cell, data)
    start, tally = _resume(folder, strategy)
    steps = evaluate(
        strategy,
        stream,
        test_every=cell.test_every,
        test_thin=cell.test_thin,
        retrain=cell.retrain,
        start=start,
        tally=tally,
        features=_kept_features(
            cell.data, cell.backbone.model_dump_json(), cell.device, cell.precision, cell.engine
        ),
    )
    saved_at = time.monotonic()
    for step in steps:
        line = BatchMetrics.from_step(step).model_dump(mode="json")
        seconds = {name: getattr(step, name) for name in TIMES}
        folder.append(line, {"batch": step.batch, **seconds, "peak_bytes": memory.bytes})
        on_event(CellEvent(job.number, "batch", line, step.batches))
        stop = should_stop()
        due = stop or time.monotonic() - saved_at >= settings.checkpoint_seconds
        if due and step.batch < step.batches:
            manifest = {"position": step.batch, "tally": tally.to_json()}
            folder.checkpoint(strategy_arrays(strategy), manifest)
            saved_at = time.monotonic()
            on_event(CellEvent(job.number, "checkpoint"))
            if stop:
                raise Interrupted
    # `step` is the last one: the last batch is never in a checkpoint
    result = _result(cell, strategy, stream, step, folder.path)
    folder.finish(result.model_dump(mode="json"))


def _resume(folder: CellFolder, strategy: Strategy) -> tuple[int, Tally]:
    """Load the checkpoint into the strategy; return the number of batches learned, and the tally.

    Without a checkpoint the strategy stays as it is.
    """
    state = folder.resume()
    if state is None:
        return 0, Tally()
    arrays, manifest = state
    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    strategy.load_state_dict(tensors)
    return manifest["position"], Tally.from_json(manifest["tally"])


def cell_stream(cell: Cell, data: DataSet) -> Stream:
    """Return the batches of a cell, in the official order if the data has one.

    Args:
        cell: The cell.
        data: Its data set.
    """
    stream = open_stream(data, cell.protocol, cell.run, orders=getattr(cell.data, "orders", None))
    return stream if cell.limit is None else stream[: cell.limit]


def cell_strategy(cell: Cell, data: DataSet) -> Strategy:
    """Return the strategy of a cell before its first batch, at the size of the frames."""
    backbone = cell.backbone.build(data.frames)
    options: dict[str, Any] = dict(cell.options)
    strategy = create(cell.strategy, backbone, seed=cell.seed, **options).to(cell.device)
    strategy.backbone.precision = cell.precision
    strategy.representation.use_engine(cell.engine)
    return strategy


@lru_cache(maxsize=1)
def _kept_features(data: Data, *settings: str) -> FeatureCache:
    """Return a cache of features that is kept for the next cell of this process.

    The arguments are only the key: a cell with other data or another network gets a new cache.
    """
    return FeatureCache()


@contextmanager
def torch_settings(cell: Cell) -> Iterator[None]:
    """Set torch's threads, precision and determinism for a cell, and restore them afterwards.

    Args:
        cell: The cell.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    threads = torch.get_num_threads()
    tf32 = cudnn.allow_tf32, matmul.allow_tf32
    deterministic = torch.are_deterministic_algorithms_enabled()
    if cell.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(cell.threads)
    cudnn.allow_tf32 = matmul.allow_tf32 = cell.precision != "float32"
    _set_determinism(cell.deterministic)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        cudnn.allow_tf32, matmul.allow_tf32 = tf32
        _set_determinism(deterministic)


def _set_determinism(wanted: bool) -> None:
    """Change the setting only if needed: torch then imports its compiler, which takes seconds."""
    if torch.are_deterministic_algorithms_enabled() != wanted:
        torch.use_deterministic_algorithms(wanted)


def machine(device: str) -> dict[str, Any]:
    """Describe this machine, for the results.

    Args:
        device: "cuda" names the GPU too.
    """
    model = None
    with suppress(OSError):  # Linux only
        model = re.search(r"^model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(), re.M)
    return {
        "cpu": model[1].strip() if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "primavista": __version__,
    }


def _result(cell: Cell, strategy: Strategy, stream: Stream, last: Step, folder: Path) -> CellResult:
    assert last.confusion is not None
    lines = read_lines(folder / TIMINGS)
    # a copy learns the last batch again to count operations; the peak of memory is measured already
    operations = count_flops(strategy, stream[len(stream) - 1])
    peaks = [line["peak_bytes"] for line in lines if line["peak_bytes"] is not None]
    backbone = strategy.backbone
    head_parameters = backbone.dim * len(strategy.classes)
    return CellResult(
        final=last.measures,
        confusion=last.confusion.tolist(),
        classes=list(stream.data.classes),
        batches=last.batches,
        **{name: sum(line[name] for line in lines) for name in TIMES},
        peak_bytes=max(peaks, default=None),
        operations=asdict(operations) if operations else None,
        state_bytes=last.state_bytes,
        stored_bytes=last.report.stored_bytes,
        parameters=sum(p.numel() for p in backbone.parameters()) + head_parameters,
        order=stream.source,
        data=data_facts(stream, cell.test_thin, side_of(stream.data.frames)),
        state_sha256=learner_file.digest(strategy_arrays(strategy), {}),
        machine=machine(cell.device),
    )
