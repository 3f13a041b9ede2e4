"""Spans of a handoff's steps; their context travels in NATS headers.

The library uses OpenTelemetry's API alone. Where nobody configured an SDK there are no spans, and
a foreign trace context passes through unchanged.
"""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import ProxyTracerProvider, SpanKind, Status, StatusCode

from batonbus.secrecy import hide

CARRIED = frozenset({"traceparent", "tracestate", "baggage"})

Attributes = Mapping[str, str | int]


class _HeaderGetter(Getter[Mapping[str, str]]):
    """Other languages write `Traceparent`; NATS headers keep the case, the default getter too."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        found = [value for name, value in carrier.items() if name.lower() == key.lower()]
        return found or None

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


_getter = _HeaderGetter()


def read_context(headers: Mapping[str, str]) -> Context:
    """The trace context that headers carry."""
    return propagate.extract(headers, getter=_getter)


def is_configured() -> bool:
    """Whether anybody records spans in this process."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


def span(
    name: str,
    kind: SpanKind,
    headers: Mapping[str, str] | None = None,
    attributes: Attributes | None = None,
) -> AbstractContextManager[dict[str, str]]:
    """A span around the block, child of what `headers` carry (None: of the current span); gives the
    headers that hand its context on."""
    if not is_configured():
        carried = headers or {}
        return nullcontext({k.lower(): v for k, v in carried.items() if k.lower() in CARRIED})
    return _record(name, kind, headers, attributes)


@contextmanager
def _record(
    name: str, kind: SpanKind, headers: Mapping[str, str] | None, attributes: Attributes | None
) -> Generator[dict[str, str]]:
    parent = None if headers is None else read_context(headers)
    tracer = trace.get_tracer("batonbus")
    with tracer.start_as_current_span(
        name, parent, kind, attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        try:
            yield carrier
        except Exception as error:
            # What the error says may quote a secret: so it is not recorded as it is.
            said = hide(str(error))
            current.add_event(
                "exception",
                {"exception.type": type(error).__qualname__, "exception.message": said},
            )
            current.set_status(Status(StatusCode.ERROR, said))
            raise
