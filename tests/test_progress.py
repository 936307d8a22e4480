"""The bar that a long lesson shows."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import pytest

from primavista import Learner, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=made))
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_bar_comes_with_the_second_second_and_goes_at_the_end(terminal, clock):
    with progress.LateBar("learning") as bar:
        for done, at in ((1, 100.5), (4, 101.0), (5, 102.0), (6, 102.1), (10, 104.0)):
            clock[0] = at
            bar(done, 20)
    _, quarter, half, blank, end = terminal.getvalue().split("\r")
    assert quarter == "learning █████░░░░░░░░░░░░░░░ 25%, 6 s left"
    assert half == "learning ██████████░░░░░░░░░░ 50%, 4 s left"
    assert (blank, end) == (" " * len(half), "")


def test_what_ends_in_a_second_or_has_no_total_shows_nothing(terminal, clock):
    with progress.LateBar("learning") as bar:
        bar(1, 2)
        clock[0] += 60
        bar(1, None)
    assert terminal.getvalue() == ""


def test_a_log_gets_no_bar(clock, capsys):
    with progress.LateBar("learning") as bar:
        clock[0] += 60
        bar(1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("strategy", ["cumulative", "ar1*", "prima"])
def test_a_long_lesson_has_a_bar(strategy, terminal, clock, monkeypatch):
    """Of every kind: trained until the loss is flat, by epochs, and computed from features."""
    frames = np.random.default_rng(0).integers(0, 255, (20, 32, 32, 3), np.uint8)
    learner = Learner(strategy, weights="random", width=0.25, size=32)

    def tick() -> float:
        clock[0] += 5
        return clock[0]

    monkeypatch.setattr(progress.time, "monotonic", tick)
    learner.learn(frames, "mug")
    assert "s left" in terminal.getvalue()
    terminal.truncate(0)
    seen: list[tuple[int, int | None]] = []
    learner.learn(frames, "cup", progress=lambda *how_far: seen.append(how_far))
    assert "left" not in terminal.getvalue()
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
