"""The messages by which Home Assistant finds the sensors of a camera, without configuration there.

They follow the documentation of its integrations `mqtt`, `sensor.mqtt` and `binary_sensor.mqtt`:
one device per camera, with a sensor for the recognised object, an occupancy sensor per taught
object, and a connectivity sensor for the camera itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from primavista import __version__

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
