"""Packs the page that learns without a server: a folder of static files, or one HTML file.

The scripts and ONNX Runtime's WebAssembly are built by `make web` and are in the package. The page
is that of the service, with another back end. Its large parts are compressed with gzip, because the
browser decompresses that, whatever the web host sends. In a folder they are files of their own. In
one file they are text: it is in UTF-16, in which almost any two bytes are a character, and 97 % of
it are data (of base64, 75 %). ONNX Runtime, the largest one that gzip can make small, is compressed
with LZMA there, which saves more than the second that the page needs for it.
"""

from __future__ import annotations

import base64
import codecs
import gzip
import hashlib
import html
import json
import lzma
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np

from primavista.backbones.onnx import GRAPH_FILE
from primavista.backbones.reference import REFERENCES
from primavista.backbones.weights import SHIPPED, SOURCES, check_sha256
from primavista.errors import InputError, file_errors
from primavista.learner.learner import Learner
from primavista.storage.disk import write_atomically
from primavista.web.packed_model import packed_model, packed_network

STRATEGIES = ("prima", "ncm")  # that learn in the browser
LARGEST_FILE = 15_000_000  # bytes
ESCAPE, ESCAPED_BIT = 0xE000, 0x4000  # as in assets.js
RUNTIME, LICENCES = "runtime.wasm.lzma", "licences.txt"
HERE = files("primavista.web")
PAGE = files("primavista.serve") / "page"
# Nothing is loaded from elsewhere; the worker, of a blob, has the same policy.
POLICY = (
    "default-src 'none'; worker-src {worker}; script-src {script} 'wasm-unsafe-eval'; "
    "style-src {style}; img-src 'self' data: blob:; media-src blob:; connect-src {connect}; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'"
)
NO_SCRIPT = '<noscript><p class="banner">This page needs JavaScript.</p></noscript>'
LINK = f'<p><a id="licences" href="{LICENCES}" download data-text="licences"></a></p>'
MANIFEST = {
    "name": "primavista",
    "short_name": "primavista",
    "description": "Learns to recognise objects, in this browser.",
    "id": ".",
    "start_url": ".",
    "display": "standalone",
    "background_color": "#f6f6f3",
    "theme_color": "#0b6e5f",
    "icons": [
        {"src": "icon.svg", "sizes": "any", "type": "image/svg+xml", "purpose": "any maskable"},
        {"src": "icon.png", "sizes": "512x512", "type": "image/png", "purpose": "any maskable"},
    ],
}


def write_page(target: str | Path, model: str | Path | None = None) -> Path:
    """Write the page that learns without a server.

    Args:
        target: A name that ends in .html for one file, which works from a double click; otherwise
            a folder for a web host, which is made if it is missing. Files of an earlier page are
            replaced.
        model: The file of a learner that the page begins with; None for an empty one.

    Returns:
        The path of the file, or of the folder.

    Raises:
        InputError: If the strategy or the network of the model does not run in a browser, if the
            model is too large for one file, or if the package was installed without the built
            scripts.
        FileError: If the model cannot be read or the page cannot be written.
    """
    target = Path(target)
    name = "" if model is None else Path(model).name
    parts = _parts(None if model is None else Path(model))
    packed = {part: gzip.compress(data, 9, mtime=0) for part, data in parts.items()}
    is_file = target.suffix.lower() in (".html", ".htm")
    written = _one_file(target.name, packed, name) if is_file else _folder(packed, name)
    size = len(written.get(target.name, b"")) if is_file else 0
    if size > LARGEST_FILE:
        raise InputError(
            f"{model} has no room in one file: {target} would have {size / 1e6:.1f} MB, and "
            f"{LARGEST_FILE / 1e6:.0f} is the limit. Write the page as a folder, or without a "
            "model, and open the model in it (Save and use, Load another)"
        )
    for relative, data in written.items():
        path = target if is_file else target / relative
        with file_errors("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
    return target


def _parts(model: Path | None) -> dict[str, bytes]:
    """Return the parts of the page that are no scripts of its own, by the names of assets.js."""
    name = SHIPPED[0]
    source = SOURCES[name]
    network = source.read()
    check_sha256(network, source.sha256, name)
    parts = {
        "worker": _built("worker.js"),
        "runtime": lzma.decompress(_built(RUNTIME)),
        "network": packed_network(network),
        "graph": GRAPH_FILE.read_bytes(),
        "references": REFERENCES.read_bytes(),
    }
    if model is not None:
        parts["model"] = packed_model(_checked_learner(model), network)
    return parts


def _built(name: str) -> bytes:
    try:
        return (HERE / "built" / name).read_bytes()
    except OSError as error:
        raise InputError(
            f"the scripts of the page are not built: {name} is missing. In a clone of the project "
            "run `make web`; a released package contains them"
        ) from error


def _checked_learner(path: Path) -> Learner:
    """Load a learner that the page can go on with."""
    learner = Learner.load(path)
    if learner.strategy_name not in STRATEGIES:
        raise InputError(
            f"{path}: the page in a browser learns with {' or '.join(STRATEGIES)}; "
            f"this learner has the strategy {learner.strategy_name}"
        )
    return learner


def _folder(packed: Mapping[str, bytes], model: str) -> dict[str, bytes]:
    """Return the files of a page for a web host, by name."""
    large = {f"{part}.bin": data for part, data in packed.items()}
    small = {
        "page.js": _built("page.js"),
        "style.css": _text("style.css").encode(),
        "icon.svg": _text("icon.svg").encode(),
        "icon.png": (HERE / "icon.png").read_bytes(),
        "manifest.webmanifest": json.dumps(MANIFEST, indent=1).encode(),
    }
    policy = POLICY.format(worker="'self' blob:", script="'self'", style="'self'", connect="'self'")
    head = (
        '<link rel="icon" href="icon.svg" type="image/svg+xml">\n'
        '  <link rel="apple-touch-icon" href="icon.png">\n'
        '  <link rel="manifest" href="manifest.webmanifest">\n'
        '  <link rel="stylesheet" href="style.css">'
    )
    script = '<script src="page.js" defer></script>'
    page = _page(policy, head, script, "", "icon.svg", packed, model)
    small["index.html"] = page.encode()
    digest = hashlib.sha256()
    for name, data in sorted({**small, **large}.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    facts = {
        "VERSION": digest.hexdigest()[:16],
        "SMALL": [".", *sorted(small)],
        "LARGE": sorted(large),
    }
    lines = [f"const {name} = {json.dumps(value)};" for name, value in facts.items()]
    worker = (HERE / "service_worker.js").read_text(encoding="utf-8")
    small["service_worker.js"] = "\n".join([*lines, worker]).encode()
    return {**small, **large, LICENCES: _built(LICENCES)}


def _one_file(name: str, packed: Mapping[str, bytes], model: str) -> dict[str, bytes]:
    """Return a page that contains all its parts, by its name."""
    style, script = _text("style.css"), _built("page.js").decode()
    policy = POLICY.format(
        worker="blob:", script=_hash_of(script), style=_hash_of(style), connect="'none'"
    )
    icon = f"data:image/svg+xml;base64,{base64.b64encode(_text('icon.svg').encode()).decode()}"
    head = f'<link rel="icon" href="{icon}" type="image/svg+xml">\n  <style>{style}</style>'
    licences = gzip.compress(_built(LICENCES), 9, mtime=0)
    parts = {**packed, "runtime": _built(RUNTIME), "licences": licences}
    elements = [
        f'<script type="text/plain" id="asset-{part}" data-bytes="{len(data)}">{_as_text(data)}'
        "</script>"
        for part, data in parts.items()
    ]
    elements.append(f"<script>{script}</script>")
    page = _page(policy, head, "", "\n".join(elements), icon, packed, model)
    page = page.replace('<meta charset="utf-8">\n  ', "")  # the first two bytes of the file tell it
    return {name: codecs.BOM_UTF16_LE + page.encode("utf-16-le")}


def _page(
    policy: str,
    head: str,
    script: str,
    end: str,
    icon: str,
    packed: Mapping[str, bytes],
    model: str,
) -> str:
    """Return the page of the service with other links in its head and other scripts."""
    size = sum(map(len, packed.values()))
    attributes = f'data-bytes="{size}" data-model="{html.escape(model)}"'
    page = _text("index.html")
    noscript = page[page.index("<noscript>") : page.index("</noscript>") + len("</noscript>")]
    changes = {
        '<html lang="en">': f'<html lang="en" {attributes}>',
        '<meta charset="utf-8">': '<meta charset="utf-8">\n  '
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n  '
        '<meta name="referrer" content="no-referrer">',
        '<link rel="icon" href="/page/icon.svg" type="image/svg+xml">\n  '
        '<link rel="stylesheet" href="/page/style.css">': head,
        '<script type="module" src="/page/main.js"></script>': script,
        'src="/page/icon.svg"': f'src="{icon}"',
        noscript: NO_SCRIPT,
        '<p id="privacy"></p>': f'<p id="privacy"></p>\n        {LINK}',
        "</body>": f"{end}\n</body>",
    }
    for old, new in changes.items():
        before, found, after = page.partition(old)
        if not found or old in after:
            raise AssertionError(f"index.html must contain this once: {old}")
        page = before + new + after
    return page


def _as_text(data: bytes) -> str:
    """Return bytes as characters of UTF-16, two in one; assets.js turns them into bytes again.

    Halves of characters beyond 16 bits, and what HTML would change or might end at, are written as
    two: `ESCAPE`, and the character with one bit changed.
    """
    units = np.frombuffer(data + bytes(len(data) % 2), "<u2")
    is_half = (units >= 0xD800) & (units < ESCAPE)
    is_escaped = is_half | np.isin(units, [ESCAPE, *map(ord, "\0\r<")])
    text = np.repeat(units, 1 + is_escaped)
    (places,) = np.nonzero(is_escaped)
    places += np.arange(len(places))
    text[places] = ESCAPE
    text[places + 1] ^= ESCAPED_BIT
    return text.astype("<u2").tobytes().decode("utf-16-le")


def _text(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
