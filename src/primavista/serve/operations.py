"""Parts that several routes share: the service, refusals, and what is done with whole pictures."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends
from fastapi.requests import HTTPConnection

from primavista.learner.boxed import boxed_squares
from primavista.media.images import ImageArray
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import refused_as
from primavista.serve.schemas import FoundObject, FoundObjects, Problem

# the longest side of a picture, in sides of the model's frames
WHOLE_SIDES = 4  # if objects are searched for in it
BOXED_SIDES = 2  # if a square for a lesson is cut out of it
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


async def find_objects(service: LearnerService, picture: ImageArray) -> FoundObjects:
    """Find the taught objects in one picture; `RefusedError` (409) if the learner cannot locate."""
    snapshot = service.snapshot
    with refused_as(409):
        found = await service.in_thread(snapshot.learner.locate, picture)
    height, width = picture.shape[:2]
    objects = [FoundObject.of(one, width, height) for one in found]
    return FoundObjects(objects=objects, version=snapshot.version)


async def cut_squares(
    service: LearnerService, wholes: list[ImageArray], box: str
) -> list[ImageArray]:
    """Cut the squares around the object out of the whole frames of a lesson, at model size.

    Args:
        service: The service.
        wholes: The frames, uint8, H x W x 3 each.
        box: The place of the object, as `boxed_squares` takes it.

    Raises:
        RefusedError: If the box is wrong, or if nothing moves (422).
    """
    with refused_as(422):
        return await service.in_thread(boxed_squares, wholes, box, service.learner.size)
