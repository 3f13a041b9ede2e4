"""The options that the commands share."""

import os
import re
from enum import StrEnum
from pathlib import Path
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

ExportFolder = Annotated[
    Path | None,
    typer.Option(
        "--to",
        metavar="DIR",
        file_okay=False,
        help="Folder of the export. Default: .batonbus/exports.",
        show_default=False,
    ),
]

_AGE = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def read_age(text: str) -> float:
    """An age such as 90s, 15m, 12h or 30d, in seconds. Raises BadParameter."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age: a number and s, m, h or d, such as 30d")
    return float(int(found[1]) * _SECONDS[found[2]])


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
