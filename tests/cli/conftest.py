from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from primavista.cli.app import app
from primavista.storage import learner_file
from primavista.streams.rendered.renderer import Scene, render

from ..streams import media

SCENE = Scene(categories=4, objects=1, sessions=4, frames=16, size=64)
THINGS = {"plug": 1, "phone": 2, "scissors": 3}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments: object) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three objects, three encoded videos each, and `strange.mp4`, which shows none of them.

    They are plug/1.mp4 ... scissors/3.mp4.
    """
    pytest.importorskip("av")
    root = tmp_path_factory.mktemp("videos")
    for name, object in THINGS.items():
        (root / "toys" / name).mkdir(parents=True)
        for session in (1, 2, 3):
            frames = render(SCENE, object, session).numpy()
            media.make_video(
                root / "toys" / name / f"{session}.mp4",
                len(frames),
                (64, 64),
                8,
                frame=lambda i, f=frames: f[i],
            )
    noise = np.random.default_rng(0).integers(0, 255, (8, 64, 64, 3), np.uint8)
    media.make_video(root / "strange.mp4", 8, (64, 64), 8, frame=lambda i: noise[i])
    return root


def renamed(path: Path, name: str) -> Path:
    """Give the first object of a file a name that `learn` and `rename` refuse."""
    arrays, manifest = learner_file.read(path)
    manifest["classes"][0]["name"] = name
    learner_file.write(path, arrays, manifest)
    return path


def on_terminal(columns: int, *arguments: object) -> bytes:
    """Return what a command shows on a pseudo-terminal of a width; it must succeed."""
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "primavista", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            break
    assert process.wait(60) == 0, shown
    return shown
