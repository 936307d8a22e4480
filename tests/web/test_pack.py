"""The page without a server, packed: its policy, its sizes, what is refused."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from primavista import Learner
from primavista.backbones.reference import generic_frames
from primavista.cli.app import app
from primavista.errors import InputError, PrimavistaError
from primavista.web import pack

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("benchmarks", "tools")]

import build_web  # noqa: E402
from live_parts.web_learner import taught  # noqa: E402

needs_npm = pytest.mark.skipif(
    not shutil.which("npm"), reason="npm is not installed: apt-get install npm"
)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    build_web.build()
    place = tmp_path_factory.mktemp("page")
    return pack.write_page(place / "site"), pack.write_page(place / "objects.html")


def policy(page: str) -> dict[str, set[str]]:
    """The directives of the policy of a page."""
    text = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)[1]
    return {name: set(sources) for name, *sources in map(str.split, text.split(";"))}


def sha256(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.slow
@needs_npm
def test_the_folder_is_small_and_its_policy_is_strict(packed):
    folder, _ = packed
    page = (folder / "index.html").read_text(encoding="utf-8")
    found = policy(page)
    assert found["default-src"] == {"'none'"}
    assert found["script-src"] == {"'self'", "'wasm-unsafe-eval'"}
    assert found["style-src"] == found["connect-src"] == {"'self'"}
    assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=|https?://", page)
    files = [path.read_bytes() for path in folder.iterdir() if path.name != "licences.txt"]
    assert sum(len(gzip.compress(data)) for data in files) < 12_000_000
    worker = (folder / "service_worker.js").read_text(encoding="utf-8")
    assert all(f'"{name.name}"' in worker for name in folder.glob("*.bin"))
    licences = (folder / "licences.txt").read_text(encoding="utf-8")
    assert "Microsoft Corporation" in licences
    assert "Apache License" in licences


@pytest.mark.slow
@needs_npm
def test_the_file_contains_everything_and_may_connect_to_nothing(packed):
    _, file = packed
    assert file.stat().st_size <= 15_000_000
    page = file.read_text(encoding="utf-16")
    found = policy(page)
    script, style = (
        re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S) for tag in ("script", "style")
    )
    assert found["script-src"] == {*map(sha256, script), "'wasm-unsafe-eval'"}
    assert found["style-src"] == {*map(sha256, style)}
    assert len(script) == len(style) == 1
    assert found["connect-src"] == {"'none'"}
    assert not re.search(r'(?:src|href)="(?!data:)', page.split("<body>")[0])


@pytest.mark.slow
@needs_npm
def test_the_same_parts_give_the_same_bytes(packed, tmp_path):
    folder, file = packed
    assert pack.write_page(tmp_path / file.name).read_bytes() == file.read_bytes()
    again = pack.write_page(tmp_path / "site")
    assert (again / "service_worker.js").read_bytes() == (folder / "service_worker.js").read_bytes()


@pytest.mark.slow
@needs_npm
def test_a_models_name_cannot_leave_its_place(packed, tmp_path):
    model = tmp_path / 'a" onload="x.pv'
    Learner("ncm").save(model)
    page = pack.write_page(tmp_path / "page.html", model).read_text(encoding="utf-16")
    assert 'data-model="a&quot; onload=&quot;x.pv"' in page


@pytest.mark.slow
@needs_npm
@pytest.mark.parametrize("objects", [5, 40])
def test_a_model_of_two_lessons_per_object_fits_into_one_file(packed, objects, tmp_path):
    taught(objects, lessons=2).save(tmp_path / "objects.pv")
    page = pack.write_page(tmp_path / "objects.html", tmp_path / "objects.pv")
    assert page.stat().st_size <= 15_000_000


@pytest.mark.slow
@needs_npm
def test_a_model_that_is_too_large_for_one_file_is_refused(packed, tmp_path):
    learner = Learner("prima", weights=None, engine="onnx", device="cpu")  # another network
    for k in range(8):
        learner.learn(generic_frames(192)[k : k + 1], f"object {k}", coach=False)
    learner.save(tmp_path / "own.pv")
    with pytest.raises(InputError, match=r"own\.pv has no room.* 15 is the limit.* a folder"):
        pack.write_page(tmp_path / "page.html", tmp_path / "own.pv")
    assert not (tmp_path / "page.html").exists()
    assert (pack.write_page(tmp_path / "site", tmp_path / "own.pv") / "model.bin").exists()


@pytest.mark.slow
@needs_npm
def test_other_strategies_and_what_is_no_learner_are_refused(packed, tmp_path):
    Learner("ridge").save(tmp_path / "ridge.pv")
    (tmp_path / "noise.pv").write_bytes(b"noise" * 100)
    for name, reason in (("ridge.pv", "prima or ncm"), ("noise.pv", "noise.pv")):
        with pytest.raises(PrimavistaError, match=reason):
            pack.write_page(tmp_path / "page.html", tmp_path / name)
    assert not (tmp_path / "page.html").exists()


def test_a_clone_that_was_not_built_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "HERE", tmp_path)
    with pytest.raises(InputError, match="make web"):
        pack.write_page(tmp_path / "page.html")


@pytest.mark.slow
@needs_npm
def test_the_command_says_how_large_the_page_is(packed, tmp_path):
    done = CliRunner().invoke(app, ["page", str(tmp_path / "objects.html")])
    assert done.exit_code == 0, done.output
    assert re.search(r"objects\.html: \d\.\d MB", done.output)
    done = CliRunner().invoke(app, ["page", str(tmp_path / "site")])
    assert "http.server" in done.output
