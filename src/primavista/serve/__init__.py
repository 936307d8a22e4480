"""The live service: teach and recognise over HTTP and WebSocket, and the page that does it with a camera."""
