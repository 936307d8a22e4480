"""`primavista`, and `python -m primavista`."""

import sys


def main() -> None:
    """The command line; Ctrl-C ends it quietly from the first import on."""
    try:
        from primavista.cli.app import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
