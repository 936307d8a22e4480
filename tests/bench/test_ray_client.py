"""`--on ray://HOST:PORT`: a driver that is no node of the cluster, connected through Ray's client server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from primavista.bench.executors import Inline
from primavista.bench.ray_executor import RayCluster
from primavista.errors import InputError
from primavista.fleet import ray_cluster

pytest.importorskip("ray")
# one cluster at a time: two on one machine get in each other's way
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]
PLAN = """
name = "tiny"
device = "cpu"
test_thin = 1
limit = 40
data = { kind = "rendered", categories = 3, objects = 2, frames = 2, size = 32 }
backbone = { weights = "random", options = { width = 0.0625 } }
[[groups]]
name = "all"
strategies = ["ewc", "dslda"]
protocols = ["nicv2"]
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A head of one processor with its client server, in processes of its own."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    port = free_port()
    made = Cluster(
        head_node_args={"num_cpus": 1, "ray_client_server_port": port, "include_dashboard": False}, initialize_head=True
    )
    yield f"ray://127.0.0.1:{port}"
    made.shutdown()


def command(address: str, cwd: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "primavista", "bench", "run", "tiny.toml", "--on", address, "--out", "out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(arguments, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_stopped_by_ctrl_c_it_goes_on_to_the_bits_of_the_inline_executor(address, suite, tmp_path, results):
    suite("ewc", "dslda", out=tmp_path / "inline", limit=40).run(Inline())
    (tmp_path / "tiny.toml").write_text(PLAN)
    out = tmp_path / "out"
    process = command(address, tmp_path)
    until = time.monotonic() + 120
    while time.monotonic() < until and not list(out.rglob("checkpoint.safetensors")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    text, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "the same command goes on from there" in text
    assert len(results(out)) < 2
    process = command(address, tmp_path)
    text, error = process.communicate(timeout=180)
    assert process.returncode == 0, error
    assert results(out) == results(tmp_path / "inline")


def test_an_address_where_no_cluster_is(suite):
    with pytest.raises(InputError, match=r"no Ray cluster at ray://127\.0\.0\.1:\d+"):
        suite("dslda").run(RayCluster(f"ray://127.0.0.1:{free_port()}"))
    # a client that did not get through stays in client mode and finds every later cluster uninitialised
    with ray_cluster() as machines:
        assert machines.get(machines.call(1, lambda x: x + 1, 2)[0]) == 3
