"""Draw pictures of a terminal for the documentation: docs/images/terminal.svg and run.svg.

    python tools/terminal_pictures.py --out docs/images

The commands run in a real terminal (tmux); rich draws the screen of the terminal.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 96, 60
PROMPT = "$ "
RENDER = "primavista data render objects --format mp4 --categories 5 --objects 1 --sessions 4"
TEACH = (
    "primavista learn kitchen.pv --label bulb bulb.mp4",
    "primavista learn kitchen.pv --label can can.mp4",
    "primavista predict kitchen.pv can-elsewhere.mp4 --fps 1",
    "primavista inspect kitchen.pv",
)
COMPARE = ("primavista run 'cwr*' dslda prima --objects 1 --size 64",)
VIDEOS = {
    "bulb.mp4": "light bulb 1/s1.mp4",
    "can.mp4": "can 1/s1.mp4",
    "can-elsewhere.mp4": "can 1/s2.mp4",
}


def run_in_terminal(title: str, commands: tuple[str, ...], folder: Path) -> str:
    """Run commands one after the other in a new terminal.

    Args:
        title: a word for this terminal.
        commands: shell commands.
        folder: the working folder.

    Returns:
        The screen after the last command, with its escape sequences.
    """
    name = f"pictures-{folder.name}"
    (folder / "done").mkdir(exist_ok=True)
    size = ("-x", str(COLUMNS), "-y", str(LINES))
    shell = f"env PS1='{PROMPT}' bash --norc"
    subprocess.run(
        ["tmux", "new-session", "-d", "-s", name, *size, "-c", folder, shell], check=True
    )
    try:
        time.sleep(1)  # wait until the shell has started
        for number, command in enumerate(commands):
            done = folder / "done" / f"{title}-{number}"
            keys = f"{command}; touch {done.relative_to(folder)}"
            subprocess.run(["tmux", "send-keys", "-t", name, keys, "Enter"], check=True)
            while not done.exists():
                time.sleep(0.1)
        time.sleep(0.5)
        screen = ["tmux", "capture-pane", "-e", "-p", "-t", name]
        return subprocess.run(screen, check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run(["tmux", "kill-session", "-t", name], check=True)


def draw_svg(screen: str, title: str, path: Path) -> None:
    """Draw a screen as SVG, without the fonts that rich would download.

    Args:
        screen: lines with escape sequences.
        title: the title of the window.
        path: the file to write.
    """
    shown = re.sub(
        r"; touch done/[\w-]+", "", screen.rstrip().removesuffix(PROMPT.strip()).rstrip()
    )
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown))
    svg = console.export_svg(title=title, unique_id=path.stem)
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.S)
    path.write_text(svg.replace("Fira Code, monospace", "ui-monospace, monospace"))


def main() -> None:
    """Render objects, teach two of them, and draw the screen of the terminal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(RENDER.split(), cwd=folder, check=True)
        for video, source in VIDEOS.items():
            shutil.copy(folder / "objects" / source, folder / video)
        for title, commands in (("terminal", TEACH), ("run", COMPARE)):
            screen = run_in_terminal(title, commands, folder)
            draw_svg(screen, "primavista", out / f"{title}.svg")


if __name__ == "__main__":
    main()
