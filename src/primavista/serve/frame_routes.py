"""HTTP routes that take frames, of a client or of the service's own camera.

The docstrings of the handlers are descriptions in the OpenAPI document; their arguments are
described in the annotations.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, Path, Query, Response, UploadFile

from primavista.learner.coach import NOTHING
from primavista.learner.prediction import Prediction
from primavista.learner.watch import fuse
from primavista.media.images import ImageArray
from primavista.serve.decoding import (
    WHOLE_SIDES,
    decode_frame,
    decode_frames,
    decode_video,
    find_objects,
)
from primavista.serve.learner_service import LearnerService, Snapshot
from primavista.serve.limits import RefusedError, check_label
from primavista.serve.routing import Service, refusals
from primavista.serve.schemas import (
    CameraStatus,
    Checked,
    FoundObjects,
    JobStatus,
    Recognised,
    RecognisedFrames,
)
from primavista.serve.service_camera import ServiceCamera

router = APIRouter(prefix="/api")
LabelForm = Annotated[
    str, Form(min_length=1, max_length=200, description="the object's name", examples=["mug"])
]
FrameFiles = Annotated[
    list[UploadFile],
    File(
        default_factory=list,
        json_schema_extra={"default": []},  # a factory alone would not show in the document
        description="images: JPEG, PNG, WebP or BMP of any size; the centre square is used",
    ),
]
VideoFile = Annotated[
    UploadFile | None, File(description="or one video: MP4, WebM, MKV, MOV or AVI")
]
WaitQuery = Annotated[
    float,
    Query(ge=0, le=60, description="answer when it is done, or after this many seconds"),
]
AgainQuery = Annotated[bool, Query(description="learn it even if the same was taught before")]
JobId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
CHUNK = 16


@router.post(
    "/lessons",
    status_code=202,
    tags=["teach"],
    responses={
        200: {"model": JobStatus, "description": "it is learned and on disk (only with `wait`)"},
        **refusals(400, 408, 409, 413, 422),
    },
)
async def teach(
    service: Service,
    response: Response,
    label: LabelForm,
    frames: FrameFiles,
    video: VideoFile = None,
    wait: WaitQuery = 0,
    again: AgainQuery = False,
) -> JobStatus:
    """Teach one lesson: frames or a video of one object, and its name.

    Lessons are learned in the order in which they come. The same frames a second time are left
    out, because they would count twice; `already_taught` is true then.

    The answer is 202 as long as the lesson waits or is being learned: ask for it by its `id`. With
    `wait`, the answer is 200 if it is done by then, and 409 with the reason if it failed.
    """
    name = check_label(label, service.learner.labels)
    images = await _decode(service, frames, video)
    job = service.teach(service.lesson_of(images), name, again)
    if wait and await job.wait(wait):
        if job.error is not None:
            raise RefusedError(409, job.error)
        response.status_code = 200
    return JobStatus.of(job)


@router.get("/lessons/{id}", tags=["teach"], responses=refusals(404, 422))
async def progress(service: Service, id: JobId, wait: WaitQuery = 0) -> JobStatus:
    """Return the status of a lesson or of another change, by its id.

    With `wait` the answer comes as soon as the job has ended. Only the latest jobs are remembered;
    older ones are answered with 404.
    """
    job = service.job(id)
    if wait:
        await job.wait(wait)
    return JobStatus.of(job)


@router.delete("/lessons/{id}", tags=["teach"], responses=refusals(404, 409, 422))
async def cancel(service: Service, id: JobId) -> JobStatus:
    """Cancel a lesson or another change that waits or runs; nothing is changed by it then.

    The request is refused with 409 if it has ended already or is being saved: undo takes back the
    last one of those. The answer is the status, which is "failed".
    """
    job = service.job(id)
    if not await service.end(job):
        raise RefusedError(409, "it is too late to cancel this: undo takes back the last change")
    return JobStatus.of(job)


@router.post("/predict", tags=["recognise"], responses=refusals(400, 408, 413, 422))
async def predict(
    service: Service,
    frame: Annotated[
        UploadFile | None, File(description="one image; its centre square is used")
    ] = None,
    video: VideoFile = None,
) -> Recognised:
    """Recognise the object in one frame or in one video, which is not kept.

    The answer has the probability of every taught object, and the version of the model that it
    comes from. A video has one answer for all its frames, evenly thinned to the largest number of
    frames of a lesson.
    """
    if (frame is None) == (video is None):
        reason = "send either a frame or a video, as a form (multipart/form-data)"
        raise RefusedError(422, f"{reason}: curl -F frame=@FILE")
    if frame is not None:
        image = await decode_frame(service, frame.file)
        # it waits in the queue that all clients share
        return Recognised.of(*await asyncio.wrap_future(service.predict(image)))
    snapshot = service.snapshot
    images = await _decode(service, [], video)
    predictions = await _predictions(service, snapshot, images)
    return Recognised.of(fuse(predictions, snapshot.learner.answer_rule), snapshot.version)


@router.post("/predict/batch", tags=["recognise"], responses=refusals(400, 408, 413, 422))
async def predict_batch(service: Service, frames: FrameFiles) -> RecognisedFrames:
    """Recognise several images, each by itself, by the same version of the model; none is kept.

    There may be as many as one lesson has frames at most: `max_frames` of `GET /api/model`.
    """
    if not frames:
        raise RefusedError(422, "there are no frames: send at least one, curl -F frames=@FILE")
    snapshot = service.snapshot
    images = await decode_frames(service, frames)
    predictions = await _predictions(service, snapshot, images)
    answers = [Recognised.of(prediction, snapshot.version) for prediction in predictions]
    return RecognisedFrames(frames=answers, version=snapshot.version)


@router.post("/locate", tags=["recognise"], responses=refusals(400, 408, 409, 413, 422))
async def locate(
    service: Service,
    frame: Annotated[UploadFile, File(description="one image; all of it is searched")],
) -> FoundObjects:
    """Find taught objects anywhere in one picture, which is not kept.

    Boxes are shares of the width and the height of the upright picture. The request is refused
    with 409 if the strategy or the network of the learner cannot locate.
    """
    picture = await decode_frame(service, frame.file, whole_sides=WHOLE_SIDES)
    return await find_objects(service, picture)


@router.post("/check", tags=["recognise"], responses=refusals(400, 408, 409, 413, 422))
async def check(
    service: Service,
    label: LabelForm,
    frames: FrameFiles,
    video: VideoFile = None,
) -> Checked:
    """Check the accuracy on frames of a taught object that were not used for teaching.

    Nothing is learned from them. The request is refused with 409 if the object was not taught.
    """
    snapshot = service.snapshot
    name = check_label(label, snapshot.learner.labels)
    if name not in snapshot.learner.labels:
        raise RefusedError(409, f"{name!r} was not taught, so it cannot be checked")
    images = await _decode(service, frames, video)
    predictions = await _predictions(service, snapshot, images)
    counts = Counter(_outcome(prediction, name) for prediction in predictions)
    right = counts.pop(name, 0)
    return Checked(
        label=name,
        frames=len(images),
        right=right,
        accuracy=right / len(images),
        taken_for=dict(counts),
        version=snapshot.version,
    )


def _camera(service: Service) -> ServiceCamera:
    if service.camera is None:
        raise RefusedError(404, "this service has no camera: start it with teach --camera")
    return service.camera


OwnCamera = Annotated[ServiceCamera, Depends(_camera)]


@router.get("/camera", name="status", tags=["recognise"], responses=refusals(404))
async def camera_status(camera: OwnCamera) -> CameraStatus:
    """Say whether the service's own camera gives frames, and if not, why.

    A camera that is lost is connected again with longer and longer waits. It is answered with 404
    if the service was started without one.
    """
    return CameraStatus(name=camera.name, online=camera.online, reason=camera.reason)


@router.get(
    "/camera/frame",
    name="frame",
    tags=["recognise"],
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}}, **refusals(404, 409)},
)
async def camera_frame(service: Service, camera: OwnCamera) -> Response:
    """Return the newest frame of the service's own camera as JPEG; it is not kept.

    It is answered with 409 while the camera is lost.
    """
    return Response(await service.in_thread(camera.jpeg), media_type="image/jpeg")


async def _predictions(
    service: LearnerService, snapshot: Snapshot, images: list[ImageArray]
) -> list[Prediction]:
    """Recognise frames in chunks, so that frames of other clients are recognised in between."""
    found: list[Prediction] = []
    for start in range(0, len(images), CHUNK):
        chunk = images[start : start + CHUNK]
        found += await service.in_thread(snapshot.learner.predict, chunk)
    return found


def _outcome(prediction: Prediction, expected: str) -> str:
    """Return the label that a checked frame was taken for, or "unknown"."""
    if prediction.label == expected == NOTHING:
        return NOTHING
    return prediction.recognised_object or "unknown"


async def _decode(
    service: LearnerService, frames: list[UploadFile], video: UploadFile | None
) -> list[ImageArray]:
    """Decode the frames or the video of a request."""
    if bool(frames) == (video is not None):
        raise RefusedError(422, "send either frames or a video")
    if video is not None:
        return await decode_video(service, video.file)
    return await decode_frames(service, frames)
