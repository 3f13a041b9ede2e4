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
        help="Address of the bus. Default: BATONBUS_URL, else what `batonbus up` wrote here.",
        show_default=False,
    ),
]
Fleet = Annotated[
    str | None,
    typer.Option("--fleet", help="Name of the fleet. Default: BATONBUS_FLEET.", show_default=False),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="The last line of stdout is one JSON object; the rest is stderr."),
]
LogLevel = Annotated[
    Level | None,
    typer.Option(
        "--log-level",
        envvar="BATONBUS_LOG_LEVEL",
        case_sensitive=False,
        help="How much goes to stderr.",
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
