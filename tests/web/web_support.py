"""Runs the modules of the page's learner in Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
LEARNER = HERE.parents[1] / "web" / "learner"


def node(script: str, *arguments: str, given: Any = None, timeout: float = 600) -> Any:
    """Run a script of this folder with JSON on its standard input; return the JSON it prints."""
    program = shutil.which("node")
    assert program, "these tests need Node.js 20 or later (apt-get install nodejs)"
    done = subprocess.run(
        [program, str(HERE / script), *arguments],
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
        folder: Where to put the frames.
        images: The frames that the calls refer to, N x size x size x 3.
    """
    wasm = RUNTIME / "ort-wasm-simd-threaded.wasm"
    assert wasm.exists(), "these tests need ONNX Runtime for the web: run `npm ci` in web/"
    given: dict[str, Any] = {
        "wasm": str(wasm),
        "network": str(DATA / "mobilenet_v1_imagenet_fp16.safetensors"),
        "graph": str(DATA / "mobilenet_v1.onnx"),
        "references": str(DATA / "generic_references.safetensors"),
        "calls": calls,
    }
    if images is not None:
        (folder / "frames.bin").write_bytes(np.ascontiguousarray(images).tobytes())
        given |= {"frames": str(folder / "frames.bin"), "size": images.shape[1]}
    found: list[Any] = node("page.mjs", given=given)
    return found


def opened(**fields: Any) -> dict[str, Any]:
    """The call that opens the page's learner."""
    return {"call": "open", "args": [fields]}
