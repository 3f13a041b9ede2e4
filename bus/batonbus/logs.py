"""Log lines: `noun.verb_past` with fields, through the standard library's logger `batonbus`.

A library configures nothing: without `configure` the usual rules of `logging` apply.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal

import msgspec
import structlog
from opentelemetry import trace
from structlog.typing import FilteringBoundLogger


def add_trace(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The ids of the current span, by the names that OpenTelemetry gives them in text logs."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


log: FilteringBoundLogger = structlog.wrap_logger(
    logging.getLogger("batonbus"),
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.contextvars.merge_contextvars,
        add_trace,
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    wrapper_class=structlog.stdlib.BoundLogger,
)


def bind(**fields: object) -> Any:
    """Put these fields on every line logged inside the `with` block."""
    return structlog.contextvars.bound_contextvars(**fields)


def configure(level: str = "INFO", form: Literal["auto", "console", "json"] = "auto") -> None:
    """Send all log lines, our own and those of the libraries, to stderr: JSON unless a person
    reads them on a terminal. Locals of a traceback are never shown: they may hold secrets."""
    shared: list[Any] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    tail: list[Any] = (
        [
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
        ]
        if console
        else [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=20)
            ),
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
