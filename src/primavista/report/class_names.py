"""Names and categories of classes, and the accuracy of each class over time."""

from __future__ import annotations

from collections.abc import Sequence

from primavista.report.read import StoredCell
from primavista.streams.conventions import CATEGORIES as CORE50_CATEGORIES
from primavista.streams.rendered.renderer import CATEGORIES as RENDERED_CATEGORIES


def has_classes(cell: StoredCell) -> bool:
    """Return whether a cell recorded the accuracy of single classes.

    Args:
        cell: any cell.
    """
    return any(step.class_accuracy for step in cell.steps)


def class_curves(cell: StoredCell) -> dict[str, dict[int, float]]:
    """Return the accuracy of each class after each tested batch, in the order of the labels.

    Args:
        cell: any cell.
    """
    curves: dict[str, dict[int, float]] = {}
    for step in cell.steps:
        for label, accuracy in (step.class_accuracy or {}).items():
            curves.setdefault(label, {})[step.batch] = accuracy
    return {label: curves[label] for label in sorted(curves, key=_label_order)}


def _label_order(label: str) -> tuple[bool, str]:
    return not label.isdecimal(), label.zfill(9)


def class_names(cell: StoredCell, count: int = 0) -> tuple[list[str], list[str]]:
    """Return the name of each class and the name of its category.

    Args:
        cell: a cell; its result names the classes.
        count: the number of classes if the result does not name them.

    Returns:
        The names and the categories; there are none of the latter if every category has one class.
    """
    names = cell.result.classes if cell.result else []
    categories = cell.result.categories if cell.result else []
    if not names:
        names = [str(label) for label in range(count)]
    if len(categories) != len(names) or len(set(categories)) == len(names):
        return names, []
    return names, _category_names(names, categories, _known_categories(cell))


def _category_names(
    names: Sequence[str], categories: Sequence[int], known: Sequence[str]
) -> list[str]:
    """Return the name of each class's category: the known one, or what its classes share."""
    if all(0 <= category < len(known) for category in categories):
        return [known[category] for category in categories]
    members: dict[int, list[str]] = {}
    for name, category in zip(names, categories, strict=True):
        members.setdefault(category, []).append(name)
    titles = {category: _common_name(own) for category, own in members.items()}
    return [titles[category] for category in categories]


def _known_categories(cell: StoredCell) -> tuple[str, ...]:
    """Return the names of the categories of rendered data and of CORe50."""
    if cell.data_name == "rendered":
        return tuple(RENDERED_CATEGORIES)
    return tuple(CORE50_CATEGORIES) if cell.is_core50 else ()


def _common_name(names: Sequence[str]) -> str:
    """Return what the names of one category share, or else the first and the last.

    >>> _common_name(["cup 1", "cup 2"]), _common_name(["red", "green", "blue"])
    ('cup', 'red – blue')
    """
    stems = {name.rstrip("0123456789").strip(" _-") for name in names}
    stem = stems.pop()
    return stem if not stems and len(stem) > 2 else f"{names[0]} – {names[-1]}"
