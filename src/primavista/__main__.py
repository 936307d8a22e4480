"""The command `primavista`, and `python -m primavista`: how a command is run, and how it ends."""

from __future__ import annotations

import errno
import logging
import os
import sys
from contextlib import suppress
from io import TextIOWrapper

# what takes time to import is imported below, where Ctrl-C is caught


def main() -> None:
    """Run the command line; an expected error is one message and exit code 1.

    Ctrl-C ends it without a traceback, even while modules are imported.
    """
    try:
        _command_line()
    except KeyboardInterrupt:
        sys.exit(130)


def _command_line() -> None:
    from primavista.cli.app import app
    from primavista.cli.arguments import printable
    from primavista.errors import PrimavistaError

    # Before torch is imported: waiting threads sleep instead of taking the cores from others,
    # which is 10 times faster on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A letter that the terminal cannot show is not a reason to stop, and who reads a pipe
            # or a log gets every line at once.
            stream.reconfigure(errors="replace", line_buffering=True)
    logging.getLogger("primavista").addFilter(_make_printable)
    try:
        try:
            app()
        finally:  # an error of writing the output is noticed here
            if sys.stdout is not None:  # it is None if the shell closed it: >&-
                sys.stdout.flush()
    except PrimavistaError as error:
        _fail("\n".join(printable(line) for line in str(error).split("\n")))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        _fail('this needs torch: pip install "primavista[train]"')
    except OSError as error:
        _fail_to_write(error)


def _make_printable(record: logging.LogRecord) -> bool:
    """Take the characters that command a terminal out of a message: it may name others' files."""
    from primavista.cli.arguments import printable

    record.msg, record.args = printable(record.getMessage()), None
    return True


def _fail_to_write(error: OSError) -> None:
    """End the command after an error of writing to the standard output; raise any other error."""
    if error.filename is not None:
        raise error
    # The rest of the output goes nowhere; otherwise Python would try to write it again at exit.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:  # the reader, such as `head`, has closed the pipe
        sys.exit(1)
    _fail(f"cannot write to stdout: {error.strerror or error}")


def _fail(text: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    Console(stderr=True, highlight=False).print(f"[red]error:[/red] {escape(text)}", soft_wrap=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
