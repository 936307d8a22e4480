"""What all routes share: the service as a dependency, and the refusals that they document."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends
from fastapi.requests import HTTPConnection

from primavista.serve.learner_service import LearnerService
from primavista.serve.schemas import Problem

REASONS = {
    400: "the body cannot be parsed",
    401: "a token is required",
    403: "the request comes from another page or is addressed to another host",
    404: "there is no such thing",
    408: "the body came too slowly",
    409: "the current state of the learner does not allow it",
    413: "too large: bytes, pixels or frames",
    422: "the contents are invalid",
    429: "too many requests at once: try again in a moment",
}
ALWAYS = (401, 403, 429)  # every route may refuse with these


def _service(connection: HTTPConnection) -> LearnerService:
    service: LearnerService = connection.app.state.service
    return service


Service = Annotated[LearnerService, Depends(_service)]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a FastAPI route that may also refuse with these statuses."""
    return {
        status: {"model": Problem, "description": REASONS[status]}
        for status in sorted({*ALWAYS, *statuses})
    }
