"""Who is told of a finished task, and what happens where nobody listens."""

import json
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from batonbus_agents import callback
from batonbus_agents.callback import Done, call_back, make_done
from batonbus_schemas import ContextHandoff, FileChange, TaskResult

pytestmark = pytest.mark.anyio

RESULT = TaskResult(
    status="PASS",
    summary="In short.",
    commit="abc",
    files_changed=(FileChange(action="created", path="a.txt"),),
    context_handoff=ContextHandoff(what="Wrote a.", why="Asked.", caution="New."),
    finished=datetime(2026, 7, 24, 10, 15, 30, tzinfo=UTC),
)
DONE = make_done("WORK-01", "TASK-01", RESULT)


class Listener:
    """Hears posts on loopback, and answers them all with one status."""

    def __init__(self, status: int) -> None:
        self.heard: list[tuple[str, bytes]] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                heard.append((self.headers["Content-Type"], body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/done"

    @contextmanager
    def listening(self) -> Generator["Listener"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def test_a_callback_is_told_which_task_with_its_context_its_files_and_its_commit() -> None:
    told = json.loads(_json(DONE))
    assert told == {
        "workId": "WORK-01",
        "taskId": "TASK-01",
        "status": "SUCCESS",
        "what": "Wrote a.",
        "why": "Asked.",
        "caution": "New.",
        "incomplete": "None",
        "filesChanged": [{"action": "created", "path": "a.txt", "description": ""}],
        "commitHash": "abc",
        "timestamp": "2026-07-24T10:15:30+00:00",
    }


def test_a_result_without_a_context_tells_its_summary() -> None:
    done = make_done("WORK-01", "TASK-01", TaskResult(status="FAIL", summary="In short."))
    assert (done.status, done.what, done.timestamp) == ("FAILED", "In short.", "")


def _json(done: Done) -> bytes:
    return callback.msgspec.json.encode(done)


async def test_a_url_gets_the_json_posted() -> None:
    with Listener(204).listening() as listener:
        assert await call_back(listener.url, DONE) is None
    ((kind, body),) = listener.heard
    assert kind == "application/json"
    assert json.loads(body)["taskId"] == "TASK-01"


@pytest.mark.parametrize("status", [404, 500])
async def test_a_url_that_answers_with_an_error_is_told_of(status: int) -> None:
    with Listener(status).listening() as listener:
        assert str(status) in str(await call_back(listener.url, DONE))


async def test_a_command_gets_the_json_on_stdin(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    assert await call_back(f"tee '{heard}'", DONE) is None
    assert heard.read_bytes() == _json(DONE)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("false", "exit code 1"),
        ("no-such-program", "no-such-program cannot be started"),
        ("echo 'unbalanced", "No closing quotation"),
        (" ", "no command"),
        ("http://127.0.0.1:1/", "refused"),
        ("http://", "no host given"),
        ("http://a b/", "URL"),
        ("https://[/", "IPv6"),
    ],
)
async def test_what_goes_wrong_is_said_and_never_raised(target: str, problem: str) -> None:
    said = await call_back(target, DONE)
    assert said is not None
    assert problem in said


@pytest.mark.parametrize("form", ["command", "url"])
async def test_a_callback_that_takes_too_long_is_left(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(callback, "TIME_LIMIT", 0.2)
    silent = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # takes the call, says nothing
    try:
        slow = f"{sys.executable} -c 'import time; time.sleep(30)'"
        url = f"http://127.0.0.1:{silent.server_port}/"
        started = time.monotonic()
        said = await call_back(slow if form == "command" else url, DONE)
        assert time.monotonic() - started < 3
    finally:
        silent.server_close()
    assert said is not None


def test_the_limit_is_five_seconds() -> None:
    assert callback.TIME_LIMIT == 5.0
