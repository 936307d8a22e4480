"""The commands of the page "From a camera to events in Home Assistant", as they stand there."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import primavista as pv
from primavista.cli.app import app
from primavista.streams.rendered.renderer import Scene, render

from ..events.event_servers import Listener, Mosquitto, until
from ..streams.camera_servers import MjpegCamera

pytest.importorskip("av")
pytest.importorskip("paho.mqtt")
PAGE = Path(__file__).resolve().parents[2] / "docs/guides/cameras.md"
SCENE = Scene(categories=3, objects=1, sessions=1, frames=40, size=128)
OBJECTS = {"parcel": 1, "cat": 2}


def commands() -> list[list[str]]:
    """The commands of the page; what they are piped into is left out."""
    lines = [line.partition(" |")[0] for line in PAGE.read_text().splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("primavista ")]


@pytest.mark.slow
def test_the_page_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    films = {name: render(SCENE, number, 1).numpy() for name, number in OBJECTS.items()}
    films["nothing"] = np.full((1, 128, 128, 3), 90, np.uint8)
    films["nothing"][:, 64:, :, 0] = 150
    shown = ["nothing"]
    pv.Learner(size=64, engine="torch").save("hall.pv")  # smaller than the default, which is slow
    with (
        MjpegCamera(
            lambda i: films[shown[0]][i % len(films[shown[0]])], fps=10, login="ann:secret"
        ) as camera,
        Mosquitto(tmp_path, "hall", "secret") as broker,
        Listener(broker.port, ("hall", "secret")) as home,
    ):
        monkeypatch.setenv("DOOR", camera.url)
        monkeypatch.setenv("BROKER", broker.url.replace("//", "//hall:secret@"))
        found = commands()
        assert [command[0] for command in found] == ["learn"] * 3 + ["watch"] * 3
        for command in found:
            shown[0] = command[4] if command[0] == "learn" else "parcel"
            seconds = "1.5" if command[0] == "learn" else "2"  # the last one counts
            result = CliRunner().invoke(app, [*command, "--seconds", seconds])
            assert result.exit_code == 0, (command, result.output, result.exception)
            assert "secret" not in result.output
            if command[0] == "watch":
                lines = result.stdout.splitlines()
                if "--json" in command:
                    events = [json.loads(line) for line in lines]
                    assert events[0]["event"] == "camera"
                    assert "parcel" in [event.get("label") for event in events]
                    continue
                said = [line.split()[1] for line in lines]
                assert said[0] == "camera"
                assert "parcel" in said
        until(lambda: home.latest.get("primavista/door/status") == "offline")
        assert json.loads(home.latest["primavista/door/object"])["label"] == "parcel"
        names = {json.loads(home.latest[t])["name"] for t in home.latest if t.endswith("/config")}
        assert names == {"object"}
