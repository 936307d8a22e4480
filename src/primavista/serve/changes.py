"""What is known, and what is changed about it without frames: rename, forget, undo, save, load."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO
from urllib.parse import quote

import torch
from fastapi import APIRouter, File, Request, Response, UploadFile
from fastapi.responses import StreamingResponse

from primavista.errors import InputError, MissingExtraError, PrimavistaError
from primavista.learner.export import SUFFIXES, Format
from primavista.learner.export import export as write_export
from primavista.learner.learner import Learner
from primavista.serve.common import TheEngine, TheHands, outcome, refusals
from primavista.serve.engine import Engine, Tell, check_keeps_nothing
from primavista.serve.limits import RefusedError, check_label
from primavista.serve.schemas import Forgetting, Model, Renaming

router = APIRouter(prefix="/api", tags=["model"])
BINARY = "application/octet-stream"
SENT = 2**18  # bytes of a file that are under way at once


@router.get("/model", responses=refusals())
async def model(engine: TheEngine) -> Model:
    """What is known now."""
    return Model.of(engine)


@router.post("/rename", responses=refusals(400, 408, 409, 413, 422))
async def rename(engine: TheEngine, body: Renaming) -> Model:
    """Give a known object another name."""
    old, new = body.label, check_label(body.to)
    return await _change(engine, "rename", new, lambda learner: learner.rename(old, new))


@router.post("/forget", responses=refusals(400, 408, 409, 413, 422))
async def forget(engine: TheEngine, body: Forgetting) -> Model:
    """Take a known object out."""
    return await _change(engine, "forget", body.label, lambda learner: learner.forget(body.label))


@router.post("/undo", responses=refusals(408, 409, 413))
async def undo(engine: TheEngine, request: Request) -> Model:
    """Take the last lesson, renaming or forgetting back: one level, and it survives a restart. A load too, until then."""
    await request.body()  # a request that breaks off or is malformed further on changes nothing

    def before(learner: Learner, tell: Tell) -> Learner | None:
        if engine.live.replaced is None:
            learner.undo()
        return engine.live.replaced

    await outcome(engine, engine.submit("undo", before))
    return Model.of(engine)


@router.get(
    "/model/file",
    response_class=Response,
    responses={
        **refusals(),
        200: {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}},
    },
)
async def save(engine: TheEngine, hands: TheHands) -> Response:
    """The model as a file: what `Learner.load` reads."""
    return _attachment(await hands.long(engine.live.learner.pieces), engine.path.name)


@router.get(
    "/export",
    response_class=Response,
    responses={
        **refusals(409, 422),
        200: {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}},
    },
)
async def export(engine: TheEngine, hands: TheHands, format: Format = "onnx") -> Response:
    """What is known as an ONNX model for any runtime, or as the file with which `primavista-edge` goes on learning."""
    try:
        data = await hands.long(_exported, engine.live.learner, format)
    except MissingExtraError as error:
        raise RefusedError(
            422, "this machine cannot export: pip install 'primavista[onnx]' there"
        ) from error
    except InputError as error:
        raise RefusedError(409, str(error)) from error
    return _attachment([data], f"{engine.path.stem}{SUFFIXES[format]}")


@router.post("/model/file", responses=refusals(400, 408, 409, 413, 422))
async def load(
    engine: TheEngine,
    hands: TheHands,
    file: Annotated[UploadFile, File(description="a file that was saved before")],
) -> Model:
    """Go on with a saved model instead. What was known before is kept beside it as NAME.before-load, or -2, -3, ..."""
    device = engine.live.learner.strategy.device
    loaded = await hands.long(_loaded, file.file, device, engine.limits.size)
    if isinstance(loaded, RefusedError):
        raise loaded

    def become(learner: Learner, tell: Tell) -> Learner:
        learner.save(_unused(engine.path, engine.limits.kept))
        return (
            loaded.settled()
        )  # undo takes the load back, and never what was done before it, elsewhere

    job = engine.submit("load", become)
    await outcome(engine, job)
    return Model.of(engine)


def _unused(path: Path, limit: int) -> Path:
    """Where the model before a load is kept: no earlier one is overwritten."""
    names = [f"{path.name}.before-load{f'-{k}' if k > 1 else ''}" for k in range(1, limit + 1)]
    for name in names:
        if not (place := path.with_name(name)).exists():
            return place
    raise InputError(
        f"{limit} models from before earlier loads are kept beside {path.name}: move {names[0]} and so on away first"
    )


def _attachment(pieces: Sequence[bytes | memoryview], name: str) -> Response:
    """A file that is sent from where it lies: no client that is slow to take it holds a copy of it here."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    named = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"
    headers = {"content-disposition": named, "content-length": str(sum(map(len, pieces)))}
    return StreamingResponse(_parts(pieces), media_type=BINARY, headers=headers)


async def _parts(pieces: Sequence[bytes | memoryview]) -> AsyncIterator[bytes]:
    for piece in pieces:
        for at in range(0, len(piece), SENT):
            yield bytes(piece[at : at + SENT])


def _exported(learner: Learner, kind: Format) -> bytes:
    with tempfile.TemporaryDirectory(prefix="primavista-") as folder:
        return write_export(learner, Path(folder) / "model", kind).read_bytes()


def _loaded(file: BinaryIO, device: torch.device, size: int) -> Learner | RefusedError:
    """The model, or why it is refused; returned, because an error that is raised holds on to the whole file by its frames."""
    try:
        loaded = Learner.from_bytes(file.read(), "the uploaded file", device=device)
        if loaded.size > size:
            return RefusedError(
                413, f"its images have a side of {loaded.size}, and the limit is {size}"
            )
        check_keeps_nothing(loaded)
        for label in loaded.labels:
            check_label(label)
    except PrimavistaError as error:
        return RefusedError(422, str(error))
    return loaded


async def _change(
    engine: Engine, kind: str, label: str | None, change: Callable[[Learner], None]
) -> Model:
    def work(learner: Learner, tell: Tell) -> None:
        change(learner)

    await outcome(engine, engine.submit(kind, work, label))
    return Model.of(engine)
