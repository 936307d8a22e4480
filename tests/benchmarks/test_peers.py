"""benchmarks/peers.py: the stream, the table, and both sides with the same weights.

What needs Avalanche runs with `make test-avalanche`.
"""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SIGNS = 9  # the first has too few tracks
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import avalanche
    except ImportError:
        avalanche = None
with_avalanche = pytest.mark.skipif(
    avalanche is None, reason="Avalanche is not installed: make test-avalanche"
)
pytestmark = pytest.mark.filterwarnings("default")


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The scripts import one another by name."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return importlib.import_module(name)


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("peers", monkeypatch)


@pytest.fixture
def peer_strategies(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("peer_strategies", monkeypatch)


def grey(sign: int, track: int, frame: int) -> int:
    """One grey per track, which JPEG keeps to a few levels; frames differ by one."""
    return 48 * track + 5 * sign + (frame & 1)


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("signs") / "tracks.tar"
    with tarfile.open(path, "w") as archive:
        for sign in range(SIGNS):
            for track in range(3 if sign == 0 else 5):
                for frame in range(31):
                    data = io.BytesIO()
                    shade = (grey(sign, track, frame),) * 3
                    Image.new("RGB", (8, 8), shade).save(data, "JPEG", quality=95)
                    member = tarfile.TarInfo(f"{sign:02}_sign/track{track}/{frame:02}.jpg")
                    member.size = data.tell()
                    data.seek(0)
                    archive.addfile(member, data)
    return path


@pytest.fixture
def frames(tar: Path, peers: ModuleType) -> Path:
    path = tar.with_suffix(".npz")
    if not path.exists():
        peers.pack(tar, path)
    return path


def test_both_learn_whole_tracks_and_are_tested_on_others(peers, frames):
    batches, (x_test, y_test) = peers.batches_of(frames, 23)
    assert [len(y) for _, y in batches] == [60] + [30] * 22
    assert sorted(batches[0][1].unique().tolist()) == [0, 1]
    met: list[int] = []
    for x, y in batches:
        met += [label for label in y.unique().tolist() if label not in met]
        assert x.shape[1:] == (64, 64, 3)
    assert met == list(range(8))
    assert torch.bincount(y_test).tolist() == [30] * 8
    # the shade of a frame tells its sign and track
    shade = {grey(sign, track, 0): (sign, track) for sign in range(SIGNS) for track in range(5)}

    def origin(x: torch.Tensor) -> set[tuple[int, int]]:
        levels = x.float().mean((1, 2, 3)).tolist()
        return {shade[min(shade, key=lambda s, level=level: abs(s - level))] for level in levels}

    taught = set().union(*(origin(x) for x, _ in batches))
    assert taught == {(sign, track) for sign in range(1, SIGNS) for track in range(3)}
    assert origin(x_test) == {(sign, 3) for sign in range(1, SIGNS)}
    for x, y in batches[1:]:
        (sign,) = {s for s, _ in origin(x)}
        own = x_test[y_test == y[0]]
        assert origin(own) == {(sign, 3)}


def test_a_shorter_stream_is_tested_on_the_signs_it_has(peers, frames):
    batches, (x_test, y_test) = peers.batches_of(frames, 2)
    assert len(batches) == 2
    assert set(y_test.tolist()) == set(torch.cat([y for _, y in batches]).tolist())
    assert len(x_test) == len(y_test)


def test_avalanche_runs_once_for_all_rows_that_it_belongs_to(peers):
    rows = {"Naive": "naive", "prima": "", "Naive, renormalised": "naive", "LwF": "lwf"}
    assert peers.cells_of(rows) == [
        ("theirs", "naive"),
        ("ours", "Naive"),
        ("ours", "prima"),
        ("ours", "Naive, renormalised"),
        ("theirs", "lwf"),
        ("ours", "LwF"),
    ]


def test_the_table_has_medians_and_spans(peers):
    def cells(*times: float, peak: float) -> list[dict[str, float]]:
        return [{"seconds": t, "peak": peak + t, "accuracy": 50 + t} for t in times]

    found = {
        ("theirs", "naive"): cells(4.0, 2.0, 3.0, peak=100),
        ("ours", "Naive"): cells(1.0, 2.0, 1.5, peak=10),
        ("ours", "prima"): cells(0.5, 0.25, 1.0, peak=5),
    }
    first, second = peers.table(found, {"Naive": "naive", "prima": ""})
    assert first == (
        "| Naive | 3.000 (2.000 to 4.000) | 1.500 (1.000 to 2.000) | 2.00 | 54.0, 51.0 "
        "| 103 (102 to 104) | 12 (11 to 12) |"
    )
    assert second == "| prima | - | 0.500 (0.250 to 1.000) | - | -, 50.5 | - | 6 (5 to 6) |"


def test_one_of_our_cells(peers, frames, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    monkeypatch.setattr(torch, "manual_seed", lambda n: None)
    cell = peers.run_cell("ours", "StreamingLDA / dslda", frames, 2)
    assert cell["seconds"] > 0
    assert 0 <= cell["accuracy"] <= 100


def test_a_missing_tar_is_named(tmp_path):
    done = subprocess.run(
        [sys.executable, str(FOLDER / "peers.py"), "--data", str(tmp_path / "none.tar")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "none.tar does not exist" in done.stderr
    assert "--data" in done.stderr


@with_avalanche
@pytest.mark.parametrize("name", ["naive", "cwr", "lwf", "ewc"])
def test_both_sides_come_to_the_same_weights(peers, peer_strategies, frames, name):
    """The settings are matched: what differs is rounding, and small terms of LwF and EWC."""
    noise = torch.Generator().manual_seed(0)
    batches, _ = peers.batches_of(frames, 3)
    batches = [(torch.randint(256, x.shape, generator=noise).byte(), y) for x, y in batches]
    ours = peer_strategies.Ours(peer_strategies.matched_row(name))
    theirs = peer_strategies.Theirs(name, batches)
    before = [p.detach().clone() for p in ours.strategy.backbone.parameters()]
    for i, (x, y) in enumerate(batches, 1):
        ours.learn(i, x, y)
        theirs.learn(i, x, y)
    known = theirs.known
    body, head = theirs.strategy.model
    rows = ours.strategy.head.cw if name == "cwr" else ours.strategy.head.weight
    assert torch.allclose(rows[:known], head.weight[:known], atol=1e-4)
    pairs = zip(before, ours.strategy.backbone.parameters(), body.parameters(), strict=True)
    moved, apart = zip(*(((a - b).norm(), (b - c).norm()) for a, b, c in pairs), strict=True)
    assert 0 < sum(apart) < 0.05 * sum(moved)


@with_avalanche
def test_ar1_and_streaming_lda_answer_as_ours_do(peers, peer_strategies, frames):
    batches, (x_test, _) = peers.batches_of(frames, 2)
    for name in ("ar1", "slda"):
        ours = peer_strategies.Ours(peer_strategies.matched_row(name))
        theirs = peer_strategies.Theirs(name, batches)
        for i, (x, y) in enumerate(batches, 1):
            ours.learn(i, x, y)
            theirs.learn(i, x, y)
        with torch.no_grad():
            same = ours.answers(x_test) == theirs.answers(x_test)
        assert same.float().mean() > 0.8


@with_avalanche
def test_the_quick_form(tar):
    done = subprocess.run(
        [
            *(sys.executable, str(FOLDER / "peers.py"), "--quick", "--environment", sys.prefix),
            *("--data", str(tar), "--rows", "CWR*", "prima"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "3 of 3 cells" in done.stderr
    *_, cwr, prima, _, ratio = done.stdout.splitlines()
    assert float(ratio.split(": ")[1].split()[0]) > 0
    assert cwr.startswith("| CWR* | 0.")
    assert prima.startswith("| prima | - | 0.")
    assert np.isfinite(float(cwr.split("|")[4]))
