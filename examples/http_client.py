"""Teach and ask a running `primavista teach` over HTTP: all that a robot or a script needs.

    python examples/http_client.py teach mug mug1.jpg mug2.jpg mug3.jpg
    python examples/http_client.py ask what-is-this.jpg

Set PRIMAVISTA_URL for another address than http://localhost:8765, and PRIMAVISTA_TOKEN where one is asked for.
"""

import os
import sys
from pathlib import Path

import httpx

TOKEN = os.environ.get("PRIMAVISTA_TOKEN")


def service() -> httpx.Client:
    """Where it is, and how it is asked."""
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    return httpx.Client(base_url=os.environ.get("PRIMAVISTA_URL", "http://localhost:8765"), headers=headers, timeout=90)


def teach(http: httpx.Client, label: str, images: list[str]) -> str:
    """One lesson: images of one object, and its name. It is on the service's disk when this returns."""
    files = [("frames", (Path(image).name, Path(image).read_bytes())) for image in images]
    answer = http.post("/api/lessons?wait=60", data={"label": label}, files=files)
    lesson = answer.raise_for_status().json()
    return f"{label}: {lesson['state']} after {lesson['frames']} frames" + (f" ({lesson['error']})" if lesson["error"] else "")


def ask(http: httpx.Client, image: str) -> str:
    """What one image shows."""
    seen = http.post("/api/predict", files={"frame": Path(image).read_bytes()}).raise_for_status().json()
    return f"{seen['label']} ({seen['confidence']:.0%})" if seen["known"] else "unknown"


if __name__ == "__main__":
    with service() as http:
        match sys.argv[1:]:
            case ["teach", label, *images] if images:
                print(teach(http, label, images))
            case ["ask", image]:
                print(ask(http, image))
            case _:
                sys.exit(__doc__)
