"""Measure how easy the source is to read, as a table of numbers with goals.

    python tools/house.py                                   # the table, with the lists behind it
    python tools/house.py --compare ../old/src/primavista   # the same, beside another version
    python tools/house.py --check                           # exit code 1 if a goal is missed
    python tools/house.py --no-run                          # without running `primavista learn`

Everything is counted on the syntax tree with the standard library, except the files that AR1* and
`primavista learn` use: these two run once, on a small network, and their calls are recorded. The
stack frames from a worker's entry to `learn_batch` are checked by the tests of the benchmark.

Method. A code line is not blank, not a comment and not part of a docstring. Cyclomatic complexity
is 1 plus every branch (`if`, `elif`, `for`, `while`, `except`, `case`, `assert`, conditional
expression), every boolean operand after the first, every comprehension and every filter of one; a
nested function counts on its own. A function is fully typed if every argument and the result are
annotated. Public are the classes, functions and methods whose names, and whose parents' names, do
not begin with an underscore, and that are not inside a function; their docstrings and those of
modules are counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PACKAGE = "primavista"
COLUMNS = 100
COMPLEXITY = 12
LONG_FUNCTION = 50
ALGORITHM = ("strategies", "nn", "heads", "parts")  # `parts` was nn and heads in version 0.1.0
AR1_FILES, AR1_LINES = 7, 900
LEARN_FILES = 20
QUESTION_WORDS = ("What", "How", "Whether", "Where")
LAZY_ROOT = {"__getattr__", "__dir__"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


# -------------------------------------------------------------------------------- syntax trees


@dataclass(frozen=True)
class Module:
    """One source file.

    Args:
        path: Its path below the package's folder.
        name: Its dotted name, e.g. `primavista.strategies.ar1`.
        text: Its content.
    """

    path: Path
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @property
    def is_init(self) -> bool:
        """True for `__init__.py`."""
        return self.path.name == "__init__.py"

    @cached_property
    def lines(self) -> list[str]:
        """All lines, without their ends."""
        return self.text.splitlines()

    @cached_property
    def code_lines(self) -> list[str]:
        """The lines that are neither blank, nor comments, nor in a docstring."""
        prose = {n for node in ast.walk(self.tree) for n in docstring_lines(node)}
        return [
            line
            for number, line in enumerate(self.lines, 1)
            if number not in prose and line.strip() and not line.lstrip().startswith("#")
        ]

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """Every function of the file, nested ones too, with its qualified name."""
        return [(name, node) for name, node in definitions(self.tree) if is_function(node)]  # type: ignore[misc]


def is_function(node: ast.AST) -> bool:
    """Return True for `def` and `async def`."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def docstring_of(node: ast.AST) -> ast.Expr | None:
    """Return the statement that is the docstring of a module, class or function, if any."""
    if not isinstance(node, ast.Module | ast.ClassDef | Function) or not node.body:
        return None
    first = node.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if is_text and isinstance(first.value.value, str):  # type: ignore[attr-defined]
        return first  # type: ignore[return-value]
    return None


def docstring_lines(node: ast.AST) -> range:
    """Return the numbers of the lines of a node's docstring."""
    found = docstring_of(node)
    return range(found.lineno, (found.end_lineno or found.lineno) + 1) if found else range(0)


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield every class and function below a node, with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | Function):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from definitions(child, f"{name}.")
        else:
            yield from definitions(child, prefix)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function that do not belong to a function defined inside it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not is_function(node):
            waiting.extend(ast.iter_child_nodes(node))


def complexity(function: Function) -> int:
    """Return the cyclomatic complexity of a function; see the module's docstring."""
    return 1 + sum(branches(node) for node in own_nodes(function))


def branches(node: ast.AST) -> int:
    """Return the number of paths that a node adds."""
    branching = ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.IfExp
    if isinstance(node, branching | ast.match_case | ast.Assert):
        return 1
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return 0


def arguments(function: Function) -> list[ast.arg]:
    """Return all arguments of a function but `self` and `cls`."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    if positional and positional[0].arg in ("self", "cls"):
        positional = positional[1:]
    starred = [argument for argument in (given.vararg, given.kwarg) if argument]
    return [*positional, *given.kwonlyargs, *starred]


def is_typed(function: Function) -> bool:
    """Return True if every argument and the result are annotated."""
    return bool(function.returns) and all(argument.annotation for argument in arguments(function))


# ---------------------------------------------------------------------------------- the source


class Source:
    """The modules of a package and the relations between them.

    Args:
        folder: The folder of the package, e.g. `src/primavista`.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "__init__.py").is_file():
            raise SystemExit(f"{folder} is not the folder of a package: there is no __init__.py")
        self.folder = folder.resolve()
        self.modules: dict[str, Module] = {}
        for path in sorted(self.folder.rglob("*.py")):
            relative = path.relative_to(self.folder)
            parts = [PACKAGE, *relative.with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(relative, name, path.read_text(encoding="utf-8"))

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules.values())

    def nodes(self, *kinds: type[ast.AST]) -> list[ast.AST]:
        """Return the nodes of the given kinds in all modules."""
        return [
            node for module in self for node in ast.walk(module.tree) if isinstance(node, kinds)
        ]

    def imports(self, module: Module) -> set[str]:
        """Return the modules of the package that one imports, inside functions too.

        Imports for type checking alone are left out: they are not needed to follow the code.
        """
        found: set[str] = set()
        waiting: list[ast.AST] = [module.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                origin = self._origin(module, node)
                found |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
            waiting.extend(ast.iter_child_nodes(node))
        return {name for name in found if name in self.modules and name != PACKAGE}

    @staticmethod
    def _origin(module: Module, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.name.split(".")
        keep = len(parts) - node.level + int(module.is_init)
        return ".".join([*parts[:keep], *filter(None, [node.module])])

    def closure(self, start: str, packages: tuple[str, ...] = ()) -> list[Module]:
        """Return the modules that one imports, directly or not, itself included.

        Args:
            start: A dotted module name.
            packages: Follow imports only into these packages; empty for all.
        """
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            name = waiting.pop()
            inside = not packages or name.split(".")[1] in packages
            if name in seen or not inside:
                continue
            seen.add(name)
            waiting.extend(self.imports(self.modules[name]))
        return [self.modules[name] for name in sorted(seen)]

    def resolve(self, module: Module, name: str) -> tuple[Module, ast.AST] | None:
        """Find the definition of a name that a module defines or imports from the package.

        Args:
            module: The module in which the name is used.
            name: A name without dots.

        Returns:
            The module and the class, function or assignment that defines it, or None if it comes
            from elsewhere.
        """
        for statement in module.tree.body:
            if name in assigned_names(statement):
                return module, statement
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            origin = self.modules.get(self._origin(module, node))
            for alias in node.names:
                if origin and origin is not module and (alias.asname or alias.name) == name:
                    return self.resolve(origin, alias.name)
        return None


def assigned_names(node: ast.AST) -> list[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def repeated(found: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the names that occur in two or more places, with the places."""
    return {name: sorted(places) for name, places in sorted(found.items()) if len(places) > 1}


# ------------------------------------------------------------------------------ the public API


class PublicApi:
    """The names of `primavista/__init__.py`, and every `Any` that a caller of them meets.

    Args:
        source: The package.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[str] = []
        root = source.modules[PACKAGE]
        self.names = [name for name in public_names(root) if name != "__version__"]
        for name in self.names:
            resolved = source.resolve(root, name)
            if resolved:
                self._definition(*resolved, name)

    def _definition(self, module: Module, node: ast.AST, name: str) -> None:
        if isinstance(node, ast.ClassDef):
            self._class(module, node, name, set())
        elif isinstance(node, Function):
            self._function(module, node, name)

    def _class(self, module: Module, node: ast.ClassDef, name: str, seen: set[str]) -> None:
        """Examines the public members of a class, and those it inherits within the package."""
        for member in node.body:
            if isinstance(member, Function):
                if is_callable_by_users(member.name) and member.name not in seen:
                    seen.add(member.name)
                    self._function(module, member, f"{name}.{member.name}")
            else:
                self._attribute(module, member, name)
        for base in node.bases:
            resolved = self.source.resolve(module, base.id) if isinstance(base, ast.Name) else None
            if resolved and isinstance(resolved[1], ast.ClassDef):
                self._class(resolved[0], resolved[1], name, seen)

    def _attribute(self, module: Module, node: ast.stmt, name: str) -> None:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            attribute = node.target.id
            if not attribute.startswith("_"):
                self._annotation(module, node.annotation, f"{name}.{attribute}")

    def _function(self, module: Module, function: Function, name: str) -> None:
        for argument in arguments(function):
            self._annotation(module, argument.annotation, f"{name}({argument.arg})")
        self._annotation(module, function.returns, f"{name} ->")

    def _annotation(self, module: Module, annotation: ast.expr | None, where: str) -> None:
        if annotation is None:
            self.found.append(f"{where}: not annotated")
        elif self._has_any(module, annotation, set()):
            self.found.append(f"{where}: {ast.unparse(annotation)}")

    def _has_any(self, module: Module, annotation: ast.expr, seen: set[str]) -> bool:
        """Look for `Any` in an annotation and in the aliases of the package that it uses."""
        values = _literal_values(annotation)
        for node in ast.walk(annotation):
            if node in values:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                return self._has_any(module, ast.parse(node.value, mode="eval").body, seen)
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name == "Any" or (name and self._alias_has_any(module, name, seen)):
                return True
        return False

    def _alias_has_any(self, module: Module, name: str, seen: set[str]) -> bool:
        if name in seen:
            return False
        seen.add(name)
        resolved = self.source.resolve(module, name)
        if not resolved or not isinstance(resolved[1], ast.Assign):
            return False
        return self._has_any(resolved[0], resolved[1].value, seen)


def _literal_values(annotation: ast.expr) -> set[ast.AST]:
    """Return the values of each `Literal[...]`: texts, not annotations in quotation marks."""
    return {
        value
        for node in ast.walk(annotation)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal")
        for value in ast.walk(node.slice)
    }


def public_names(root: Module) -> list[str]:
    """Return the strings of `__all__`."""
    for node in root.tree.body:
        if "__all__" in assigned_names(node):
            return [str(name) for name in ast.literal_eval(node.value)]  # type: ignore[attr-defined]
    return []


def is_callable_by_users(method: str) -> bool:
    """Return True for public methods and for special ones such as `__init__`."""
    return not method.startswith("_") or (method.startswith("__") and method.endswith("__"))


# ------------------------------------------------------------------------------------ the rows


@dataclass
class Row:
    """One line of the table.

    Args:
        name: What was counted.
        value: The number or numbers, as text.
        number: The number that the goal applies to.
        goal: The goal in words, empty without one.
        met: Tells from the number whether the goal is met.
        details: The places behind the number.
    """

    name: str
    value: str
    number: float = 0.0
    goal: str = ""
    met: Callable[[float], bool] = field(default=lambda number: True)
    details: list[str] = field(default_factory=list)

    @property
    def is_met(self) -> bool:
        """True if there is no goal, or if the number reaches it."""
        return self.met(self.number)


def none_of(name: str, found: list[str]) -> Row:
    """Return the row of something whose goal is zero."""
    return Row(name, str(len(found)), len(found), "0", lambda number: number == 0, found)


def plain(number: float) -> str:
    """Return a number with separators and at most two decimals."""
    return f"{number:,.2f}".rstrip("0").rstrip(".") if number % 1 else f"{number:,.0f}"


def spread(values: list[int]) -> str:
    """Return median, 90th percentile and maximum of some numbers."""
    ordered = sorted(values)
    p90 = ordered[int(0.9 * (len(ordered) - 1) + 0.5)]
    return f"{plain(statistics.median(ordered))}, {p90:,}, {ordered[-1]:,}"


def size_rows(source: Source) -> list[Row]:
    """Return the rows on files and functions."""
    lines = [len(module.lines) for module in source]
    code = sum(len(module.code_lines) for module in source)
    functions = [pair for module in source for pair in module.functions]
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for _, node in functions]
    typed = sum(is_typed(node) for _, node in functions) / len(functions)
    long = sum(length > LONG_FUNCTION for length in lengths)
    return [
        Row("files / lines / code lines", f"{len(lines)} / {sum(lines):,} / {code:,}"),
        Row("file lines: median, p90, max", spread(lines)),
        Row("functions; median, p90, max lines", f"{len(lengths):,}; {spread(lengths)}"),
        Row(f"functions over {LONG_FUNCTION} lines", str(long)),
        Row("fully typed functions", f"{typed:.1%}"),
    ]


def complexity_rows(source: Source) -> list[Row]:
    """Return the rows on cyclomatic complexity, with the functions over the limit."""
    found = [
        (complexity(node), f"{module.path}:{node.lineno} {name}")
        for module in source
        for name, node in module.functions
    ]
    values = sorted(value for value, _ in found)
    p90 = values[int(0.9 * (len(values) - 1) + 0.5)]
    over = [
        f"{value} {place}" for value, place in sorted(found, reverse=True) if value > COMPLEXITY
    ]
    return [
        Row(
            "complexity: mean / p90 / over 10 / over 15 / max",
            f"{statistics.mean(values):.2f} / {p90} / {sum(v > 10 for v in values)}"
            f" / {sum(v > 15 for v in values)} / {values[-1]}",
        ),
        none_of(f"functions with complexity over {COMPLEXITY}", over),
    ]


def line_rows(source: Source) -> list[Row]:
    """Return the rows on lines and expressions."""
    code = [line for module in source for line in module.code_lines]
    skips = places(source, lambda module, line: "# fmt: skip" in line or "# fmt: off" in line)
    long = places(source, lambda module, line: len(line) > COLUMNS and line in module.code_lines)
    conditional = source.nodes(ast.IfExp)
    nested = [node for node in conditional if any_inside(node, ast.IfExp)]
    mean = statistics.mean(map(len, code))
    per_thousand = 1000 * len(conditional) / len(code)
    return [
        Row("mean characters per code line", f"{mean:.1f}"),
        none_of(f"code lines over {COLUMNS} columns", long),
        Row("`# fmt: skip`", str(len(skips)), len(skips), "< 10", lambda n: n < 10, skips),
        Row(
            "conditional expressions / per 1,000 code lines / nested",
            f"{len(conditional)} / {per_thousand:.0f} / {len(nested)}",
        ),
        Row("walrus", str(len(source.nodes(ast.NamedExpr)))),
        Row("lambdas", str(len(source.nodes(ast.Lambda)))),
    ]


def places(source: Source, wanted: Callable[[Module, str], bool]) -> list[str]:
    """Return the file and number of every line that is wanted."""
    return [
        f"{module.path}:{number}"
        for module in source
        for number, line in enumerate(module.lines, 1)
        if wanted(module, line)
    ]


def any_inside(node: ast.AST, kind: type[ast.AST]) -> bool:
    """Return True if a node of the given kind is somewhere below this one."""
    return any(isinstance(child, kind) for child in ast.walk(node) if child is not node)


def any_rows(source: Source) -> list[Row]:
    """Return the rows on `Any`."""
    uses = [node for node in source.nodes(ast.Name) if node.id == "Any"]  # type: ignore[attr-defined]
    return [
        Row("`Any` in the package", str(len(uses))),
        none_of("`Any` in the public API", PublicApi(source).found),
    ]


def docstring_rows(source: Source) -> list[Row]:
    """Return the rows on the docstrings of everything public."""
    words = [len(text.split()) for text in map(docstring_text, source) if text]
    missing: list[str] = []
    found = 0
    for module in source:
        for name, node in public_definitions(module.tree):
            text = ast.get_docstring(node)
            if text:
                found += 1
                words.append(len(text.split()))
            else:
                missing.append(f"{module.path}:{node.lineno} {name}")
    share = found / (found + len(missing))
    median = statistics.median(words)
    return [
        Row("public docstrings", f"{share:.1%}", details=missing),
        Row("median words per public docstring", plain(median), median, ">= 25", lambda n: n >= 25),
        none_of("docstrings that begin with What, How, Whether, Where", indirect(source)),
    ]


def indirect(source: Source) -> list[str]:
    """Return the places of docstrings that begin with a question word, public or not."""
    places = []
    for module in source:
        nodes = [("", module.tree), *definitions(module.tree)]
        for name, node in nodes:
            first, *_ = (ast.get_docstring(node) or ".").split(maxsplit=1)
            if first in QUESTION_WORDS:
                places.append(f"{module.path}:{getattr(node, 'lineno', 1)} {name}")
    return places


def is_overload(node: Definition) -> bool:
    """Return True for the signatures of an overloaded function, which have no docstrings."""
    return any("overload" in ast.unparse(decorator) for decorator in node.decorator_list)


def docstring_text(module: Module) -> str:
    """Return the docstring of a module, empty without one."""
    return ast.get_docstring(module.tree) or ""


def public_definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield the public classes and functions below a node, but none inside functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | Function):
            yield from public_definitions(child, prefix)
        elif not child.name.startswith("_") and not is_overload(child):
            yield f"{prefix}{child.name}", child
            if isinstance(child, ast.ClassDef):
                yield from public_definitions(child, f"{prefix}{child.name}.")


def name_rows(source: Source) -> list[Row]:
    """Return the rows on names that occur more than once."""
    classes: dict[str, set[str]] = defaultdict(set)
    functions: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for module in source:
        place = str(module.path)
        if module.path.stem not in ("__init__", "__main__"):
            bases[module.path.stem].add(place)
        for _, node in definitions(module.tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(place)
        for statement in module.tree.body:
            if isinstance(statement, Function) and not statement.name.startswith("__"):
                functions[statement.name].add(place)
    public = {name: places for name, places in functions.items() if not name.startswith("_")}
    private = {name: places for name, places in functions.items() if name.startswith("_")}
    return [
        none_of("class names in 2 or more modules", listed(classes)),
        counted("public function names in 2 or more modules", listed(public)),
        counted("private function names in 2 or more modules", listed(private)),
        counted("duplicated module basenames", listed(bases)),
    ]


def listed(found: dict[str, set[str]]) -> list[str]:
    """Return one line of text for each name that occurs in two or more places."""
    return [f"{name}: {', '.join(places)}" for name, places in repeated(found).items()]


def counted(name: str, found: list[str]) -> Row:
    """Return the row of something that has no goal."""
    return Row(name, str(len(found)), details=found)


def init_rows(source: Source) -> list[Row]:
    """Return the rows on definitions in `__init__.py`; the package's lazy root is apart."""
    lazy: list[str] = []
    found: list[str] = []
    for module in source:
        for node in module.tree.body if module.is_init else ():
            if isinstance(node, ast.ClassDef | Function):
                is_lazy = module.name == PACKAGE and node.name in LAZY_ROOT
                (lazy if is_lazy else found).append(f"{module.path}:{node.lineno} {node.name}")
    return [
        none_of("definitions in `__init__.py`, without the lazy root", found),
        counted("definitions of the lazy root", lazy),
    ]


def algorithm_rows(source: Source) -> list[Row]:
    """Return the rows on what AR1* imports."""
    start = f"{PACKAGE}.strategies.ar1"
    near = [module for module in source.closure(start, ALGORITHM) if module.code_lines]
    whole = source.closure(start)
    return [
        Row(
            "import closure of strategies/ar1.py in strategies, nn, heads: files / lines",
            f"{len(near)} / {sum(len(module.lines) for module in near):,}",
            details=[f"{module.path}: {len(module.lines)}" for module in near],
        ),
        Row("code lines of these files", f"{sum(len(module.code_lines) for module in near):,}"),
        Row(
            "import closure of strategies/ar1.py: files / lines",
            f"{len(whole)} / {sum(len(module.lines) for module in whole):,}",
            details=[f"{module.path}: {len(module.lines)}" for module in whole],
        ),
    ]


# -------------------------------------------------------------------- the files of one command


RECORDER = """
import json, os, sys, threading

package, output, start, code = sys.argv[1:5]
touched = set()
local = threading.local()


def record(frame, event, argument):
    called = frame.f_code
    if event not in ("call", "return") or not called.co_filename.startswith(package):
        return
    step = 1 if event == "call" else -1
    if called.co_name == "<module>":
        local.importing = getattr(local, "importing", 0) + step
    if called.co_name == start:
        local.inside = getattr(local, "inside", 0) + step
    wanted = not start or getattr(local, "inside", 0)
    if event == "call" and wanted and not getattr(local, "importing", 0):
        touched.add((os.path.relpath(called.co_filename, package), called.co_firstlineno))


sys.argv = ["primavista", *sys.argv[5:]]
threading.setprofile(record)
sys.setprofile(record)
try:
    exec(code)
finally:
    sys.setprofile(None)
    with open(output, "w") as file:
        json.dump(sorted(touched), file)
"""

LEARN = """
import av
import numpy as np

with av.open("mug.mp4", "w") as video:
    stream = video.add_stream("mpeg4", rate=10)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    for k in range(12):
        noise = np.random.default_rng(k).integers(0, 255, (64, 64, 3), dtype=np.uint8)
        video.mux(stream.encode(av.VideoFrame.from_ndarray(noise, format="rgb24")))
    video.mux(stream.encode(None))
from primavista.__main__ import main
main()
"""
LEARN_COMMAND = ("learn", "kitchen.pv", "--label", "mug", "mug.mp4", "--device", "cpu")

AR1 = """
import torch
from primavista import build_backbone, create

backbone = build_backbone("mobilenet_v1", "random", width=0.0625, size=32)
strategy = create("ar1*", backbone)
generator = torch.Generator().manual_seed(0)
for batch in range(2):
    frames = torch.randint(0, 256, (4, 32, 32, 3), dtype=torch.uint8, generator=generator)
    strategy.learn(frames, torch.tensor([0, 0, 1, 1]))
"""


def functions_run(
    source: Source, code: str, *arguments: str, start: str = ""
) -> dict[str, list[int]]:
    """Run some code in a process of its own and return the functions that it called.

    Code that runs while modules are imported does not count.

    Args:
        source: The package to run it with.
        code: The code.
        *arguments: The arguments of the command line that it sees.
        start: Count only what happens inside a function of this name; empty for everything.

    Returns:
        The lines in which functions begin, decorators included, by the path of the file below the
        package's folder; empty if the code failed, which is reported on stderr.
    """
    environment = {**os.environ, "PYTHONPATH": str(source.folder.parent), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "touched.json"
        command = [sys.executable, "-c", RECORDER, str(source.folder), str(output), start, code]
        done = subprocess.run(
            [*command, *arguments], env=environment, cwd=temporary, capture_output=True, text=True
        )
        touched: list[tuple[str, int]] = json.loads(output.read_text()) if output.exists() else []
    if not touched:
        print(done.stderr, file=sys.stderr)
    found: dict[str, list[int]] = defaultdict(list)
    for file, line in touched:
        found[file].append(line)
    return found


def files_run(source: Source, code: str, *arguments: str, start: str = "") -> list[str]:
    """Return the files whose functions some code calls; the arguments are `functions_run`'s."""
    return sorted(functions_run(source, code, *arguments, start=start))


def function_lines(module: Module, starts: list[int]) -> tuple[int, int]:
    """Count a module's functions that begin in some lines, and the lines of these functions.

    Decorators and docstrings count; a function inside another one has its lines there.
    """
    lines: set[int] = set()
    functions = 0
    for _, node in module.functions:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if first in starts:
            functions += 1
            lines |= set(range(first, (node.end_lineno or first) + 1))
    return functions, len(lines)


def run_rows(source: Source) -> list[Row]:
    """Return the rows on what runs, which take some seconds."""
    modules = {module.path.as_posix(): module for module in source}
    sizes = {path: len(module.lines) for path, module in modules.items()}
    ran = functions_run(source, AR1, start="learn_batch")
    near = sorted(file for file in ran if file.split("/")[0] in ALGORITHM)
    read = {file: function_lines(modules[file], ran[file]) for file in near}
    learned = files_run(source, LEARN, *LEARN_COMMAND)
    lines = sum(sizes[file] for file in near)
    return [
        Row(
            "files that `learn_batch` of AR1* runs (strategies, nn, heads) / lines",
            f"{len(near)} / {lines:,}",
            max(len(near) / AR1_FILES, lines / AR1_LINES),
            f"at most {AR1_FILES} / {AR1_LINES}",
            lambda share: share <= 1,
            [f"{file}: {sizes[file]}" for file in near],
        ),
        Row(
            "functions run by `learn_batch` of AR1* (strategies, nn, heads) / lines",
            f"{sum(n for n, _ in read.values())} / {sum(lines for _, lines in read.values()):,}",
            details=[f"{file}: {n} / {lines}" for file, (n, lines) in read.items()],
        ),
        Row(
            "files touched by `primavista learn`",
            str(len(learned)),
            len(learned),
            f"at most {LEARN_FILES}",
            lambda count: count <= LEARN_FILES,
            learned,
        ),
    ]


# ---------------------------------------------------------------------------------- the report


def measure(source: Source, run: bool = True) -> list[Row]:
    """Return all rows of the table.

    Args:
        source: The package.
        run: Also run AR1* and `primavista learn`, which takes some seconds.
    """
    rows = [
        *size_rows(source),
        *docstring_rows(source),
        *complexity_rows(source),
        *line_rows(source),
        *any_rows(source),
        *name_rows(source),
        *init_rows(source),
        *algorithm_rows(source),
    ]
    return [*rows, *run_rows(source)] if run else rows


def table(columns: dict[str, list[Row]]) -> str:
    """Return the rows as a Markdown table, one column per version."""
    versions = list(columns.values())
    lines = ["| | " + " | ".join(columns) + " | goal |", "|---" * (len(columns) + 2) + "|"]
    for rows in zip(*versions, strict=True):
        last = rows[-1]
        goal = f"{last.goal} {'met' if last.is_met else 'MISSED'}" if last.goal else ""
        lines.append(f"| {last.name} | " + " | ".join(row.value for row in rows) + f" | {goal} |")
    return "\n".join(lines)


def details(rows: list[Row]) -> str:
    """Return the places behind the numbers."""
    parts = []
    for row in rows:
        if row.details:
            parts.append("\n".join([f"\n{row.name}:", *(f"  {place}" for place in row.details)]))
    return "\n".join(parts)


def main() -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    here = Path(__file__).resolve().parents[1] / "src" / PACKAGE
    parser.add_argument("--src", type=Path, default=here, help="the folder of the package")
    parser.add_argument("--compare", type=Path, help="the same folder in another version")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    parser.add_argument("--no-run", action="store_true", help="do not run `primavista learn`")
    parser.add_argument("--brief", action="store_true", help="the table without the lists")
    given = parser.parse_args()
    columns = {}
    if given.compare:
        columns["before"] = measure(Source(given.compare), not given.no_run)
    rows = columns["now"] = measure(Source(given.src), not given.no_run)
    print(table(columns))
    if not given.brief:
        print(details(rows))
    missed = [row for row in rows if not row.is_met]
    for row in missed:
        print(f"missed: {row.name}: {row.value}, goal {row.goal}", file=sys.stderr)
    return int(given.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
