"""Short versions of benchmarks/live.py and attack.py, each with a service of its own."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
from attack import attacks
from live_parts.load import load
from live_parts.process import TINY, drawn, environment, service


@pytest.mark.slow
def test_many_predict_while_one_teaches(tmp_path):
    assert load(tmp_path, seconds=3, clients=20, new=TINY) == 0


@pytest.mark.slow
def test_the_command_teaches_and_finds_all_as_it_was(tmp_path):
    """A new model in a process of its own is taught, stopped and started again.

    A second process with the same file is refused.
    """
    with service(tmp_path / "kitchen.pv", "--size", "64") as running:
        assert running.teach("mug", drawn(41, frames=4))["state"] == "done"
        second = [
            sys.executable,
            "-m",
            "primavista",
            "teach",
            str(tmp_path / "kitchen.pv"),
            "--no-browser",
            "--port",
            "0",
        ]
        refused = subprocess.run(
            second, capture_output=True, text=True, env=environment(), timeout=120
        )
        assert refused.returncode == 1
        assert "is at work on" in refused.stderr
        assert httpx.get(running.url).headers["content-type"].startswith("text/html")
        assert running.stop() == 0
    with service(tmp_path / "kitchen.pv") as running:
        assert running.counts() == {"mug": 4}
        assert running.get("/api/model")["size"] == 64


@pytest.mark.slow
def test_headers_and_slow_connections_cost_others_little(tmp_path):
    """Memory after headers, and an honest client's delay beside silent and slow connections."""
    short = {"mebibytes": 20, "connections": 20, "count": 8}
    short |= {"side": 1000, "seconds": 1.0, "crowd": 8}
    assert attacks(tmp_path, **short, new=TINY, delay_bound=6) == 0
