"""The names of CORe50's objects, which the rendered ones share: "plug adapter 1" to "remote control 5"."""

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
    """The names of so many categories.

    >>> category_names(11)[-2:]
    ('remote control', 'category 11')
    """
    return tuple(
        CATEGORIES[i] if i < len(CATEGORIES) else f"category {i + 1}" for i in range(count)
    )


def object_names(objects: int, each: int) -> tuple[str, ...]:
    """The names of so many objects, `each` to a category.

    >>> object_names(3, 2)
    ('plug adapter 1', 'plug adapter 2', 'mobile phone 1')
    """
    names = category_names(-(-objects // each))
    return tuple(f"{names[i // each]} {i % each + 1}" for i in range(objects))
