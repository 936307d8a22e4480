"""Many cameras at one service: answers per second, delays, and the age of answers, as a picture."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import websockets

from live_parts.process import DEFAULT, New, Service, drawn, jpeg, processor_seconds, service

RATE = 10.0  # frames per second of a camera
CROWDS = (1, 5, 20, 60)
ROUNDS = 6
WARM_UP = 1.0  # seconds of each turn that do not count


@dataclass
class Crowd:
    """What a number of cameras got together.

    Attributes:
        clients: The number of cameras.
        seconds: How long they were measured.
        processor: The processor seconds of the service and its decoders in this time.
        delays: The seconds from sending a frame to its answer.
        ages: The ages that answers say.
        errors: The number of answers with an error, and of clients that were cut off.
    """

    clients: int
    seconds: float = 0.0
    processor: float = 0.0
    delays: list[float] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)
    errors: int = 0

    @property
    def per_second(self) -> float:
        """The answers per second of all cameras together."""
        return len(self.delays) / self.seconds

    @property
    def per_processor_second(self) -> float:
        """The same per processor second of the service, which other work changes little."""
        return len(self.delays) / self.processor

    def delay(self, percentile: float) -> float:
        """A percentile of the delays, in seconds."""
        return float(np.percentile(self.delays or [np.inf], percentile))

    @property
    def age(self) -> float:
        """The 99th percentile of the ages, in seconds."""
        return float(np.percentile(self.ages or [np.inf], 99))


async def _send(crowd: Crowd, running: Service, seconds: float, frame: bytes, waits: bool) -> None:
    """Let cameras send for a while; those that wait send a frame after the last one's answer."""
    clients = crowd.clients
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
                    crowd.errors += 1
                elif begin <= now < end:
                    crowd.delays.append(now - sent[said["frame"]])
                    crowd.ages.append(said["age"])

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

    async def processor() -> float:
        await asyncio.sleep(begin - time.monotonic())
        before = processor_seconds(running.process.pid)
        await asyncio.sleep(end - time.monotonic())
        return processor_seconds(running.process.pid) - before

    used, *ended = await asyncio.gather(
        processor(), *map(client, range(clients)), return_exceptions=True
    )
    assert isinstance(used, float), used
    crowd.processor += used
    crowd.seconds += seconds
    crowd.errors += sum(isinstance(one, BaseException) for one in ended)


def crowds(
    folder: Path,
    seconds: float,
    out: Path | None,
    new: New = DEFAULT,
    sizes: Sequence[int] = CROWDS,
    rounds: int = ROUNDS,
) -> int:
    """Measure each number of clients; return how many requirements were not met.

    The most clients must get at least 90 % of the answers that the next fewer get together. The
    numbers are measured in turns, because other work on the machine comes and goes.

    Args:
        folder: The folder of the model.
        seconds: How long each is measured in all.
        out: Where the picture goes; None for none.
        new: The arguments of the learner.
        sizes: The numbers of clients.
        rounds: The number of turns.
    """
    frame = jpeg(drawn(1, session=2, frames=1, size=480)[0])
    wrong = 0
    tables: dict[str, list[Crowd]] = {}
    with service(folder / "crowd.pv", new=new) as running:
        running.teach("mug", drawn(1, frames=8))
        running.teach("can", drawn(9, frames=8))
        for name, waits in (("wait for answers", True), ("do not wait", False)):
            found = tables[name] = [Crowd(clients) for clients in sizes]
            for one in found * rounds:
                asyncio.run(_send(one, running, seconds / rounds, frame, waits))
            for one in found:
                print(
                    f"{one.clients} clients that {name}: {one.per_second:.1f} answers per second, "
                    f"{one.per_processor_second:.0f} per processor second, "
                    f"p50 {one.delay(50):.2f} s, p99 {one.delay(99):.2f} s, "
                    f"age (p99) {one.age:.2f} s, "
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
            ([one.delay(50) for one in found], "o-", "p50"),
            ([one.delay(99) for one in found], "s--", "p99"),
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
