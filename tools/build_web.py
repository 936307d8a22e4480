"""Build the scripts of the page without a server: src/primavista/web/built.

npm installs what web/package-lock.json names, by hash. esbuild joins the modules of the page and
those of the learner to one script each, and ONNX Runtime's WebAssembly is compressed.

    python tools/build_web.py
"""

from __future__ import annotations

import lzma
import subprocess
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB = ROOT / "web"
BUILT = ROOT / "src" / "primavista" / "web" / "built"
WASM = WEB / "node_modules" / "onnxruntime-web" / "dist" / "ort-wasm-simd-threaded.wasm"


def is_newer(source: Path, made: Path) -> bool:
    """Whether a file must be made again."""
    return not made.is_file() or source.stat().st_mtime > made.stat().st_mtime


def licences() -> str:
    """Return the licences and notices of what is in the page.

    ONNX Runtime's notices are those of the Python package, which is built from the same sources as
    the WebAssembly; the package of npm has none.
    """
    texts = {f"primavista: {name}": ROOT / name for name in ("LICENSE", "NOTICE")}
    for file in distribution("onnxruntime").files or []:
        if file.name in ("LICENSE", "ThirdPartyNotices.txt"):
            texts[f"ONNX Runtime: {file.name}"] = Path(str(file.locate()))
    found = [f"==== {name}\n\n{path.read_text('utf-8-sig')}" for name, path in texts.items()]
    return "\n\n".join(found)


def compressed(data: bytes) -> bytes:
    """Compress with LZMA; the header has the length, which web/learner/lzma.js needs."""
    filters = [{"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME}]
    found = lzma.compress(data, lzma.FORMAT_ALONE, filters=filters)
    return found[:5] + len(data).to_bytes(8, "little") + found[13:]


def build() -> None:
    """Install, join and compress what is missing or older than its sources."""
    if is_newer(WEB / "package-lock.json", WEB / "node_modules" / ".package-lock.json"):
        subprocess.run(["npm", "ci"], cwd=WEB, check=True)
    BUILT.mkdir(exist_ok=True)
    subprocess.run(["node", "build.mjs", str(BUILT)], cwd=WEB, check=True)
    (BUILT / "licences.txt").write_text(licences(), encoding="utf-8")
    packed = BUILT / "runtime.wasm.lzma"
    if is_newer(WASM, packed):
        packed.write_bytes(compressed(WASM.read_bytes()))


if __name__ == "__main__":
    build()
