"""`primavista watch`: events of a real camera server, as lines and to a real broker."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import primavista as pv
from primavista.cli.app import app
from primavista.cli.watch import event_text
from primavista.events.event import ObjectEvent

from ..events.event_servers import Listener, Mosquitto, free_port, until
from ..streams import media
from ..streams.camera_servers import MjpegCamera

pytest.importorskip("av")
if sys.platform == "win32":
    pytest.skip("a process cannot stop itself by a signal there", allow_module_level=True)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def events(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, (result.output, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


def stop() -> None:
    """Stop the command as systemd does."""
    os.kill(os.getpid(), signal.SIGTERM)


def plain(value: int) -> np.ndarray[Any, Any]:
    picture = np.full((48, 64, 3), value, np.uint8)
    picture[::4, ::4] = 128  # not quite plain
    return picture


@pytest.fixture
def model(tmp_path: Path) -> Path:
    learner = pv.Learner("ncm", weights="random", size=32, width=0.25, threshold=0.0)
    for label, value in (("coal", 10), ("snow", 245)):
        learner.learn(np.stack([plain(value)] * 4), label)
    learner.save(tmp_path / "hut.pv")
    return tmp_path / "hut.pv"


def test_a_video_file_gives_one_event_per_object(model: Path, tmp_path: Path) -> None:
    draw = lambda i: plain(10 if i < 20 else 245)  # noqa: E731
    video = media.make_video(tmp_path / "v.mp4", 40, rate=10, frame=draw)
    first, second = events(call("watch", model, video, "--fps", 10, "--json"))
    assert (first["label"], first["camera"], first["seconds"]) == ("coal", "hut", 0.5)
    assert (second["label"], second["before"], second["seconds"]) == ("snow", "coal", 2.5)
    text = call("watch", model, video).stdout
    assert [line.split()[1] for line in text.splitlines()] == ["coal", "snow"]


def test_the_line_of_a_likely_object_has_a_question_mark() -> None:
    known = ObjectEvent("hut", "coal", None, 0.96, 0.95, 1.0)
    assert event_text(known) == "coal 96 %"
    assert event_text(replace(known, label=None, likely="coal")) == "coal? 96 %"
    assert event_text(replace(known, label=None)) == "nothing known"


NAMES = ("coal", "snow")


def halves(left: int, right: int) -> np.ndarray[Any, Any]:
    """A picture with something else on either side."""
    return np.hstack([plain(left)[:, :32], plain(right)[:, :32]])


def located(model: Path, video: Path) -> dict[str, dict[str, float]]:
    """What `predict --locate` finds in the last frame of a video: the best box of each name."""
    rows = call("predict", model, video, "--locate", "--fps", 10, "--json").stdout.splitlines()
    found = json.loads(rows[-1])["objects"]
    return {one["label"]: one["box"] for one in reversed(found)}


def test_objects_are_located_in_a_video(model: Path, tmp_path: Path) -> None:
    video = media.make_video(tmp_path / "v.mp4", 20, rate=10, frame=lambda i: halves(10, 245))
    (event,) = events(call("watch", model, video, "--fps", 10, "--locate", "--json"))
    expected = located(model, video)
    assert expected
    assert {one["label"] for one in event["objects"]} == set(expected)
    assert event["label"] in expected
    for one in event["objects"]:
        box = expected[one["label"]]
        shares = (box["left"] / 64, box["top"] / 48, box["right"] / 64, box["bottom"] / 48)
        assert tuple(one["box"].values()) == pytest.approx(shares, abs=0.05)
    (text,) = call("watch", model, video, "--locate").stdout.splitlines()
    assert set(expected) <= set(text.split())


def shown_at(home: Listener, camera: str = "door") -> set[str]:
    """The objects that a camera shows now, by what the broker retains."""
    record = json.loads(home.latest.get(f"primavista/{camera}/object", '{"objects": []}'))
    return {one["label"] for one in record.get("objects", [record])}


def test_objects_in_a_camera_are_seen_over_mqtt(model: Path, tmp_path: Path) -> None:
    with (
        MjpegCamera(lambda i: halves(10, 245), fps=20) as camera,
        Mosquitto(tmp_path) as broker,
        Listener(broker.port) as home,
    ):

        def director() -> None:
            until(lambda: "primavista/door/object" in home.latest)
            until(lambda: shown_at(home) & set(NAMES))
            stop()

        thread = threading.Thread(target=director)
        thread.start()
        options = ["--fps", 10, "--hold", 0.2, "--name", "door", "--seconds", 60, "--json"]
        told = events(call("watch", model, camera.url, "--locate", *options, "--mqtt", broker.url))
        thread.join(1)
        assert not thread.is_alive()
        until(lambda: home.latest["primavista/door/status"] == "offline")
    seen = {one["label"] for one in told[1]["objects"]}
    assert seen
    assert shown_at(home) == seen
    assert json.loads(home.latest["primavista/door/object"])["objects"] == told[1]["objects"]


@pytest.mark.slow
def test_boxes_are_published_also_if_the_broker_was_down(model: Path, tmp_path: Path) -> None:
    pictures = [halves(10, 245), plain(245)]
    shown = [0]
    heard: list[Listener] = []
    broker = Mosquitto(tmp_path)
    with MjpegCamera(lambda i: pictures[shown[0]], fps=20) as camera, ExitStack() as stack:

        def director() -> None:
            """Start the broker when it was missed; then show something else."""
            until(lambda: camera.sent > 20)
            stack.enter_context(broker)
            heard.append(stack.enter_context(Listener(broker.port)))
            until(lambda: "coal" in shown_at(heard[0]))
            shown[0] = 1
            until(lambda: "coal" not in shown_at(heard[0]))
            stop()

        thread = threading.Thread(target=director)
        thread.start()
        options = ["--fps", 10, "--hold", 0.2, "--name", "door", "--seconds", 60, "--json"]
        result = call("watch", model, camera.url, "--locate", *options, "--mqtt", broker.url)
        thread.join(1)
        assert not thread.is_alive()
    told = events(result)
    assert "cannot be reached" in result.stderr
    assert "connected again" in result.stderr
    assert [one["event"] for one in told] == ["camera", "object", "object"]
    assert json.loads(heard[0].latest["primavista/door/object"]) == told[2]
    first, second = ({one["label"]: one for one in event["objects"]} for event in told[1:])
    assert "coal" in first  # a tiny network of random weights may miss the snow beside it
    assert _middle(first["coal"]["box"]) < 0.5
    assert set(second) == {"snow"}
    for one in (*first.values(), *second.values()):
        box = one["box"]
        assert 0 <= box["left"] < box["right"] <= 1
        assert 0 <= box["top"] < box["bottom"] <= 1
    assert told[2]["before"] == told[1]["label"] is not None


def _middle(box: dict[str, float]) -> float:
    return (box["left"] + box["right"]) / 2


def test_a_strategy_that_cannot_locate_says_so(tmp_path: Path) -> None:
    learner = pv.Learner("naive", weights="random", size=32, width=0.25, epochs=1)
    learner.learn(np.stack([plain(10)] * 4), "coal")
    learner.save(tmp_path / "naive.pv")
    video = media.make_video(tmp_path / "v.mp4", 4, rate=10, frame=lambda i: plain(10))
    result = call("watch", tmp_path / "naive.pv", video, "--locate")
    assert result.exit_code != 0
    assert "frozen network" in str(result.exception)


@pytest.mark.slow
def test_a_camera_that_changes_dies_and_comes_back(model: Path, tmp_path: Path) -> None:
    shown = [10]
    with (
        MjpegCamera(lambda i: plain(shown[0]), fps=20) as camera,
        Mosquitto(tmp_path) as broker,
        Listener(broker.port) as home,
    ):

        def director() -> None:
            """Show another object, pull the plug, put it in again; each when the last was told."""
            until(lambda: shown_at(home) == {"coal"})
            shown[0] = 245
            until(lambda: shown_at(home) == {"snow"})
            camera.stop()
            until(lambda: home.latest.get("primavista/door/camera") == "offline")
            camera.start()
            until(lambda: home.latest.get("primavista/door/camera") == "online")
            stop()

        thread = threading.Thread(target=director)
        thread.start()
        options = ["--fps", 20, "--hold", 0.2, "--name", "door", "--seconds", 90, "--json"]
        result = call("watch", model, camera.url, *options, "--mqtt", broker.url)
        thread.join(1)
        assert not thread.is_alive()
        until(lambda: home.latest["primavista/door/status"] == "offline")
    told = events(result)
    assert [one.get("label", one.get("state")) for one in told] == [
        "online",
        "coal",
        "snow",
        "offline",
        "online",
    ]
    assert home.events == told
    assert "trying again" in result.stderr
    assert "is back" in result.stderr


def test_recognition_goes_on_without_a_broker(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("paho.mqtt")
    draw = lambda i: plain(10 if i < 20 else 245)  # noqa: E731
    video = media.make_video(tmp_path / "v.mp4", 40, rate=10, frame=draw)
    broker = f"mqtt://127.0.0.1:{free_port()}"
    result = call("watch", model, video, "--fps", 10, "--json", "--mqtt", broker)
    assert [one["label"] for one in events(result)] == ["coal", "snow"]
    assert "it cannot be reached. Recognition goes on" in result.stderr


@pytest.mark.slow
def test_a_model_that_is_taught_meanwhile(model: Path, tmp_path: Path) -> None:
    learner = pv.Learner.load(model)
    learner.learn(np.stack([plain(120)] * 4), "fog")
    with (
        MjpegCamera(lambda i: plain(120), fps=20) as camera,
        Mosquitto(tmp_path) as broker,
        Listener(broker.port) as home,
    ):

        def teach() -> None:
            until(lambda: "primavista/hut/object" in home.latest)
            learner.save(model)
            until(lambda: shown_at(home, "hut") == {"fog"})
            stop()

        thread = threading.Thread(target=teach)
        thread.start()
        options = ["--json", "--fps", 20, "--seconds", 60, "--mqtt", broker.url]
        result = call("watch", model, camera.url, *options)
        thread.join()
    labels = [one["label"] for one in events(result) if one["event"] == "object"]
    assert labels[0] in ("coal", "snow")
    assert labels[-1] == "fog"
    assert "knows coal, snow, fog" in result.stderr


def test_what_cannot_be_watched(model: Path, tmp_path: Path) -> None:
    media.make_pictures(tmp_path / "pictures", [1])
    for source in (tmp_path / "pictures", tmp_path / "pictures/0.png", tmp_path / "none.mp4"):
        result = call("watch", model, source)
        assert "neither a camera nor a video" in str(result.exception)
    result = call("watch", model, "camera:0", "--region", "0,0,2,1")
    assert "shares from 0 to 1" in str(result.exception)
    result = call("watch", model, "camera:0", "--mqtt", "localhost")
    assert "mqtt://USER:PASSWORD@HOST" in str(result.exception)


SECRET = "http://ann:secret@127.0.0.1:1/video"


def test_a_password_on_the_command_line_is_warned_of(model: Path) -> None:
    result = call("learn", model, SECRET, "--label", "x")
    assert result.exit_code == 1
    assert "env:NAME" in result.stderr
    assert "secret" not in result.output + str(result.exception)


@pytest.mark.parametrize(
    ("command", "options", "advice"),
    [
        ("predict", [], "primavista watch"),
        ("predict", ["mug.mp4", "--locate"], "primavista watch"),
        ("learn", [], "--label"),
    ],
)
def test_no_refusal_shows_the_password_of_a_camera(
    model: Path, command: str, options: list[str], advice: str
) -> None:
    result = call(command, model, SECRET, *options)
    assert result.exit_code != 0
    assert advice in str(result.exception)
    assert "127.0.0.1:1/video" in str(result.exception)
    assert "secret" not in result.output + str(result.exception)
