"""A Ray cluster that is started for a run: nobody else can reach it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
# one cluster at a time: two on one machine get in each other's way
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]

OWNER = """
import json, os, subprocess, sys
from primavista.bench.ray_cluster import ray_cluster
import psutil
with ray_cluster() as ray:
    answer = ray.get(ray.remote(lambda x: x + 1).remote(2))
    me = psutil.Process()
    listening = [
        connection.laddr.ip
        for process in [me, *me.children(recursive=True)]
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
    stranger = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", sys.argv[1], f"127.0.0.1:{port}"],
        # from this machine, and on its loopback interface, or it would not get as far as the token
        env={**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_TOKEN": "a" * 64},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = ""
    while "InvalidAuthToken" not in said and (line := stranger.stdout.readline()):
        said += line
    stranger.kill()
    print(json.dumps([answer, listening, os.environ["RAY_AUTH_MODE"], said]))
"""
STRANGER = """
import sys
import ray
ray.init(sys.argv[1], logging_level="error")
print(ray.get(ray.remote(lambda: "code of a stranger").remote()))
"""


def test_it_listens_on_loopback_and_runs_nothing_for_whoever_has_no_token(tmp_path):
    named = {"RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"}
    environment = {name: value for name, value in os.environ.items() if name not in named}
    # a folder of its own, with a short name for sockets: a cluster that runs here is not found
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        places = {"HOME": str(tmp_path), "RAY_TMPDIR": folder}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", OWNER, STRANGER],
            env={**environment, **places, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    answer, listening, mode, said = json.loads(done.stdout.splitlines()[-1])
    assert answer == 3
    assert len(listening) >= 3
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert mode == "token"
    assert "InvalidAuthToken" in said
    assert "code of a stranger" not in said
    token = tmp_path / ".ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
