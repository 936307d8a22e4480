"""Teach and ask a running `primavista teach` over HTTP: all that a robot or a script needs.

    python examples/http_client.py teach mug mug1.jpg mug2.jpg mug3.jpg
    python examples/http_client.py ask what-is-this.jpg

Set PRIMAVISTA_URL for another address than http://localhost:8765, PRIMAVISTA_TOKEN where a token is asked for, and
SSL_CERT_FILE=cert.pem where the service has a certificate that you made yourself.
"""

import os
import sys
from pathlib import Path
from typing import Any

import httpx

URL, TOKEN = (
    os.environ.get("PRIMAVISTA_URL", "http://localhost:8765"),
    os.environ.get("PRIMAVISTA_TOKEN"),
)


def said(path: str, **request: Any) -> Any:
    """What the service answers; a refusal ends the program with the service's reason."""
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    try:
        answer = httpx.post(URL + path, headers=headers, timeout=90, **request)
        return (
            answer.json()
            if answer.is_success
            else sys.exit(f"{answer.status_code}: {answer.json()['detail']}")
        )
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        sys.exit(f"{URL} does not answer as primavista teach does ({error}): does it run there?")


def teach(label: str, images: list[str]) -> str:
    """One lesson: images of one object, and its name. It is on the service's disk when this returns."""
    files = [("frames", (Path(image).name, Path(image).read_bytes())) for image in images]
    lesson = said("/api/lessons?wait=60", data={"label": label}, files=files)
    if lesson["error"]:
        sys.exit(f"{label}: {lesson['error']}")
    return f"{label}: {'taught before, left out' if lesson['known'] else lesson['state']} after {lesson['frames']} frames"


def ask(image: str) -> str:
    """What one image shows."""
    seen = said("/api/predict", files={"frame": Path(image).read_bytes()})
    return f"{seen['label']} ({seen['confidence']:.0%})" if seen["known"] else "unknown"


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["teach", label, *images] if images:
                print(teach(label, images))
            case ["ask", image]:
                print(ask(image))
            case _:
                sys.exit(__doc__)
    except OSError as error:
        sys.exit(str(error))
