"""The commands of the page "A robot that is taught by showing", with a real service and camera."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import primavista as pv
from primavista.streams.rendered.renderer import Scene, render

from ..conftest import free_port
from ..streams.camera_servers import MjpegCamera

pytest.importorskip("av")
pytest.importorskip("fastapi")
PAGE = Path(__file__).resolve().parents[2] / "docs/guides/robot.md"
SCENE = Scene(categories=1, objects=1, sessions=1, frames=40, size=96)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_the_service_of_the_page_word_for_word(tmp_path: Path) -> None:
    lines = PAGE.read_text().splitlines()
    (start,) = [line for line in lines if line.startswith("primavista teach")]
    (function,) = [line for line in lines if line.startswith("api()")]
    asked = [line for line in lines if line.startswith(("api ", "for i in"))]
    assert len(asked) == 4
    pv.Learner(size=64, engine="torch").save(tmp_path / "robot.pv")
    film = render(SCENE, 1, 1).numpy()
    port = str(free_port())  # 8765 may be taken
    with MjpegCamera(lambda i: film[i % len(film)], fps=10) as camera:
        variables = {**os.environ, "EYE": camera.url, "PRIMAVISTA_TOKEN": "t" * 24}
        command = [sys.executable, "-m", "primavista", *start.replace("8765", port).split()[1:]]
        service = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE)
        assert service.stdout is not None
        with service.stdout:
            try:
                while b"Ctrl-C" not in service.stdout.readline():
                    assert service.poll() is None
                commands = [f"{function}; {line.replace('8765', port)}" for line in asked]
                answers = [ask(line, tmp_path, variables) for line in commands]
            finally:
                service.terminate()
                service.wait()
    status, _, lesson, answer = answers
    assert json.loads(status) == {"name": "env:EYE", "online": True, "reason": ""}
    assert (tmp_path / "now.jpg").read_bytes().startswith(b"\xff\xd8")
    assert (json.loads(lesson)["state"], json.loads(lesson)["label"]) == ("done", "mug")
    assert json.loads(answer)["label"] == "mug"
    assert pv.Learner.load(tmp_path / "robot.pv").labels == ["mug"]


def ask(line: str, folder: Path, variables: dict[str, str]) -> str:
    """Run a command of the page; the camera may need a moment after the start."""
    for _ in range(100):
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=variables, capture_output=True, timeout=90
        )
        text = done.stdout.decode()
        if done.returncode == 0 and not re.search(r'"online": ?false', text):
            return text
        subprocess.run(["sleep", "0.2"], check=True)
    raise AssertionError(text)
