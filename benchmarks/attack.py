"""Attack one service and print the cost; exit code 1 means that a bound was exceeded.

    python benchmarks/attack.py            # all attacks, in about three minutes
    python benchmarks/attack.py --quick    # less of everything, in one minute

The honest client has the token and asks what a frame shows. Attackers that send headers or hold
connections do not have the token; attackers that send pictures, videos and models do.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread

import httpx
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))

from live_parts.process import (
    DEFAULT,
    TINY,
    New,
    Service,
    children,
    drawn,
    environment,
    jpeg,
    memory_of,
    service,
)

from primavista import Learner
from primavista.bench.folder import write_result
from primavista.bench.plan import load_plan
from primavista.errors import PrimavistaError
from primavista.report import write_report
from primavista.storage import learner_file

TOKEN = "the-token-of-the-honest-client"
MEMORY_BOUND = 20.0  # MiB
DELAY_BOUND = 2.0  # times the median without an attack
WAIT_BOUND = 1.0  # seconds
CHILD_BOUND = 300.0  # MiB
MODEL_SECONDS, MODEL_MEMORY = 0.5, 50.0
HALF = b"GET /api/model HTTP/1.1\r\nHost: localhost\r\nX: "
PAGE = b"GET /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(running: Service, said: bytes, receive_buffer: int = 0) -> socket.socket:
    """Open a TCP connection to the service and send a first text."""
    opened = socket.socket()
    if receive_buffer:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    opened.settimeout(60)
    host, _, port = running.url.removeprefix("http://").partition(":")
    opened.connect((host, int(port)))
    opened.sendall(said)
    return opened


def flood(running: Service, mebibytes: int) -> float:
    """Send headers over new connections up to a number of MiB; return the growth in MiB."""
    block = b"a\r\nX: " * (2**20 // 6)
    before = running.memory()
    peak = before
    left = mebibytes
    while left > 0:
        with connected(running, HALF) as opened:
            try:
                while left > 0:
                    left -= 1
                    opened.sendall(block)
            except OSError:
                pass
        peak = max(peak, running.memory())
    time.sleep(1)
    return max(peak, running.memory()) - before


def honest(url: str, frame: bytes, count: int = 0, seconds: float = 0.0) -> list[float]:
    """Measure the delays of single requests in seconds, each on a new connection.

    It makes as many as it is told to, or as many as it can in some seconds.
    """
    delays: list[float] = []
    end = time.monotonic() + seconds
    given = {"Authorization": f"Bearer {TOKEN}"}
    fresh = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=url, headers=given, limits=fresh, timeout=60) as client:
        while len(delays) < count or time.monotonic() < end:
            began = time.perf_counter()
            client.post("/api/predict", files={"frame": frame}).raise_for_status()
            delays.append(time.perf_counter() - began)
    return delays


def beside(
    running: Service,
    frame: bytes,
    count: int,
    connections: int,
    attack: Callable[[Service], socket.socket],
) -> tuple[float, float]:
    """Measure the honest client's median delays in seconds: alone, and beside the connections."""
    alone = honest(running.url, frame, count)
    with ExitStack() as cleanup:
        for _ in range(connections):
            cleanup.enter_context(attack(running))
        crowded = honest(running.url, frame, count)
    time.sleep(0.5)
    alone += honest(running.url, frame, count)  # before and after: the machine may be busier now
    return statistics.median(alone), statistics.median(crowded)


def scan_bomb(side: int, scans: int) -> bytes:
    """Return a progressive JPEG whose last scan is repeated many times."""
    data = io.BytesIO()
    Image.new("RGB", (side, side), (90, 120, 60)).save(data, "JPEG", progressive=True)
    whole = data.getvalue()
    last = whole[whole.rindex(b"\xff\xda") : -2]
    return whole[:-2] + last * (scans - whole.count(b"\xff\xda")) + whole[-2:]


def large_picture(side: int) -> bytes:
    """Return a PNG of few bytes and many pixels."""
    data = io.BytesIO()
    Image.new("RGB", (side, side), (90, 120, 60)).save(data, "PNG")
    return data.getvalue()


def posts(
    path: str, clients: int, files: list[tuple[str, tuple[str, bytes]]], **data: str
) -> Callable[[Service, Event], ExitStack]:
    """Return an attack by clients with the token: each sends the same request until the end."""

    def begin(running: Service, ended: Event) -> ExitStack:
        def client() -> None:
            given = {"Authorization": f"Bearer {TOKEN}"}
            while not ended.is_set():
                httpx.post(
                    f"{running.url}{path}", headers=given, data=data, files=files, timeout=90
                )

        return _started(clients, client)

    return begin


def many_bytes(side: int) -> bytes:
    """Return a PNG of noise with as few pixels as a camera frame and four bytes per pixel."""
    noise = np.random.default_rng(1).integers(0, 256, (side, side, 4), np.uint8)
    data = io.BytesIO()
    Image.fromarray(noise).save(data, "PNG", compress_level=0)
    return data.getvalue()


def streams(clients: int, picture: bytes) -> Callable[[Service, Event], ExitStack]:
    """Return an attack by clients with the token, which send pictures over WebSockets.

    Each client sends the same picture again and again, does not wait for answers, and reconnects if
    it is cut off.
    """
    upgrade = (
        "GET /api/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\n"
    ).encode()
    # a final binary frame with its length in eight bytes and a mask of zeros
    message = b"\x82\xff" + struct.pack("!Q", len(picture)) + bytes(4) + picture

    def begin(running: Service, ended: Event) -> ExitStack:
        def client() -> None:
            while not ended.is_set():
                with suppress(OSError), connected(running, upgrade) as opened:
                    opened.recv(65536)  # "101 Switching Protocols"
                    for start in itertools.cycle(range(0, len(message), 2**16)):
                        if ended.is_set():
                            break
                        opened.sendall(message[start : start + 2**16])

        return _started(clients, client)

    return begin


def refused_bodies(clients: int, path: str) -> Callable[[Service, Event], ExitStack]:
    """Return an attack by clients without the token, which send bodies that nobody asked for.

    Each sends at full speed, does not read the answer, and reconnects when it is cut off.
    """
    begun = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 125829120\r\n\r\n"
    ).encode()
    block = bytes(2**16)

    def begin(running: Service, ended: Event) -> ExitStack:
        def client() -> None:
            while not ended.is_set():
                with suppress(OSError), connected(running, begun) as opened:
                    opened.settimeout(0.5)
                    while not ended.is_set():
                        opened.sendall(block)

        return _started(clients, client)

    return begin


def hostile_to_commands(folder: Path) -> float:
    """Give a hostile video to the commands; return the largest memory of one, in MiB, beyond usual.

    A command that takes the video raises an error.
    """
    good, bad, model = folder / "good.mp4", folder / "bad.mp4", folder / "commands.pv"
    good.write_bytes(small_video())
    bad.write_bytes(with_samples(small_video(), 20_000_000))
    Learner(**TINY).save(model)
    peaks: dict[Path, float] = {}
    for video in (good, bad):
        for command in (
            ["learn", str(model), "--label", "a", str(video)],
            ["predict", str(model), str(video)],
        ):
            code = (
                "import resource, sys; from primavista.__main__ import main\n"
                "try: main()\n"
                "except SystemExit as ended: status = ended.code\n"
                "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
                "sys.exit(status)"
            )
            done = subprocess.run(
                [sys.executable, "-c", code, *command],
                capture_output=True,
                env=environment(),
                text=True,
            )
            if (done.returncode == 0) != (video == good):
                raise SystemExit(f"{command}: {done.returncode}\n{done.stderr}")
            peak = int(done.stderr.splitlines()[-1]) / 1024
            peaks[video] = max(peaks.get(video, 0.0), peak)
    return peaks[bad] - peaks[good]


def harmful_report(folder: Path) -> list[str]:
    """List the harm that the report of a stranger's results does: formulas, and linked folders."""
    victim, results = folder / "victim", folder / "results"
    victim.mkdir()
    plan = load_plan("quick", ["device=cpu", "runs=1", "data.name='=HYPERLINK(1)'"])
    cell = plan.planned()[0]
    place = results / cell.folder
    place.mkdir(parents=True)
    (place / "run.json").write_text(cell.cell.model_dump_json())
    (place / "metrics.jsonl").write_text('{"batch": 1, "measures": {"accuracy": 14.0}}\n')
    write_result(place, {"final": {"accuracy": 14.0}, "batches": 1, "machine": {"cpu": "=1+1"}})
    write_report(results, figures=["svg"])
    cells = [
        one
        for path in results.rglob("*.csv")
        for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")))
        for one in row
    ]
    harm = [f"a live cell: {one}" for one in cells if one.startswith(("=", "+", "@", "-H"))]
    shutil.rmtree(results / "tables")
    (results / "tables").symlink_to(victim)
    with suppress(PrimavistaError):
        write_report(results, figures=["svg"])
    return harm + [f"written through a link: {path.name}" for path in victim.iterdir()]


def _started(clients: int, client: Callable[[], None]) -> ExitStack:
    """Run a number of clients in threads; leaving the stack waits until all have ended."""
    cleanup = ExitStack()
    for _ in range(clients):
        thread = Thread(target=client)
        thread.start()
        cleanup.callback(thread.join)
    return cleanup


def longest_beside(
    running: Service, frame: bytes, seconds: float, attack: Callable[[Service, Event], ExitStack]
) -> float:
    """Measure the honest client's longest delay, in seconds, beside slow requests of others.

    It has a process of its own, since the threads of the attackers keep each other waiting.
    """
    ended = Event()
    with ProcessPoolExecutor(1, get_context("spawn")) as client:
        client.submit(honest, running.url, frame, 1).result()
        with attack(running, ended):
            time.sleep(0.5)
            try:
                return max(client.submit(honest, running.url, frame, 0, seconds).result())
            finally:
                ended.set()


def hostile_video(running: Service) -> tuple[int, float, float]:
    """Send a video of less than 2 kB that declares 20 million samples.

    Returns the status, and the growth in MiB of the service and of its largest child.
    """
    peak = 0.0
    with ThreadPoolExecutor(1) as pool:
        given = {"Authorization": f"Bearer {TOKEN}"}

        def post(video: bytes) -> httpx.Response:
            url = f"{running.url}/api/lessons?wait=30"
            files = {"video": ("a.mp4", video)}
            return httpx.post(url, headers=given, data={"label": "x"}, files=files, timeout=90)

        good = small_video()
        post(good).raise_for_status()  # starts the child, and is learned
        before = running.memory()
        base = max(map(memory_of, children(running.process.pid)))
        answer = pool.submit(post, with_samples(good, 20_000_000))
        while not answer.done():
            found = [0.0, *map(memory_of, children(running.process.pid))]
            peak = max(peak, max(found) - base)
            time.sleep(0.005)
    httpx.post(f"{running.url}/api/undo", headers=given, timeout=60)
    return answer.result().status_code, running.memory() - before, peak


def small_video() -> bytes:
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for k in range(12):
            image = np.full((64, 64, 3), (9 * k, 80, 80), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image)))
        container.mux(stream.encode())
    return file.getvalue()


def with_samples(data: bytes, count: int) -> bytes:
    """Return the same MP4 with tables that declare a number of samples of one byte each."""
    changed = bytearray(data)
    for box, offset, value in (
        (b"stsz", 4, 1),
        (b"stsz", 8, count),
        (b"stts", 8, count),
        (b"stsc", 12, count),
    ):
        start = data.index(box) + 4 + offset
        changed[start : start + 4] = struct.pack("!I", value)
    return bytes(changed)


def absurd_model(running: Service, side: int) -> tuple[int, float, float]:
    """Send a model with a valid checksum that declares images of a given side.

    Returns the status, the seconds until the refusal and the growth of the service in MiB.
    """
    given = {"Authorization": f"Bearer {TOKEN}"}
    data = httpx.get(f"{running.url}/api/model/file", headers=given, timeout=60).content
    arrays, manifest = learner_file.decode(data, "the model")
    manifest["backbone"]["size"] = side
    changed = learner_file.encode(arrays, manifest)
    before = running.memory()
    began = time.perf_counter()
    answer = httpx.post(
        f"{running.url}/api/model/file", headers=given, files={"file": changed}, timeout=90
    )
    took = time.perf_counter() - began
    return answer.status_code, took, running.memory() - before


def harmed_files(model: Path) -> list[str]:
    """List the harm that a change of a model by the command does to the files around it.

    First, the lock is a link to somebody else's file. Then the model is readable by its owner only,
    and a killed save has left a part of its file.
    """
    victim = model.with_name("victim.txt")
    victim.write_text("mine")
    lock = model.with_name(f".{model.name}.lock")
    lock.unlink(missing_ok=True)
    lock.symlink_to(victim)
    command = [sys.executable, "-m", "primavista", "rename", str(model), "mug", "cup"]
    refused = subprocess.run(command, capture_output=True, env=environment())
    lock.unlink()
    model.chmod(0o600)
    model.with_name(f".{model.name}.0123456789abcdef.part").write_bytes(b"half")
    renamed = subprocess.run(command, capture_output=True, env=environment())
    checks = {
        "a file was emptied": victim.read_text() == "mine",
        "a link was taken for a lock": refused.returncode != 0,
        "the model cannot be changed": renamed.returncode == 0,
        "permissions were widened": model.stat().st_mode & 0o777 == 0o600,
        "a part was left behind": not list(model.parent.glob(".*.part")),
    }
    return [what for what, is_right in checks.items() if not is_right]


class Table:
    """A table with one row per attack, and the number of bounds that were exceeded."""

    def __init__(self) -> None:
        self.wrong = 0

    def row(self, what: str, found: str, bound: str, held: bool) -> None:
        self.wrong += not held
        print(f"{what}: {found} (at most {bound}){'' if held else '  NOT HELD'}", flush=True)


def attacks(
    folder: Path,
    mebibytes: int,
    connections: int,
    count: int,
    new: New = DEFAULT,
    delay_bound: float = DELAY_BOUND,
    wait_bound: float = WAIT_BOUND,
    side: int = 4000,
    seconds: float = 10.0,
    crowd: int = 60,
) -> int:
    """Run all attacks on one service; return how many bounds were exceeded."""
    frame = jpeg(drawn(41, frames=1)[0])
    table = Table()
    with service(folder / "attacked.pv", "--token", TOKEN, new=new) as running:
        honest(running.url, frame, 5)  # the first ones are slower
        growth = flood(running, mebibytes)
        what = f"{mebibytes} MiB of headers without a token"
        table.row(what, f"{growth:+.1f} MiB", f"+{MEMORY_BOUND:g}", growth <= MEMORY_BOUND)
        for name, way in WAYS.items():
            alone, crowded = beside(running, frame, count, connections, way)
            ratio = crowded / alone
            found = f"{ratio:.2f} times, {1000 * crowded:.1f} ms, alone {1000 * alone:.1f} ms"
            what = f"median delay beside {connections} connections, {name}"
            table.row(what, found, f"{delay_bound:g} times", ratio <= delay_bound)
        calm = longest_beside(running, frame, seconds, lambda running, ended: ExitStack())
        print(f"longest wait of another client beside nothing: {calm:.2f} s")
        for name, attack in {**bodies(crowd), **heavy(side, crowd)}.items():
            longest = longest_beside(running, frame, seconds, attack)
            what = f"longest wait of another client beside {name}"
            table.row(what, f"{longest:.2f} s", f"{wait_bound:g} s", longest <= wait_bound)
        status, growth, child = hostile_video(running)
        held = status in (413, 422) and growth <= MEMORY_BOUND and child <= CHILD_BOUND
        found = f"{status}, {growth:+.1f} MiB in the service, {child:+.1f} in a child"
        table.row("a video that declares 20 million samples", found, "+300 in a child", held)
        status, took, growth = absurd_model(running, 2048)
        held = status in (413, 422) and took <= MODEL_SECONDS and growth <= MODEL_MEMORY
        found = f"{status} after {took:.2f} s, {growth:+.1f} MiB"
        table.row("a model that declares 2048 px", found, "0.5 s, +50 MiB", held)
        taught = httpx.post(
            f"{running.url}/api/lessons?wait=60",
            headers={"Authorization": f"Bearer {TOKEN}"},
            data={"label": "mug"},
            files={"frames": frame},
            timeout=90,
        )
        taught.raise_for_status()
        running.stop()
        tracebacks = running.said().count("Traceback")
        table.row("tracebacks", str(tracebacks), "0", tracebacks == 0)
    growth = hostile_to_commands(folder)
    what = "the same video to `learn` and `predict`"
    table.row(
        what, f"{growth:+.1f} MiB in the command", f"+{MEMORY_BOUND:g}", growth <= MEMORY_BOUND
    )
    harm = harmful_report(folder)
    what = "formulas in CSV files, files written through links, of a stranger's results"
    table.row(what, ", ".join(harm) or "none", "none", not harm)
    harmed = harmed_files(folder / "attacked.pv")
    found = ", ".join(harmed) or "none"
    table.row("files emptied, widened, left behind", found, "none", not harmed)
    return table.wrong


def bodies(crowd: int) -> dict[str, Callable[[Service, Event], ExitStack]]:
    """Return attacks with bodies that are refused, from clients without the token."""
    return {
        f"{clients} senders of refused bodies to {path}": refused_bodies(clients, path)
        for clients in (8, crowd)
        for path in ("/api/lessons", "/healthz")
    }


def heavy(side: int, crowd: int) -> dict[str, Callable[[Service, Event], ExitStack]]:
    """Return attacks with requests that are slow to decode, from clients with the token."""
    megapixels = f"{side * side / 1e6:.0f} MP"
    bomb = ("frame", ("a.jpg", scan_bomb(side, 7000)))
    legal = ("frame", ("a.jpg", scan_bomb(side, 100)))
    large = large_picture(side)
    lesson = [("frames", ("a.png", large))] * 60
    noise = many_bytes(min(side, 1360))  # 7 MiB
    mebibytes = f"{len(noise) / 2**20:.0f} MiB"
    return {
        f"4 clients with JPEGs of {megapixels} and 7,000 scans": posts("/api/predict", 4, [bomb]),
        f"4 clients with JPEGs of {megapixels} and 100 scans": posts("/api/predict", 4, [legal]),
        f"2 lessons of 60 pictures of {megapixels}": posts("/api/lessons", 2, lesson, label="x"),
        f"{crowd} requests with a picture of {megapixels} each": posts(
            "/api/predict", crowd, [("frame", ("a.png", large))]
        ),
        f"4 WebSockets with pictures of {mebibytes}": streams(4, noise),
        f"{crowd} WebSockets with pictures of {mebibytes}": streams(crowd, noise),
        f"{crowd} requests with a picture of {mebibytes} each": posts(
            "/api/predict", crowd, [("frame", ("a.png", noise))]
        ),
    }


WAYS: dict[str, Callable[[Service], socket.socket]] = {
    "silent": lambda running: connected(running, b""),
    "half a request": lambda running: connected(running, HALF),
    "slow readers": lambda running: connected(running, PAGE * 400, receive_buffer=2048),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, a tiny network")
    given = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        if given.quick:
            wrong = attacks(Path(temporary), 40, 40, 20, new=TINY, seconds=3.0)
        else:
            wrong = attacks(Path(temporary), 200, 200, 60)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
