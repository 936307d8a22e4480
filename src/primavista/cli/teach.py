"""`primavista teach`: the page and the service."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from primavista.cli.learn import LARGEST, SMALLEST
from primavista.cli.sources import shown
from primavista.errors import require_extra


def teach(
    model: Annotated[
        Path, typer.Argument(help="The file to teach; made if it does not exist.")
    ] = Path("objects.pv"),
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. Any but this machine's own needs --token, and for a camera --tls."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 is any that is free.", min=0, max=65535)
    ] = 8765,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    token: Annotated[
        str | None,
        typer.Option(
            help="What every request must bring (Authorization: Bearer TOKEN).",
            envvar="PRIMAVISTA_TOKEN",
        ),
    ] = None,
    tls: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Certificate and key (PEM): serve https.")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="How a new model learns, e.g. prima (default) or 'cwr*'.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Side of the images that a new model sees.", min=SMALLEST, max=LARGEST),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="How familiar a frame must be to count as known, 0 to 1; a new model has 0.4.",
            min=0,
            max=1,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Teach it in front of your camera: a page where you show an object, say its name, and it is recognised.

    The same over HTTP and WebSocket for robots and scripts (docs/guides/live.md). Every lesson is in MODEL before it counts as done;
    no frame is kept.
    """
    require_extra("uvicorn", "live")
    require_extra("fastapi", "live")
    require_extra("multipart", "live")
    import torch

    from primavista.heads.open_set import IN_PLACE
    from primavista.serve.security import check_token
    from primavista.serve.server import opened, serve

    check_token(host, token)
    console = Console(highlight=False, soft_wrap=True)
    if not os.environ.get("OMP_NUM_THREADS"):  # one half recognises while the other learns
        torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))

    def ready(address: str) -> None:
        known = ", ".join(map(shown, learner.labels[:8])) + (
            " ..." if len(learner.labels) > 8 else ""
        )
        console.print(
            f"[bold]{escape(shown(model.name))}[/bold] ({escape(known) or 'nothing taught yet'}) is being taught at"
        )
        console.print(
            f"  [bold cyan]{address}/[/bold cyan]{'#token=' + escape(token) if token else ''}"
        )
        console.print("Ctrl-C stops; everything learned by then is on disk.")
        if browser:
            page = f"{address}/{'#token=' + token if token else ''}"
            Thread(target=webbrowser.open, args=(page,), daemon=True).start()

    if threshold is None and strategy in (None, "prima") and not model.expanduser().exists():
        threshold = IN_PLACE  # what is shown to it stays before the camera that taught it
    with opened(model, device, strategy=strategy, size=size, threshold=threshold) as learner:
        serve(
            learner,
            model.expanduser().absolute(),
            host=host,
            port=port,
            token=token,
            tls=tls,
            ready=ready,
        )
