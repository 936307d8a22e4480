"""The identity of a cell beyond its options: fingerprints of its code and of its data.

The numbers of a cell depend on more than its options. Two fingerprints are part of the cell, so
that a cell whose code or data has changed is another cell and is run again.

The fingerprint of the code is of the syntax trees of the modules that the cell's strategy imports,
and of those that make streams and measure. Comments, docstrings, formatting and the texts of errors
do not count, and neither do modules that compute nothing that a result holds, so that an edit of
these leaves results valid; any other change of an algorithm, of a default or of a constant counts.
A version number would not do: it changes without the algorithm, and the algorithm without it.

The fingerprint of the data is of the names, sizes and contents of its files.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from primavista.bench.data import Data
from primavista.errors import FileError, file_errors
from primavista.progress import Progress
from primavista.storage.disk import write_atomically
from primavista.strategies import registry
from primavista.strategies.builtin import STRATEGIES
from primavista.strategies.registry import registered, strategy_info
from primavista.streams.store.index import INDEX
from primavista.streams.store.reading import is_store

DIGITS = 16  # hexadecimal, of the fingerprint of code
PACKAGE = "primavista"
# What every cell runs through, beside its strategy.
MEASURING = ("primavista.bench.evaluate", "primavista.bench.cost", "primavista.bench.metrics")
STREAMS = ("primavista.streams.open", "primavista.streams.protocols")
STACKED = "primavista.bench.stacked"
GRADIENT = "primavista.strategies.gradient"
RELEASE = "primavista.strategies.caffe"  # what the option `compat` changes in all of these
# These compute nothing: messages, progress, pages, files, and facts that a cell records as options.
NO_NUMBERS = (
    *("primavista.errors", "primavista.notebook", "primavista.progress", "primavista.storage"),
    *("primavista.bench.resolve", "primavista.strategies.registry"),
    *("primavista.strategies.builtin", "primavista.strategies.info"),
)
BLOCK = 2**20  # bytes that are hashed at a time
FRESH = 2 * 10**9  # nanoseconds; a file as young as this may change again within one tick


def code_fingerprint(strategy: str, backbone: str = "") -> str:
    """Return the fingerprint of the code that computes a cell of a strategy.

    Args:
        strategy: the name of a strategy, ours, a registered one, or that of an installed package.
        backbone: the name of its backbone, whose code counts if it is a registered function.

    Returns:
        Hexadecimal digits.
    """
    found = hashlib.sha256()
    for name in sorted(modules_of(strategy, backbone)):
        found.update(f"{name} {_module_fingerprint(name)}\n".encode())
    return found.hexdigest()[:DIGITS]


def modules_of(strategy: str, backbone: str = "") -> set[str]:
    """Return the names of the modules that compute a cell of a strategy.

    Args:
        strategy: the name of the strategy. If it is of another package, the modules of that package
            which it imports are among them.
        backbone: the name of its backbone; so it is with a registered function.
    """
    roots = [*MEASURING, *STREAMS]
    if strategy in STRATEGIES:
        roots.append(strategy_info(strategy).where.partition(":")[0])
    elif strategy in registry._third_parties():
        roots.append(registry._third_parties()[strategy].module)
    own = registered()
    roots += [own[name].partition(":")[0] for name in (strategy, backbone) if name in own]
    if strategy_info(strategy).stackable:
        roots.append(STACKED)
    packages = {root.partition(".")[0] for root in roots}
    found: set[str] = set()
    while roots:
        name = roots.pop()
        if name in found or name.partition(".")[0] not in packages or _computes_nothing(name):
            continue
        found.add(name)
        roots += [*_imported(name), *([RELEASE] if name == GRADIENT else [])]
    return found


def source_fingerprint(text: str) -> str:
    """Return the fingerprint of Python source: what it computes, not how it is written down.

    Args:
        text: the source of a module.

    >>> source_fingerprint("x = 1  # one") == source_fingerprint("x = (1)")
    True
    """
    return _tree_fingerprint(ast.parse(text))


def _tree_fingerprint(tree: ast.Module) -> str:
    return hashlib.sha256(repr(_tree(tree)).encode()).hexdigest()


def _tree(node: object) -> object:
    """Return nested tuples for a syntax tree, the same in every version of Python.

    Empty fields are left out, since versions add some.
    """
    if isinstance(node, list):
        return [_tree(item) for item in node]
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.Raise):
        return "raise"
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list):
            value = _without_docstring(node, value)
        if value is not None and value != []:
            fields.append((name, _tree(value)))
    return type(node).__name__, fields


def _without_docstring(node: ast.AST, body: list[ast.stmt]) -> list[ast.stmt]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    first = body[0] if body and isinstance(node, documented) else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if is_text else body


def _computes_nothing(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in NO_NUMBERS)


@dataclass(frozen=True)
class _Import:
    """`import module`, or `from module import names` with `level` dots before the module."""

    module: str
    names: tuple[str, ...] = ()
    level: int = 0


@cache
def _parsed(source: bytes) -> tuple[str, tuple[_Import, ...]]:
    """Return the fingerprint of a module's source, and its imports, wherever in its code."""
    found: list[_Import] = []
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [_Import(alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.asname or alias.name for alias in node.names)
            found.append(_Import(node.module or "", names, node.level))
    return _tree_fingerprint(tree), tuple(found)


def _file(module: str) -> tuple[Path, bool] | None:
    """Return the file of a module and whether it is a package; None if there is no such module."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return Path(spec.origin), spec.submodule_search_locations is not None


def _module_fingerprint(module: str) -> str:
    found = _file(module)
    if found is None:
        return "missing"
    data = found[0].read_bytes()
    return _parsed(data)[0] if found[0].suffix == ".py" else hashlib.sha256(data).hexdigest()


def _imported(module: str) -> list[str]:
    """Return the modules that a module imports, of its own package and of this one."""
    found = _file(module)
    if found is None or found[0].suffix != ".py":
        return []
    ours = PACKAGE, module.partition(".")[0]
    names: list[str] = []
    for one in _parsed(found[0].read_bytes())[1]:
        origin = _absolute(module, one, found[1])
        if origin.partition(".")[0] in ours:
            names += [own for name in one.names for own in _defining(origin, name)]
            names += [] if one.names else [origin]
    return names


def _absolute(module: str, one: _Import, is_package: bool) -> str:
    if not one.level:
        return one.module
    parts = module.split(".")
    parts = parts[: len(parts) - one.level + is_package]
    return ".".join([*parts, one.module] if one.module else parts)


def _defining(origin: str, name: str) -> list[str]:
    """Return the module that `from origin import name` is about.

    It is a module of that name in a package, the module that the package takes the name from, or
    else `origin` itself.
    """
    found = _file(origin)
    if found is None:
        return []
    if not found[1]:
        return [origin]
    if _file(f"{origin}.{name}"):
        return [f"{origin}.{name}"]
    for one in _parsed(found[0].read_bytes())[1]:
        if name in one.names:
            return [_absolute(origin, one, True)]
    return [origin]


def fingerprint_of(data: Data, progress: Progress | None = None) -> str | None:
    """Return the fingerprint of the files of a cell's data.

    Args:
        data: the data; drawn data has no files, and its settings determine every pixel.
        progress: called with (done, total) in bytes while files are read.

    Returns:
        Hexadecimal digits; None if there are no files.

    Raises:
        FileError: if a file cannot be read.
    """
    if data.kind == "rendered":
        return None
    paths = [Path(data.path)]
    orders = getattr(data, "orders", None)
    if orders is not None:
        paths.append(Path(orders))
    found = [data_fingerprint(path, progress) for path in paths]
    if len(found) == 1 or found[0] is None:
        return found[0]
    return hashlib.sha256(" ".join(map(str, found)).encode()).hexdigest()


def data_fingerprint(path: Path, progress: Progress | None = None) -> str | None:
    """Return the fingerprint of a file or of all files in a folder, hidden ones left out.

    Files are read once: their checksums are kept in the user's cache folder for as long as their
    sizes and times stay the same. Of a packed store only the index is read, which has the checksums
    of the frames.

    Args:
        path: the file or folder.
        progress: called with (done, total) in bytes while files are read.

    Returns:
        The sha256 of names, sizes and contents; None if there is no such file or folder.

    Raises:
        FileError: if a file cannot be read.
    """
    if not path.exists():
        return None
    with file_errors("read", path, "Check the path and permissions"):
        if is_store(path):
            return hashlib.sha256((path / INDEX).read_bytes()).hexdigest()
        files = dict(_files(path))
        facts = {name: os.stat(file) for name, file in files.items()}
        stamps = {name: [own.st_size, own.st_mtime_ns] for name, own in facts.items()}
        checksums = _checksums(path, files, stamps, progress)
    lines = (f"{name}\0{stamps[name][0]}\0{checksums[name]}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _checksums(
    path: Path, files: dict[str, Path], stamps: dict[str, list[int]], progress: Progress | None
) -> dict[str, str]:
    """Return the checksum of each file, from the cache if its size and time are the same."""
    kept = _read_cache(path)
    known = {name: kept[name][2] for name in files if kept.get(name, [])[:2] == stamps[name]}
    missing = [name for name in files if name not in known]
    total, done = sum(stamps[name][0] for name in missing), 0
    for name in missing:
        known[name] = _checksum(files[name])
        done += stamps[name][0]
        if progress is not None:
            progress(done, total)
    if missing:
        old = time.time_ns() - FRESH
        names = [name for name in files if stamps[name][1] < old]
        _write_cache(path, {name: [*stamps[name], known[name]] for name in names})
    return known


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each file relative to the folder, and its path."""
    if path.is_file():
        yield path.name, path
        return
    for place, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.startswith("."):
                file = Path(place) / name
                yield file.relative_to(path).as_posix(), file


def _checksum(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def _cache_file(path: Path) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    return Path(base) / PACKAGE / "fingerprints" / f"{key}.json"


def _read_cache(path: Path) -> dict[str, list[Any]]:
    """Return the size, time and checksum of each file as they were; {} if it is not readable."""
    try:
        found = json.loads(_cache_file(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: own for name, own in found.items() if _is_entry(own)}


def _is_entry(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and isinstance(value[2], str)


def _write_cache(path: Path, entries: dict[str, list[Any]]) -> None:
    """Keep the checksums, if the cache can be written; without it they are computed again."""
    target = _cache_file(path)
    with suppress(OSError, FileError):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, json.dumps(entries).encode())
