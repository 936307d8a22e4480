"""Small multiples: the accuracy of each category over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from primavista.report.class_names import class_curves, class_names, has_classes
from primavista.report.curves import line_styles
from primavista.report.figures import (
    MARKER,
    SMALL,
    LineStyle,
    Picture,
    drawing_style,
    fit_text,
    new_figure,
    text_width,
)
from primavista.report.panels import accuracy_label, legend_columns, legend_height, place_legend
from primavista.report.series import Panel, Series, mean_curve
from primavista.report.titles import shorten_names
from primavista.strategies.registry import look_of, strategy_info

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CATEGORIES = 24
LEAST_LETTERS = 8  # of a title
LEFT, RIGHT, TOP, BOTTOM, BETWEEN = 0.42, 0.12, 0.38, 0.34, 0.1  # inches


def draw_categories(
    panel: Panel, series: Sequence[Series], name: str, width: float
) -> Picture | None:
    """Draw small multiples: one per category, with the mean accuracy of its classes per strategy.

    Args:
        panel: the protocol and data set.
        series: the series of the panel.
        name: the name of the picture.
        width: the width in inches.
    """
    labels_of = _labels_by_category(series)
    if not 1 < len(labels_of) <= MOST_CATEGORIES:
        return None
    across = min(len(labels_of), max(2, round(width / 1.35)))
    down = -(-len(labels_of) // across)
    wide = (width - LEFT - RIGHT - (across - 1) * BETWEEN) / across
    high, step = 0.85, 1.12
    titles = _titles(list(labels_of), wide)
    names = [one.name for one in series]
    columns = legend_columns(names, width)
    legend = legend_height(len(names), columns)
    height = TOP + down * step + BOTTOM + legend - (step - high)
    with drawing_style():
        figure = new_figure(width, height)
        handles: dict[str, Any] = {}
        for place, labels in enumerate(labels_of.values()):
            row, column = divmod(place, across)
            left = LEFT + column * (wide + BETWEEN)
            bottom = height - TOP - row * step - high
            box = left / width, bottom / height, wide / width, high / height
            axes = figure.add_axes(box)
            styles = zip(series, line_styles(series), strict=True)
            _draw_category(axes, titles[place], labels, list(styles))
            axes.tick_params(labelleft=column == 0, labelbottom=place + across >= len(labels_of))
            handles |= {str(handle.get_label()): handle for handle in axes.lines}
        shown = [one for one in names if one in handles]
        place_legend(figure, [handles[one] for one in shown], shown, columns)
        title = fit_text(panel.title, width - 0.1, 8.5, bold=True)
        figure.text(
            0.05 / width, 1 - 0.05 / height, title, fontsize=8.5, fontweight="bold", va="top"
        )
        bottom = (legend + 0.06) / height
        figure.text(0.5, bottom, "training batch", fontsize=8, ha="center", va="bottom")
        middle = (legend + BOTTOM + height - TOP) / 2 / height
        label = accuracy_label([one.test_frames for one in series], height - TOP - legend)
        figure.text(0.04 / width, middle, label, fontsize=8, va="center", rotation=90)
    return Picture(name, f"Accuracy by category, {panel.title}", figure)


def _titles(categories: Sequence[str], width: float) -> list[str]:
    """Return the titles, in lines or shortened so that none runs into its neighbour's."""
    titles = [fit_text(category, width, SMALL) for category in categories]
    letters = max(map(len, categories))
    while letters > LEAST_LETTERS and any(text_width(one, SMALL) > width for one in titles):
        letters -= 1
        short = shorten_names(categories, letters)
        titles = [fit_text(category, width, SMALL) for category in short]
    return titles


def _labels_by_category(series: Sequence[Series]) -> dict[str, list[str]]:
    """Return the labels of each category, from the first finished cell that knows its classes."""
    done = [cell for one in series for cell in one.done if has_classes(cell)]
    if not done:
        return {}
    names, categories = class_names(done[0])
    labels_of: dict[str, list[str]] = {}
    for label, category in zip(class_curves(done[0]), categories or names, strict=False):
        labels_of.setdefault(category, []).append(label)
    return labels_of


def _draw_category(
    axes: Axes,
    category: str,
    labels: Sequence[str],
    series: Sequence[tuple[Series, LineStyle]],
) -> None:
    last = 1
    for one, line_style in series:
        points = mean_curve(_curves_of(one, labels))
        look = look_of(strategy_info(one.strategy))
        if points:
            last = max(last, points[-1][0])
            axes.plot(
                [batch for batch, _ in points],
                [mean.mean for _, mean in points],
                color=look.light,
                linewidth=0.9,
                linestyle=line_style,
                label=one.name,
                marker=look.marker,
                markersize=0.7 * MARKER,
                markevery=max(1, len(points) // 4),
                clip_on=False,
            )
    axes.set_ylim(0, 100)
    axes.set_xticks(sorted({1, last}))
    axes.set_yticks([0, 50, 100])
    axes.set_title(category, fontsize=SMALL, loc="left", pad=3)
    axes.tick_params(length=2)


def _curves_of(series: Series, labels: Sequence[str]) -> list[dict[int, float]]:
    """Return the curves of some classes in all runs."""
    curves = [item for cell in series.cells for item in class_curves(cell).items()]
    return [curve for label, curve in curves if label in labels]
