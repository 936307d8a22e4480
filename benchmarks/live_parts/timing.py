"""Measure the time from releasing the button to seeing the object recognised, and its parts."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from live_parts.browser import film, hold, page
from live_parts.process import DEFAULT, New, drawn, service

# Runs in the page: marks when the verdict first says the name, beside the marks of the page.
WATCH = """(name) => {
  performance.clearMarks();
  const said = document.getElementById("verdict-name");
  const seen = () => performance.getEntriesByName("learned").length && said.textContent === name;
  const what = { subtree: true, childList: true, characterData: true, attributes: true };
  new MutationObserver((_, self) => {
    if (seen()) { performance.mark("recognised"); self.disconnect(); }
  }).observe(document.getElementById("verdict"), what);
}"""
MARKS = """() => JSON.stringify(["released", "learned", "recognised"].map((name) => {
  const mark = performance.getEntriesByName(name)[0];
  return [name, mark?.startTime, mark?.detail];
}))"""


def timing(folder: Path, objects: int = 3, seconds: float = 5.0, new: New = DEFAULT) -> float:
    """Print one line per object; return the longest time in seconds."""
    from playwright.sync_api import sync_playwright

    totals: list[float] = []
    print("frames   let go -> learned (working, saving, the rest)   -> recognised   = in all")
    with sync_playwright() as playwright, service(folder / "timing.pv", new=new) as running:
        for number in range(objects):
            shown = film(folder / f"{number}.mjpeg", drawn(7 + 8 * number, frames=40, size=240))
            name = f"object {number}"
            with page(playwright, running.url, shown) as opened:
                opened.evaluate(WATCH, name)
                hold(opened, name, seconds)
                for _ in range(600):
                    marks = {
                        mark: (at, detail)
                        for mark, at, detail in json.loads(opened.evaluate(MARKS))
                    }
                    if marks["recognised"][0]:
                        break
                    opened.wait_for_timeout(100)
                released, learned, recognised = (
                    marks[mark][0] / 1000 for mark in ("released", "learned", "recognised")
                )
                job = marks["learned"][1]
                working, saving = job["parts"]["working"], job["parts"]["saving"]
                totals.append(recognised - released)
                waiting = learned - released
                print(
                    f"{job['frames']:6d}   {waiting:.2f} s ({working:.2f}, {saving:.2f}, "
                    f"{waiting - working - saving:.2f})   {recognised - learned:.2f} s   "
                    f"{totals[-1]:.2f} s",
                    flush=True,
                )
    print(f"median {statistics.median(totals):.2f} s, longest {max(totals):.2f} s")
    return max(totals)
