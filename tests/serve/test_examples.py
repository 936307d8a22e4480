"""The examples: the HTTP client with a real service, the ROS 2 node with stand-ins for ROS."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from live_parts.process import TINY, drawn, jpeg, service
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from primavista import Learner
from primavista.heads import place_fit
from primavista.storage.disk import BusyError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_the_http_client_teaches_and_asks(tmp_path):
    images = []
    for k, frame in enumerate(drawn(44, frames=4)):
        (tmp_path / f"{k}.jpg").write_bytes(jpeg(frame))
        images.append(str(tmp_path / f"{k}.jpg"))
    token = "sixteen-characters-or-more"
    # a network of random weights finds nothing familiar
    options = ("--token", token, "--threshold", "0")
    with service(tmp_path / "kitchen.pv", *options, new=TINY) as running:

        def client(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, str(EXAMPLES / "http_client.py"), *arguments]
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=60,
                env={**os.environ, **environment},
            )

        mine = {"PRIMAVISTA_URL": running.url, "PRIMAVISTA_TOKEN": token}
        assert client("teach", "cup", *images, **mine).stdout == "cup: done after 4 frames\n"
        assert client("ask", images[0], **mine).stdout == "cup (100%)\n"
        with (
            pytest.raises(InvalidStatus),
            connect(f"ws{running.url.removeprefix('http')}/api/stream"),
        ):
            pass
        assert "ERROR" not in running.said()  # a refusal is not an error of the service
        assert (
            client("teach", "cup", *images, **mine).stdout
            == "cup: taught before, left out after 4 frames\n"
        )
        (tmp_path / "no.jpg").write_text("no image")
        for arguments, environment, reason in (
            (["ask", images[0]], {"PRIMAVISTA_URL": running.url}, "401: this needs the token"),
            (["ask", str(tmp_path / "no.jpg")], mine, "422: the frame is not an image"),
            (["ask", str(tmp_path / "none.jpg")], mine, "No such file"),
            (["ask", images[0]], {"PRIMAVISTA_URL": "http://localhost:1"}, "is it running there?"),
            (["teach", "a\nb", images[0]], mine, "422: a name must be a text"),
        ):
            refused = client(*arguments, **environment)
            assert (refused.returncode, reason in refused.stderr) == (1, True), refused.stderr
            assert "Traceback" not in refused.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
@pytest.mark.slow
def test_the_documented_certificate_is_one_that_clients_can_check(tmp_path):
    docs = (EXAMPLES.parent / "docs" / "guides" / "live.md").read_text().replace("\\\n", " ")
    command = next(
        line.strip() for line in docs.splitlines() if line.strip().startswith("openssl req")
    )
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "a.jpg").write_bytes(jpeg(drawn(44, frames=1)[0]))
    tls = [str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")]
    with service(tmp_path / "kitchen.pv", "--tls", *tls, new=TINY) as running:
        environment = {**os.environ, "PRIMAVISTA_URL": running.url, "SSL_CERT_FILE": tls[0]}
        command = [sys.executable, str(EXAMPLES / "http_client.py"), "ask", str(tmp_path / "a.jpg")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.stdout == "unknown\n", done.stderr
        untrusting = {**environment, "SSL_CERT_FILE": ""}
        assert (
            "CERTIFICATE_VERIFY_FAILED"
            in subprocess.run(command, capture_output=True, text=True, env=untrusting).stderr
        )


class Published(list):
    def publish(self, message) -> None:
        self.append(json.loads(message.data) if hasattr(message, "data") else message)

    def names(self) -> list[list[str]]:
        """The names in the results of each message."""
        return [[result.class_id for result in message.results] for message in self]


class Node:
    """The part of rclpy's Node that the example uses."""

    parameters: ClassVar[dict[str, object]] = {}

    def __init__(self, name: str) -> None:
        self.said: list[str] = []

    def declare_parameter(self, name: str, value: object) -> SimpleNamespace:
        return SimpleNamespace(value=self.parameters.get(name, value))

    def create_publisher(self, kind: type, topic: str, depth: int) -> Published:
        return Published()

    def create_subscription(self, kind: type, topic: str, callback: object, depth: int) -> None:
        pass

    def get_logger(self) -> SimpleNamespace:
        warn = lambda text, throttle_duration_sec: self.said.append(text)  # noqa: E731
        return SimpleNamespace(info=self.said.append, error=self.said.append, warning=warn)

    def destroy_node(self) -> None:
        self.said.append("destroyed")


class Detection2D(SimpleNamespace):
    """The message of vision_msgs: a header, results and a box around a centre."""

    def __init__(self, **fields: object) -> None:
        centre = SimpleNamespace(position=SimpleNamespace(x=0.0, y=0.0), theta=0.0)
        bbox = SimpleNamespace(center=centre, size_x=0.0, size_y=0.0)
        super().__init__(bbox=bbox, **fields)


@pytest.fixture
def ros(monkeypatch):
    for name, contents in {
        "rclpy": {},
        "rclpy.node": {"Node": Node},
        "sensor_msgs": {},
        "sensor_msgs.msg": {"Image": SimpleNamespace},
        "std_msgs": {},
        "std_msgs.msg": {"String": SimpleNamespace},
        "vision_msgs": {},
        "vision_msgs.msg": {
            "Classification": SimpleNamespace,
            "ObjectHypothesis": SimpleNamespace,
            "Detection2D": Detection2D,
            "Detection2DArray": SimpleNamespace,
            "ObjectHypothesisWithPose": lambda: SimpleNamespace(hypothesis=SimpleNamespace()),
        },
    }.items():
        module = ModuleType(name)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("ros2_node", EXAMPLES / "ros2_node.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def message(image: np.ndarray, encoding: str = "rgb8", padding: int = 5) -> SimpleNamespace:
    rows = np.pad(image.reshape(len(image), -1), ((0, 0), (0, padding)))
    height, width = image.shape[:2]
    return SimpleNamespace(
        header="at noon",
        height=height,
        width=width,
        step=3 * width + padding,
        encoding=encoding,
        data=rows.tobytes(),
    )


@pytest.mark.slow
def test_the_ros_node_learns_what_it_is_told_and_publishes_what_it_sees(ros, tmp_path, monkeypatch):
    model = tmp_path / "robot.pv"
    Learner("dslda", weights="random", width=0.0625, size=32, device="cpu").save(model)
    monkeypatch.setattr(Node, "parameters", {"model": str(model), "frames": 5})
    node = ros.Teacher()
    noise = np.random.default_rng(0).integers(-30, 30, (8, 40, 60, 3))
    cup, ball = (
        (np.array(colour) + noise).clip(0, 255).astype(np.uint8)
        for colour in ((200, 60, 60), (60, 60, 200))
    )
    node.on_image(message(cup[0]))
    assert node.answer[-1] == {"label": None, "confidence": 0.0, "answer": "unknown"}
    assert (node.seen.names(), node.seen[-1].header) == ([[]], "at noon")
    for name, video in (("cup", cup), ("ball", ball)):
        node.on_name(SimpleNamespace(data=name))
        for frame in video:
            node.on_image(message(frame))
        node.lessons.join()
    node.on_image(message(cup[7]))
    assert (node.answer[-1]["label"], node.answer[-1]["answer"]) == ("cup", "known")
    assert node.seen.names()[-1] == ["cup"]
    assert node.seen[-1].results[0].score == pytest.approx(node.answer[-1]["confidence"], abs=1e-4)
    node.on_image(message(ball[7][..., ::-1], "bgr8", 0))
    assert node.answer[-1]["label"] == "ball"
    assert Learner.load(model, device="cpu").counts == {"cup": 5, "ball": 5}
    assert node.said == ["show me the cup", "cup is learned", "show me the ball", "ball is learned"]
    with pytest.raises(BusyError):
        ros.Teacher()
    node.destroy_node()
    ros.Teacher().destroy_node()


def test_the_ros_node_solves_a_lesson_beside_the_camera(ros, tmp_path, monkeypatch):
    """The first frame after a lesson is answered without solving the head in the callback."""
    model = tmp_path / "robot.pv"
    Learner("prima", weights="random", width=0.0625, size=32, device="cpu").save(model)
    monkeypatch.setattr(Node, "parameters", {"model": str(model), "frames": 4})
    solve_rows, threads = place_fit.solve_rows, []

    def noted(*equations):
        threads.append(threading.current_thread())
        return solve_rows(*equations)

    monkeypatch.setattr(place_fit, "solve_rows", noted)
    node = ros.Teacher()
    frames = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3)).astype(np.uint8)
    for name, video in (("cup", frames[:4]), ("ball", frames[4:])):
        node.on_name(SimpleNamespace(data=name))
        for frame in video:
            node.on_image(message(frame))
        node.lessons.join()
        node.on_image(message(video[0]))
    node.destroy_node()
    assert set(threads) == {node.learning}


def test_the_ros_node_drops_no_name_and_no_frame_in_silence(ros, tmp_path, monkeypatch):
    """A name that comes while a lesson is learned begins the next lesson.

    A frame that cannot be read is dropped with a warning.
    """
    model = tmp_path / "robot.pv"
    Learner("dslda", weights="random", width=0.0625, size=32, device="cpu").save(model)
    monkeypatch.setattr(Node, "parameters", {"model": str(model), "frames": 2})
    node = ros.Teacher()
    learn, may = node.learn, threading.Event()
    node.learn = lambda *shown: may.wait(30) and learn(*shown)
    image = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    for k, name in enumerate(("cup", "ball", "")):
        node.on_name(SimpleNamespace(data=name))
        node.on_image(message(image, "mono8"))
        for _ in range(2):
            node.on_image(message(image + np.uint8(k)))
    may.set()
    node.destroy_node()
    assert Learner.load(model, device="cpu").counts == {"cup": 2, "ball": 2}
    assert (
        sum(
            "a frame was dropped: images must be rgb8 or bgr8, not mono8" in said
            for said in node.said
        )
        == 3
    )
    assert len(node.seen) == 6


def test_the_ros_node_publishes_where_objects_are(ros, tmp_path, monkeypatch):
    model = tmp_path / "robot.pv"
    learner = Learner("ncm", weights="random", width=0.0625, size=32, device="cpu", threshold=0)
    grain = np.random.default_rng(0).integers(-30, 30, (4, 32, 32, 3))
    for name, level in (("dark", 50), ("light", 200)):
        learner.learn((grain + level).astype(np.uint8), name)
    learner.save(model)
    monkeypatch.setattr(Node, "parameters", {"model": str(model), "locate": True})
    node = ros.Teacher()
    image = np.random.default_rng(1).integers(150, 250, (48, 64, 3)).astype(np.uint8)
    expected = node.learner.locate(image)
    node.on_image(message(image))
    node.destroy_node()
    (told,) = node.found
    assert told.header == "at noon"
    assert len(told.detections) == len(expected) > 0
    for found, right in zip(told.detections, expected, strict=True):
        assert found.header == "at noon"
        assert found.results[0].hypothesis.class_id == right.label
        assert found.results[0].hypothesis.score == right.confidence
        middle = found.bbox.center.position
        assert middle.x - found.bbox.size_x / 2 == pytest.approx(right.box.left)
        assert middle.y + found.bbox.size_y / 2 == pytest.approx(right.box.bottom)


def test_the_ros_node_reads_padded_rows_and_both_orders_of_colours(ros):
    image = np.random.default_rng(0).integers(0, 255, (6, 9, 3)).astype(np.uint8)
    assert (ros.pixels(message(image)) == image).all()
    assert (ros.pixels(message(image[..., ::-1], "bgr8")) == image).all()
    with pytest.raises(ValueError, match="mono8"):
        ros.pixels(message(image, "mono8"))
