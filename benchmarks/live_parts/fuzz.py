"""Send malformed bodies, images, models and messages.

The service must answer without a 5xx and without growth of memory, and leave the learner as it was
to the last bit.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import websockets
from PIL import Image

from live_parts.process import DEFAULT, New, Service, drawn, jpeg, service

Result = Counter[str]
STARTS = [
    b"",
    b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /api/undo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
]
PARTS = 10
GROWTH = (
    16.0  # MiB by which the peak of the second half may exceed the first: about one copy of a model
)


class Dice:
    """Generator of malformed input, drawn from a seed."""

    def __init__(self, seed: int, model: bytes) -> None:
        self.draw, self.model = random.Random(seed), model
        self.good = jpeg(drawn(1, frames=1)[0])
        file = io.BytesIO()
        Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(file, "PNG")
        self.png = file.getvalue()

    def noise(self, most: int = 4000) -> bytes:
        return self.draw.randbytes(self.draw.randrange(most))

    def image(self) -> bytes:
        """Return an image that does not decode, or at least should do no harm."""
        draw = self.draw
        kinds: list[Callable[[], bytes]] = [
            self.noise,
            lambda: self.good[: draw.randrange(len(self.good) // 2)],
            lambda: self.flipped(self.good),
            lambda: self.flipped(self.png),
            lambda: b"GIF89a" + self.noise(200),
            lambda: self.bomb(
                draw.choice([2**14, 2**16, 2**20, 2**31 - 1]),
                draw.choice([2**14, 2**16, 2**31 - 1]),
            ),
            lambda: b"RIFF" + struct.pack("<I", draw.randrange(2**32)) + b"WEBP" + self.noise(300),
            lambda: b"BM" + self.noise(300),
            lambda: (
                b"\xff\xd8\xff\xe1"
                + struct.pack(">H", draw.randrange(2**16))
                + b"Exif\0\0"
                + self.noise(500)
            ),
            lambda: b"",
        ]
        return draw.choice(kinds)()

    def broken(self) -> bytes:
        """Return bytes that cannot be taken for an image."""
        return b"\0" + self.noise()

    def flipped(self, data: bytes) -> bytes:
        damaged = bytearray(data)
        for _ in range(self.draw.randrange(1, 20)):
            damaged[self.draw.randrange(len(damaged))] ^= self.draw.randrange(1, 256)
        return bytes(damaged)

    def bomb(self, width: int, height: int) -> bytes:
        """Return a PNG that declares a huge size."""
        head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(5000))), (b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )

    def text(self) -> str:
        draw = self.draw
        return draw.choice(
            [
                "",
                "{",
                "null",
                "[]",
                "{}",
                '{"end": 1}',
                '{"label": null}',
                '{"label": "\\ud800"}',
                '{"label": "a\\u0000b"}',
                '{"label": 5}',
                "[" * draw.randrange(1, 3000),
                '{"label": "%s"}' % ("x" * draw.randrange(201, 2000)),
                '{"label":' * 500,
                self.noise(200).decode("latin-1"),
                '{"label": "\\u202e\\u0007"}',
                json.dumps({"label": "x" * 300, "to": "y" * 300}),
                "1e999",
                "NaN",
            ]
        )

    def damaged_model(self) -> bytes:
        draw = self.draw
        kinds: list[Callable[[], bytes]] = [
            lambda: self.model[: draw.randrange(len(self.model))],
            lambda: self.flipped(self.model),
            lambda: struct.pack("<Q", draw.choice([0, 2, 100, 2**20, 2**40, 2**63])) + self.noise(),
            self.noise,
            lambda: _rewritten(self.model, draw),
        ]
        return draw.choice(kinds)()


def _rewritten(model: bytes, draw: random.Random) -> bytes:
    """Return a model with a changed header."""
    (length,) = struct.unpack("<Q", model[:8])
    header = json.loads(model[8 : 8 + length])
    name = draw.choice([key for key in header if key != "__metadata__"])
    match draw.randrange(4):
        case 0:
            header[name]["shape"] = [2**40, 2**20]
        case 1:
            header[name]["data_offsets"] = [0, 2**62]
        case 2:
            header["__metadata__"] = {"primavista": "[" * 5000}
        case _:
            header[name]["dtype"] = "I64"
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + model[8 + length :]


async def requests(running: Service, dice: Dice, count: int, results: Result) -> None:
    kinds = [_predict, _lesson, _json, _model, _multipart, _path, _headers]
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as http:
        for _ in range(count):
            kind = dice.draw.choice(kinds)
            answer = await kind(http, dice)
            results[f"{kind.__name__[1:]} {answer.status_code}"] += 1


async def _predict(http: httpx.AsyncClient, dice: Dice) -> httpx.Response:
    return await http.post("/api/predict", files={"frame": ("f", dice.image())})


async def _lesson(http: httpx.AsyncClient, dice: Dice) -> httpx.Response:
    draw = dice.draw
    files = [("frames", ("f", dice.broken())) for _ in range(draw.randrange(1, 4))]
    if draw.random() < 0.3:
        files = [("video", ("../../etc/passwd", dice.broken()))]
    label = draw.choice(["mug", "", "\0", "x" * 999])
    return await http.post(
        draw.choice(["/api/lessons", "/api/check"]), data={"label": label}, files=files
    )


async def _json(http: httpx.AsyncClient, dice: Dice) -> httpx.Response:
    body = dice.text().encode("utf-8", "surrogatepass")
    path = dice.draw.choice(["/api/rename", "/api/forget"])
    return await http.post(path, content=body, headers={"content-type": "application/json"})


async def _model(http: httpx.AsyncClient, dice: Dice) -> httpx.Response:
    return await http.post("/api/model/file", files={"file": ("m.pv", dice.damaged_model())})


async def _multipart(http: httpx.AsyncClient, dice: Dice) -> httpx.Response:
    form = "multipart/form-data"
    kind = dice.draw.choice(
        [form, f"{form}; boundary=x", f"{form}; boundary={'y' * 200}", "text/plain"]
    )
    cut_off = b'--x\r\nContent-Disposition: form-data; name="frame"\r\n\r\n'
    body = dice.draw.choice([dice.noise(), b"--x\r\n" + dice.noise(), cut_off])
    return await http.post("/api/predict", content=body, headers={"content-type": kind})


async def _path(http: httpx.AsyncClient, dice: Dice) -> httpx.Response:
    escapes = ["/page/..%2f..%2fapp.py", "/page/%00", "/page/../app.py", "/page/%2e%2e/app.py"]
    paths = [*escapes, f"/api/lessons/{'f' * 16}", "/api/lessons/%ff", "/" + "a" * 3000]
    return await http.request(
        dice.draw.choice(["GET", "PUT", "DELETE", "POST", "TRACE"]), dice.draw.choice(paths)
    )


async def _headers(http: httpx.AsyncClient, dice: Dice) -> httpx.Response:
    """Send the headers of other hosts and other web pages."""
    draw = dice.draw
    host = {"Host": draw.choice(["evil.example", "", "localhost:99999999", "[::1", "a" * 300])}
    origin = {"Origin": draw.choice(["null", "http://evil.example", "//", "http://[", "\x7f"])}
    return await http.post("/api/undo", headers={**origin, **(host if draw.random() < 0.5 else {})})


async def messages(running: Service, dice: Dice, count: int, results: Result) -> None:
    left = count
    url = running.url.replace("http", "ws")
    while left > 0:
        path = dice.draw.choice(["/api/stream", "/api/teach"])
        try:
            async with websockets.connect(url + path) as socket:
                if path == "/api/teach" and dice.draw.random() < 0.5:
                    await socket.send('{"label": "mug"}')
                    await socket.recv()
                for _ in range(min(left, 20)):
                    left -= 1
                    await socket.send(
                        dice.text() if dice.draw.random() < 0.4 else dice.image() or b"\0"
                    )
                    said = json.loads(await socket.recv())
                    results[f"socket {'error' if 'error' in said else 'answer'}"] += 1
        except websockets.ConnectionClosed as closed:
            results[f"socket closed {closed.rcvd.code if closed.rcvd else 'without a word'}"] += 1


async def raw(running: Service, dice: Dice, count: int, results: Result) -> None:
    """Send bytes that are not HTTP."""
    host, _, port = running.url.removeprefix("http://").partition(":")
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, int(port))
        start = dice.draw.choice(STARTS)
        writer.write(start + dice.noise(300) + b"\r\n\r\n")
        try:
            writer.write_eof()
            said = await asyncio.wait_for(reader.read(200), 10)
            results[
                f"raw {said.split(b' ')[1].decode('latin-1') if said.count(b' ') else 'closed'}"
            ] += 1
        except (OSError, TimeoutError):
            results["raw closed"] += 1
        writer.close()


def fuzz(folder: Path, count: int = 10_000, seed: int = 0, new: New = DEFAULT) -> int:
    """Run the test, print the results, and return the number of failures."""
    results: Result = Counter()
    with service(folder / "fuzz.pv", new=new) as running:
        running.teach("mug", drawn(41, frames=8))
        running.teach("ball", drawn(31, frames=8))
        running.teach("bulb", drawn(16, frames=8))
        httpx.post(
            f"{running.url}/api/undo"
        ).raise_for_status()  # a loaded model has nothing to undo, and so has this one now
        before = running.file()
        dice = Dice(seed, before)

        async def part(share: int) -> None:
            await requests(running, dice, share * 6 // 10, results)
            await messages(running, dice, share * 3 // 10, results)
            await raw(running, dice, share - share * 6 // 10 - share * 3 // 10, results)

        memory = []
        for _ in range(PARTS):
            asyncio.run(part(count // PARTS))
            memory.append(running.memory())
        same = running.file() == before == (folder / "fuzz.pv").read_bytes()
        running.stop()
        noise = [
            line for line in running.said().splitlines() if "Traceback" in line or "Error" in line
        ]
    errors = sum(number for what, number in results.items() if " 5" in what)
    print(", ".join(f"{what}: {number}" for what, number in sorted(results.items())))
    print(
        f"{sum(results.values())} answers to {count} malformed things: {errors} with 5xx, "
        f"{len(noise)} tracebacks in the log"
    )
    what = "the same to the last bit" if same else "CHANGED"
    print(
        f"memory after each tenth: {', '.join(f'{m:.0f}' for m in memory)} MiB; "
        f"the learner is {what}"
    )
    for line in noise[:5]:
        print(f"  {line}")
    return (
        errors
        + len(noise)
        + (max(memory[PARTS // 2 :]) - max(memory[: PARTS // 2]) > GROWTH)
        + (not same)
    )
