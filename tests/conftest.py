from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from PIL import Image

from primavista.backbones.spec import OWN_FUNCTIONS
from primavista.heads.options import Range
from primavista.strategies import registry
from primavista.strategies.cumulative import Cumulative, CumulativeOptions, Steps
from primavista.strategies.options import Count
from primavista.strategies.rehearsal.gdumb import GDumb, GDumbOptions

SHARED = Path(__file__).resolve().parents[2] / "shared"
torch.set_num_threads(1)
os.environ["SCIPY_ARRAY_API"] = "1"  # or else scikit-learn skips some of its own checks
# What a shell starts in the background ignores Ctrl-C, and so does what it starts: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class ShortCumulative(CumulativeOptions):
    """By default Cumulative trains for thousands of steps; in tests, on tiny networks, for ten."""

    rise: Steps = 2
    window: Steps = 3
    fall: Steps = 4
    most: Steps = 6


@dataclass(frozen=True)
class ShortGDumb(GDumbOptions):
    """By default GDumb passes 256 times over its memory; in tests three times."""

    epochs_1: Count = 3
    minibatch: Annotated[int, Range(1, 2**20)] = 32


Cumulative.OPTIONS = ShortCumulative
GDumb.OPTIONS = ShortGDumb


# the reasons for which a test may be skipped under --no-skips
EXPECTED_SKIPS = ("needs a GPU", "Avalanche is not installed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="fail if a test is skipped for anything but a missing GPU or Avalanche",
    )
    parser.addoption("--may-skip", default=EXPECTED_SKIPS[0], help="another reason for --no-skips")


def unexpected_skips(config: pytest.Config) -> list[str]:
    """The reasons of tests that were skipped although everything they need should be here."""
    if not config.option.no_skips:
        return []
    skipped = config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped", [])
    reasons = {report.longrepr[2].removeprefix("Skipped: ") for report in skipped}
    expected = (*EXPECTED_SKIPS, config.option.may_skip)
    return sorted(reason for reason in reasons if not reason.startswith(expected))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and unexpected_skips(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for reason in unexpected_skips(config):
        terminalreporter.write_line(f"--no-skips: tests were skipped: {reason}", red=True)
    seconds = sum(os.times()[:4])  # of this process, its workers and what they started
    terminalreporter.write_line(f"{seconds:.0f} seconds of processor time")


def pytest_collection_finish() -> None:
    """Spare every later collection of garbage the walk over all modules and tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def what_a_test_registers_is_forgotten_after_it() -> Iterator[None]:
    """Tests share a process; what one registers, such as a page's example, is not for the next."""
    tables: tuple[dict[str, Any], ...] = (registry._OWN, OWN_FUNCTIONS)
    kept = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, kept, strict=True):
        table.clear()
        table.update(before)


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the folder `shared` with the real data is not beside the checkout")
    return SHARED


@pytest.fixture
def core50_folder(tmp_path: Path) -> Callable[..., Path]:
    """Write a part of CORe50 in shape: plain pictures of some objects in all 11 sessions."""

    def write(objects: int = 4, frames: int = 12, size: int = 16, name: str = "photos") -> Path:
        root = tmp_path / name
        for session in range(1, 12):
            for thing in range(1, objects + 1):
                home = root / f"s{session}" / f"o{thing}"
                home.mkdir(parents=True)
                for number in range(frames):
                    colour = (20 * session, 50 * thing % 256, number)
                    picture = Image.new("RGB", (size, size), colour)
                    picture.save(home / f"C_{session:02d}_{thing:02d}_{number:03d}.png")
        return root

    return write


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _started(start: Callable[[], Any]) -> Any:
    """On a busy machine a node of Ray may miss its own 30 seconds to start; then it is started
    again.
    """
    for patience in (2, 1, 0):
        try:
            return start()
        except Exception as error:
            if not patience or "timed out during startup" not in str(error):
                raise
    raise AssertionError


@pytest.fixture(scope="session")
def ray_head() -> Iterator[Any]:
    """A Ray cluster of one node with one processor, and this process its driver.

    `made.client` is its client server. One for all tests: a driver that leaves a cluster and comes
    back at once may find its new actors cancelled.
    """
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    made = Cluster()
    port = free_port()
    _started(
        lambda: made.add_node(num_cpus=1, include_dashboard=False, ray_client_server_port=port)
    )
    made.client = f"ray://127.0.0.1:{port}"
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def cluster(ray_head: Any) -> Iterator[Any]:
    """Two nodes of one processor each; the driver is on the first, `made.second` is the other."""
    ray_head.second = _started(lambda: ray_head.add_node(num_cpus=1))
    ray_head.wait_for_nodes()
    yield ray_head
    if ray_head.second is not None:
        ray_head.remove_node(ray_head.second)
