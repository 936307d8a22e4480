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
from collections.abc import Callable
from threading import Lock
from typing import Any

from primavista import __version__
from primavista.errors import InputError, require_extra
from primavista.events.event import CameraEvent, Event, event_record
from primavista.learner.coach import NOTHING
from primavista.media.addresses import read_address

PREFIX = "homeassistant"
ONLINE, OFFLINE = "online", "offline"


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


def discovery(topics: Topics, prefix: str = PREFIX) -> dict[str, dict[str, Any]]:
    """Return the discovery message of one camera.

    Args:
        topics: The topics of the camera.
        prefix: The discovery prefix of Home Assistant.

    Returns:
        Its topic and its payload, to be published retained.
    """
    payloads = {"payload_available": ONLINE, "payload_not_available": OFFLINE}
    sensor = {
        "name": "object",
        "unique_id": f"{topics.node}_object",
        "state_topic": topics.object,
        "value_template": "{{ value_json.label }}",
        "json_attributes_topic": topics.object,
        "availability": [{"topic": one, **payloads} for one in (topics.status, topics.camera)],
        "availability_mode": "all",
        "icon": "mdi:eye",
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
    return {f"{prefix}/sensor/{topics.node}/object/config": sensor}


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
        self._name, self._tell = address.name, tell
        self._problem = ""
        self._lock = Lock()
        # what the broker retains, by topic; all of it is published again after a new connection
        self._state = {self.topics.status: ONLINE, self.topics.camera: OFFLINE}
        found = {} if prefix is None else discovery(self.topics, prefix)
        self._state |= {topic: json.dumps(message) for topic, message in found.items()}
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=f"primavista-{secrets.token_hex(6)}"
        )
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
                self._publish(self.topics.camera, event.state)
            else:
                shown = json.dumps(record | {"label": event.label or NOTHING})
                self._publish(self.topics.object, shown)

    def close(self) -> None:
        """Say `offline`, wait a few seconds for the last messages, and disconnect."""
        with self._lock:
            if self._client.is_connected():
                last = self._client.publish(self.topics.status, OFFLINE, qos=1, retain=True)
                last.wait_for_publish(CLOSING)
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, topic: str, text: str) -> None:
        """Change the retained state; without a connection it is published at the next one."""
        self._state[topic] = text
        if self._client.is_connected():
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
