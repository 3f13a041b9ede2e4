"""Log lines: `noun.verb_past` with fields, through the standard library's logger `batonbus`.

A library configures nothing: without `configure` the usual rules of `logging` apply.
"""

import logging
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, cast

import msgspec
import structlog
from opentelemetry import trace

from batonbus.secrecy import hide


def add_trace(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The ids of the current span, by the names that OpenTelemetry gives them in text logs."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def hide_secrets(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Every text of the event, masked: an error may quote what it was given."""
    for key, value in event.items():
        # A traceback is masked when it is written.
        if key != "exc_info":
            event[key] = _hidden(value)
    return event


def hide_rendered(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """What is there only when a line is written: a traceback, and what a library of others says."""
    for key in event.keys() & {"event", "exception"}:
        event[key] = _hidden(event[key])
    return event


def _hidden(value: object) -> object:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        members = cast("Mapping[object, object]", value)
        return {_hidden(key): _hidden(item) for key, item in members.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_hidden(item) for item in cast("Iterable[object]", value)]
    return value


_logger = logging.getLogger("batonbus")
_bound: structlog.stdlib.BoundLogger = structlog.wrap_logger(
    _logger,
    processors=[
        structlog.contextvars.merge_contextvars,
        add_trace,
        hide_secrets,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
)


class Log:
    """structlog's verbs behind a look at the level: a line that nobody reads costs nothing."""

    def __init__(self, bound: structlog.stdlib.BoundLogger) -> None:
        self._bound = bound

    def debug(self, event: str, **fields: Any) -> None:
        """For whoever looks for a fault."""
        if _logger.isEnabledFor(logging.DEBUG):
            self._bound.debug(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """What happened, in order."""
        if _logger.isEnabledFor(logging.INFO):
            self._bound.info(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """What went wrong, and is mended or retried."""
        self._bound.warning(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """What went wrong, and stays so."""
        self._bound.error(event, **fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error with its traceback; inside `except`."""
        self._bound.exception(event, **fields)

    def bind(self, **fields: Any) -> "Log":
        """The same log with these fields on every line."""
        return Log(self._bound.bind(**fields))


log = Log(_bound)


def bind(**fields: object) -> AbstractContextManager[None]:
    """Put these fields on every line logged inside the `with` block."""
    if not _logger.isEnabledFor(logging.INFO):
        return nullcontext()
    return structlog.contextvars.bound_contextvars(**fields)


def configure(level: str = "INFO", form: Literal["auto", "console", "json"] = "auto") -> None:
    """Send all log lines, our own and those of the libraries, to stderr: JSON unless a person
    reads them on a terminal. Locals of a traceback are never shown: they may hold secrets."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    # A person reads it now, and in 80 columns.
    shared: list[Any] = [structlog.stdlib.add_log_level] + (
        [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)]
        if console
        else [
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ]
    )
    tail: list[Any] = (
        [
            structlog.processors.format_exc_info,
            hide_rendered,
            structlog.dev.ConsoleRenderer(
                pad_event_to=0,
                pad_level=False,
                colors=sys.stderr.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
        if console
        else [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=20)
            ),
            hide_rendered,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(serializer=_to_json),
        ]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                *shared,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *tail,
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("batonbus").setLevel(level)


def _to_json(event: object, **_options: object) -> str:
    return msgspec.json.encode(event, enc_hook=repr).decode()
