"""Run 20 honest clients beside 200 connections that are silent, half a request, or never read.

A step is one request of each honest client, alternately alone and beside the connections.
"""

from __future__ import annotations

import random
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from attack import HALF, PAGE, TOKEN, connected
from live_parts.process import TINY, Service, drawn, jpeg, service

from strains.endure import Step, Tally

HONEST = 20
HOSTILE = 200
DELAY_BOUND = 2.0  # times the median without the others


def hostile(running: Service, draw: random.Random) -> socket.socket:
    said, buffer = draw.choice([(b"", 0), (HALF, 0), (PAGE * 400, 2048)])
    return connected(running, said, buffer)


def ask(running: Service, frame: bytes) -> float:
    """Measure the seconds of one request on a new connection."""
    began = time.perf_counter()
    answer = httpx.post(
        f"{running.url}/api/predict",
        headers={"Authorization": f"Bearer {TOKEN}"},
        files={"frame": frame},
        timeout=60,
    )
    answer.raise_for_status()
    return time.perf_counter() - began


@contextmanager
def crowd(folder: Path, tally: Tally) -> Iterator[Step]:
    frame = jpeg(drawn(41, frames=1, size=48)[0])
    delays = {name: tally.state.setdefault(name, []) for name in ("alone", "beside")}
    with (
        service(folder / "crowd.pv", "--token", TOKEN, new=TINY) as running,
        ThreadPoolExecutor(HONEST) as clients,
    ):

        def wave(name: str) -> None:
            waiting = [clients.submit(ask, running, frame) for _ in range(HONEST)]
            for one in waiting:
                try:
                    delays[name].append(round(one.result(), 4))
                    tally.outcomes[f"answered {name}"] += 1
                except httpx.HTTPError as error:
                    tally.blame(f"an honest client {name}: {error!r}")

        def step(number: int, draw: random.Random) -> None:
            if number % 2 == 0:
                wave("alone")
                return
            opened = [hostile(running, draw) for _ in range(HOSTILE)]
            tally.outcomes["hostile connections"] += HOSTILE
            wave("beside")
            for one in opened:
                one.close()

        wave("alone")  # the first answers are slower
        delays["alone"].clear()
        yield step
        running.stop()
        tally.check("Traceback" not in running.said(), "a traceback in the log")
    if delays["alone"] and delays["beside"]:
        alone, beside = (statistics.median(delays[name]) for name in ("alone", "beside"))
        tally.state["median seconds"] = {"alone": alone, "beside": beside}
        tally.check(
            beside < DELAY_BOUND * alone,
            f"median {1000 * beside:.0f} ms beside, {1000 * alone:.0f} ms alone",
        )
