"""The command `primavista`, and `python -m primavista`."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback, even while modules are imported."""
    try:
        from primavista.cli.app import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
