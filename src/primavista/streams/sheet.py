"""A contact sheet: a row a class, a column a session, one frame each."""

from __future__ import annotations

from typing import TypeVar

import torch
from PIL import Image, ImageDraw

from primavista.errors import InputError
from primavista.streams.base import DataSet, Session

T = TypeVar("T")
MARGIN, GAP = 96, 2
PAPER, INK, TEST = (255, 255, 255), (30, 30, 30), (200, 60, 40)


def contact_sheet(data: DataSet, classes: int = 20, sessions: int = 11, thumb: int = 64) -> Image.Image:
    """The middle frame of each session, for at most `classes` classes (evenly chosen) and `sessions` sessions of each.

    Sessions of the test set have a red frame.
    """
    if min(classes, sessions) < 1 or not 8 <= thumb <= 1024:
        raise InputError("classes and sessions must be at least 1, thumb from 8 to 1024 pixels")
    held = set(data.test)
    labels = _spread(sorted({s.label for s in (*data.train, *data.test)}), classes)
    rows = [
        _spread(sorted((s for s in (*data.train, *data.test) if s.label == k), key=lambda s: s.number), sessions)
        for k in labels
    ]
    if not rows:
        raise InputError(f"the data set {data.name} has no sessions to show")
    step = thumb + 2 * GAP
    sheet = Image.new("RGB", (MARGIN + step * max(map(len, rows)), step * len(rows) + 20), PAPER)
    draw = ImageDraw.Draw(sheet)
    for i, (label, row) in enumerate(zip(labels, rows, strict=True)):
        draw.text((6, 20 + step * i + thumb // 2 - 6), data.classes[label][:14], fill=INK)
        for j, session in enumerate(row):
            x, y = MARGIN + step * j, 20 + step * i
            if session in held:
                draw.rectangle((x, y, x + step - 1, y + step - 1), fill=TEST)
            sheet.paste(_frame(data, session, thumb), (x + GAP, y + GAP))
    draw.text((6, 4), f"{data.name}: {len(data.classes)} classes; red: test sessions", fill=INK)
    return sheet


def _frame(data: DataSet, session: Session, thumb: int) -> Image.Image:
    middle = torch.tensor([(session.start + session.stop - 1) // 2])
    return Image.fromarray(data.frames[middle][0].cpu().numpy()).resize((thumb, thumb), Image.Resampling.BILINEAR)


def _spread(items: list[T], count: int) -> list[T]:
    return items if len(items) <= count else [items[i * len(items) // count] for i in range(count)]
