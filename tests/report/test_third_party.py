"""A strategy of another package is shown with the title, colour and hyperparameters of its info."""

from __future__ import annotations

import csv
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from primavista.report import write_report
from primavista.strategies import registry
from primavista.strategies.base import Strategy
from primavista.strategies.info import Look, StrategyInfo

from .test_report import make_cell, read

COLOUR = "#123abc"


class Aurora(Strategy):
    info = StrategyInfo(
        "aurora",
        "Aurora-7",
        source="a paper about dawn",
        options={"lr": 0.25, "warmth": 3},
        norm="brn",
        look=Look(COLOUR.upper(), "8"),
    )

    def __init__(self, backbone: Any, *, seed: int = 0, lr: float = 0.1, warmth: int = 1) -> None:
        super().__init__(backbone, seed=seed)


@pytest.fixture
def aurora(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the strategy as the entry point of an installed package would."""
    point = EntryPoint("aurora", f"{__name__}:Aurora", registry.ENTRY_POINTS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: Aurora)
    monkeypatch.setattr(registry, "_third_parties", lambda: {"aurora": point})


@pytest.mark.usefixtures("aurora")
def test_title_colour_and_hyperparameters_come_from_the_info(tmp_path: Path) -> None:
    make_cell(tmp_path, "zebra", options={"lr": 0.1})  # nothing is known about it
    make_cell(tmp_path, "aurora", options={"lr": 0.5})
    make_cell(tmp_path, "aurora", options={"norm": "bn", "lr": 0.25})
    make_cell(tmp_path, "ar1*")
    report = write_report(tmp_path, figures=["svg"])
    tables = tmp_path / "tables"

    names = [line.split(",")[1] for line in (tables / "final.csv").read_text().splitlines()[1:]]
    assert names == ["AR1*", "Aurora-7", "zebra", "Aurora-7 with BN"]
    with (tables / "hyperparameters.csv").open() as file:
        presets = {row["strategy"]: row for row in csv.DictReader(file)}
    assert presets["Aurora-7"]["source of the preset"] == "a paper about dawn"
    assert presets["Aurora-7"]["other than the preset"] == "lr 0.5 instead of 0.25"
    assert presets["zebra"]["options"] == "norm brn; freeze depthwise; lr 0.1"

    curves = (tmp_path / "figures" / "accuracy-nicv2-3.svg").read_text("utf-8")
    assert "Aurora-7 30.0" in curves
    assert COLOUR in curves
    assert "Aurora-7" in " ".join(read(report).words)


def test_a_broken_package_does_not_break_the_report_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("aurora", "no_such_module_of_a_test:Aurora", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_third_parties", lambda: {"aurora": point})
    make_cell(tmp_path, "aurora", options={"lr": 0.5})
    make_cell(tmp_path, "ar1*")
    write_report(tmp_path, figures=[])
    table = (tmp_path / "tables" / "hyperparameters.csv").read_text()
    assert "norm brn; freeze depthwise; lr 0.5" in table
