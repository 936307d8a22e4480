"""Names of objects and the default test sessions, which all data sets with sessions share."""

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


def object_names(objects: int, each: int) -> tuple[str, ...]:
    """Return the names of the first objects; categories beyond the tenth are numbered.

    Args:
        objects: The number of objects.
        each: The number of objects per category.

    >>> object_names(3, 2), object_names(11, 1)[-1]
    (('plug adapter 1', 'plug adapter 2', 'mobile phone 1'), 'category 11 1')
    """
    names = [*CATEGORIES, *(f"category {i + 1}" for i in range(len(CATEGORIES), objects))]
    return tuple(f"{names[i // each]} {i % each + 1}" for i in range(objects))


def held_out(count: int) -> tuple[int, ...]:
    """Return the numbers, from 1, of the test sessions among `count`.

    They are CORe50's 3, 7 and 10 of 11; otherwise 3, 7, 11 and so on; 2 of 2, and none of 1.

    Args:
        count: The number of sessions.

    >>> held_out(11), held_out(8), held_out(2)
    ((3, 7, 10), (3, 7), (2,))
    """
    if count == 11:
        return 3, 7, 10
    return (2,) if count == 2 else tuple(range(3, count + 1, 4))
