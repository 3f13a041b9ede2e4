"""The options that the commands share."""

import os
from enum import StrEnum
from typing import Annotated, Any

import typer


class Level(StrEnum):
    """How much is logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Address of the bus. Default: BATONBUS_URL, else that of `batonbus up` here.",
        show_default=False,
    ),
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="NAME",
        help="Name of the fleet. Default: BATONBUS_FLEET.",
        show_default=False,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="One JSON object as the last line of stdout; all else on stderr."),
]
LogLevel = Annotated[
    Level | None,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        envvar="BATONBUS_LOG_LEVEL",
        case_sensitive=False,
        help="What goes to stderr: debug, info, warning or error.",
        show_default=False,
    ),
]


def new_app(**options: Any) -> typer.Typer:
    """A Typer app by the house rules: tracebacks stay plain, and never show locals."""
    return typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )


def log_format() -> str:
    """`BATONBUS_LOG_FORMAT`: auto, console or json."""
    return os.environ.get("BATONBUS_LOG_FORMAT", "auto")
