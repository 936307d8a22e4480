"""The folder of a cell: what is in it, how it is written so that a stop at any moment loses nothing, how it is read.

`run.json` the resolved cell; `metrics.jsonl` and `timings.jsonl` one line a batch; `checkpoint.safetensors` while it runs;
`result.json` renamed into place at the end, its presence means done; `failed.json` with the reason where it failed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from primavista.errors import CHOOSE_FOLDER, FileError, InputError, file_errors
from primavista.storage import learner_file as files
from primavista.storage.atomic import write_atomically
from primavista.storage.lock import FileLock, is_locked

RUN, METRICS, TIMINGS = "run.json", "metrics.jsonl", "timings.jsonl"
CHECKPOINT, RESULT, FAILED, LOCK = "checkpoint.safetensors", "result.json", "failed.json", ".lock"
AGAIN = "Make room or choose another folder; what is written is kept, and the same command goes on from there"


class CellFolder:
    """A cell's folder, held for writing: `with CellFolder(path, run) as folder`.

    `run` is what `run.json` must say; a folder that says otherwise is refused.
    """

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self.path, self.run = path, json.loads(json.dumps(run))
        self._lock = FileLock(path / LOCK)
        self._lines: dict[str, FileIO] = {}

    def __enter__(self) -> CellFolder:
        with file_errors("make", self.path, CHOOSE_FOLDER):
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock.__enter__()
        try:
            self._claim()
        except BaseException:
            self._lock.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._lines.values():
            file.close()
        self._lines = {}
        self._lock.__exit__()

    @property
    def done(self) -> bool:
        """Whether the result is there."""
        return (self.path / RESULT).exists()

    def resume(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Arrays and manifest of the checkpoint, if there is one; lines of later batches are cut, ready to append."""
        state = None
        if (self.path / CHECKPOINT).exists():
            try:
                state = files.read(self.path / CHECKPOINT)
            except FileError as error:
                raise FileError(
                    f"{error}, or delete {self.path} to begin this cell anew"
                ) from error
        position = 0 if state is None else state[1]["position"]
        with self._writing():
            for name in (METRICS, TIMINGS):
                self._lines[name] = FileIO(self.path / name, "a+")
                _cut(self._lines[name], position, self.path)
        return state

    def append(self, metrics: Mapping[str, Any], timings: Mapping[str, Any]) -> None:
        """One batch is done."""
        with self._writing():
            for name, line in ((METRICS, metrics), (TIMINGS, timings)):
                self.append_bytes(name, json.dumps(line, allow_nan=False).encode() + b"\n")

    def append_bytes(self, name: str, data: bytes) -> None:
        """Whole lines, as another machine wrote them."""
        with self._writing():
            while data:
                data = data[self._lines[name].write(data) :]

    def checkpoint(self, arrays: files.Arrays, manifest: Mapping[str, Any]) -> None:
        """Everything to go on from after `manifest["position"]` batches."""
        self._sync()
        try:
            files.write(self.path / CHECKPOINT, arrays, manifest)
        except FileError as error:
            raise FileError(f"{error}. {AGAIN}") from error

    def checkpoint_bytes(self, data: bytes) -> None:
        """A checkpoint as another machine wrote it."""
        self._sync()
        write_bytes(self.path / CHECKPOINT, data)

    def finish(self, result: Mapping[str, Any]) -> None:
        """The end: from now on this cell is done."""
        self._sync()
        write_json(self.path / RESULT, result)
        with contextlib.suppress(OSError):
            (self.path / CHECKPOINT).unlink(missing_ok=True)

    def fail(self, reason: str, traceback: str = "") -> None:
        """Say why it stopped, as far as the disk lets us."""
        with contextlib.suppress(FileError):
            write_json(self.path / FAILED, {"format": 1, "reason": reason, "traceback": traceback})

    def _claim(self) -> None:
        found = read_json(self.path / RUN)
        if found is None:
            if self.done or (self.path / CHECKPOINT).exists():
                raise FileError(
                    f"{self.path} has results but no {RUN} that says of what: choose another folder"
                )
            write_json(self.path / RUN, self.run)
        elif found != self.run:
            raise InputError(
                f"{self.path} holds {_difference(found, self.run)}: choose another folder, or delete it"
            )
        with self._writing():
            (self.path / FAILED).unlink(missing_ok=True)
            for left in self.path.glob(".*.part"):  # of a process killed while it wrote
                left.unlink(missing_ok=True)

    def _sync(self) -> None:
        with self._writing():
            for file in self._lines.values():
                os.fsync(file.fileno())

    @contextlib.contextmanager
    def _writing(self) -> Any:
        try:
            yield
        except FileError:
            raise
        except OSError as error:
            raise FileError(
                f"cannot write in {self.path}: {error.strerror or error}. {AGAIN}"
            ) from error


def state_of(path: Path) -> str:
    """ "done", "running", "failed", "stopped" (begun, and nobody at work) or "waiting"."""
    if (path / RESULT).exists():
        return "done"
    if is_locked(path / LOCK):
        return "running"
    if (path / FAILED).exists():
        return "failed"
    return "stopped" if (path / RUN).exists() else "waiting"


def read_json(path: Path) -> Any:
    """What a JSON file says, None where there is none."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FileError(
            f"cannot read {path}: {error}. Restore it from a copy, or delete its folder"
        ) from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSON lines file; none where there is no file. A last line cut short is left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """The whole file or nothing; a line a key."""
    lines = [
        f" {json.dumps(key)}: {json.dumps(item, allow_nan=False)}" for key, item in value.items()
    ]
    write_bytes(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def write_bytes(path: Path, data: bytes) -> None:
    """The whole file or nothing."""
    with file_errors("write", path, AGAIN):
        write_atomically(path, data)


def _cut(file: FileIO, lines: int, folder: Path) -> None:
    file.seek(0)
    data, end = file.readall(), 0
    for _ in range(lines):
        end = data.find(b"\n", end) + 1
        if not end:
            raise FileError(
                f"{folder} lacks lines that its checkpoint has seen: delete it to begin this cell anew"
            )
    file.truncate(end)


def _difference(found: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    wrong = [key for key in {**found, **asked} if found.get(key) != asked.get(key)]
    return "; ".join(
        f"a run with {key} {found.get(key)}, not {asked.get(key)}" for key in wrong[:3]
    )
