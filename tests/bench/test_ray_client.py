"""`--on ray://HOST:PORT`: a driver that is no node of the cluster, connected through Ray's client
server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from primavista.bench.local import Inline

pytest.importorskip("ray")
# one cluster at a time: two on one machine get in each other's way
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore"),
]
PLAN = """
name = "tiny"
device = "cpu"
test_thin = 1
limit = 24
data = { kind = "rendered", categories = 3, objects = 2, frames = 2, size = 32 }
backbone = { weights = "random", options = { width = 0.0625 } }
[[groups]]
name = "all"
strategies = ["ewc", "dslda"]
protocols = ["nicv2"]
"""

LOST = """
from primavista.errors import InputError
from primavista.bench.ray_cluster import ray_cluster
try:
    with ray_cluster("ray://127.0.0.1:1"):
        pass
except InputError as error:
    print(str(error)[:35])
with ray_cluster() as ray:
    print(ray.get(ray.remote(lambda x: x + 1).remote(2)))
"""

# seconds that Ray's client waits for an answer, three times
PATIENCE = ("RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S", "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S")
# on a busy machine Ray's own server of a client may miss its 30 seconds to start; the same command
# tries again
TRIES, SLOW = 3, "Starting Ray client server failed"


def command(address: str, cwd: Path) -> subprocess.Popen[str]:
    arguments = [
        sys.executable,
        "-m",
        "primavista",
        "bench",
        "run",
        "tiny.toml",
        "--on",
        address,
        "--out",
        "out",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        arguments,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_stopped_by_ctrl_c_it_goes_on_to_the_bits_of_the_inline_executor(
    ray_head, suite, tmp_path, results
):
    suite("ewc", "dslda", out=tmp_path / "inline", limit=24).run(Inline())
    (tmp_path / "tiny.toml").write_text(PLAN)
    out = tmp_path / "out"
    for _ in range(TRIES):
        process = command(ray_head.client, tmp_path)
        until = time.monotonic() + 240
        while (
            time.monotonic() < until and not list(out.rglob("run.json")) and process.poll() is None
        ):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=180)
        if SLOW not in error:
            break
    assert process.returncode == 130, error
    assert "the same command resumes" in error
    assert list(out.rglob("checkpoint.safetensors"))
    assert len(results(out)) < 2
    for _ in range(TRIES):
        process = command(ray_head.client, tmp_path)
        _, error = process.communicate(timeout=400)
        if SLOW not in error:
            break
    assert process.returncode == 0, error
    assert results(out) == results(tmp_path / "inline")


def test_an_address_where_no_cluster_is_leaves_the_way_to_others_open(ray_head):
    """A client that does not get through stays in client mode unless told otherwise, and then finds
    no cluster at all.
    """
    command = [sys.executable, "-c", LOST]
    environment = {**os.environ, **dict.fromkeys(PATIENCE, "1")}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert answer.stdout.split("\n")[:2] == ["no Ray cluster at ray://127.0.0.1:1", "3"], (
        answer.stderr
    )
