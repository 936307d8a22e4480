"""Counters and histograms in the text format of Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from threading import Lock

PREFIX = "primavista_"
# the edges of the buckets of histograms, in seconds
BUCKETS = [*map(str, (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0))]
BUCKETS.append("+Inf")
COUNTERS = {
    "refused_total": "requests, frames and sockets refused by a limit or a check",
    "frames_recognised_total": "frames recognised",
    "frames_dropped_total": "frames of a stream dropped because a newer one came",
    "frames_learned_total": "frames learned",
}
JOBS = {"jobs_total": "lessons and changes that ended"}
HISTOGRAMS = {
    "predict_seconds": "one pass of waiting frames through the network",
    "lesson_seconds": "one lesson, learned and on disk",
}
GAUGES = {
    "objects": "objects taught",
    "version": "lessons and changes since the start",
    "queued": "lessons and changes that wait or run",
}


class ServiceMetrics:
    """Counters and histograms since the service started; several threads may use them at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._samples = defaultdict[str, float](int, dict.fromkeys(COUNTERS, 0))
        for name in HISTOGRAMS:
            buckets = [f'{name}_bucket{{le="{edge}"}}' for edge in BUCKETS]
            self._samples |= dict.fromkeys([*buckets, f"{name}_sum", f"{name}_count"], 0)

    def count(self, name: str, by: float = 1, labels: str = "") -> None:
        """Add to a counter, by its name without `_total`, for example "refused"."""
        with self._lock:
            self._samples[f"{name}_total{labels}"] += by

    def time(self, name: str, seconds: float) -> None:
        """Add a duration to a histogram, whose buckets are cumulative."""
        with self._lock:
            for edge in BUCKETS:
                self._samples[f'{name}_bucket{{le="{edge}"}}'] += seconds <= float(edge)
            self._samples[f"{name}_sum"] += seconds
            self._samples[f"{name}_count"] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all metrics, and the present values of the gauges, in the text format."""
        with self._lock:
            samples = {**self._samples, **gauges}
        lines = []
        for kind, metrics in (
            ("counter", COUNTERS | JOBS),
            ("histogram", HISTOGRAMS),
            ("gauge", GAUGES),
        ):
            for name, description in metrics.items():
                lines += [f"# HELP {PREFIX}{name} {description}", f"# TYPE {PREFIX}{name} {kind}"]
                own = [sample for sample in samples if sample.startswith(name)]
                lines += [f"{PREFIX}{sample} {samples[sample]}" for sample in own]
        return "\n".join(lines) + "\n"
