"""The identity of a cell beyond its options: the code that computes it, and its data.

The numbers of a cell depend on more than its options. The version of this package with its commit,
a hash of the user's own source files and a hash of the data are part of the cell, so that a cell
whose code or data has changed is another cell and is run again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from primavista import __version__
from primavista.backbones.spec import OWN_FUNCTIONS
from primavista.bench.data import Data
from primavista.errors import FileError, file_errors
from primavista.progress import Progress
from primavista.storage.disk import user_cache, write_atomically
from primavista.strategies.registry import own_strategy
from primavista.streams.store import INDEX, is_store

DIGITS = 12  # hexadecimal
PACKAGE = Path(__file__).parents[1]
INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
FRESH = 2 * 10**9  # nanoseconds; a file as young as this may change again within one tick

Entry = tuple[int, int, str]  # the size, the time in nanoseconds and the checksum of a file
ENTRIES = TypeAdapter(dict[str, Entry])


def code_fingerprint(strategy: str, *functions: str) -> str:
    """Return the version of this package, and a hash of the user's own code if a cell runs any.

    Args:
        strategy: The name of the strategy.
        functions: The names of the backbone and of the protocol.

    >>> code_fingerprint("ar1*") == package_version()
    True
    """
    modules = [OWN_FUNCTIONS[name].__module__ for name in functions if name in OWN_FUNCTIONS]
    with suppress(Exception):  # a broken package must not break the report of the others
        made = own_strategy(strategy)
        modules += [made.__module__] if made else []
    files = _own_files(modules)
    if not files:
        return package_version()
    own = digest(str([(name, checksum(files[name])) for name in sorted(files)]))
    return f"{package_version()} {own[:DIGITS]}"


@cache
def package_version() -> str:
    """Return the version of this package; in a checkout also its last commit and later changes."""
    commit = _git("log", "-1", f"--abbrev={DIGITS}", "--format=%h", "--", ".").strip()
    changes = _git("diff", "HEAD", "--", ".")
    parts = [__version__, commit, digest(changes)[:DIGITS] if changes else ""]
    return "+".join(part for part in parts if part)


def _git(*arguments: str) -> str:
    """Return what git says about the folder of this package; nothing if it is not a checkout."""
    try:
        answer = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, check=False)
    except OSError:
        return ""
    return answer.stdout.decode("latin-1")


def _own_files(modules: list[str]) -> dict[str, Path]:
    """Return the files of modules and of the user's own modules that they import, by module.

    A module is the user's own if it is not installed, or of the same package as one of `modules`.
    """
    packages = {module.partition(".")[0] for module in modules} - {PACKAGE.name}
    found: dict[str, Path] = {}
    while modules:
        name = modules.pop()
        path = _file(name) if name not in found and _is_own(name, packages) else None
        if path is not None:
            found[name] = path
            modules += _imports(name, path)
    return found


def _is_own(module: str, packages: set[str]) -> bool:
    top = module.partition(".")[0]
    path = _file(top)
    outside = path is not None and not any(map(path.is_relative_to, [PACKAGE, *INSTALLED]))
    return top in packages or outside


def _file(module: str) -> Path | None:
    """Return the file of a module; None if there is no such module, or if it has no file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    with suppress(ImportError, ValueError):
        spec = None if file else find_spec(module)
        file = spec.origin if spec else file
    return Path(file) if file and Path(file).is_file() else None


def _imports(module: str, path: Path) -> Iterator[str]:
    """Yield every name that a module imports, wherever in its code; not all of them are modules."""
    if path.suffix != ".py":
        return
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def fingerprint_of(data: Data, progress: Progress | None = None) -> str | None:
    """Return the hash of the files of a cell's data and of its official orders.

    Rendered data has no files, and its settings determine every pixel: None.
    """
    if data.kind == "rendered":
        return None
    orders = getattr(data, "orders", None)
    paths = [Path(data.path), *([Path(orders)] if orders else [])]
    found = [data_fingerprint(path, progress) for path in paths]
    return None if found[0] is None else digest(" ".join(map(str, found)))


def checksum(path: Path) -> str:
    """Return the sha256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(text: str) -> str:
    """Return the sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def data_fingerprint(path: Path, progress: Progress | None = None) -> str | None:
    """Return the hash of a file, or of the names and contents of all files in a folder.

    Files are read once: their checksums are kept in the user's cache folder for as long as their
    sizes and times stay the same. Of a packed store only the index is read, which has the checksums
    of the frames. Hidden files are left out.

    Args:
        path: The file or folder; without it the result is None.
        progress: Called with (done, total) in bytes while files are read.

    Raises:
        FileError: If a file cannot be read.
    """
    if not path.exists():
        return None
    with file_errors("read", path, "Check the path and permissions"):
        if is_store(path):
            return checksum(path / INDEX)
        checksums = _checksums(path, progress)
    return digest(str(sorted(checksums.items())))


def _checksums(path: Path, progress: Progress | None) -> dict[str, str]:
    """Return the checksum of each file by its name, from the cache if size and time are as then."""
    files = {file.relative_to(path).as_posix(): file for file in _files(path)}
    stamps = {name: (file.stat().st_size, file.stat().st_mtime_ns) for name, file in files.items()}
    cache = user_cache("fingerprints") / f"{digest(str(path.resolve()))}.json"
    kept = {name: entry for name, entry in _cached(cache).items() if entry[:2] == stamps.get(name)}
    missing = [name for name in files if name not in kept]
    done, total = 0, sum(stamps[name][0] for name in missing)
    for name in missing:
        kept[name] = (*stamps[name], checksum(files[name]))
        done += stamps[name][0]
        if progress is not None:
            progress(done, total)
    if missing:
        settled = {name: entry for name, entry in kept.items() if entry[1] < time.time_ns() - FRESH}
        with suppress(OSError, FileError):  # without the cache they are computed again
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cache, json.dumps(settled).encode())
    return {name: entry[2] for name, entry in kept.items()}


def _files(path: Path) -> list[Path]:
    """Return a file itself, or all files in a folder but hidden ones."""
    if path.is_file():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file())
    return [file for file in found if "/." not in f"/{file.relative_to(path).as_posix()}"]


def _cached(cache: Path) -> dict[str, Entry]:
    try:
        return ENTRIES.validate_json(cache.read_bytes())
    except (OSError, ValidationError):
        return {}
