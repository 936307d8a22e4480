"""What the command line does where its output cannot be written, or where it is stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import primavista as pv


def primavista(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "primavista", *map(str, arguments)]
    environment = {**os.environ, **options.pop("env", {})}
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(
        command, text=True, encoding="utf-8", errors="replace", env=environment, timeout=120, **said
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kitchen.pv, and 1.png, 2.png, which it has been taught."""
    place = tmp_path_factory.mktemp("place")
    learner = pv.Learner("ncm", weights="random", width=0.25, size=32, device="cpu")
    for name, grey in (("mug 🫖", 40), ("cup", 200)):
        image = np.full((32, 32, 3), grey, np.uint8)
        Image.fromarray(image).save(place / f"{grey}.png")
        learner.learn(image[None], name)
    learner.save(place / "kitchen.pv")
    return place


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_the_terminal_cannot_show(place: Path, tmp_path: Path, encoding: str) -> None:
    env, new = {"PYTHONIOENCODING": encoding}, tmp_path / "new.pv"
    ran = primavista("predict", place / "kitchen.pv", place / "40.png", env=env)
    assert ran.returncode == 0, ran.stderr
    assert "mug ?" in ran.stdout
    assert " ####" in ran.stdout
    ran = primavista(
        "learn",
        new,
        place / "40.png",
        "--label",
        "🫖",
        "--size",
        32,
        "--weights",
        "random",
        env=env,
    )
    assert ran.returncode == 0, ran.stderr
    assert "new.pv knows 1 object (frames): " in ran.stdout
    assert pv.Learner.load(new).labels == ["🫖"]
    ran = primavista("learn", place / "other.pv", place / "🫖.png", "--label", "cup", env=env)
    assert (ran.returncode, "Traceback" in ran.stderr) == (1, False)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [("predict", "40.png"), ("inspect",), ("inspect", "--json")])
def test_a_full_disk_behind_the_output(place: Path, arguments: tuple[str, ...]) -> None:
    command, *rest = arguments
    with open("/dev/full", "w") as full:
        ran = primavista(command, "kitchen.pv", *rest, cwd=place, stdout=full)
    assert ran.returncode == 1
    assert ran.stderr.strip() == "error: cannot write to stdout: No space left on device"


def test_a_reader_that_has_seen_enough(place: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        ran = primavista("inspect", "kitchen.pv", "--json", cwd=place, stdout=pipe)
    assert (ran.returncode, ran.stderr) == (1, "")


@pytest.mark.parametrize("module", ["typer", "primavista.cli.predict", "torch"])
def test_ctrl_c_while_it_starts(place: Path, module: str) -> None:
    code = f"""
import sys, runpy
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
sys.argv = ["primavista", "predict", "kitchen.pv", "40.png"]
runpy.run_module("primavista", run_name="__main__")
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=120
    )
    assert (ran.returncode, ran.stderr, ran.stdout) == (130, "", "")


def test_a_message_cannot_talk_to_the_terminal(place: Path) -> None:
    ran = primavista("inspect", "gone\x1b[2J.pv", cwd=place)
    assert ran.returncode == 1
    assert "gone\ufffd[2J.pv: No such file" in ran.stderr
    assert "\x1b" not in ran.stderr


def test_a_killed_command_has_written_the_lines_of_lessons_on_disk(
    place: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "primavista", "learn", "new.pv", "--label", "mug", "--json"]
    command += [str(place / "40.png"), "--size", "32", "--weights", "random"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with socket.create_server(("127.0.0.1", 0)) as camera, open(tmp_path / "log", "w") as log:
        camera.settimeout(60)
        command.append(f"http://127.0.0.1:{camera.getsockname()[1]}/silent")
        process = subprocess.Popen(command, stdout=log, env=environment, cwd=tmp_path)
        try:
            connection, _ = camera.accept()  # the second lesson has begun, and waits for an answer
        finally:
            process.kill()
            process.wait()
        connection.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["status"] == "learned"
    assert pv.Learner.load(tmp_path / "new.pv").labels == ["mug"]
