"""The names of CORe50's objects, "plug adapter 1" to "remote control 5"; rendered ones share
them."""

from __future__ import annotations

CATEGORIES = (
    "plug adapter",
    "mobile phone",
    "scissors",
    "light bulb",
    "can",
    "glasses",
    "ball",
    "marker",
    "cup",
    "remote control",
)


def category_names(count: int) -> tuple[str, ...]:
    """Return the names of the first categories.

    Args:
        count: The number of categories; those beyond the tenth are numbered.

    >>> category_names(11)[-2:]
    ('remote control', 'category 11')
    """
    return tuple(
        CATEGORIES[i] if i < len(CATEGORIES) else f"category {i + 1}" for i in range(count)
    )


def object_names(objects: int, each: int) -> tuple[str, ...]:
    """Return the names of the first objects.

    Args:
        objects: The number of objects.
        each: The number of objects per category.

    >>> object_names(3, 2)
    ('plug adapter 1', 'plug adapter 2', 'mobile phone 1')
    """
    names = category_names(-(-objects // each))
    return tuple(f"{names[i // each]} {i % each + 1}" for i in range(objects))
