"""The done callback: tells a program or a URL of each finished task. It never blocks the work."""

import urllib.request
from http.client import HTTPException
from shlex import split

import anyio
import msgspec
from anyio.to_thread import run_sync

from batonbus import ProgramError, run_program
from batonbus_schemas import FileChange, TaskResult

TIME_LIMIT = 5.0
"""Seconds that a callback may take."""


class Done(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a callback is told. The commit tells a repeated call from a new one."""

    work_id: str
    task_id: str
    status: str
    what: str
    why: str
    caution: str
    incomplete: str
    files_changed: tuple[FileChange, ...]
    commit_hash: str
    timestamp: str


def make_done(work: str, task: str, result: TaskResult) -> Done:
    """What to tell of a task's result."""
    context = result.context_handoff
    return Done(
        work_id=work,
        task_id=task,
        status="SUCCESS" if result.status == "PASS" else "FAILED",
        what=context.what if context else result.summary,
        why=context.why if context else "",
        caution=context.caution if context else "",
        incomplete=context.incomplete if context else "",
        files_changed=result.files_changed,
        commit_hash=result.commit,
        timestamp=result.finished.isoformat() if result.finished else "",
    )


async def call_back(target: str, done: Done) -> str | None:
    """Tell `target` (a URL, or a command that gets the JSON on stdin). Returns what went wrong, or
    None; never raises, never takes longer than the limit, and 2 seconds for a command that does not
    end when it is asked to."""
    body = msgspec.json.encode(done)
    call = _post if target.startswith(("http://", "https://")) else _run
    with anyio.move_on_after(TIME_LIMIT):
        return await call(target, body)
    return f"no answer within {TIME_LIMIT:g} s"


async def _run(target: str, body: bytes) -> str | None:
    try:
        command = split(target)
        if not command:
            return "no command"
        ended = await run_program(command, text=body.decode(), time_limit=TIME_LIMIT)
    except (ProgramError, ValueError) as error:  # the last one: no command line
        return str(error)
    return f"exit code {ended.code}" if ended.code else None


async def _post(url: str, body: bytes) -> str | None:
    return await run_sync(_post_at_once, url, body, abandon_on_cancel=True)


def _post_at_once(url: str, body: bytes) -> str | None:
    try:
        request = urllib.request.Request(  # noqa: S310 - http and https only, as the caller says
            url, data=body, headers={"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=TIME_LIMIT) as answer:  # noqa: S310 - as above
            return None if answer.status < 300 else f"status {answer.status}"
    except (OSError, HTTPException, ValueError) as error:  # the last one: no URL
        return str(error)
