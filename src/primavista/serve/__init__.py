"""The live service: teach and recognise objects over HTTP and WebSocket, with a page."""
