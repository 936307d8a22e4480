"""Runs the modules of the page's learner in Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from primavista.web.packed_model import packed_network

HERE = Path(__file__).parent
LEARNER = HERE.parents[1] / "web" / "learner"


NEEDED = 20  # the version of Node.js


def program() -> str:
    """Return the path of Node.js; without it, or with an older one, the test is skipped."""
    found = shutil.which("node")
    if found:
        told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
        if int(told.stdout.lstrip("v").partition(".")[0]) >= NEEDED:
            return found
    pytest.skip(f"needs Node.js {NEEDED} or later")


def node(script: str, *arguments: str, given: Any = None, timeout: float = 600) -> Any:
    """Run a script of this folder with JSON on its standard input; return the JSON it prints."""
    done = subprocess.run(
        [program(), str(HERE / script), *arguments],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


DATA = Path(str(files("primavista.backbones") / "data"))
RUNTIME = LEARNER.parent / "node_modules" / "onnxruntime-web" / "dist"


def call_page(
    calls: list[dict[str, Any]], folder: Path, images: np.ndarray | None = None
) -> list[Any]:
    """Make calls of the page's learner in Node.js; see `page.mjs`.

    Args:
        calls: The calls, each with `call` and `args`.
        folder: Where to put the frames and the network.
        images: The frames that the calls refer to, N x size x size x 3.
    """
    wasm = RUNTIME / "ort-wasm-simd-threaded.wasm"
    if not wasm.exists():
        pytest.skip("needs what npm installs: run `make web`")
    given: dict[str, Any] = {
        "wasm": str(wasm),
        "network": str(folder / "network.bin"),
        "graph": str(DATA / "mobilenet_v1.onnx"),
        "references": str(DATA / "generic_references.safetensors"),
        "calls": calls,
    }
    network = DATA / "mobilenet_v1_objects_fp16.safetensors"
    (folder / "network.bin").write_bytes(packed_network(network.read_bytes()))
    if images is not None:
        (folder / "frames.bin").write_bytes(np.ascontiguousarray(images).tobytes())
        given |= {"frames": str(folder / "frames.bin"), "size": images.shape[1]}
    found: list[Any] = node("page.mjs", given=given)
    return found


def opened(**fields: Any) -> dict[str, Any]:
    """The call that opens the page's learner."""
    return {"call": "open", "args": [fields]}
