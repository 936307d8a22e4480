"""What the paper and the authors' public result files say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from primavista.errors import FileError
from primavista.report.series import Spread, mean_curve, spread

PAPER = "https://arxiv.org/abs/1907.03799"


@dataclass(frozen=True)
class Published:
    """The authors' curves of one strategy: a run a line; a first value, after the first iteration, is dropped."""

    protocol: str
    strategy: str  # ours: "ar1*"
    norm: str
    runs: tuple[tuple[float, ...], ...]

    def final(self) -> Spread | None:
        """Accuracy after the last batch."""
        return spread([run[-1] for run in self.runs])

    def curve(self) -> list[tuple[int, Spread]]:
        """The mean after each batch, from 1."""
        return mean_curve([dict(enumerate(run, 1)) for run in self.runs])


Key = tuple[str, str, str]  # protocol, strategy, norm

# Final accuracy on CORe50, 10 runs, mean and population standard deviation of the public result files.
TARGETS: dict[Key, tuple[float, float | None]] = {
    (f"nicv2-{batches}", strategy, norm): target
    for strategy, norm, targets in (
        ("ar1*", "brn", ((63.50, 1.14), (60.58, 1.36), (56.32, 1.00))),
        ("cwr*", "brn", ((57.07, 1.87), (56.88, 0.85), (56.99, 0.91))),
        ("ewc", "brn", ((36.98, 5.60), (30.63, 3.59), (5.37, 0.79))),
        ("lwf", "brn", ((27.04, 2.80), (20.43, 1.98), (7.82, 1.19))),
        ("naive", "brn", ((26.75, 2.32), (18.88, 1.65), (8.03, 1.01))),
        ("ar1*", "bn", ((56.44, 2.93), (49.23, 2.00), (15.68, 0.15))),
        ("cumulative", "bn", ((85.0, None), (85.0, None), (85.0, None))),  # "about 85", in the text
    )
    for batches, target in zip((79, 196, 391), targets, strict=True)
}


@dataclass(frozen=True)
class Efficiency:
    """A row of tab:efficiency: minutes of one NICv2-391 run, megabytes of stored data and of additional parameters."""

    minutes: float
    data_mb: float
    params_mb: float


EFFICIENCY: dict[str, Efficiency] = {
    "cwr*": Efficiency(21.4, 0, 0.2),
    "naive": Efficiency(25.6, 0, 0),
    "lwf": Efficiency(27.8, 0, 0),
    "ewc": Efficiency(31.2, 0, 24.4),
    "ar1*": Efficiency(39.9, 0, 12.2),
    "dslda": Efficiency(79.1, 0, 0.2),
    "cumulative": Efficiency(2826.2, 4712.3, 0),
}

# tab:nic: batches, classes and images of the initial batch, classes and images of an incremental one
NIC: dict[str, tuple[int, int, int, int, int]] = {
    "nic": (79, 10, 3000, 5, 1500),
    "nicv2-79": (79, 10, 3000, 5, 1500),
    "nicv2-196": (196, 10, 3000, 2, 600),
    "nicv2-391": (391, 10, 3000, 1, 300),
}

# table:hardware
HARDWARE: dict[str, str] = {
    "system": "Debian 8.3, Docker 18.06.1",
    "cpu": "Intel(R) Xeon(R) CPU E5-2650",
    "gpu": "GTX 1080 Ti (11 GB VRAM), driver 390.48 (CUDA 9.0, CuDNN 7)",
    "memory": "64 GB DDR3 (1600 MHz)",
}


def read_published(folder: Path) -> dict[Key, Published]:
    """The authors' curves from `core50_results_nicv2_*.tsv` (decimal commas, headers that name scenario and strategy)."""
    files = sorted(folder.glob("*.tsv")) if folder.is_dir() else []
    if not files:
        raise FileError(
            f"no published results in {folder}: give the folder with the files core50_results_nicv2_*.tsv"
        )
    found: dict[Key, Published] = {}
    for path in files:
        for one in _read(path):
            found[one.protocol, one.strategy, one.norm] = one
    return found


def targets(published: Mapping[Key, Published]) -> dict[Key, Spread]:
    """Final accuracy of the authors: computed from their files where given, else as they were published."""
    found = {key: Spread(mean, std, 10) for key, (mean, std) in TARGETS.items()}
    return found | {key: final for key, one in published.items() if (final := one.final())}


def _read(path: Path) -> list[Published]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read the published results {path}: {error}") from error
    found: dict[Key, list[tuple[float, ...]]] = {}
    header: dict[str, str] = {}
    for place, line in enumerate(lines, 1):
        if match := re.match(r"#\s*(\w+):\s*(.+?)\s*$", line):
            header[match[1]] = match[2]
        elif line.strip() and not line.startswith("#"):
            key = _key(header, path, place)
            try:
                values = tuple(
                    float(value.replace(",", ".")) for value in line.split("\t") if value.strip()
                )
            except ValueError as error:
                raise FileError(f"{path}, line {place}: {error}") from error
            found.setdefault(key, []).append(_after_batches(key[0], values, path, place))
    return [Published(*key, tuple(runs)) for key, runs in found.items()]


def _key(header: Mapping[str, str], path: Path, place: int) -> Key:
    if "scenario" not in header or "strategy" not in header:
        raise FileError(
            f"{path}, line {place}: no '# scenario:' and '# strategy:' before the values"
        )
    protocol = re.sub(r"\s*-\s*", "-", header["scenario"]).lower()
    strategy, _, norm = header["strategy"].lower().partition("_")
    return protocol, strategy, norm or "brn"


def _after_batches(
    protocol: str, values: tuple[float, ...], path: Path, place: int
) -> tuple[float, ...]:
    count = (
        int(protocol.rpartition("-")[2])
        if protocol.rpartition("-")[2].isdecimal()
        else len(values) - 1
    )
    if len(values) != count + 1:
        raise FileError(
            f"{path}, line {place}: {len(values)} values; {protocol} has {count + 1}, one before the first batch's end"
        )
    return values[1:]
