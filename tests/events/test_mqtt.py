"""MQTT against a real mosquitto, and the message by which Home Assistant finds the sensor."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from primavista.errors import InputError
from primavista.events.event import CameraEvent, ObjectEvent
from primavista.events.mqtt import MqttSink, Topics, discovery, topic_id

from .event_servers import Listener, Mosquitto, free_port, until

pytest.importorskip("paho.mqtt")

MUG = ObjectEvent("front door", "red mug", None, 0.9, 0.95, 1.0)
NONE = ObjectEvent("front door", None, "red mug", 0.0, 0.1, 2.0)
LIKELY = ObjectEvent("front door", None, None, 0.7, 0.8, 3.0, likely="red mug")
ONLINE = CameraEvent("front door", "online")

# The keys and types of Home Assistant's documentation: home-assistant.io/integrations/mqtt
# and /sensor.mqtt. A key that is not there makes it reject the message.
TOPIC = re.compile(r"[^#+\0]{1,200}")
AVAILABILITY = {"topic": TOPIC, "payload_available": "online", "payload_not_available": "offline"}
DEVICE = {"identifiers": list, "name": str, "manufacturer": str, "model": str, "sw_version": str}
SENSOR = {
    "name": str,
    "unique_id": re.compile(r"[a-z0-9_-]+"),
    "state_topic": TOPIC,
    "availability": [AVAILABILITY],
    "availability_mode": re.compile("all|any|latest"),
    "device": DEVICE,
    "origin": {"name": str, "sw_version": str},
    "qos": int,
    "icon": re.compile(r"mdi:[a-z-]+"),
    "json_attributes_topic": TOPIC,
    "value_template": str,
}
REQUIRED = {"state_topic", "unique_id", "device", "origin", "name"}
CONFIG = re.compile(r"homeassistant/sensor/[a-zA-Z0-9_-]+/[a-zA-Z0-9_-]+/config")


def check(value: Any, schema: Any, where: str) -> None:
    """Check a payload against a schema: a type, a pattern, an exact text, a dict or a list."""
    if isinstance(schema, dict):
        assert set(value) <= set(schema), f"{where}: {set(value) - set(schema)}"
        for key, one in value.items():
            check(one, schema[key], f"{where}.{key}")
    elif isinstance(schema, list):
        assert value
        for one in value:
            check(one, schema[0], where)
    elif isinstance(schema, re.Pattern):
        assert schema.fullmatch(value), f"{where}: {value}"
    elif isinstance(schema, type):
        assert isinstance(value, schema), f"{where}: {value!r}"
        assert value != ""
    else:
        assert value == schema, where


def check_discovery(messages: dict[str, Any]) -> None:
    ((topic, message),) = messages.items()
    assert CONFIG.fullmatch(topic), topic
    check(message, SENSOR, topic)
    assert set(message) >= REQUIRED


def test_the_discovery_is_as_home_assistant_documents_it() -> None:
    messages = discovery(Topics("home/eyes", "front door"))
    check_discovery(messages)
    (message,) = messages.values()
    assert message["value_template"] == "{{ value_json.label }}"  # no name is a template there
    assert message["state_topic"].startswith("home/eyes/front_door-")


def test_ids_of_different_names_differ() -> None:
    names = ["mug", "Mug", "m-ug", "m ug", "m_ug", "杯", "子", "", " "]
    assert len({topic_id(name) for name in names}) == len(names)
    assert all(re.fullmatch("[a-z0-9_-]+", topic_id(name)) for name in names)


def test_a_broker_gets_discovery_state_events_and_the_last_will(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with Mosquitto(tmp_path, "ann", "s@cret") as broker:
        monkeypatch.setenv("BROKER", broker.url.replace("//", "//ann:s%40cret@"))
        with Listener(broker.port, ("ann", "s@cret")) as home:

            def label() -> str | None:
                return json.loads(home.latest.get(topics.object, "{}")).get("label")

            sink = MqttSink("env:BROKER", "front door", told.append)
            topics = sink.topics
            until(lambda: len(home.latest) == 3)
            found = {t: json.loads(p) for t, p in home.latest.items() if t.endswith("/config")}
            check_discovery(found)
            assert home.latest[topics.status] == "online"
            assert home.latest[topics.camera] == "offline"
            for event in (ONLINE, MUG):
                sink.send(event)
            until(lambda: label() == "red mug")
            assert home.latest[topics.camera] == "online"
            sink.send(NONE)
            until(lambda: label() == "nothing")
            events = [json.loads(p) for t, p in home.messages if t == topics.event]
            assert [one["event"] for one in events] == ["camera", "object", "object"]
            assert events[-1]["label"] is None
            # an object that is only likely is not seen, and the event says so
            sink.send(LIKELY)
            until(lambda: json.loads(home.latest[topics.object])["answer"] == "likely")
            shown = json.loads(home.latest[topics.object])
            assert (shown["label"], shown["likely"]) == ("nothing", "red mug")
            # a client that comes later gets all of it from the broker
            with Listener(broker.port, ("ann", "s@cret")) as later:
                until(lambda: len(later.latest) == 4)
                assert later.latest == {t: home.latest[t] for t in later.latest}
            # the program dies: the broker says so
            sink._client.socket().close()
            until(lambda: (topics.status, "offline") in home.messages)
            sink.close()
    assert "cret" not in "".join(told)


def test_a_clean_end_says_offline(tmp_path: Path) -> None:
    with Mosquitto(tmp_path) as broker, Listener(broker.port) as home:
        sink = MqttSink(broker.url, "door", print, prefix=None)
        until(lambda: home.latest.get("primavista/door/status") == "online")
        sink.close()
        until(lambda: home.latest["primavista/door/status"] == "offline")
        assert not any(topic.startswith("homeassistant") for topic in home.latest)


@pytest.mark.slow
def test_a_broker_that_is_down_and_comes_back(tmp_path: Path) -> None:
    told: list[str] = []
    broker = Mosquitto(tmp_path)
    began = time.monotonic()
    sink = MqttSink(broker.url, "door", told.append)
    sink.send(CameraEvent("door", "online"))
    sink.send(ObjectEvent("door", "mug", None, 0.9, 0.9, 1.0))
    assert time.monotonic() - began < 2
    until(lambda: told)
    assert "cannot be reached" in told[0]
    with broker:
        until(lambda: len(told) == 2)
        assert "connected again" in told[1]
        with Listener(broker.port) as home:
            until(
                lambda: json.loads(home.latest.get(sink.topics.object, "{}")).get("label") == "mug"
            )
            assert home.latest[sink.topics.camera] == "online"
            sink.close()


def test_a_wrong_password_is_said(tmp_path: Path) -> None:
    told: list[str] = []
    with Mosquitto(tmp_path, "ann", "secret") as broker:
        url = broker.url.replace("//", "//ann:guess@")
        sink = MqttSink(url, "door", told.append)
        until(lambda: told)
        sink.close()
    assert "user and the password" in told[0]
    assert "guess" not in told[0]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("http://host", {}),
        ("mqtt://", {}),
        ("mqtt://host", {"base": "a/#"}),
        ("mqtt://host", {"base": ""}),
        ("mqtt://host", {"prefix": "/home"}),
    ],
)
def test_wrong_addresses_and_topics(text: str, options: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"mqtt://USER|MQTT topic"):
        MqttSink(text, "door", print, **options)


def test_no_connection_leaves_the_end_quick() -> None:
    sink = MqttSink(f"mqtt://127.0.0.1:{free_port()}", "door", lambda text: None)
    began = time.monotonic()
    sink.close()
    assert time.monotonic() - began < 10
