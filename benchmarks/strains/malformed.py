"""Send malformed requests, pictures, videos and files: all are refused, nothing changes."""

from __future__ import annotations

import asyncio
import io
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
from live_parts import fuzz
from live_parts.process import TINY, Service, drawn, service

from primavista import Learner
from primavista.errors import PrimavistaError, require_extra
from primavista.media.decode import timed_frames
from primavista.media.images import decode_image
from strains.endure import Step, Tally

GROWTH = 64.0  # MiB that the service may grow by in one part, after its first hundred requests
REQUESTS = [
    fuzz._predict,
    fuzz._lesson,
    fuzz._json,
    fuzz._model,
    fuzz._multipart,
    fuzz._path,
    fuzz._headers,
]


def small_video(container: str, codec: str) -> bytes:
    """Return a video of eight frames in one of the usual containers."""
    av = require_extra("av", "video")
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 48, 48, "yuv420p"
        for image in drawn(9, frames=8, size=48):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return file.getvalue()


class Attempts:
    """Malformed input of several kinds, one method per kind, which returns the result."""

    def __init__(self, running: Service, dice: fuzz.Dice, folder: Path) -> None:
        self.running, self.dice, self.folder = running, dice, folder
        self.loop = asyncio.new_event_loop()
        self.http = httpx.AsyncClient(base_url=running.url, timeout=60)
        videos = [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("avi", "mpeg4"), ("mpegts", "mpeg4")]
        self.videos = [small_video(*kind) for kind in videos]

    def request(self) -> str:
        kind = self.dice.draw.choice(REQUESTS)
        answer = self.loop.run_until_complete(kind(self.http, self.dice))
        return f"request {answer.status_code}"

    def message(self) -> str:
        results: Counter[str] = Counter()
        self.loop.run_until_complete(fuzz.messages(self.running, self.dice, 1, results))
        return next(iter(results))

    def raw(self) -> str:
        results: Counter[str] = Counter()
        self.loop.run_until_complete(fuzz.raw(self.running, self.dice, 1, results))
        return next(iter(results))

    def picture(self) -> str:
        return _tried("picture", lambda: decode_image(io.BytesIO(self.dice.image()), "it", None))

    def video(self) -> str:
        video = self.damaged(self.dice.draw.choice(self.videos))
        return _tried("video", lambda: list(timed_frames(io.BytesIO(video))))

    def model(self) -> str:
        """Read a damaged model; a header with other bytes but the same content may be read."""
        data = self.dice.damaged_model()
        try:
            read = Learner.from_bytes(data, device="cpu").to_bytes()
        except PrimavistaError:
            return "model refused"
        return "model read, the same" if read == self.dice.model else "model 5: read, CHANGED"

    def damaged(self, data: bytes) -> bytes:
        if self.dice.draw.random() < 0.2:
            return data[: self.dice.draw.randrange(len(data))]
        return self.dice.flipped(data)

    def close(self) -> None:
        self.loop.run_until_complete(self.http.aclose())
        self.loop.close()


def _tried(what: str, call: Callable[[], object]) -> str:
    """Read input in this process, where a crash of a decoder would end the test."""
    try:
        call()
    except PrimavistaError:
        return f"{what} refused"
    return f"{what} read"


@contextmanager
def malformed(folder: Path, tally: Tally) -> Iterator[Step]:
    with service(folder / "fuzz.pv", new=TINY) as running:
        if not running.counts():
            for label, number in (("mug", 41), ("ball", 31)):
                running.teach(label, drawn(number, frames=4, size=48))
        # a loaded model has nothing to undo
        loaded = {"file": ("m.pv", running.file())}
        httpx.post(f"{running.url}/api/model/file", files=loaded).raise_for_status()
        before = running.file()
        dice = fuzz.Dice(tally.seed, before)
        attempts = Attempts(running, dice, folder)
        kinds = [attempts.request] * 8 + [attempts.message] + [attempts.raw] * 2
        kinds += [attempts.picture] * 4 + [attempts.video] * 2 + [attempts.model] * 2
        memory: list[float] = []

        def step(number: int, draw: random.Random) -> None:
            dice.draw = draw
            kind = draw.choice(kinds)
            try:
                outcome = kind()
            except Exception as error:
                tally.blame(f"{number}, {kind.__name__}: {type(error).__name__}: {error}"[:300])
                return
            tally.outcomes[outcome] += 1
            tally.check(" 5" not in outcome, f"{number}: {outcome}")
            if number % 100 == 99:
                memory.append(running.memory())

        yield step
        attempts.close()
        same = running.file() == before == (folder / "fuzz.pv").read_bytes()
        tally.check(same, "the learner of the service has changed")
        tally.check(
            not memory or max(memory) - memory[0] < GROWTH,
            f"the service grew from {memory[:1]} MiB to {max(memory, default=0)} MiB",
        )
        most = tally.state.setdefault("service MiB", [])
        most.append([round(min(memory, default=0)), round(max(memory, default=0))])
        running.stop()
        said = running.said()
        tally.check("Traceback" not in said, f"a traceback in the log: {said[-500:]}")
