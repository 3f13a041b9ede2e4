"""Traces, where the standard `OTEL_*` variables ask for them; nothing is imported otherwise."""

import atexit
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from batonbus.logs import log

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

FLUSH_TIMEOUT = 2.0
"""Seconds that a process may spend at its end on the spans that are not exported yet."""

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def chosen_exporter(environment: Mapping[str, str]) -> str | None:
    """Which exporter the environment asks for: `otlp`, `console`, another name, or None."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    default = "otlp" if any(environment.get(it) for it in ENDPOINTS) else "none"
    chosen = environment.get("OTEL_TRACES_EXPORTER", "").strip() or default
    return None if chosen == "none" else chosen


def configure_tracing(service: str) -> None:
    """Record spans as `service` (`OTEL_SERVICE_NAME` wins), if the environment asks for it. What is
    left at the end is exported within `FLUSH_TIMEOUT`. A missing exporter is a warning."""
    chosen = chosen_exporter(os.environ)
    if chosen is None:
        return
    exporter = _make_exporter(chosen)
    if exporter is None:
        return
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME") or service
    provider = TracerProvider(
        resource=Resource.create({"service.name": name}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    _flush_at_exit(provider.force_flush)


def _flush_at_exit(flush: Callable[[], object]) -> None:
    """The SDK's own time limit does not end an export that hangs, and no thread can be started at
    exit: so one waits from the start."""
    wanted, done = threading.Event(), threading.Event()

    def wait_and_flush() -> None:
        wanted.wait()
        flush()
        done.set()

    def at_exit() -> None:
        wanted.set()
        done.wait(FLUSH_TIMEOUT)

    threading.Thread(target=wait_and_flush, daemon=True, name="batonbus-flush").start()
    atexit.register(at_exit)


def _make_exporter(name: str) -> "SpanExporter | None":
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    if name == "otlp":
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ImportError:
            log.warning("tracing.unavailable", install="pip install 'batonbus[otlp]'")
            return None
        return OTLPSpanExporter()
    log.warning("tracing.unavailable", exporter=name, known="otlp, console, none")
    return None
