"""The documentation site builds without a warning, fetches nothing, and is complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import primavista

ROOT = Path(__file__).resolve().parents[2]
# about half a minute, once
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]
pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")
pytest.importorskip("mkdocs_jupyter")
if not (ROOT / "src" / "primavista" / "web" / "built" / "worker.js").exists():
    pytest.skip("the page in the browser is not built: make web", allow_module_level=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. A broken link or an undocumented argument fails the build."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return out


def test_pages_fetch_nothing_from_elsewhere(site):
    """Neither fonts nor scripts nor pictures: the site can be read offline and tells nobody."""
    fetched = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="?(https?://[^" >]+)')
    for page in site.rglob("*.html"):
        for tag in fetched.finditer(page.read_text(encoding="utf-8")):
            assert 'rel="canonical"' in tag[0], f"{page.relative_to(site)}: {tag[1]}"


def test_the_site_carries_the_page_that_learns_without_a_server(site):
    page = (site / "page" / "index.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    assert (site / "page" / "runtime.bin").stat().st_size > 1_000_000
    guide = (site / "guides" / "web" / "index.html").read_text(encoding="utf-8")
    assert re.search(r'href="?\.\./\.\./page/', guide)


def test_every_public_name_is_in_the_reference(site):
    """A public name has a heading of its own on one of the reference pages."""
    pages = " ".join(p.read_text(encoding="utf-8") for p in (site / "reference").rglob("*.html"))
    anchors = {name.rpartition(".")[2] for name in re.findall(r'id="(primavista\.[\w.]+)"', pages)}
    anchors |= {"build_backbone"} if "primavista.networks.base.build" in pages else set()
    anchors |= {"open_stream"} if "primavista.streams.open.stream" in pages else set()
    assert set(primavista.__all__) - {"__version__"} <= anchors


def test_the_notebooks_show_their_outputs(site):
    """The pictures of the notebooks are part of the pages."""
    for notebook in (ROOT / "docs" / "gallery").glob("*.ipynb"):
        page = site / "gallery" / notebook.stem / "index.html"
        assert "data:image/png;base64" in page.read_text(encoding="utf-8"), notebook.name
