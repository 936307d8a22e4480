"""The version that the command line prints."""

from __future__ import annotations

from typer.testing import CliRunner

from primavista import __version__
from primavista.cli.app import app


def test_version():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"primavista {__version__}\n")
