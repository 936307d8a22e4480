"""Boxes in a picture: overlap, and the choice of the best of many that overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """A box in a picture, in pixels from its left upper corner.

    Args:
        left: The first column.
        top: The first row.
        right: The end of the columns.
        bottom: The end of the rows.
    """

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """The width in pixels."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """The height in pixels."""
        return self.bottom - self.top

    @property
    def area(self) -> float:
        """The number of pixels inside; 0 for a box without inside."""
        return max(self.width, 0.0) * max(self.height, 0.0)

    def overlap(self, other: Box) -> float:
        """Return the area that two boxes have in common.

        Args:
            other: The other box.
        """
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(wide, 0.0) * max(high, 0.0)

    def iou(self, other: Box) -> float:
        """Return the intersection over the union of two boxes, from 0 to 1.

        Args:
            other: The other box.

        >>> Box(0, 0, 2, 2).iou(Box(1, 0, 3, 2))
        0.3333333333333333
        """
        common = self.overlap(other)
        union = self.area + other.area - common
        return common / union if union > 0 else 0.0

    def in_shares(self, width: int, height: int) -> Box:
        """Return the box as shares of the sides of a picture of this size.

        >>> Box(10, 20, 40, 20).in_shares(100, 40)
        Box(left=0.1, top=0.5, right=0.4, bottom=0.5)
        """
        return Box(self.left / width, self.top / height, self.right / width, self.bottom / height)


def non_maximum_suppression(
    boxes: Sequence[Box], scores: Sequence[float], most_overlap: float
) -> list[int]:
    """Choose the best of boxes that overlap.

    The box with the highest score is taken, those that overlap with it too much are dropped, and
    so on with the rest.

    Args:
        boxes: The boxes.
        scores: One number per box; among equal ones the first box comes first.
        most_overlap: The intersection over union above which the worse of two boxes is dropped.

    Returns:
        The indices of the boxes that remain, the best first.

    >>> boxes = [Box(0, 0, 4, 4), Box(0, 0, 4, 3), Box(9, 9, 12, 12)]
    >>> non_maximum_suppression(boxes, [0.6, 0.9, 0.1], 0.5)
    [1, 2]
    """
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        if all(boxes[i].iou(boxes[j]) <= most_overlap for j in kept):
            kept.append(i)
    return kept
