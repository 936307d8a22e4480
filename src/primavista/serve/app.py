"""The service as an ASGI application: `create_app(engine)`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from primavista.serve import changes, sockets, teaching
from primavista.serve.engine import Engine
from primavista.serve.limits import RefusedError
from primavista.serve.schemas import Health
from primavista.serve.security import App, Guard
from primavista.serve.uploads import Hands
from primavista.storage.names import MAX_LABEL

TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
ABOUT = """Teach a machine to recognise objects from a few seconds of video, and ask it what a frame shows.

Lessons are learned one after the other, each on disk before it is done; predictions go on meanwhile. The WebSockets
`/api/stream` (recognise) and `/api/teach` (a lesson, frame by frame) are described in docs/live.md."""


def create_app(engine: Engine, host: str = "127.0.0.1", token: str | None = None) -> App:
    """Everything under the guard. `host` is where it listens, `token` what every request must then bring."""
    hands = Hands()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await hands.long(engine.start)
        yield
        await hands.long(engine.stop)
        hands.close()

    app = FastAPI(
        title="primavista",
        version="1",
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",  # the usual pages of documentation load from a CDN
    )
    app.state.engine, app.state.hands = engine, hands
    app.include_router(teaching.router)
    app.include_router(changes.router)
    app.include_router(sockets.router)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    _add_page(app)
    _add_watch(app, engine)
    guard: App = Guard(app, host, token, engine.limits, engine.metrics)
    return guard


def _add_page(app: FastAPI) -> None:
    """The files of the page are read once: no path of a client reaches the file system."""
    folder = files("primavista.serve") / "page"
    contents = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}

    async def page(name: str = "index.html") -> Response:
        suffix = name[name.rfind(".") :]
        if name not in contents or suffix not in TYPES:
            raise RefusedError(404, "there is no such page")
        return Response(
            contents[name], media_type=TYPES[suffix], headers={"cache-control": "no-cache"}
        )

    async def icon() -> Response:
        return await page("icon.svg")

    async def index() -> Response:
        return await page()

    app.add_api_route("/", index, include_in_schema=False)
    app.add_api_route("/favicon.ico", icon, include_in_schema=False)
    app.add_api_route("/page/{name}", page, include_in_schema=False)


def _add_watch(app: FastAPI, engine: Engine) -> None:
    async def health() -> Health:
        """That the service is there; needs no token."""
        return Health()

    async def metrics() -> PlainTextResponse:
        """Counts and times in the text format of Prometheus."""
        live = engine.live
        gauges = {
            "objects": ("objects known", float(len(live.learner.labels))),
            "version": ("lessons and changes since the start", float(live.version)),
            "queued": ("lessons and changes that wait or run", float(engine.queued)),
        }
        return PlainTextResponse(
            engine.metrics.text(gauges), media_type="text/plain; version=0.0.4"
        )

    app.add_api_route("/healthz", health, tags=["watch"])
    app.add_api_route("/metrics", metrics, tags=["watch"], response_class=PlainTextResponse)


async def _refused(_: Request, error: Any) -> JSONResponse:
    return JSONResponse({"detail": error.reason}, error.status)


async def _invalid(request: Request, error: Any) -> JSONResponse:
    content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return JSONResponse({"detail": _said(error.errors()[0], content)}, 422)


def _said(first: dict[str, Any], content: str) -> str:
    """What is wrong with a request of that type of content; the validator knows neither its format nor our names."""
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    if first["type"] in ("json_invalid", "model_attributes_type"):
        return "send a JSON object, with the header 'Content-Type: application/json'"
    if first["type"] == "missing" and content not in ("multipart/form-data", "application/json"):
        example = "label=mug" if where == "label" else f"{where}=@FILE"
        return f"send a form (multipart/form-data) with the field {where}: curl -F {example}"
    if first["type"] == "missing" and where == "label":
        return f"label: say what it shows, a name of 1 to {MAX_LABEL} characters"
    return f"{where}: {first['msg']}" if where else str(first["msg"])


async def _http(_: Request, error: Any) -> JSONResponse:
    return JSONResponse({"detail": str(error.detail)}, error.status_code, headers=error.headers)
