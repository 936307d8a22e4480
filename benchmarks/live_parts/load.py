"""Predict with many clients while one teaches.

The script counts errors, latencies, and answers that do not come from one complete state.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Any

import httpx
import websockets

from live_parts.process import DEFAULT, New, Service, drawn, jpeg, service
from primavista import Learner

Expected = dict[int, list[dict[str, float]]]  # by version, by frame: the share of each name
Answer = tuple[int, int, dict[str, float], float]  # version, frame, shares, seconds
MEMORY = 1280.0  # MiB that the service may take; 1,029 were measured in 300 s with 26 lessons
TOLERANCE = 1e-3  # frames of several clients share a pass, so sums have another order


async def run_load(
    running: Service, seconds: float, clients: int, pause: float
) -> tuple[Expected, list[Answer], list[str], list[float], list[float]]:
    frames = [jpeg(drawn(object, session=2, frames=1)[0]) for object in (1, 9, 17, 25)]
    images = [_decoded(frame) for frame in frames]
    expected: Expected = {}
    answers: list[Answer] = []
    errors: list[str] = []
    lessons: list[float] = []
    memory: list[float] = []
    videos = [[jpeg(frame) for frame in drawn(1 + 8 * k, 1 + k, 30)] for k in range(5)]
    end = time.monotonic() + seconds

    async def client(number: int) -> None:
        url = running.url.replace("http", "ws") + "/api/stream"
        try:
            async with websockets.connect(url) as socket:
                turn = number
                while time.monotonic() < end:
                    began, which = time.monotonic(), turn % len(frames)
                    await socket.send(frames[which])
                    said = json.loads(await socket.recv())
                    if "error" in said:
                        errors.append(said["error"])
                    else:
                        shares = {score["label"]: score["share"] for score in said["scores"]}
                        answers.append((said["version"], which, shares, time.monotonic() - began))
                    turn += 1
                    await asyncio.sleep(pause)
        except Exception as error:
            errors.append(f"client {number}: {error!r}")

    async def teacher() -> None:
        number = 0
        async with httpx.AsyncClient(timeout=90) as http:
            await _remember(http, running, images, expected)
            while time.monotonic() < end:
                files = [("frames", ("f.jpg", frame, "image/jpeg")) for frame in videos[number % 5]]
                said = await http.post(
                    f"{running.url}/api/lessons?wait=60&again=true",
                    data={"label": f"o{number % 5}"},
                    files=files,
                )
                if said.status_code != 200 or said.json()["state"] != "done":
                    errors.append(f"a lesson: {said.status_code} {said.text[:200]}")
                else:
                    lessons.append(said.json()["seconds"])
                await _remember(http, running, images, expected)
                number += 1
                await asyncio.sleep(pause)

    async def watch() -> None:
        while time.monotonic() < end:
            memory.append(running.memory())
            await asyncio.sleep(0.1)

    await asyncio.gather(teacher(), watch(), *(client(number) for number in range(clients)))
    return expected, answers, errors, lessons, memory


async def _remember(
    http: httpx.AsyncClient, running: Service, images: list[Any], expected: Expected
) -> None:
    """Compute the predictions of this version for each frame, from its file."""
    version = (await http.get(f"{running.url}/api/model")).json()["version"]
    data = (await http.get(f"{running.url}/api/model/file")).content
    expected[version] = await asyncio.to_thread(
        lambda: [Learner.from_bytes(data, device="cpu").predict(i).scores for i in images]
    )


def _decoded(frame: bytes) -> Any:
    import io

    from primavista.media.images import decode_image

    return decode_image(io.BytesIO(frame), "frame", None)


def load(
    folder: Path, seconds: float = 300, clients: int = 20, pause: float = 0.0, new: New = DEFAULT
) -> int:
    """Run the test, print the results, and return the number of wrong answers."""
    with service(folder / "load.pv", new=new) as running:
        expected, answers, errors, lessons, memory = asyncio.run(
            run_load(running, seconds, clients, pause)
        )
    torn = sum(not _same(expected[version][which], shares) for version, which, shares, _ in answers)
    times = sorted(1000 * answer[3] for answer in answers)
    rate = len(answers) / seconds
    print(
        f"{clients} clients for {seconds:g} s: {len(answers)} predictions "
        f"({rate:.0f} per second), {len(errors)} errors"
    )
    if times:
        marks = ", ".join(
            f"p{p} {times[min(int(p / 100 * len(times)), len(times) - 1)]:.0f} ms"
            for p in (50, 90, 99)
        )
        print(f"latency: {marks}, longest {times[-1]:.0f} ms")
    if lessons:
        median, longest = statistics.median(lessons), max(lessons)
        print(
            f"{len(lessons)} lessons of 30 frames meanwhile: "
            f"median {median:.1f} s, longest {longest:.1f} s"
        )
    print(
        f"answers from {len({a[0] for a in answers})} versions, {torn} of them from no whole state"
    )
    print(f"memory: median {statistics.median(memory):.0f} MiB, most {max(memory):.0f} MiB")
    for error in errors[:5]:
        print(f"  {error}")
    return torn + len(errors) + (not answers) + (not lessons) + (max(memory) > MEMORY)


def _same(expected: dict[str, float], found: dict[str, float]) -> bool:
    return list(expected) == list(found) and all(
        abs(expected[name] - found[name]) <= TOLERANCE for name in found
    )
