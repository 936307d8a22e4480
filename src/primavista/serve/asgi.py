"""The service as an ASGI application: the routes, the page, and the pages for monitoring.

`create_app` is all that a server such as uvicorn needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.formparsers import MultiPartParser
from starlette.types import ASGIApp

from primavista.media.decoder import shared_decoder
from primavista.serve import frame_routes, model_routes, socket_routes
from primavista.serve.learner_service import LearnerService
from primavista.serve.limits import RefusedError
from primavista.serve.schemas import Health
from primavista.serve.security import AccessControl
from primavista.serve.service_camera import ServiceCamera
from primavista.storage.names import MAX_LABEL

MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
DESCRIPTION = """Teach a machine to recognise objects from a few seconds of video, and ask it what a
frame shows.

Lessons are learned one after the other, and each is on disk before it is done; predictions go on
meanwhile. The WebSockets `/api/stream` (recognise) and `/api/teach` (a lesson, frame by frame) are
described in docs/guides/live.md."""


def create_app(
    service: LearnerService,
    host: str = "127.0.0.1",
    token: str | None = None,
    camera: ServiceCamera | None = None,
) -> ASGIApp:
    """Create the ASGI application: the routes, the page, and access control around them.

    Args:
        service: The learner service; the application starts and stops it.
        host: The address that the server listens on; requests may be addressed to it.
        token: The token that every request must carry, or None for no token.
        camera: The camera of the service itself; the application starts and stops it.

    Returns:
        The application.
    """
    # Starlette would write uploads of more than 1 MiB to a temporary file. They stay in memory,
    # which `ServiceLimits.upload_bytes` bounds.
    MultiPartParser.spool_max_size = service.limits.body_bytes + 1

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(service.start)
        if camera is not None:
            camera.start()
        yield
        if camera is not None:
            await asyncio.to_thread(camera.stop)
        shared_decoder().interrupt()  # nobody waits for its frames any more
        await asyncio.to_thread(service.stop)

    app = FastAPI(
        title="primavista",
        version="1",
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # the usual documentation pages load their scripts from a CDN
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.service = service
    service.camera = camera
    app.include_router(frame_routes.router)
    app.include_router(model_routes.router)
    app.include_router(socket_routes.router)
    app.add_exception_handler(RequestValidationError, _invalid)
    _add_page(app)
    app.add_api_route("/healthz", _health, name="health", tags=["watch"])
    return AccessControl(app, host, token, service)


def _add_page(app: FastAPI) -> None:
    """Serve the files of the page from memory: no path of a client reaches the file system."""
    folder = files("primavista.serve") / "page"
    contents = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}

    async def page(name: str) -> Response:
        suffix = name[name.rfind(".") :]
        if name not in contents or suffix not in MEDIA_TYPES:
            raise RefusedError(404, "there is no such page")
        headers = {"cache-control": "no-cache"}
        return Response(contents[name], media_type=MEDIA_TYPES[suffix], headers=headers)

    for path, endpoint in (
        ("/", partial(page, "index.html")),
        ("/favicon.ico", partial(page, "icon.svg")),
        ("/page/{name}", page),
    ):
        app.add_api_route(path, endpoint, include_in_schema=False)


async def _health() -> Health:
    """Say that the service is running.

    This is for monitoring: it needs no token and does not touch the learner.
    """
    return Health()


async def _invalid(request: Request, error: Any) -> JSONResponse:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return JSONResponse({"detail": _explanation(error.errors()[0], media_type)}, 422)


def _explanation(error: dict[str, Any], media_type: str) -> str:
    """Explain a validation error to the client: what is wrong, and what to send instead.

    The validator itself knows neither the format of the request nor what the fields mean.
    """
    kind = error["type"]
    field = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
    if kind in ("json_invalid", "model_attributes_type"):
        return "send a JSON object, with the header 'Content-Type: application/json'"
    if kind == "missing" and media_type not in ("multipart/form-data", "application/json"):
        example = "label=mug" if field == "label" else f"{field}=@FILE"
        return f"send a form (multipart/form-data) with the field {field}: curl -F {example}"
    if kind == "missing" and field == "label":
        return f"label: say what it shows, with a name of 1 to {MAX_LABEL} characters"
    return f"{field}: {error['msg']}" if field else str(error["msg"])
