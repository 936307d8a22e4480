"""The figures of accuracy against batches."""

from __future__ import annotations

from primavista.report.curves import Line, draw_all
from primavista.report.series import MeanStd, Panel
from primavista.strategies.info import Look


def curve(*means: float) -> Line:
    points = [(batch, MeanStd(mean, 1.0, 2)) for batch, mean in enumerate(means, 1)]
    return Line("AR1*", Look("#0072b2", "o"), "-", points)


def test_every_curve_is_inside_the_scale_that_the_panels_share() -> None:
    panels = {Panel("nicv2-79", name, "", name, name): [] for name in ("low", "high", "middle")}
    for panel, means in zip(panels, ((10, 20), (30, 63), (20, 40)), strict=True):
        panels[panel] = [curve(*means)]
    axes = draw_all("accuracy", panels, 6.0).figure.axes
    assert len(axes) == 3
    for one in axes:
        low, high = one.get_ylim()
        assert low == 0
        assert 64 <= high <= 100  # a curve of 63 with the deviation 1
