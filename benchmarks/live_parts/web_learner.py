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
from primavista.web.packed_model import packed_network

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
async function add(label, chosen) {
  const own = await call("lesson", label);
  const seconds = [];
  for (const k of chosen) seconds.push((await timed(() => call("add", own, frames[k]))).seconds);
  return { own, seconds };
}
async function learn(own, next) {
  const learned = await timed(() => call("learn", own, true));
  return { learned, recognised: await timed(() => call("recognise", frames[next])) };
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
        "graph": DATA / "mobilenet_v1.onnx",
        "references": DATA / "generic_references.safetensors",
    }
    for name, path in sources.items():
        (folder / name).write_bytes(path.read_bytes())
    network = DATA / "mobilenet_v1_objects_fp16.safetensors"
    (folder / "network").write_bytes(packed_network(network.read_bytes()))


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


def measure(
    playwright: Any, objects: int, lessons: int, folder: Path
) -> dict[str, dict[str, float]]:
    """Teach one more lesson of 30 frames to a learner of so many objects, three times.

    Args:
        playwright: Playwright, started.
        objects: How many objects were taught before.
        lessons: How many lessons of each.
        folder: A folder for the parts of the page and for files.

    Returns:
        In the page and in Python: the median seconds per frame, until the lesson is learned and
        kept, and of the next frame, which is recognised; seconds of the processor; and the largest
        difference of the scores.
    """
    prepare(folder)
    learner = taught(objects, lessons)
    learner.save(folder / "taught.pv")
    clips = [clip(k, lessons, LESSON) for k in range(3)]
    np.concatenate([*clips, clip(4, 9, 1)]).tofile(folder / "frames.bin")
    page = _in_the_page(playwright, folder, clips)
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


def _in_the_page(playwright: Any, folder: Path, clips: list[FrameArray]) -> dict[str, Any]:
    found = []
    with served(folder) as address:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        session = browser.new_browser_cdp_session()

        def processor() -> float:
            told = session.send("SystemInfo.getProcessInfo")["processInfo"]
            return sum(float(one["cpuTime"]) for one in told if one["type"] == "renderer")

        page = browser.new_page()
        page.goto(address)
        opened = page.evaluate(f'() => timed(() => open("taught.pv", {SIZE}))')
        page.evaluate(f"() => warm({WARM})")
        for k in range(len(clips)):
            chosen = [k * LESSON + i for i in range(LESSON)]
            marks = [processor()]
            added = page.evaluate("([l, c]) => add(l, c)", [f"object {k}", chosen])
            marks.append(processor())
            wanted = [added["own"], len(clips) * LESSON]
            learned = page.evaluate("([own, next]) => learn(own, next)", wanted)
            marks.append(processor())
            parts = learned["learned"]["result"]["parts"]
            found.append(
                {
                    "per frame": statistics.median(added["seconds"]),
                    "per frame, processor": (marks[1] - marks[0]) / LESSON,
                    "learned and kept": learned["learned"]["seconds"],
                    "of it learning": parts["working"],
                    "of it saving": parts["saving"],
                    "next frame": learned["recognised"]["seconds"],
                    "letting go to recognised, processor": marks[2] - marks[1],
                }
            )
            answer = learned["recognised"]["result"]
        browser.close()
    return {"times": {"opening": opened["seconds"], **_medians(found)}, "answer": answer}


def _in_python(learner: Learner, folder: Path, clips: list[FrameArray]) -> dict[str, Any]:
    began = time.perf_counter()
    learner = Learner.load(folder / "taught.pv", engine="onnx", device="cpu")
    opening = time.perf_counter() - began
    found = []
    for k, frames in enumerate(clips):
        learner.predict(frames[0])
        lesson = learner.open_lesson()
        adding, processor = [], time.process_time()
        for frame in frames:
            began = time.perf_counter()
            learner.strategy.features(frame[None])
            adding.append(time.perf_counter() - began)
        frame_processor = (time.process_time() - processor) / len(frames)
        for frame in frames:
            lesson.add(frame)
        lesson.prepare()
        marks, processor = [time.perf_counter()], time.process_time()
        learner.learn(lesson, f"object {k}")
        learner.save(folder / "python.pv")
        marks.append(time.perf_counter())
        answer = learner.predict(clip(4, 9, 1)[0])
        marks.append(time.perf_counter())
        found.append(
            {
                "per frame": statistics.median(adding),
                "per frame, processor": frame_processor,
                "learned and kept": marks[1] - marks[0],
                "next frame": marks[2] - marks[1],
                "letting go to recognised, processor": time.process_time() - processor,
            }
        )
    return {"times": {"opening": opening, **_medians(found)}, "answer": answer}


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in found) for name in found[0]}
