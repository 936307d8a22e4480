"""Events over MQTT: topics with the present state, which the broker keeps, and one for all events.

The client of paho-mqtt works in a thread of its own and connects again by itself. The broker says
`offline` for this program (its last will) if the connection breaks.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from primavista.errors import InputError, require_extra
from primavista.events.event import CameraEvent, Event, ObjectEvent, event_record
from primavista.events.home_assistant import (
    OFF,
    OFFLINE,
    ON,
    ONLINE,
    PREFIX,
    Topics,
    discovery,
    seen_config,
)
from primavista.learner.coach import NOTHING
from primavista.media.addresses import read_address

EXAMPLE = "mqtt://USER:PASSWORD@HOST"
PORTS = {"mqtt": 1883, "mqtts": 8883}
KEEPALIVE = 30  # seconds
FIRST_WAIT, LONGEST_WAIT = 1, 60  # seconds before another attempt to connect
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
        self._labels = [label for label in labels if label != NOTHING]
        self._object: ObjectEvent | None = None
        self._filming = OFFLINE
        self._problem = ""
        self._lock = Lock()
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            client_id=f"primavista-{secrets.token_hex(6)}",
        )
        if address.user is not None:
            self._client.username_pw_set(address.user, address.password)
        if address.parts.scheme == "mqtts":
            self._client.tls_set()
        self._client.will_set(self.topics.status, OFFLINE, qos=1, retain=True)
        self._client.max_queued_messages_set(QUEUED)
        self._client.reconnect_delay_set(FIRST_WAIT, LONGEST_WAIT)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.on_disconnect = self._on_disconnect
        port = address.parts.port or PORTS[address.parts.scheme]
        self._client.connect_async(str(address.parts.hostname), port, KEEPALIVE)
        self._client.loop_start()

    def send(self, event: Event) -> None:
        """Publish an event and the state that follows from it.

        Without a connection the event waits; the state is published when there is one again.

        Args:
            event: The event.
        """
        with self._lock:
            before = self._object
            if isinstance(event, CameraEvent):
                self._filming = event.state
            else:
                self._object = event
            self._client.publish(self.topics.event, json.dumps(event_record(event)), qos=1)
            if not self._client.is_connected():
                return
            if isinstance(event, CameraEvent):
                self._publish(self.topics.camera, event.state)
                return
            self._publish_object()
            for label in event.labels | (set() if before is None else before.labels):
                self._publish_seen(label)

    def set_labels(self, labels: Sequence[str]) -> None:
        """Announce the objects anew, because the model was taught meanwhile.

        Args:
            labels: The taught objects.
        """
        with self._lock:
            gone = [label for label in self._labels if label not in labels]
            self._labels = [label for label in labels if label != NOTHING]
            for label in gone:
                self._publish(self.topics.seen(label), "")
                if self._prefix is not None:
                    self._publish(seen_config(self.topics, label, self._prefix), "")
            if self._client.is_connected():
                self._publish_all()

    def close(self) -> None:
        """Say `offline`, wait a few seconds for the last messages, and disconnect."""
        with self._lock:
            if self._client.is_connected():
                last = self._client.publish(self.topics.status, OFFLINE, qos=1, retain=True)
                last.wait_for_publish(CLOSING)
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, topic: str, payload: str) -> None:
        self._client.publish(topic, payload, qos=1, retain=True)

    def _publish_all(self) -> None:
        """Publish the discovery and the whole state; all of it is retained by the broker."""
        if self._prefix is not None:
            for topic, message in discovery(self.topics, self._labels, self._prefix).items():
                self._publish(topic, json.dumps(message))
        self._publish(self.topics.status, ONLINE)
        self._publish(self.topics.camera, self._filming)
        if self._object is not None:
            self._publish_object()
        for label in self._labels:
            self._publish_seen(label)

    def _publish_object(self) -> None:
        assert self._object is not None
        state = event_record(self._object) | {"label": self._object.label or NOTHING}
        self._publish(self.topics.object, json.dumps(state))

    def _publish_seen(self, label: str) -> None:
        seen = self._object is not None and label in self._object.labels
        self._publish(self.topics.seen(label), ON if seen else OFF)

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._report(f"it refuses the connection ({reason}): see the user and the password")
            return
        with self._lock:
            self._publish_all()
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
