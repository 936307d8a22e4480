"""Numbers that the paper and the authors' public result files give."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from primavista.errors import FileError
from primavista.report.series import MeanStd, mean_std

PAPER = "https://arxiv.org/abs/1907.03799"
PublishedKey = tuple[str, str, str]  # protocol, strategy, normalisation
# For each run, the accuracy after each batch. The files have one value more, after the first
# iteration, which is left out here.
PublishedRuns = Sequence[Sequence[float]]
PublishedResults = Mapping[PublishedKey, PublishedRuns]


def packaged_toml(name: str) -> dict[str, Any]:
    """Return the content of a TOML file beside this module."""
    return tomllib.loads(files("primavista.report").joinpath(name).read_text("utf-8"))


# Final accuracy on CORe50 over 10 runs: the mean, and the deviation if it was published.
TARGETS: dict[PublishedKey, MeanStd] = {
    (protocol, strategy, norm): MeanStd(mean, deviation[0] if deviation else None, runs=10)
    for norm, strategies in packaged_toml("published.toml")["targets"].items()
    for strategy, protocols in strategies.items()
    for protocol, (mean, *deviation) in protocols.items()
}


def read_published(folder: Path) -> dict[PublishedKey, PublishedRuns]:
    """Read the authors' curves.

    Raises:
        FileError: there is no such file, or one is damaged.
    """
    paths = sorted(folder.glob("*.tsv")) if folder.is_dir() else []
    if not paths:
        raise FileError(
            f"there are no published results in {folder}: "
            "give the folder with the files core50_results_nicv2_*.tsv"
        )
    found: dict[PublishedKey, PublishedRuns] = {}
    for path in paths:
        found |= _read_file(path)
    return found


def target_accuracies(published: PublishedResults) -> dict[PublishedKey, MeanStd]:
    """Return the authors' final accuracies."""
    finals = {key: mean_std([run[-1] for run in runs]) for key, runs in published.items()}
    return TARGETS | {key: final for key, final in finals.items() if final}


def _read_file(path: Path) -> Mapping[PublishedKey, PublishedRuns]:
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
    return runs_of


def _curves_key(header: Mapping[str, str], where: str) -> PublishedKey:
    if "scenario" not in header or "strategy" not in header:
        raise FileError(f"{where}: no '# scenario:' and '# strategy:' before the values")
    protocol = re.sub(r"\s*-\s*", "-", header["scenario"]).lower()
    strategy, _, norm = header["strategy"].lower().partition("_")
    return protocol, strategy, norm or "brn"


def _parse_run(line: str, protocol: str, where: str) -> tuple[float, ...]:
    """Return the accuracies after each batch, without the first value (see `PublishedRuns`)."""
    texts = [text.replace(",", ".") for text in line.split("\t") if text.strip()]
    try:
        values = tuple(map(float, texts))
    except ValueError as error:
        raise FileError(f"{where}: {error}") from error
    batches = protocol.rpartition("-")[2]
    if batches.isdecimal() and len(values) != int(batches) + 1:
        raise FileError(
            f"{where}: {len(values)} values; {protocol} has {int(batches) + 1}: "
            "one after the first iteration, then one per batch"
        )
    return values[1:]
