"""Events over MQTT: topics with the present state, which the broker keeps, and one for all events.

The client of paho-mqtt works in a thread of its own and connects again by itself. The broker says
`offline` for this program (its last will) if the connection breaks. By the messages of `discovery`,
Home Assistant finds the sensors of a camera, without configuration there.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from primavista import __version__
from primavista.errors import InputError, require_extra
from primavista.events.event import CameraEvent, Event, event_record
from primavista.learner.coach import NOTHING
from primavista.media.addresses import read_address

PREFIX = "homeassistant"
ONLINE, OFFLINE = "online", "offline"
ON, OFF = "ON", "OFF"


def topic_id(text: str) -> str:
    """Return an id for a name, of letters, digits, `_` and `-`, which every topic may contain.

    If characters of the name must be replaced, a part of its SHA-256 keeps the ids of different
    names different.

    >>> topic_id("door"), topic_id("Café 1")
    ('door', 'caf_1-f70102')
    """
    plain = re.sub(r"[^a-z0-9-]+", "_", text.lower()).strip("_")[:40]
    if text and plain == text:
        return plain
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:6]}".lstrip("-")


class Topics:
    """The topics of one camera.

    Args:
        base: The first part of all of them, such as "primavista".
        name: The name of the camera.

    Attributes:
        status: The topic of the program: `online`, or `offline`, which the broker says if it dies.
        camera: The topic of the camera: `online` while it gives frames, otherwise `offline`.
        object: The topic of the recognised object: JSON, with the label `nothing` if none is seen.
        event: The topic of all events; these messages are not retained.
        node: The id of the camera in the discovery of Home Assistant.
    """

    def __init__(self, base: str, name: str) -> None:
        self.name = name
        self.node = f"primavista_{topic_id(name)}"
        self.root = f"{base}/{topic_id(name)}"
        self.status = f"{self.root}/status"
        self.camera = f"{self.root}/camera"
        self.object = f"{self.root}/object"
        self.event = f"{self.root}/event"

    def seen(self, label: str) -> str:
        """Return the topic that says `ON` while an object is seen."""
        return f"{self.root}/seen/{topic_id(label)}"


def discovery(
    topics: Topics, labels: Sequence[str], prefix: str = PREFIX
) -> dict[str, dict[str, Any]]:
    """Return the discovery messages of one camera.

    Args:
        topics: The topics of the camera.
        labels: The taught objects.
        prefix: The discovery prefix of Home Assistant.

    Returns:
        The payload of each topic, to be published retained. An empty payload removes an entity.
    """
    payloads = {"payload_available": ONLINE, "payload_not_available": OFFLINE}
    running = {"topic": topics.status, **payloads}
    filming = {"topic": topics.camera, **payloads}
    while_filming = {"availability": [running, filming], "availability_mode": "all"}
    common = {
        "device": {
            "identifiers": [topics.node],
            "name": topics.name,
            "manufacturer": "primavista",
            "model": "object recognition",
            "sw_version": __version__,
        },
        "origin": {"name": "primavista", "sw_version": __version__},
        "qos": 1,
    }
    messages: dict[str, dict[str, Any]] = {}

    def add(kind: str, key: str, name: str, state: str, **own: Any) -> None:
        entity = {"name": name, "unique_id": f"{topics.node}_{key}", "state_topic": state}
        messages[f"{prefix}/{kind}/{topics.node}/{key}/config"] = {**entity, **own, **common}

    add(
        "sensor",
        "object",
        "object",
        topics.object,
        value_template="{{ value_json.label }}",
        json_attributes_topic=topics.object,
        icon="mdi:eye",
        **while_filming,
    )
    connectivity = {"device_class": "connectivity", "entity_category": "diagnostic"}
    states = {"payload_on": ONLINE, "payload_off": OFFLINE, "availability": [running]}
    add("binary_sensor", "camera", "camera", topics.camera, **states, **connectivity)
    seen = {"payload_on": ON, "payload_off": OFF, "device_class": "occupancy", **while_filming}
    for label in labels:
        add("binary_sensor", f"seen_{topic_id(label)}", label, topics.seen(label), **seen)
    return messages


EXAMPLE = "mqtt://USER:PASSWORD@HOST"
PORTS = {"mqtt": 1883, "mqtts": 8883}
KEEPALIVE = 30  # seconds
QUEUED = 1000  # events that wait while there is no connection
CLOSING = 3.0  # seconds for the last messages


class MqttSink:
    """Publishes the state of one camera, its events, and the discovery of Home Assistant.

    Args:
        text: The broker, `mqtt://HOST`, `mqtts://HOST` (TLS), or `env:NAME`.
        camera: The name of the camera.
        labels: The taught objects.
        tell: Called with a message when something fails, and when it works again.
        base: The beginning of all topics.
        prefix: The discovery prefix of Home Assistant; None announces nothing there.

    Raises:
        InputError: If it is not such an address, or if `base` is not the beginning of a topic.
        MissingExtraError: If paho-mqtt is not installed.
    """

    def __init__(
        self,
        text: str,
        camera: str,
        labels: Sequence[str],
        tell: Callable[[str], None],
        *,
        base: str = "primavista",
        prefix: str | None = PREFIX,
    ) -> None:
        for topic in (base, prefix or PREFIX):
            if not topic or set("+#\0") & set(topic) or topic.strip("/") != topic:
                raise InputError(f"{topic!r} is not the beginning of an MQTT topic: home/cameras")
        mqtt = require_extra("paho.mqtt.client", "mqtt")
        address = read_address(text, tuple(PORTS), EXAMPLE)
        self.topics = Topics(base, camera)
        self._name, self._tell, self._prefix = address.name, tell, prefix
        self._problem = ""
        self._lock = Lock()
        self._labels: list[str] = []
        self._seen: set[str] = set()
        # what the broker retains, by topic; all of it is published again after a new connection
        self._state = {self.topics.status: ONLINE, self.topics.camera: OFFLINE}
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=f"primavista-{secrets.token_hex(6)}"
        )
        self.set_labels(labels)
        if address.user is not None:
            self._client.username_pw_set(address.user, address.password)
        if address.parts.scheme == "mqtts":
            self._client.tls_set()
        self._client.will_set(self.topics.status, OFFLINE, qos=1, retain=True)
        self._client.max_queued_messages_set(QUEUED)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.on_disconnect = self._on_disconnect
        port = address.parts.port or PORTS[address.parts.scheme]
        self._client.connect_async(str(address.parts.hostname), port, KEEPALIVE)
        self._client.loop_start()

    def send(self, event: Event) -> None:
        """Publish an event and the state that follows from it.

        Without a connection the event waits; the state is published when there is one again.
        """
        record = event_record(event)
        with self._lock:
            self._client.publish(self.topics.event, json.dumps(record), qos=1)
            if isinstance(event, CameraEvent):
                self._publish({self.topics.camera: event.state})
                return
            self._seen = event.labels
            shown = json.dumps(record | {"label": event.label or NOTHING})
            self._publish({self.topics.object: shown, **self._seen_states()})

    def set_labels(self, labels: Sequence[str]) -> None:
        """Announce the objects anew, because the model was taught meanwhile."""
        with self._lock:
            gone = [label for label in self._labels if label not in labels]
            self._labels = [label for label in labels if label != NOTHING]
            changes = {self.topics.seen(label): "" for label in gone}
            if self._prefix is not None:
                changes |= dict.fromkeys(discovery(self.topics, gone, self._prefix), "")
                found = discovery(self.topics, self._labels, self._prefix)
                changes |= {topic: json.dumps(message) for topic, message in found.items()}
            self._publish(changes | self._seen_states())

    def close(self) -> None:
        """Say `offline`, wait a few seconds for the last messages, and disconnect."""
        with self._lock:
            if self._client.is_connected():
                last = self._client.publish(self.topics.status, OFFLINE, qos=1, retain=True)
                last.wait_for_publish(CLOSING)
        self._client.disconnect()
        self._client.loop_stop()

    def _seen_states(self) -> dict[str, str]:
        return {self.topics.seen(one): ON if one in self._seen else OFF for one in self._labels}

    def _publish(self, messages: dict[str, str]) -> None:
        """Change the retained state; without a connection it is published at the next one."""
        changes = {t: text for t, text in messages.items() if self._state.get(t) != text}
        self._state |= changes
        if self._client.is_connected():
            for topic, text in changes.items():
                self._client.publish(topic, text, qos=1, retain=True)

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._report(f"it refuses the connection ({reason}): see the user and the password")
            return
        with self._lock:
            for topic, text in self._state.items():
                client.publish(topic, text, qos=1, retain=True)
        if self._problem:
            self._problem = ""
            self._tell(f"{self._name} is connected again")

    def _on_connect_fail(self, client: Any, data: Any) -> None:
        self._report("it cannot be reached")

    def _on_disconnect(
        self, client: Any, data: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        if reason.is_failure and not self._problem:
            self._report(f"the connection was lost ({reason})")

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._tell(f"{self._name}: {problem}. Recognition goes on; trying again until it works")
