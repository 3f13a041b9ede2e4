"""Tracing on demand: by the standard variables, and never in the way."""

import gzip
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from batonbus.cli.tracing import FLUSH_TIMEOUT, chosen_exporter

SPAN = """
from opentelemetry import trace
from batonbus.cli.tracing import configure_tracing
from batonbus.logs import configure
configure()
configure_tracing("window-manager")
with trace.get_tracer("batonbus").start_as_current_span("deliver reviewer"):
    pass
"""


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://traces:4318"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:4318/v1/traces"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, None),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
    ],
)
def test_the_standard_variables_decide(environment: dict[str, str], chosen: str | None) -> None:
    assert chosen_exporter(environment) == chosen


@contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """The address of an OTLP receiver, and what it has received: paths and bodies."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self._body()))
            self.send_response(200)
            self.end_headers()

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            return gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body

        def log_message(self, format: str, *arguments: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def trace(first: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that records one span and ends."""
    return subprocess.run(
        [sys.executable, "-c", first + SPAN],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_spans_on_the_console_go_to_stderr_under_the_service_name() -> None:
    answer = trace(OTEL_TRACES_EXPORTER="console")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert '"deliver reviewer"' in answer.stderr
    assert '"service.name": "window-manager"' in answer.stderr


def test_the_service_name_of_the_environment_wins() -> None:
    answer = trace(OTEL_TRACES_EXPORTER="console", OTEL_SERVICE_NAME="bus-of-mine")
    assert '"service.name": "bus-of-mine"' in answer.stderr


def test_a_receiver_that_never_answers_holds_nobody_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        started = time.monotonic()
        answer = trace(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}")
        took = time.monotonic() - started
    assert answer.returncode == 0
    assert took < FLUSH_TIMEOUT + 5


def test_spans_go_to_the_receiver_that_the_environment_names() -> None:
    with receiver() as (address, received):
        assert trace(OTEL_EXPORTER_OTLP_ENDPOINT=address).returncode == 0
    ((path, body),) = received
    assert path == "/v1/traces"
    assert b"deliver reviewer" in body
    assert b"window-manager" in body


def test_a_missing_exporter_is_a_warning_that_says_what_to_install() -> None:
    hidden = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    answer = trace(f"import sys; sys.modules[{hidden!r}] = None", OTEL_TRACES_EXPORTER="otlp")
    assert answer.returncode == 0
    assert "pip install 'batonbus[otlp]'" in answer.stderr


def test_an_unknown_exporter_is_a_warning_that_names_the_known_ones() -> None:
    answer = trace(OTEL_TRACES_EXPORTER="zipkin")
    assert answer.returncode == 0
    assert "tracing.unavailable" in answer.stderr
    assert "otlp, console, none" in answer.stderr
