"""An operator gives a running deployment a role of their own, by the steps of the README."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import nats
import pytest
from typer.testing import CliRunner

from batonbus import Agent, Bus, Context
from batonbus.cli.commands import app
from batonbus.run.bus import serve
from batonbus.testing import FAST, run_receipt_keeper, run_window_manager
from batonbus.wire.server import find_server
from batonbus_schemas import Dispatch, TaskResult

pytestmark = pytest.mark.anyio

FLEET = "default"
NEW = "worker-docs"
COMMAND = ("agent", "--role", "documenter", "--id", NEW, "--command", "cat")


def write_down(configuration: Any) -> None:
    """The steps before the reload: the block, the password, and a check of both."""
    printed = CliRunner().invoke(app, ["topology", "--agent", NEW, "--role", "documenter"])
    assert printed.exit_code == 0
    for step in ("NATS_WORKER_DOCS_PASSWORD=", "--signal reload", " ".join(COMMAND[:-1])):
        assert step in printed.stderr
    configuration.add_user(printed.stdout)
    configuration.add_password(NEW)
    checked = subprocess.run(
        [find_server(), "-t", "-c", str(configuration.file)],
        env=os.environ | {"NATS_STORE_DIR": str(configuration.folder / "store")},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr


async def wait_for_login(url: str) -> None:
    """Until the server has read its configuration again."""

    async def ignore(error: Exception) -> None:
        pass

    while True:
        try:
            client = await nats.connect(url, allow_reconnect=False, error_cb=ignore)
        except (nats.errors.Error, OSError):
            await anyio.sleep(0.02)
        else:
            return await client.close()


@asynccontextmanager
async def program(url: str, folder: Any) -> AsyncIterator[None]:
    """The new agent as a process, which is told its address as the README says."""
    process = await anyio.open_process(
        [sys.executable, "-m", "batonbus", *COMMAND],
        env=os.environ | {"BATONBUS_URL": url},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def test_a_new_role_works_and_nobody_else_was_cut_off(
    configuration: Any, start_server: Any
) -> None:
    researcher, begun, go_on = Agent("researcher", id="researcher"), anyio.Event(), anyio.Event()

    @researcher.handles
    async def research(task: Dispatch, ctx: Context) -> TaskResult:
        begun.set()
        await go_on.wait()
        answer = await (await ctx.send("documenter", "Write it down.")).result()
        return TaskResult.passed(what=answer.summary)

    with start_server(configuration) as server, anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_window_manager, server.url("operator"), FLEET, FAST)
            tasks.start_soon(run_receipt_keeper, server.url("operator"), FLEET, FAST)
            tasks.start_soon(serve, researcher, server.url("researcher"))
            async with Bus(server.url("sender"), actor="sender") as bus:
                sent = await bus.send("researcher", "What is there?")
                await begun.wait()
                before = connected(server)
                await anyio.to_thread.run_sync(write_down, configuration)
                os.kill(server.pid, signal.SIGHUP)
                await wait_for_login(server.url(NEW))
                go_on.set()
                async with program(server.url(NEW), configuration.folder):
                    result = await sent.result()
                    assert before <= connected(server)
            tasks.cancel_scope.cancel()
    assert "# Assignment for documenter" in result.summary
    assert server.refusals() == []


def connected(server: Any) -> set[int]:
    """The connections that are open: window manager, keeper, agent and sender have one each."""
    numbers = {it["cid"] for it in server.look("connz")["connections"]}
    assert len(numbers) >= 4
    return numbers
