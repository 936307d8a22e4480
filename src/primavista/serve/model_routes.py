"""HTTP routes that need no frames: the model's state, rename, forget, undo, save, export, load.

The docstrings of the handlers are descriptions in the OpenAPI document; their arguments are
described in the annotations.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, File, Request, Response, UploadFile
from fastapi.responses import StreamingResponse

from primavista.errors import InputError, MissingExtraError, PrimavistaError
from primavista.learner.export import SUFFIXES, Format
from primavista.learner.export import export as write_export
from primavista.learner.learner import Learner
from primavista.serve.journal import ChangeJob, JournalEntry, ReportProgress
from primavista.serve.learner_service import LearnerService, check_rehearsal_free
from primavista.serve.limits import RefusedError, check_label, refused_as
from primavista.serve.routing import Service, refusals
from primavista.serve.schemas import Forgetting, Model, Removing, Renaming, Thresholding
from primavista.storage.learner_file import declared_manifest
from primavista.storage.manifest import parse_manifest

router = APIRouter(prefix="/api", tags=["model"])
BINARY = "application/octet-stream"
SENT_BYTES = 2**18  # of a file, at once
FILE_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("/model", responses=refusals())
async def model(service: Service) -> Model:
    """Return the current state of the learner.

    It lists the taught objects with the number of their frames, and says if the last change can be
    undone and how many jobs wait.
    """
    return Model.of(service)


@router.post("/rename", responses=refusals(400, 408, 409, 413, 422))
async def rename(service: Service, body: Renaming) -> Model:
    """Give a taught object another name; what was learned about it stays.

    The request is refused with 409 if there is no such object or if the new name is taken. The
    answer is the new state of the learner.
    """
    old, new = body.label, check_label(body.to)
    entry = JournalEntry(old, renamed=new)
    job = ChangeJob("rename", lambda learner, _: learner.rename(old, new), new, change=entry)
    return await _changed(service, job)


@router.post("/forget", responses=refusals(400, 408, 409, 413, 422))
async def forget(service: Service, body: Forgetting) -> Model:
    """Remove a taught object; undo brings it back until the next change.

    The request is refused with 409 if there is no such object. The answer is the new state of the
    learner.
    """
    label, entry = body.label, JournalEntry(body.label)
    job = ChangeJob("forget", lambda learner, _: learner.forget(label), label, change=entry)
    return await _changed(service, job)


@router.post("/remove", responses=refusals(400, 408, 409, 413, 422))
async def remove(service: Service, body: Removing) -> Model:
    """Take one of the last lessons out, as if it had never been taught; undo brings it back.

    The answer of `GET /api/model` lists the lessons for which this is possible. The learner before
    them learns the others again from their features, which are in memory only. The request is
    refused with 409 if the lesson is older or was taught before the service was started.
    """
    id = body.lesson

    def replay(learner: Learner, report_progress: ReportProgress) -> Learner:
        journal = service.snapshot.journal.without(id)
        return journal.replayed(learner.threshold, report_progress)

    return await _changed(service, ChangeJob("remove", replay, removes=id))


@router.post("/threshold", responses=refusals(400, 408, 413, 422))
async def threshold(service: Service, body: Thresholding) -> Model:
    """Set the familiarity from which on a frame counts as known.

    It is kept in the file of the learner, so that `known` means the same for all clients, in
    Python, and in the terminal. It cannot be undone, only set again.
    """

    def set_threshold(learner: Learner, _: ReportProgress) -> None:
        learner.threshold = body.threshold

    return await _changed(service, ChangeJob("threshold", set_threshold))


@router.post("/undo", responses=refusals(408, 409, 413))
async def undo(service: Service, request: Request) -> Model:
    """Take back the last lesson, renaming, forgetting, removal of a lesson or loading.

    A lesson or change that still waits or runs is cancelled, however long it would take. There is
    one level of undo. It survives a restart, except for the loading of a model and the removal of
    a lesson.
    """
    await request.body()  # a request that breaks off or turns out malformed changes nothing
    newest = service.newest_change
    if newest is not None and await service.end(newest):
        return Model.of(service)

    def take_back(learner: Learner, _: ReportProgress) -> Learner | None:
        replaced = service.snapshot.replaced
        if replaced is None:
            learner.undo()
        return replaced

    return await _changed(service, ChangeJob("undo", take_back))


@router.get("/model/file", response_class=Response, responses={**refusals(), **FILE_RESPONSE})
async def save(service: Service) -> Response:
    """Download the model as a file that `Learner.load` reads.

    It contains what undo needs as well, so the last change can be taken back after a load in
    Python.
    """
    return _attachment(await service.in_thread(service.learner.to_bytes), service.path.name)


@router.get("/export", response_class=Response, responses={**refusals(409, 422), **FILE_RESPONSE})
async def export(service: Service, format: Format = "onnx") -> Response:
    """Download the learner for machines without torch.

    The format is an ONNX model for any runtime, or the learner's file with its network inside. The
    request is refused with 409 if nothing was taught yet.
    """
    try:
        with refused_as(409):
            data = await service.in_thread(_exported, service.learner, format)
    except MissingExtraError as error:
        reason = "this machine cannot export: run pip install 'primavista[train,onnx]' on it"
        raise RefusedError(422, reason) from error
    return _attachment(data, f"{service.path.stem}{SUFFIXES[format]}")


@router.post("/model/file", responses=refusals(400, 408, 409, 413, 422))
async def load(
    service: Service,
    file: Annotated[UploadFile, File(description="a file that was saved before")],
) -> Model:
    """Continue with a saved model instead of the current one.

    The current model is kept next to its file as NAME.before-load, or -2, -3 and so on.
    """
    loaded = await service.in_thread(_loaded, file.file, service)
    if isinstance(loaded, RefusedError):
        raise loaded

    def replace(learner: Learner, report_progress: ReportProgress) -> Learner:
        report_progress(0.0)  # nothing is saved if it was cancelled
        learner.save(_unused_path(service.path, service.limits.replaced_models))
        # Undo takes back the load, and nothing that was done to the loaded model elsewhere.
        return loaded.without_undo()

    return await _changed(service, ChangeJob("load", replace))


def _unused_path(path: Path, limit: int) -> Path:
    """Return a path for the model before a load; no earlier one is overwritten."""
    first = f"{path.name}.before-load"
    for number in range(1, limit + 1):
        candidate = path.with_name(first if number == 1 else f"{first}-{number}")
        if not candidate.exists():
            return candidate
    raise InputError(
        f"there are {limit} models from before earlier loads next to {path.name}: "
        f"move {first} and the others away first"
    )


def _attachment(data: bytes, name: str) -> Response:
    """Return a download that is sent piece by piece: a slow client gets no copy of it all."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"
    headers = {"content-disposition": disposition, "content-length": str(len(data))}
    return StreamingResponse(_chunks(data), media_type=BINARY, headers=headers)


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), SENT_BYTES):
        yield data[start : start + SENT_BYTES]


def _exported(learner: Learner, format: Format) -> bytes:
    with tempfile.TemporaryDirectory(prefix="primavista-") as folder:
        return write_export(learner, Path(folder) / "model", format).read_bytes()


def _loaded(file: BinaryIO, service: LearnerService) -> Learner | RefusedError:
    """Load an uploaded model, or return the reason why it is refused.

    The error is returned because a raised one keeps the whole file alive through its traceback.
    """
    try:
        data, name = file.read(), "the uploaded file"
        size = parse_manifest(declared_manifest(data, name), name).backbone.size
        limit = service.limits.image_side
        if size > limit:
            return RefusedError(413, f"its images have a side of {size}, and the limit is {limit}")
        loaded = Learner.from_bytes(data, name, device=service.learner.strategy.device)
        check_rehearsal_free(loaded)
        for label in loaded.labels:
            check_label(label)
    except PrimavistaError as error:
        return RefusedError(422, str(error))
    return loaded


async def _changed(service: LearnerService, job: ChangeJob) -> Model:
    """Make a small change, and return the new state."""
    await service.change(job)
    return Model.of(service)
