"""Teach and ask a running `primavista teach` over HTTP: all that a robot or a script needs.

    python examples/http_client.py teach mug mug1.jpg mug2.jpg mug3.jpg
    python examples/http_client.py ask what-is-this.jpg

Environment variables: PRIMAVISTA_TOKEN, the token of the service (the service reads the same
variable, and otherwise prints a token of its own after `#token=`; with --no-token it needs none);
PRIMAVISTA_URL, if the address is not http://127.0.0.1:8765; SSL_CERT_FILE=cert.pem, if the service
has a certificate that you made yourself.
"""

import os
import sys
from pathlib import Path
from typing import Any

import httpx

URL = os.environ.get("PRIMAVISTA_URL", "http://127.0.0.1:8765")
TOKEN = os.environ.get("PRIMAVISTA_TOKEN")


def post(path: str, **request: Any) -> Any:
    """Send a request and return the answer; a refusal ends the program with its reason."""
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    try:
        response = httpx.post(URL + path, headers=headers, timeout=90, **request)
        answer = response.json()
        if not response.is_success:
            sys.exit(f"{response.status_code}: {answer['detail']}")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        sys.exit(f"{URL} does not answer like primavista teach ({error}): is it running there?")
    return answer


def teach(label: str, images: list[str]) -> str:
    """Teach one lesson; when this returns, it is on the disk of the service."""
    files = [("frames", (Path(image).name, Path(image).read_bytes())) for image in images]
    lesson = post("/api/lessons?wait=60", data={"label": label}, files=files)
    if lesson["error"]:
        sys.exit(f"{label}: {lesson['error']}")
    outcome = "taught before, left out" if lesson["already_taught"] else lesson["state"]
    return f"{label}: {outcome} after {lesson['frames']} frames"


def ask(image: str) -> str:
    """Ask what one image shows."""
    answer = post("/api/predict", files={"frame": Path(image).read_bytes()})
    return f"{answer['label']} ({answer['confidence']:.0%})" if answer["known"] else "unknown"


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
