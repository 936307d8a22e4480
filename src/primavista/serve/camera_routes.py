"""HTTP routes of the service's own camera: its picture, and lessons through it.

The docstrings of the handlers are descriptions in the OpenAPI document; their arguments are
described in the annotations.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Response
from fastapi.requests import HTTPConnection

from primavista.media.images import centre_square
from primavista.serve.dependencies import Service, Threads, refusals
from primavista.serve.frame_routes import AgainQuery, LabelForm, WaitQuery, learn_images
from primavista.serve.limits import RefusedError, check_label
from primavista.serve.operations import recognise
from primavista.serve.schemas import CameraStatus, JobStatus, Recognised
from primavista.serve.service_camera import ServiceCamera

router = APIRouter(prefix="/api/camera")


def _camera(connection: HTTPConnection) -> ServiceCamera:
    camera: ServiceCamera | None = connection.app.state.camera
    if camera is None:
        raise RefusedError(404, "this service has no camera: start it with teach --camera")
    return camera


OwnCamera = Annotated[ServiceCamera, Depends(_camera)]


@router.get("", tags=["recognise"], responses=refusals(404))
async def status(camera: OwnCamera) -> CameraStatus:
    """Say whether the service's own camera gives frames, and if not, why.

    A camera that is lost is connected again with longer and longer waits. It is answered with 404
    if the service was started without one.
    """
    return CameraStatus(name=camera.name, online=camera.online, reason=camera.reason)


@router.get(
    "/frame",
    tags=["recognise"],
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}}, **refusals(404, 409)},
)
async def frame(camera: OwnCamera, threads: Threads) -> Response:
    """Return the newest frame of the service's own camera as JPEG; it is not kept.

    It is answered with 409 while the camera is lost.
    """
    data = await threads.run(camera.jpeg)
    return Response(data, media_type="image/jpeg", headers={"cache-control": "no-store"})


@router.post("/predict", tags=["recognise"], responses=refusals(404, 409))
async def predict(service: Service, camera: OwnCamera) -> Recognised:
    """Recognise what the service's own camera shows now.

    The answer has the fields of `/api/predict`. It is answered with 409 while the camera is lost.
    """
    return await recognise(service, centre_square(camera.newest.image, service.learner.size))


@router.post(
    "/lessons",
    status_code=202,
    tags=["teach"],
    responses={
        200: {"model": JobStatus, "description": "it is learned and on disk (only with `wait`)"},
        **refusals(404, 409, 422),
    },
)
async def teach(
    service: Service,
    camera: OwnCamera,
    response: Response,
    label: LabelForm,
    seconds: Annotated[float, Form(ge=0.5, le=60, description="how long the object is shown")] = 5,
    wait: WaitQuery = 0,
    again: AgainQuery = False,
) -> JobStatus:
    """Teach what the service's own camera shows in the next seconds.

    If the camera is lost before they are over, the request is refused with 409 and nothing is
    learned. Otherwise the answers are those of `/api/lessons`.
    """
    name = check_label(label, service.learner.labels)
    images = await camera.collect(seconds, service.limits.lesson_frames)
    return await learn_images(service, images, name, response, wait=wait, again=again)
