"""Shared parts of the long stress tests: numbered, seeded steps, in parts, with a tally file."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Step = Callable[[int, random.Random], None]
SHOW_SECONDS = 10.0
SAVE_SECONDS = 1.0


@dataclass
class Tally:
    """The results of a stress test so far.

    `state` is for data that a test must remember between its parts, such as the taught objects.
    """

    seed: int = 0
    done: int = 0
    seconds: float = 0.0
    parts: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)

    def blame(self, what: str) -> None:
        """Count a failure; the first hundred are described."""
        self.outcomes["wrong"] += 1
        if len(self.wrong) < 100:
            self.wrong.append(what)

    def check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.blame(what)


Strain = Callable[[Path, Tally], AbstractContextManager[Step]]


def load_tally(path: Path, seed: int) -> Tally:
    """Return the tally of the earlier parts, which must have had the same seed."""
    if not path.exists():
        return Tally(seed)
    found = json.loads(path.read_text())
    if found["seed"] != seed:
        raise SystemExit(f"{path} was begun with --seed {found['seed']}: choose another --folder")
    return Tally(**{**found, "outcomes": Counter(found["outcomes"])})


def save_tally(path: Path, tally: Tally) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(vars(tally), indent=1))
    os.replace(part, path)


def endure(
    name: str, strain: Strain, folder: Path, count: int, seed: int = 0, minutes: float = 0
) -> Tally:
    """Take steps until there are `count`, or until the minutes of this part are over.

    The same call resumes from there. Each step has its own random numbers, which depend only on the
    seed and the number of the step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    tally = load_tally(path, seed)
    tally.parts += tally.done < count
    before, began = tally.seconds, time.monotonic()
    if tally.done < count:
        with strain(folder, tally) as step:
            first, ready = tally.done, time.monotonic()
            shown = saved = ready
            while tally.done < count:
                step(tally.done, random.Random(f"{seed}/{tally.done}"))
                tally.done += 1
                now = time.monotonic()
                tally.seconds = before + now - began
                if now - saved > SAVE_SECONDS:
                    save_tally(path, tally)
                    saved = now
                if now - shown > SHOW_SECONDS:
                    shown = now
                    left = (now - ready) / (tally.done - first) * (count - tally.done)
                    print(
                        f"{name}: {tally.done:,} of {count:,}, about {left / 60:.1f} min left, "
                        f"{tally.outcomes['wrong']} wrong",
                        file=sys.stderr,
                        flush=True,
                    )
                if minutes and now - began > 60 * minutes:
                    break
        tally.seconds = before + time.monotonic() - began
        save_tally(path, tally)
    return tally


def described(name: str, tally: Tally) -> str:
    """Return the counts of a stress test as text."""
    counts = ", ".join(f"{what}: {number:,}" for what, number in sorted(tally.outcomes.items()))
    lines = [
        f"{name}: {tally.done:,} in {tally.seconds:.0f} s and {tally.parts} parts "
        f"(seed {tally.seed}), {tally.outcomes['wrong']} wrong",
        f"  {counts}",
        *(f"  WRONG: {what}" for what in tally.wrong[:10]),
    ]
    return "\n".join(lines)
