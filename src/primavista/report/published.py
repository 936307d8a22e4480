"""Numbers that the paper and the authors' public result files give."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from primavista.errors import FileError
from primavista.report.series import MeanStd, Points, mean_curve, mean_std

PAPER = "https://arxiv.org/abs/1907.03799"
PublishedKey = tuple[str, str, str]  # protocol, strategy, normalisation


@dataclass(frozen=True)
class PublishedCurves:
    """The authors' curves of one strategy on one protocol.

    Args:
        protocol: Our name of the protocol, such as `nicv2-79`.
        strategy: Our name of the strategy, such as `ar1*`.
        norm: `bn` or `brn`.
        runs: For each run, the accuracy after each batch; the files have one value more, after the
            first iteration, which is left out here.
    """

    protocol: str
    strategy: str
    norm: str
    runs: tuple[tuple[float, ...], ...]

    def final(self) -> MeanStd | None:
        """Return the accuracy after the last batch."""
        return mean_std([run[-1] for run in self.runs])

    def curve(self) -> Points:
        """Return the mean accuracy after each batch."""
        return mean_curve([dict(enumerate(run, 1)) for run in self.runs])


PublishedResults = Mapping[PublishedKey, PublishedCurves]

# Final accuracy on CORe50 over 10 runs: mean and sample standard deviation of the public files.
TARGETS: dict[PublishedKey, tuple[float, float | None]] = {
    (f"nicv2-{batches}", strategy, norm): target
    for strategy, norm, targets in (
        ("ar1*", "brn", ((63.50, 1.20), (60.58, 1.43), (56.32, 1.06))),
        ("cwr*", "brn", ((57.07, 1.97), (56.88, 0.89), (56.99, 0.96))),
        ("ewc", "brn", ((36.98, 5.90), (30.63, 3.79), (5.37, 0.84))),
        ("lwf", "brn", ((27.04, 2.96), (20.43, 2.09), (7.82, 1.25))),
        ("naive", "brn", ((26.75, 2.44), (18.88, 1.74), (8.03, 1.07))),
        ("ar1*", "bn", ((56.44, 3.09), (49.23, 2.11), (15.68, 0.16))),
        ("cumulative", "bn", ((85.0, None), (85.0, None), (85.0, None))),  # "about 85", in the text
    )
    for batches, target in zip((79, 196, 391), targets, strict=True)
}


@dataclass(frozen=True)
class Efficiency:
    """A row of tab:efficiency."""

    minutes: float
    data_mb: float
    params_mb: float


EFFICIENCY: dict[str, Efficiency] = {
    "cwr*": Efficiency(21.4, 0.0, 0.2),
    "naive": Efficiency(25.6, 0.0, 0.0),
    "lwf": Efficiency(27.8, 0.0, 0.0),
    "ewc": Efficiency(31.2, 0.0, 24.4),
    "ar1*": Efficiency(39.9, 0.0, 12.2),
    "dslda": Efficiency(79.1, 0.0, 0.2),
    "cumulative": Efficiency(2826.2, 4712.3, 0.0),
}


@dataclass(frozen=True)
class Composition:
    """A row of tab:nic.

    Args:
        batches: The number of batches.
        initial_classes: Classes of the first batch.
        initial_images: Images of the first batch.
        later_classes: Classes of each later batch.
        later_images: Images of each later batch.
    """

    batches: int
    initial_classes: int
    initial_images: int
    later_classes: int
    later_images: int


COMPOSITION: dict[str, Composition] = {
    "nic": Composition(79, 10, 3000, 5, 1500),
    "nicv2-79": Composition(79, 10, 3000, 5, 1500),
    "nicv2-196": Composition(196, 10, 3000, 2, 600),
    "nicv2-391": Composition(391, 10, 3000, 1, 300),
}

# table:hardware
HARDWARE: dict[str, str] = {
    "system": "Debian 8.3, Docker 18.06.1",
    "cpu": "Intel(R) Xeon(R) CPU E5-2650",
    "gpu": "GTX 1080 Ti (11 GB VRAM), driver 390.48 (CUDA 9.0, CuDNN 7)",
    "memory": "64 GB DDR3 (1600 MHz)",
}


def read_published(folder: Path) -> dict[PublishedKey, PublishedCurves]:
    """Read the authors' curves.

    Raises:
        FileError: there is no such file, or one is damaged.
    """
    files = sorted(folder.glob("*.tsv")) if folder.is_dir() else []
    if not files:
        raise FileError(
            f"there are no published results in {folder}: "
            "give the folder with the files core50_results_nicv2_*.tsv"
        )
    found: dict[PublishedKey, PublishedCurves] = {}
    for path in files:
        for one in _read_file(path):
            found[one.protocol, one.strategy, one.norm] = one
    return found


def target_accuracies(published: PublishedResults) -> dict[PublishedKey, MeanStd]:
    """Return the authors' final accuracies."""
    targets = {key: MeanStd(mean, std, 10) for key, (mean, std) in TARGETS.items()}
    for key, curves in published.items():
        final = curves.final()
        if final:
            targets[key] = final
    return targets


def _read_file(path: Path) -> list[PublishedCurves]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read the published results {path}: {error}") from error
    runs_of: dict[PublishedKey, list[tuple[float, ...]]] = {}
    header: dict[str, str] = {}
    for place, line in enumerate(lines, 1):
        where = f"{path}, line {place}"
        field = re.match(r"#\s*(\w+):\s*(.+?)\s*$", line)
        if field:
            header[field[1]] = field[2]
        elif line.strip() and not line.startswith("#"):
            key = _curves_key(header, where)
            runs_of.setdefault(key, []).append(_parse_run(line, key[0], where))
    return [PublishedCurves(*key, tuple(runs)) for key, runs in runs_of.items()]


def _curves_key(header: Mapping[str, str], where: str) -> PublishedKey:
    if "scenario" not in header or "strategy" not in header:
        raise FileError(f"{where}: no '# scenario:' and '# strategy:' before the values")
    protocol = re.sub(r"\s*-\s*", "-", header["scenario"]).lower()
    strategy, _, norm = header["strategy"].lower().partition("_")
    return protocol, strategy, norm or "brn"


def _parse_run(line: str, protocol: str, where: str) -> tuple[float, ...]:
    """Return the accuracies after each batch, without the first value (see `PublishedCurves`)."""
    texts = [text.replace(",", ".") for text in line.split("\t") if text.strip()]
    try:
        values = tuple(map(float, texts))
    except ValueError as error:
        raise FileError(f"{where}: {error}") from error
    _check_length(values, protocol, where)
    return values[1:]


def _check_length(values: Sequence[float], protocol: str, where: str) -> None:
    batches = protocol.rpartition("-")[2]
    if batches.isdecimal() and len(values) != int(batches) + 1:
        raise FileError(
            f"{where}: {len(values)} values; {protocol} has {int(batches) + 1}: "
            "one after the first iteration, then one per batch"
        )
