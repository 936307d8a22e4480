"""Every Python block of the README and the pages runs, in order, in one folder per page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from primavista import Learner

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
GUIDES = ROOT / "docs" / "guides"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


def write_video(path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=20)
        stream.width = stream.height = 128
        stream.pix_fmt = "yuv420p"
        for k in range(20):
            image = np.full((128, 128, 3), 60, np.uint8)
            image[30:90, 20 + k : 80 + k] = np.frombuffer(path.stem.encode().ljust(3)[:3], np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
        container.mux(stream.encode())


def write_toys(folder: Path) -> None:
    write_video(folder / "table.mp4")
    Image.new("RGB", (160, 120), "brown").save(folder / "table.jpg")
    for name in ("mug", "kettle", "cup"):
        write_video(folder / f"{name}.mp4")
        for place in ("kitchen", "garden", "desk", "sofa"):
            (folder / "toys" / name).mkdir(parents=True, exist_ok=True)
            write_video(folder / "toys" / name / f"{place}.mp4")


def write_results(page: Path, folder: Path) -> None:
    """Run the plan of a page, smaller, so that the page's code finds results."""
    from primavista.bench.local import Inline
    from primavista.bench.plan import load_plan
    from primavista.bench.run import Suite

    block = re.search(r"^```toml\n(.*?)^```", page.read_text(), re.S | re.M)
    assert block is not None
    (folder / "mine.toml").write_text(block[1])
    small = ["runs=1", "data.categories=2", "data.sessions=4", "data.frames=2", "data.size=32"]
    plan = load_plan(str(folder / "mine.toml"), small)
    assert Suite(plan, folder / "primavista-runs" / plan.name).run(Inline()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    # The page about Avalanche runs where it is installed, see tests/adapters/test_avalanche.py;
    # that on data sets, which needs their files, has a test of its own below.
    [p for p in PAGES if BLOCK.search(p.read_text()) and p.stem not in ("avalanche", "data-sets")],
    ids=lambda p: p.stem,
)
def test_the_pages_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_toys(tmp_path)
    if page.stem == "publish":
        write_results(page, tmp_path)
    if page.stem == "web":
        Learner("prima").save("objects.pv")
    scope: dict[str, object] = {"__name__": "page"}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec", dont_inherit=True), scope)


@pytest.mark.slow
def test_the_commands_of_the_terminals_page_run(tmp_path, monkeypatch):
    """In order, with a test picture for the camera."""
    from typer.testing import CliRunner

    from primavista.cli.app import app
    from primavista.media import camera

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        camera, "camera_input", lambda av, number: ("testsrc=size=64x48:rate=20", "lavfi", {})
    )
    write_toys(tmp_path)
    (tmp_path / "kettle-photos").mkdir()
    Image.new("RGB", (64, 64), "red").save(tmp_path / "kettle-photos" / "1.jpg")
    text = (GUIDES / "terminal.md").read_text()
    commands = [
        line.partition("#")[0].split()[1:]
        for line in text.splitlines()
        if line.startswith("primavista ")
    ]
    assert len(commands) == 21
    for command in commands:
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, (command, done.output, done.exception)
    assert (tmp_path / "out.mp4").exists()


@pytest.mark.parametrize("page", ["your-own-strategy.md", "your-own-data.md"])
def test_the_tutorials_are_twenty_lines_long(page):
    block = BLOCK.search((GUIDES / page).read_text())
    assert block is not None
    lines = [line for line in block[1].splitlines() if line.strip()]
    assert len(lines) <= 20


def test_links_between_pages_lead_somewhere():
    for page in LINKED:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_projects_files_name_no_machine():
    """Neither the paths of the machine that it was made on nor its tools belong in the project."""
    for path in [*PAGES, ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py")]:
        assert f"{ROOT.parent}/" not in path.read_text(), path


def test_the_plan_of_the_benchmarks_page_is_a_plan(tmp_path):
    from primavista.bench.plan import load_plan

    block = re.search(r"^```toml\n(.*?)^```", (GUIDES / "bench.md").read_text(), re.S | re.M)
    assert block is not None
    (tmp_path / "mine.toml").write_text(block[1])
    assert load_plan(str(tmp_path / "mine.toml")).groups[0].variants == [
        {"norm": "brn"},
        {"norm": "bn"},
    ]


def test_the_plan_and_the_arrays_of_the_page_on_data_sets(tmp_path, capsys):
    from primavista.bench.plan import load_plan

    text = (GUIDES / "data-sets.md").read_text()
    block = re.search(r"^```toml\n(.*?)^```", text, re.S | re.M)
    assert block is not None
    (tmp_path / "mine.toml").write_text('name = "mine"\n' + block[1])
    plan = load_plan(str(tmp_path / "mine.toml"))
    assert plan.groups[0].protocols == [
        "class-incremental:classes_per_batch=10,first=50",
        "nicv2-100:first=20",
    ]
    assert plan.data.kind == "list"
    arrays = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)[-1]
    exec(arrays, {})
    assert "'domain-incremental', run 0, 3 batches" in capsys.readouterr().out


def test_the_transformer_of_the_page_on_backbones(capsys):
    (block,) = re.findall(
        r"^```python\n(.*?)^```", (GUIDES / "backbones.md").read_text(), re.S | re.M
    )
    exec(block, {})
    assert capsys.readouterr().out.startswith("48 (")


def test_the_pages_that_the_code_names_exist():
    """Messages and docstrings point to pages by their path."""
    named = {
        (name, path)
        for folder in ("src", "benchmarks", "tests", "examples")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bdocs/[\w/-]+\.(?:md|ipynb)", path.read_text(encoding="utf-8"))
    }
    missing = sorted(f"{path.name}: {name}" for name, path in named if not (ROOT / name).exists())
    assert not missing


def test_pages_are_wrapped_at_120_columns():
    """Tables, code blocks and single long words (links) may be wider."""
    for page in [*LINKED, ROOT / "CHANGELOG.md"]:
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        for line in text.splitlines():
            prose = not line.lstrip().startswith(("|", "!["))
            assert len(line) <= 120 or not prose, f"{page.name}: {line}"


def test_files_and_modules_that_the_pages_name_exist():
    """Pages follow the tree: no page names a file or a module that is gone."""
    folders = "src|tests|benchmarks|examples|tools"
    packages = "adapters|backbones|bench|cli|engine|events|heads|learner|media|networks|nn"
    packages += "|report|serve|storage|strategies|streams"
    for page in LINKED:
        text = page.read_text(encoding="utf-8")
        paths = re.findall(rf"\b(?:{folders})/[\w/]+\.(?:py|toml)", text)
        paths += [
            f"src/primavista/{p}" for p in re.findall(rf"`((?:{packages})/[\w/]+\.py)`", text)
        ]
        for name in re.findall(rf"\bprimavista\.((?:{packages})[\w.]*)", text):
            module = f"src/primavista/{name.replace('.', '/').rstrip('/')}"
            parent = module.rpartition("/")[0]
            found = [f"{module}.py", f"{parent}.py", module]
            assert any((ROOT / place).exists() for place in found), (
                f"{page.name}: primavista.{name}"
            )
        for path in paths:
            assert "NAME" in path or (ROOT / path).exists(), f"{page.name}: {path}"


def test_the_functions_that_the_page_on_the_architecture_names_exist():
    """Its journeys lead from function to function: `open_learner`, `Learner.learn`."""
    source = ROOT / "src" / "primavista"
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    methods: dict[str, set[str]] = {}
    defined = {path.name for path in source.iterdir() if path.is_dir()}
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                inside = {one.name for one in node.body if isinstance(one, functions)}
                methods.setdefault(node.name, set()).update(inside)
            if isinstance(node, (ast.ClassDef, *functions)):
                defined.add(node.name)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+(?:\.\w+)?)`", page))
    named -= {
        name
        for name in named
        if name.endswith((".py", ".js", ".md", ".json", ".jsonl", ".toml", ".wat"))
    }
    assert "Learner.learn" in named
    for name in named:
        owner, _, method = name.rpartition(".")
        found = method in methods.get(owner, set()) if owner else name in defined
        assert found, name
