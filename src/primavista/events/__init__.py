"""Events of recognition, and where they are sent: webhooks, MQTT, Home Assistant."""
