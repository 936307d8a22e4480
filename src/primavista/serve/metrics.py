"""Counts and times in the text format of Prometheus: few enough that a client library would be the larger part."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from threading import Lock

PREFIX = "primavista_"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """How often a time fell into each range, cumulative as Prometheus wants it."""

    def __init__(self) -> None:
        self.buckets, self.total, self.sum = [0] * len(SECONDS), 0, 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.total, self.sum = self.total + 1, self.sum + seconds
        if (place := bisect_left(SECONDS, seconds)) < len(SECONDS):
            self.buckets[place] += 1

    def lines(self, name: str) -> list[str]:
        """>>> h = Histogram(); h.add(0.01); h.add(99); h.lines("t")[1:3]
        ['t_bucket{le="0.01"} 1', 't_bucket{le="0.025"} 1']
        """
        below = [sum(self.buckets[: k + 1]) for k in range(len(SECONDS))]
        return [
            *(
                f'{name}_bucket{{le="{edge}"}} {count}'
                for edge, count in zip(SECONDS, below, strict=True)
            ),
            f'{name}_bucket{{le="+Inf"}} {self.total}',
            f"{name}_sum {self.sum:.6f}",
            f"{name}_count {self.total}",
        ]


class Metrics:
    """What the service did since it started."""

    COUNTERS = {  # noqa: RUF012
        "refused_total": "requests, frames and sockets refused by a limit or a check",
        "frames_recognised_total": "frames recognised",
        "frames_dropped_total": "frames of a stream dropped because a newer one came",
        "frames_learned_total": "frames learned",
    }

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._predict, self._lesson = Histogram(), Histogram()

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[f"{name}_total"] += by

    def predicted(self, frames: int, seconds: float) -> None:
        """One pass through the network."""
        with self._lock:
            self._counts["frames_recognised_total"] += frames
            self._predict.add(seconds)

    def job(self, kind: str, state: str, seconds: float, frames: int) -> None:
        """A lesson or a change that ended."""
        with self._lock:
            self._jobs[kind, state] += 1
            if kind == "lesson" and state == "done":
                self._lesson.add(seconds)
                self._counts["frames_learned_total"] += frames

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """All of it; `gauges` are what holds at this moment, with what each means."""
        with self._lock:
            lines: list[str] = []
            for name, meaning in self.COUNTERS.items():
                lines += [*_head(name, meaning, "counter"), f"{PREFIX}{name} {self._counts[name]}"]
            lines += _head("jobs_total", "lessons and changes that ended", "counter")
            lines += [
                f'{PREFIX}jobs_total{{kind="{k}",state="{s}"}} {n}'
                for (k, s), n in sorted(self._jobs.items())
            ]
            for name, meaning, histogram in (
                (
                    "predict_seconds",
                    "one pass of waiting frames through the network",
                    self._predict,
                ),
                ("lesson_seconds", "one lesson, learned and on disk", self._lesson),
            ):
                lines += [*_head(name, meaning, "histogram"), *histogram.lines(PREFIX + name)]
        for name, (meaning, value) in gauges.items():
            lines += [*_head(name, meaning, "gauge"), f"{PREFIX}{name} {value:g}"]
        return "\n".join(lines) + "\n"


def _head(name: str, meaning: str, kind: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {meaning}", f"# TYPE {PREFIX}{name} {kind}"]
