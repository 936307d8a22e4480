"""The learner of the page without a server, in a worker of headless Chromium, and Python beside it.

The same files and the same frames go to both. Each measure is from the moment that the button is
released: the lesson is learned and kept, then the next frame is recognised.
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from live_parts.browser import CHROMIUM, FLAGS
from primavista import Learner
from primavista.backbones.reference import generic_frames
from primavista.media.frames import FrameArray

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "src" / "primavista" / "backbones" / "data"
POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'"
SIZE = 192
LESSON = 30  # frames
WARM = 40  # frames until WebAssembly is compiled for speed

PAGE = '<!doctype html><meta charset="utf-8"><title>learner</title><script src="calls.js"></script>'
CALLS = """
const worker = new Worker("worker.js");
const waiting = new Map();
let number = 0;
const frames = [];
worker.onmessage = ({ data }) => {
  if (data.progress) return;
  const { resolve, reject } = waiting.get(data.id);
  waiting.delete(data.id);
  data.error === undefined ? resolve(data.result) : reject(new Error(data.error));
};
function call(name, ...args) {
  const id = ++number;
  worker.postMessage({ id, call: name, args });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}
const bytes = async (path) => (await fetch(path)).arrayBuffer();
async function open(file, size) {
  const fields = { name: file, state: file, fresh: true, file: await bytes(file) };
  for (const name of ["wasm", "network", "graph", "references"]) fields[name] = await bytes(name);
  const all = new Uint8Array(await bytes("frames.bin"));
  const length = size * size * 3;
  for (let at = 0; at < all.length; at += length) frames.push(all.slice(at, at + length));
  return call("open", fields);
}
async function warm(count) {
  for (let k = 0; k < count; k++) await call("recognise", frames[k]);
}
async function timed(work) {
  const began = performance.now();
  const result = await work();
  return { result, seconds: (performance.now() - began) / 1000 };
}
async function lesson(label, chosen, next) {
  const own = await call("lesson", label);
  const adding = [];
  for (const k of chosen) adding.push((await timed(() => call("add", own, frames[k]))).seconds);
  const learned = await timed(() => call("learn", own, true));
  const recognised = await timed(() => call("recognise", frames[next]));
  return { adding, learned, recognised };
}
"""


class _Handler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine under the policy of the page; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/index.html"
    finally:
        server.shutdown()
        server.server_close()


def prepare(folder: Path) -> None:
    """Put the worker and everything that it needs into a folder."""
    subprocess.run(["node", "build.mjs", str(folder)], cwd=ROOT / "web", check=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "calls.js").write_text(CALLS)
    runtime = ROOT / "web" / "node_modules" / "onnxruntime-web" / "dist"
    sources = {
        "wasm": runtime / "ort-wasm-simd-threaded.wasm",
        "network": DATA / "mobilenet_v1_imagenet_fp16.safetensors",
        "graph": DATA / "mobilenet_v1.onnx",
        "references": DATA / "generic_references.safetensors",
    }
    for name, path in sources.items():
        (folder / name).write_bytes(path.read_bytes())


def clip(k: int, lesson: int, count: int) -> FrameArray:
    """Return a clip of one of 48 rendered objects; it moves and gets brighter."""
    frame = generic_frames(SIZE)[k]
    moved = [np.roll(frame, 2 * i + 9 * lesson, axis=1) for i in range(count)]
    lit = [one * (0.7 + 0.01 * i + 0.05 * lesson) for i, one in enumerate(moved)]
    return np.stack(lit).clip(0, 255).astype(np.uint8)


def taught(objects: int, lessons: int) -> Learner:
    """Return a learner that knows objects from some lessons of four frames each."""
    learner = Learner("prima", size=SIZE, engine="onnx", device="cpu")
    for lesson in range(lessons):
        for k in range(objects):
            learner.learn(clip(k, lesson, 4), f"object {k}", coach=False)
    return learner


def measure(objects: int, lessons: int, folder: Path) -> dict[str, dict[str, float]]:
    """Teach one more lesson of 30 frames to a learner of so many objects, three times.

    Returns:
        In the page and in Python: the median seconds per frame, until the lesson is learned and
        kept, and until the next frame is recognised; the largest difference of the scores.
    """
    prepare(folder)
    learner = taught(objects, lessons)
    learner.save(folder / "taught.pv")
    clips = [clip(k, lessons, LESSON) for k in range(3)]
    np.concatenate([*clips, clip(4, 9, 1)]).tofile(folder / "frames.bin")
    page = _in_the_page(folder, clips)
    python = _in_python(learner, folder, clips)
    shares = [
        {one["label"]: one["share"] for one in page["answer"]["scores"]},
        python["answer"].scores,
    ]
    apart = max(abs(shares[0][name] - share) for name, share in shares[1].items())
    return {
        "page": {**page["times"], "scores apart": apart},
        "python": python["times"],
    }


def _in_the_page(folder: Path, clips: list[FrameArray]) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        page = browser.new_page()
        page.goto(address)
        opened = page.evaluate(f'() => timed(() => open("taught.pv", {SIZE}))')
        page.evaluate(f"() => warm({WARM})")
        found = [
            page.evaluate(
                "([label, chosen, next]) => lesson(label, chosen, next)",
                [f"object {k}", [k * LESSON + i for i in range(LESSON)], len(clips) * LESSON],
            )
            for k in range(len(clips))
        ]
        browser.close()
    times = {
        "opening": opened["seconds"],
        "per frame": statistics.median(t for one in found for t in one["adding"]),
        **_medians(
            [one["learned"]["seconds"] for one in found],
            [one["recognised"]["seconds"] for one in found],
        ),
        "working": statistics.median(one["learned"]["result"]["parts"]["working"] for one in found),
        "saving": statistics.median(one["learned"]["result"]["parts"]["saving"] for one in found),
    }
    return {"times": times, "answer": found[-1]["recognised"]["result"]}


def _in_python(learner: Learner, folder: Path, clips: list[FrameArray]) -> dict[str, Any]:
    began = time.perf_counter()
    learner = Learner.load(folder / "taught.pv", engine="onnx", device="cpu")
    opening = time.perf_counter() - began
    adding, learned, recognised = [], [], []
    for k, frames in enumerate(clips):
        learner.predict(frames[0])
        lesson = learner.open_lesson()
        for frame in frames:
            began = time.perf_counter()
            learner.strategy.features(frame[None])
            adding.append(time.perf_counter() - began)
            lesson.add(frame)
        lesson.prepare()
        began = time.perf_counter()
        learner.learn(lesson, f"object {k}")
        learner.save(folder / "python.pv")
        learned.append(time.perf_counter() - began)
        began = time.perf_counter()
        answer = learner.predict(clip(4, 9, 1)[0])
        recognised.append(time.perf_counter() - began)
    times = {"opening": opening, "per frame": statistics.median(adding)}
    return {"times": {**times, **_medians(learned, recognised)}, "answer": answer}


def _medians(learned: list[float], recognised: list[float]) -> dict[str, float]:
    both = [one + other for one, other in zip(learned, recognised, strict=True)]
    return {
        "learned and kept": statistics.median(learned),
        "next frame": statistics.median(recognised),
        "letting go to recognised": statistics.median(both),
    }
