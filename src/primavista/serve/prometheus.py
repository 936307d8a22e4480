"""Counters and histograms in the text format of Prometheus.

They are so few that this module is smaller than a client library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from threading import Lock

PREFIX = "primavista_"
BUCKET_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
COUNTERS = {
    "refused_total": "requests, frames and sockets refused by a limit or a check",
    "frames_recognised_total": "frames recognised",
    "frames_dropped_total": "frames of a stream dropped because a newer one came",
    "frames_learned_total": "frames learned",
}


class Histogram:
    """A histogram of durations, with the cumulative buckets that Prometheus expects.

    The buckets reach from 5 milliseconds to one minute.
    """

    def __init__(self) -> None:
        self.buckets = [0] * len(BUCKET_SECONDS)
        self.total = 0
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration.

        Args:
            seconds: The duration in seconds; one longer than the last bucket counts in the total.
        """
        self.total += 1
        self.sum += seconds
        bucket = bisect_left(BUCKET_SECONDS, seconds)
        if bucket < len(BUCKET_SECONDS):
            self.buckets[bucket] += 1

    def lines(self, name: str) -> list[str]:
        """Return the lines of the text format.

        >>> h = Histogram(); h.add(0.01); h.add(99); h.lines("t")[1:3]
        ['t_bucket{le="0.01"} 1', 't_bucket{le="0.025"} 1']

        Args:
            name: The full name of the metric.

        Returns:
            One line per bucket, then the sum and the count.
        """
        cumulative = zip(BUCKET_SECONDS, accumulate(self.buckets), strict=True)
        return [
            *(f'{name}_bucket{{le="{edge}"}} {count}' for edge, count in cumulative),
            f'{name}_bucket{{le="+Inf"}} {self.total}',
            f"{name}_sum {self.sum:.6f}",
            f"{name}_count {self.total}",
        ]


class ServiceMetrics:
    """Counters and histograms since the service started; several threads may use them at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._jobs: Counter[tuple[str, str]] = Counter()
        self._predict = Histogram()
        self._lesson = Histogram()

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter.

        Args:
            name: The name of the counter without `_total`, for example "refused".
            by: The number to add.
        """
        with self._lock:
            self._counts[f"{name}_total"] += by

    def count_prediction(self, frames: int, seconds: float) -> None:
        """Count one forward pass through the network.

        Args:
            frames: The number of frames in the pass.
            seconds: The time that the pass took.
        """
        with self._lock:
            self._counts["frames_recognised_total"] += frames
            self._predict.add(seconds)

    def count_job(self, kind: str, state: str, seconds: float, frames: int) -> None:
        """Count a lesson or a change that ended.

        Args:
            kind: The kind of the job: lesson, rename, forget, undo or load.
            state: The outcome: done, failed, or already_taught for a lesson that was left out.
            seconds: The time that it took.
            frames: The number of its frames.
        """
        with self._lock:
            self._jobs[kind, state] += 1
            if kind == "lesson" and state == "done":
                self._lesson.add(seconds)
                self._counts["frames_learned_total"] += frames

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Return all metrics in the text format.

        Args:
            gauges: The current values to add: a description and a value for each name.

        Returns:
            The text, ending with a newline.
        """
        with self._lock:
            lines = [*self._counter_lines(), *self._histogram_lines()]
        for name, (description, value) in gauges.items():
            lines += [*_header(name, description, "gauge"), f"{PREFIX}{name} {value:g}"]
        return "\n".join(lines) + "\n"

    def _counter_lines(self) -> list[str]:
        lines: list[str] = []
        for name, description in COUNTERS.items():
            lines += _header(name, description, "counter")
            lines.append(f"{PREFIX}{name} {self._counts[name]}")
        lines += _header("jobs_total", "lessons and changes that ended", "counter")
        for (kind, state), number in sorted(self._jobs.items()):
            lines.append(f'{PREFIX}jobs_total{{kind="{kind}",state="{state}"}} {number}')
        return lines

    def _histogram_lines(self) -> list[str]:
        passes = "one pass of waiting frames through the network"
        return [
            *_header("predict_seconds", passes, "histogram"),
            *self._predict.lines(PREFIX + "predict_seconds"),
            *_header("lesson_seconds", "one lesson, learned and on disk", "histogram"),
            *self._lesson.lines(PREFIX + "lesson_seconds"),
        ]


def _header(name: str, description: str, kind: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {description}", f"# TYPE {PREFIX}{name} {kind}"]
