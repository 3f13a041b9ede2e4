"""The command line: `batonbus`, and the same as `python -m batonbus`."""

from batonbus.cli.commands import app, main

__all__ = ["app", "main"]
