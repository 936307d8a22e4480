"""Attacks one service and prints what it cost; exit code 1 means that a bound was not held.

    python benchmarks/attack.py            # 200 MiB of headers, 200 silent or slow connections
    python benchmarks/attack.py --quick    # 40 MiB and 40 connections, in less than a minute

No attacker has the token. The honest client has it, and asks what a frame shows.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parent))

from live_parts.process import TINY, Service, drawn, jpeg, service

TOKEN = "the-token-of-the-honest-client"
MEMORY_BOUND = 20.0  # MiB
DELAY_BOUND = 2.0  # times the median without an attack
HALF = b"GET /api/model HTTP/1.1\r\nHost: localhost\r\nX: "
PAGE = b"GET /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(running: Service, said: bytes, receive_buffer: int = 0) -> socket.socket:
    """A TCP connection to the service that has said something."""
    opened = socket.socket()
    if receive_buffer:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    opened.settimeout(60)
    host, _, port = running.url.removeprefix("http://").partition(":")
    opened.connect((host, int(port)))
    opened.sendall(said)
    return opened


def flood(running: Service, mebibytes: int) -> float:
    """Send headers until so many MiB are gone, with new connections; return the growth in MiB."""
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


def honest(running: Service, frame: bytes, count: int) -> list[float]:
    """Delays of single requests in seconds, each on a connection of its own."""
    delays = []
    given = {"Authorization": f"Bearer {TOKEN}"}
    fresh = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=running.url, headers=given, limits=fresh, timeout=60) as client:
        for _ in range(count):
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
    """Median delays of the honest client in seconds: alone, and beside the connections."""
    alone = honest(running, frame, count)
    with ExitStack() as cleanup:
        for _ in range(connections):
            cleanup.enter_context(attack(running))
        crowded = honest(running, frame, count)
    time.sleep(0.5)
    alone += honest(running, frame, count)  # before and after: the machine may be busier now
    return statistics.median(alone), statistics.median(crowded)


def attacks(
    folder: Path,
    mebibytes: int,
    connections: int,
    count: int,
    new: str = "",
    delay_bound: float = DELAY_BOUND,
) -> int:
    """Run all attacks on one service; return how many bounds were not held."""
    frame = jpeg(drawn(41, frames=1)[0])
    ways: dict[str, Callable[[Service], socket.socket]] = {
        "silent": lambda running: connected(running, b""),
        "half a request": lambda running: connected(running, HALF),
        "slow readers": lambda running: connected(running, PAGE * 400, receive_buffer=2048),
    }
    wrong = 0
    with service(folder / "attacked.pv", "--token", TOKEN, new=new) as running:
        honest(running, frame, 5)  # the first ones are slower
        growth = flood(running, mebibytes)
        wrong += growth > MEMORY_BOUND
        print(f"{mebibytes} MiB of headers without a token: {growth:+.1f} MiB (at most +20)")
        for name, way in ways.items():
            alone, crowded = beside(running, frame, count, connections, way)
            ratio = crowded / alone
            wrong += ratio > delay_bound
            print(
                f"honest client beside {connections} connections, {name}: median "
                f"{1000 * crowded:.1f} ms, alone {1000 * alone:.1f} ms, {ratio:.2f} times "
                f"(at most {delay_bound:g})"
            )
        running.stop()
        tracebacks = running.said().count("Traceback")
        wrong += tracebacks > 0
        print(f"tracebacks: {tracebacks}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, a tiny network")
    given = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        if given.quick:
            wrong = attacks(Path(temporary), 40, 40, 20, new=TINY)
        else:
            wrong = attacks(Path(temporary), 200, 200, 60)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
