"""A hook of mkdocs: the page that learns without a server is part of the site, to try it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from primavista.web.pack import write_page


def on_post_build(config: Any, **_: Any) -> None:
    """Write the page into the folder `page` of the site."""
    write_page(Path(config["site_dir"]) / "page")
