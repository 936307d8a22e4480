"""Compare our strategies with Avalanche's: processor time, memory, accuracy, one stream.

    python benchmarks/peers.py [--data ../shared/data/gtsrb_tracks.tar] [--quick] [--repeat 3]

It makes its own environment (`peer_environment.py`) and needs nothing but Python. Both sides learn
the same video tracks of 8 traffic signs, frames of 64 pixels, in the same 23 batches: 2 signs, then
one track of 30 frames per batch. A track of each sign is the test set. `peer_strategies.py` has
both sides and says which settings are matched. Each cell runs in its own process with one thread,
Avalanche's and ours in turns.

Times are processor seconds per batch: the median over all batches but the first, then over
repetitions. Memory is the peak resident set minus the resident set before the first batch. Accuracy
is measured after the last batch. Avalanche runs without loggers and metrics.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peer_environment import make_environment

TRACKS, FRAMES = 4, 30  # per sign; the last track is for the test
BATCHES, QUICK = 23, 4
TURNS = ("Naive, renormalised", "Naive")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "primavista" / "peers"
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "gtsrb_tracks.tar"
HEADER = """\
| strategy | A, s | ours, s | A / ours | accuracy A, ours, % | peak A, MB | peak ours, MB |
|---|---|---|---|---|---|---|"""
Cell = dict[str, float]
Found = dict[tuple[str, str], list[Cell]]


def pack(tar: Path, path: Path) -> None:
    """Write the frames that both sides learn: the batches of a NICv2 stream, and its test set.

    Signs are numbered in the order in which they appear, so that both sides have them in the same
    columns.
    """
    import numpy as np
    import torch
    from peer_strategies import CLASSES, SIZE

    import primavista as pv

    tracks = _tracks(tar, CLASSES, SIZE)
    frames = torch.from_numpy(np.concatenate([track for _, track in tracks]))
    sessions = [
        pv.Session(label, k % TRACKS + 1, k * FRAMES, (k + 1) * FRAMES)
        for k, (label, _) in enumerate(tracks)
    ]
    parts = [[s for s in sessions if (s.number == TRACKS) == test] for test in (False, True)]
    names = tuple(str(label) for label in range(CLASSES))
    data = pv.DataSet(
        "signs", frames, tuple(parts[0]), tuple(parts[1]), names, tuple(range(CLASSES))
    )
    stream = pv.nicv2(data, run=0, first=2)
    assert len(stream) == BATCHES
    order: dict[int, int] = {}
    arrays: dict[str, Any] = {}
    for i, part in enumerate([*stream, stream.test()], 1):
        arrays[f"x{i}"] = part.images[torch.arange(len(part.labels))].numpy()
        labels = [order.setdefault(label, len(order)) for label in part.labels.tolist()]
        arrays[f"y{i}"] = np.array(labels)
    np.savez(path, **arrays)


def _tracks(tar: Path, classes: int, size: int) -> list[tuple[int, Any]]:
    """Return the first tracks of signs with enough tracks, spread over all kinds, with labels."""
    import io
    import tarfile

    import numpy as np
    from PIL import Image

    from primavista.media.images import centre_square

    with tarfile.open(tar) as archive:
        files: dict[str, dict[str, list[str]]] = {}
        for name in sorted(archive.getnames()):
            if name.endswith(".jpg"):
                sign, track, _ = name.split("/")
                files.setdefault(sign, {}).setdefault(track, []).append(name)
        rich = [tracks for tracks in files.values() if len(tracks) >= TRACKS]
        found = []
        for label, tracks in enumerate(rich[:: len(rich) // classes][:classes]):
            for names in list(tracks.values())[:TRACKS]:
                opened = [archive.extractfile(name) for name in names[:FRAMES]]
                pictures = [Image.open(io.BytesIO(file.read())) for file in opened if file]
                found.append((label, np.stack([centre_square(p, size) for p in pictures])))
    return found


def batches_of(path: Path, count: int) -> tuple[list[Any], tuple[Any, Any]]:
    """Read the first batches, and the test set of the signs that they have."""
    import numpy as np
    import torch

    with np.load(path) as arrays:
        parts = [
            (torch.from_numpy(arrays[f"x{i}"]), torch.from_numpy(arrays[f"y{i}"]))
            for i in range(1, BATCHES + 2)
        ]
    x, y = parts[-1]
    seen = torch.isin(y, torch.cat([labels for _, labels in parts[:count]]))
    return parts[:count], (x[seen], y[seen])


def run_cell(side: str, name: str, frames: Path, count: int) -> Cell:
    """Learn the stream once; runs in its own process.

    Args:
        side: `ours`, or `theirs`.
        name: a row of the table, or one of Avalanche's strategies.
        frames: the file of `pack`.
        count: the number of batches.
    """
    import torch
    from peer_strategies import ROWS, Ours, Theirs

    torch.set_num_threads(1)
    torch.manual_seed(0)
    batches, (x_test, y_test) = batches_of(frames, count)
    learner: Any = Ours(ROWS[name]) if side == "ours" else Theirs(name, batches)
    start, seconds = resident_start(), []
    for i, (x, y) in enumerate(batches, 1):
        before = time.process_time()
        learner.learn(i, x, y)
        seconds.append(time.process_time() - before)
    peak = resident("VmHWM") - start
    with torch.no_grad():
        accuracy = 100 * float((learner.answers(x_test) == y_test).float().mean())
    return {"seconds": statistics.median(seconds[1:]), "peak": peak, "accuracy": accuracy}


def run_turns(frames: Path, count: int) -> Cell:
    """Compare renormalisation with batch norm: Naive learns each batch with one, then the other.

    On a busy machine, two processes differ by more than these two variants do; turns in one process
    do not.

    Args:
        frames: the file of `pack`.
        count: the number of batches.

    Returns:
        The median over batches, the first left out, of the ratio of the processor times.
    """
    import torch
    from peer_strategies import ROWS, Ours

    torch.set_num_threads(1)
    both = [Ours(ROWS[row]) for row in TURNS]
    ratios = []
    for i, (x, y) in enumerate(batches_of(frames, count)[0], 1):
        seconds = []
        for learner in both:
            before = time.process_time()
            learner.learn(i, x, y)
            seconds.append(time.process_time() - before)
        ratios.append(seconds[0] / seconds[1])
    return {"ratio": statistics.median(ratios[1:])}


def resident_start() -> float:
    """Set the peak of the resident set back, and return the resident set in MB."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")
    return resident("VmRSS")


def resident(field: str) -> float:
    """Return a field of /proc/self/status in MB, or NaN if there is no such file."""
    path = Path("/proc/self/status")
    if not path.exists():
        return float("nan")
    line = next(line for line in path.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def cells_of(rows: dict[str, str]) -> list[tuple[str, str]]:
    """Return the cells of one repetition, each of Avalanche's before the first of our rows for it.

    Args:
        rows: Avalanche's strategy of each row.

    >>> cells_of({"Naive": "naive", "Naive, renormalised": "naive", "prima": ""})
    [('theirs', 'naive'), ('ours', 'Naive'), ('ours', 'Naive, renormalised'), ('ours', 'prima')]
    """
    cells: list[tuple[str, str]] = []
    for row, theirs in rows.items():
        if theirs and ("theirs", theirs) not in cells:
            cells.append(("theirs", theirs))
        cells.append(("ours", row))
    return cells


def measure(python: Path, frames: Path, rows: dict[str, str], repeat: int, count: int) -> Found:
    """Run all cells, in turns, `repeat` times."""
    found: Found = {}
    cells = cells_of(rows) * repeat
    begun = time.monotonic()
    for done, (side, name) in enumerate(cells, 1):
        found.setdefault((side, name), []).append(_cell(python, side, name, frames, count))
        left = (time.monotonic() - begun) / done * (len(cells) - done)
        shown = f"{done} of {len(cells)} cells, {left / 60:.1f} min left: {side} {name}"
        print(shown, file=sys.stderr, flush=True)
    return found


def _cell(python: Path, side: str, name: str, frames: Path, count: int) -> Cell:
    command = [str(python), "-W", "ignore", __file__, "--cell", side, name, str(frames), str(count)]
    limits = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=limits, check=False)
    if done.returncode:
        print(f"{side}, {name} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return dict.fromkeys(("seconds", "peak", "accuracy", "ratio"), float("nan"))
    result: Cell = json.loads(done.stdout.splitlines()[-1])
    return result


def table(found: Found, rows: dict[str, str]) -> list[str]:
    """Return the rows of the table: medians, with the least and the greatest over repetitions."""
    lines = []
    for row, theirs in rows.items():
        both = [found.get(("theirs", theirs), []), found["ours", row]]
        seconds, accuracies = [], []
        for cells in both:
            times = [cell["seconds"] for cell in cells]
            seconds.append(statistics.median(times) if cells else float("nan"))
            accuracies.append(cells[0]["accuracy"] if cells else float("nan"))
        spans = [_span([cell["seconds"] for cell in cells], 3) for cells in both]
        peaks = [_span([cell["peak"] for cell in cells], 0) for cells in both]
        ratio = f"{seconds[0] / seconds[1]:.2f}"
        shown = [f"{row}", *spans, ratio, "{:.1f}, {:.1f}".format(*accuracies), *peaks]
        lines.append("| " + " | ".join(shown) + " |")
    return [line.replace("nan", "-") for line in lines]


def _span(values: list[float], digits: int) -> str:
    """Return the text of the median, the least and the greatest value."""
    if not values:
        return "-"
    shown = statistics.median(values), min(values), max(values)
    return "{} ({} to {})".format(*(f"{value:.{digits}f}" for value in shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="tracks of signs: SIGN/TRACK/*.jpg")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} batches, once")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--environment", type=Path, default=CACHE, help="where it is, or is made")
    parser.add_argument("--rows", nargs="+", help="only these rows of the table")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--pack", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        side, name, frames, number = given.cell
        if side == "turns":
            print(json.dumps(run_turns(Path(frames), int(number))))
        else:
            print(json.dumps(run_cell(side, name, Path(frames), int(number))))
        return
    if given.pack:
        pack(*given.pack)
        return
    compare(given)


def compare(given: argparse.Namespace) -> None:
    """Make the environment and the frames, run the cells, and print the table."""
    if not given.data.is_file():
        raise SystemExit(f"{given.data} does not exist: --data names a tar of SIGN/TRACK/*.jpg")
    python = make_environment(given.environment.resolve())
    rows = _rows(python)
    strange = sorted(set(given.rows or ()) - set(rows))
    if strange:
        raise SystemExit(f"there is no row {', '.join(strange)}; there are {', '.join(rows)}")
    rows = {row: theirs for row, theirs in rows.items() if row in (given.rows or rows)}
    repeat, count = (1, QUICK) if given.quick else (given.repeat, BATCHES)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        frames = Path(folder) / "signs.npz"
        command = [str(python), __file__, "--pack", str(given.data.resolve()), str(frames)]
        subprocess.run(command, check=True)
        found = measure(python, frames, rows, repeat, count)
        turns = [_cell(python, "turns", "", frames, count)["ratio"] for _ in range(repeat)]
    print(HEADER)
    print("\n".join(table(found, rows)))
    print(f"\nrenormalised / batch norm, in turns in one process: {_span(turns, 3)}")
    print(
        f"{repeat} x {count} batches in {(time.monotonic() - begun) / 60:.0f} min", file=sys.stderr
    )


def _rows(python: Path) -> dict[str, str]:
    """Return Avalanche's strategy of each row, from a process of the environment that has torch."""
    code = (
        "import json, peer_strategies as p; "
        "print(json.dumps({name: row.theirs for name, row in p.ROWS.items()}))"
    )
    where = Path(__file__).parent
    done = subprocess.run([str(python), "-c", code], cwd=where, capture_output=True, check=True)
    rows: dict[str, str] = json.loads(done.stdout)
    return rows


if __name__ == "__main__":
    main()
