"""Many cameras at one service: answers per second, delays, and the age of answers, as a picture."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import websockets

from live_parts.process import DEFAULT, New, Service, drawn, jpeg, service

RATE = 10.0  # frames per second of a camera
CROWDS = (1, 5, 20, 60)
WARM_UP = 2.0  # seconds that do not count


@dataclass(frozen=True)
class Crowd:
    """What a number of cameras got together.

    Attributes:
        clients: The number of cameras.
        per_second: The answers per second of all of them together.
        p50: The median of the seconds from sending a frame to its answer.
        p99: The 99th percentile of the same.
        age: The 99th percentile of the age that answers say.
        errors: The number of answers with an error, and of clients that were cut off.
    """

    clients: int
    per_second: float
    p50: float
    p99: float
    age: float
    errors: int


async def _crowd(
    running: Service, clients: int, seconds: float, frame: bytes, waits: bool
) -> Crowd:
    """Let cameras send for a while; those that wait send a frame after the last one's answer."""
    delays: list[float] = []
    ages: list[float] = []
    errors: list[str] = []
    begin = time.monotonic() + WARM_UP
    end = begin + seconds

    async def client(number: int) -> None:
        sent: dict[int, float] = {}
        answered = asyncio.Event()

        async def take(socket: websockets.ClientConnection) -> None:
            async for text in socket:
                now, said = time.monotonic(), json.loads(text)
                answered.set()
                if "error" in said:
                    errors.append(said["error"])
                elif begin <= now < end:
                    delays.append(now - sent[said["frame"]])
                    ages.append(said.get("age", 0.0))

        await asyncio.sleep(number / clients / RATE)
        url = running.url.replace("http", "ws") + "/api/stream"
        async with websockets.connect(url) as socket:
            taking = asyncio.create_task(take(socket))
            while (now := time.monotonic()) < end:
                answered.clear()
                sent[len(sent) + 1] = now
                await socket.send(frame)
                if waits:
                    await answered.wait()
                await asyncio.sleep(max(0.0, now + 1 / RATE - time.monotonic()))
            taking.cancel()

    ended = await asyncio.gather(*map(client, range(clients)), return_exceptions=True)
    wrong = len(errors) + sum(isinstance(one, Exception) for one in ended)
    p50, p99 = np.percentile(delays or [np.inf], [50, 99])
    age = float(np.percentile(ages or [np.inf], 99))
    return Crowd(clients, len(delays) / seconds, float(p50), float(p99), age, wrong)


def crowds(
    folder: Path,
    seconds: float,
    out: Path | None,
    new: New = DEFAULT,
    sizes: Sequence[int] = CROWDS,
) -> int:
    """Measure each number of clients; return how many requirements were not met.

    The most clients must get at least 90 % of the answers that the next fewer get together.

    Args:
        folder: The folder of the model.
        seconds: How long each is measured.
        out: Where the picture goes; None for none.
        new: The arguments of the learner.
        sizes: The numbers of clients.
    """
    frame = jpeg(drawn(1, session=2, frames=1, size=480)[0])
    wrong = 0
    tables: dict[str, list[Crowd]] = {}
    with service(folder / "crowd.pv", new=new) as running:
        running.teach("mug", drawn(1, frames=8))
        running.teach("can", drawn(9, frames=8))
        for name, waits in (("wait for answers", True), ("do not wait", False)):
            found = tables[name] = []
            for clients in sizes:
                one = asyncio.run(_crowd(running, clients, seconds, frame, waits))
                found.append(one)
                print(
                    f"{clients} clients that {name}: {one.per_second:.1f} answers per second, "
                    f"p50 {one.p50:.2f} s, p99 {one.p99:.2f} s, age (p99) {one.age:.2f} s, "
                    f"{one.errors} errors; load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
                wrong += one.errors > 0
            if len(found) > 1:
                wrong += found[-1].per_second < 0.9 * found[-2].per_second
    if out is not None:
        _draw(tables, out)
    return wrong


def _draw(tables: dict[str, list[Crowd]], out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    rate, delay = figure.subplots(1, 2)
    for (name, found), colour in zip(tables.items(), ("#0072b2", "#d55e00"), strict=True):
        clients = [one.clients for one in found]
        rate.plot(clients, [one.per_second for one in found], "o-", color=colour, label=name)
        for values, line, what in (
            ([one.p50 for one in found], "o-", "p50"),
            ([one.p99 for one in found], "s--", "p99"),
            ([one.age for one in found], "^:", "age, p99"),
        ):
            delay.plot(clients, values, line, color=colour, label=f"{what}, {name}")
    rate.set(ylabel="answers per second, all together", ylim=(0, None))
    delay.set(ylabel="seconds", yscale="log")
    for axes in (rate, delay):
        axes.set(xlabel="cameras with 10 frames per second", xscale="log")
        axes.set_xticks(clients, [str(one) for one in clients], minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.savefig(out / "crowd.png", dpi=110)
