"""Events of recognition: when one comes, and how it is published for Home Assistant over MQTT."""
