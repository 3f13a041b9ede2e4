"""The command line: `batonbus`, and the same as `python -m batonbus`."""

import sys

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""


def main() -> None:
    """The entry point of the `batonbus` program. Whoever presses Ctrl-C while it is still importing
    has no use for a traceback."""
    try:
        from batonbus.cli.commands import app

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
