"""A simulated disk, whose functions fail, tear, wait and lose power; operations to try on it."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from primavista import FileError
from primavista.storage import disk


class PowerCut(BaseException):
    """The machine stops: nothing that the program does from here on reaches the disk."""


@dataclass(eq=False)
class SimulatedFile:
    """What a file holds now, and what of it is certain to be on the disk."""

    live: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


class SimulatedDisk:
    """The functions of `disk`, with a fault at one step.

    Args:
        root: The folder that is simulated, with what lies in it.
        at: The number of the step that goes wrong; 0 for none.
        fault: "error", "torn" (half of a write, then an error), "delay" or "power".
        module: The module whose functions are replaced: the edge has a copy of `disk`.
        meanwhile: What somebody else does while a step is delayed.
    """

    def __init__(
        self,
        root: Path,
        at: int = 0,
        fault: str = "error",
        module: ModuleType = disk,
        meanwhile: Callable[[Path], None] = lambda root: None,
    ) -> None:
        self.root, self.at, self.fault = root, at, fault
        self.module, self.meanwhile = module, meanwhile
        self.steps = 0
        self.dead = False
        self.open: dict[int, SimulatedFile] = {}
        self.names: dict[Path, SimulatedFile] = {}
        for path in root.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                self.names[path] = SimulatedFile(bytearray(data), data)
        self.synced_names = dict(self.names)
        self.real = {name: getattr(module, name) for name in FUNCTIONS}

    @contextmanager
    def installed(self) -> Iterator[SimulatedDisk]:
        with pytest.MonkeyPatch.context() as patch:
            for name in FUNCTIONS:
                patch.setattr(self.module, name, getattr(self, name))
            yield self

    def step(self) -> bool:
        """Count a step; True if it goes wrong now."""
        if self.dead:
            raise PowerCut
        self.steps += 1
        if self.steps == self.at and self.fault == "delay":
            self.meanwhile(self.root)
            return False
        return self.steps == self.at

    def go_wrong(self) -> None:
        if self.fault == "power":
            self.dead = True
            raise PowerCut
        raise OSError(errno.EIO, "Input/output error")

    def create(self, path: Path) -> int:
        if self.step():
            self.go_wrong()
        descriptor = self.real["create"](path)
        self.names[path] = self.open[descriptor] = SimulatedFile()
        return descriptor

    def open_regular(self, path: Path, *, make: bool = True) -> int:
        if self.step():
            self.go_wrong()
        descriptor = self.real["open_regular"](path, make=make)
        self.open[descriptor] = self.names.setdefault(path, SimulatedFile())
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> None:
        wrong = self.step()
        some = bytes(data)[: len(data) // 2] if wrong and self.fault != "error" else bytes(data)
        if not wrong or self.fault != "error":
            position = os.lseek(descriptor, 0, os.SEEK_CUR)
            self.real["write"](descriptor, some)
            live = self.open[descriptor].live
            live.extend(bytes(max(0, position - len(live))))
            live[position : position + len(some)] = some
        if wrong:
            self.go_wrong()

    def truncate(self, descriptor: int, size: int) -> None:
        if self.step():
            self.go_wrong()
        self.real["truncate"](descriptor, size)
        live = self.open[descriptor].live
        del live[size:]
        live.extend(bytes(size - len(live)))

    def sync(self, descriptor: int) -> None:
        if self.step():
            self.go_wrong()
        found = self.open[descriptor]
        found.synced = bytes(found.live)

    def replace(self, source: Path, target: Path) -> None:
        if self.step():
            self.go_wrong()
        self.real["replace"](source, target)
        self.names[target] = self.names.pop(source)

    def remove(self, path: Path) -> None:
        if self.step():
            self.go_wrong()
        self.real["remove"](path)
        self.names.pop(path, None)

    def sync_folder(self, folder: Path) -> None:
        if self.step():
            if self.fault != "power":
                return  # a file system that cannot do it is not an error
            self.go_wrong()
        for names, others in ((self.names, self.synced_names), (self.synced_names, self.names)):
            for path in [path for path in names if path.parent == folder]:
                if path in self.names:
                    self.synced_names[path] = self.names[path]
                elif path not in others:
                    del self.synced_names[path]

    def states_after_power_cut(self) -> Iterator[dict[Path, bytes]]:
        """What the disk may hold: each unsynced name and content has got there, or has not."""
        paths = sorted(
            path for path in {*self.names, *self.synced_names} if not path.name.endswith("lock")
        )
        seen = set()
        moved = [p for p in paths if self.names.get(p) is not self.synced_names.get(p)]
        for arrived in itertools.product((False, True), repeat=len(moved)):
            names = dict(self.synced_names)
            for path, new in zip(moved, arrived, strict=True):
                if new:
                    names.pop(path, None)
                    if path in self.names:
                        names[path] = self.names[path]
            present = {path: file for path, file in names.items() if path in paths}
            for contents in _contents(present):
                state = {path: contents[path](file) for path, file in present.items()}
                if (key := frozenset(state.items())) not in seen:
                    seen.add(key)
                    yield state

    def restore(self, state: dict[Path, bytes]) -> None:
        folders = [path for path in self.root.rglob("*") if path.is_dir()]
        shutil.rmtree(self.root)
        for folder in (self.root, *folders):
            folder.mkdir(parents=True, exist_ok=True)
        for path, data in state.items():
            path.write_bytes(data)


Content = Callable[[SimulatedFile], bytes]


def _contents(files: dict[Path, SimulatedFile]) -> Iterator[dict[Path, Content]]:
    """What of each unsynced file is on the disk: all in the same way, and each in its own."""
    unsynced = [path for path, file in files.items() if file.synced != file.live]
    for content in CONTENTS.values():
        yield dict.fromkeys(files, content)
    extremes = (CONTENTS["synced"], CONTENTS["all"])
    for chosen in itertools.product(extremes, repeat=len(unsynced)):
        yield {**dict.fromkeys(files, CONTENTS["all"]), **dict(zip(unsynced, chosen, strict=True))}


def _zeros(file: SimulatedFile) -> bytes:
    """The new size with the old bytes: a journal of names and sizes, and zeros for the rest."""
    return (file.synced + bytes(len(file.live)))[: max(len(file.live), len(file.synced))]


FUNCTIONS = (
    *("create", "open_regular", "write", "truncate"),
    *("sync", "replace", "remove", "sync_folder"),
)
CONTENTS: dict[str, Callable[[SimulatedFile], bytes]] = {
    "synced": lambda file: file.synced,
    "all": lambda file: bytes(file.live),
    "zeros": lambda file: file.synced if file.synced == file.live else _zeros(file),
    "torn": lambda file: bytes(file.live)[: (len(file.live) + len(file.synced)) // 2],
}
# a synced file is the same in every one of them
assert all(c(SimulatedFile(bytearray(b"abc"), b"abc")) == b"abc" for c in CONTENTS.values())


@dataclass
class Operation:
    """Something that writes: how to prepare a folder, what to do, and what must hold afterwards.

    Args:
        prepare: Fills an empty folder.
        work: The operation, which may be repeated after it was interrupted.
        check_whole: Holds after every fault: what is there is whole.
        check_done: Holds after the work has returned, whatever happens then.
        module: The copy of `disk` that the work writes through.
        errors: How the work says that it failed.
    """

    prepare: Callable[[Path], None]
    work: Callable[[Path], None]
    check_whole: Callable[[Path], None]
    check_done: Callable[[Path], None]
    module: ModuleType = disk
    errors: tuple[type[Exception], ...] = (FileError,)

    def try_all(self, root: Path) -> int:
        """Try every fault at every step; return the number of faults and power cuts tried."""
        steps = self._run(root, 0, "error").steps
        assert steps > 4
        tried = 0
        for fault in ("error", "torn", "delay"):
            for at in range(1, steps + 1):
                self._run(root, at, fault)
                self.check_whole(root)
                self._repeat(root)
                tried += 1
        for at in range(1, steps + 2):
            cut = self._run(root, at, "power")
            for state in cut.states_after_power_cut():
                cut.restore(state)
                self.check_whole(root)
                if not cut.dead:  # it had returned before the power was cut
                    self.check_done(root)
                self._repeat(root)
                tried += 1
        return tried

    def _run(self, root: Path, at: int, fault: str) -> SimulatedDisk:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        self.prepare(root)
        made = SimulatedDisk(root, at, fault, self.module, self.check_whole)
        with made.installed() as simulated:
            try:
                self.work(root)
            except PowerCut:
                assert fault == "power"
            except self.errors:
                assert fault in ("error", "torn")
            else:
                assert not simulated.dead
        if not simulated.dead and at == 0:
            self.check_done(root)
        return simulated

    def _repeat(self, root: Path) -> None:
        """The same operation again ends as it would have, and leaves nothing behind."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: None)  # for speed alone
            self.work(root)
        self.check_done(root)
        left = [path.name for path in root.rglob("*") if path.name.endswith(".part")]
        assert left == []
