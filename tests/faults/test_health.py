"""The doctor is content only while the bus can do its work: it turns red when a part dies or the
disk is full, and back again."""

import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
from fault_bus import FLEET, part_command, wait_until

from batonbus import Bus, Settings
from batonbus.rules.chain import OPERATOR, RECEIPT_KEEPER, WINDOW_MANAGER
from batonbus.run.core import open_core
from batonbus.run.doctor import examine
from batonbus.wire.processes import start_child, stop_child
from batonbus.wire.server import EmbeddedServer, find_server, free_port

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

QUICK = Settings(receipt_timeout=2.0, heartbeat=0.2, ack_wait=1.5)
BATONBUS = [sys.executable, "-m", "batonbus"]


async def failing(url: str) -> set[str]:
    """What the doctor finds wrong."""
    return {it.name for it in await examine(url, FLEET) if it.status == "fail"}


async def wait_for(url: str, *names: str) -> None:
    """Until exactly these checks fail."""

    async def so() -> bool:
        return await failing(url) == set(names)

    await wait_until(so, f"the doctor does not find exactly {names}", limit=20)


@asynccontextmanager
async def part(name: str, url: str) -> AsyncGenerator[Process]:
    """A part of the bus that nobody starts again."""
    environment = {**os.environ, "BATONBUS_URL": url, "BATONBUS_FLEET": FLEET}
    process = await start_child([sys.executable, *part_command(name)], env=environment)
    try:
        yield process
    finally:
        await stop_child(process, grace=5)


async def kill(process: Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()


def exit_code(url: str) -> int:
    """That of `batonbus doctor`."""
    command = [*BATONBUS, "doctor", "--url", url, "--fleet", FLEET]
    return subprocess.run(command, capture_output=True, timeout=30).returncode


async def test_each_part_that_is_killed_turns_the_doctor_red_until_it_is_back(
    tmp_path: Path,
) -> None:
    server = EmbeddedServer(tmp_path, free_port())
    await server.start()
    code = partial(anyio.to_thread.run_sync, exit_code, server.url)
    try:
        async with open_core(server.url, OPERATOR, fleet=FLEET, settings=QUICK):
            pass
        async with AsyncExitStack() as stack:

            async def start(name: str) -> Process:
                return await stack.enter_async_context(part(name, server.url))

            manager, keeper = await start(WINDOW_MANAGER), await start(RECEIPT_KEEPER)
            await wait_for(server.url)
            await kill(manager)
            await wait_for(server.url, "window manager")
            assert await code() == 1
            await start(WINDOW_MANAGER)
            await wait_for(server.url)
            await kill(keeper)
            await wait_for(server.url, "receipt keeper")
            await start(RECEIPT_KEEPER)
            await wait_for(server.url)
            assert await code() == 0
            os.kill(server.pid, signal.SIGKILL)
            await server.stop()
            await wait_for(server.url, "server")
            await server.start()
            await wait_for(server.url)
    finally:
        await server.stop()


OWN_DISK = ("unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child")
"""Runs a program that may mount, and that ends with all that it started."""

IN_A_SMALL_DISK = 'mount -t tmpfs -o size=16m small "$1" && while true; do "$2" -c "$3"; done'
"""A server that is started again whenever it ends; its store is a disk of 16 MB of its own."""


def may_mount() -> bool:
    """Whether this system lets anybody have a disk of their own."""
    command = [*OWN_DISK, "mount", "-t", "tmpfs", "small", "/mnt"]
    return subprocess.run(command, capture_output=True, timeout=10).returncode == 0


class SmallDisk:
    """A running server whose disk can be filled."""

    def __init__(self, holder: int, store: Path, url: str) -> None:
        self._holder = holder
        # The disk is in the mounts of that process alone.
        self._ballast = Path(f"/proc/{holder}/root{store}/ballast")
        self.url = url

    def fill(self) -> None:
        """Take all the space that is left."""
        with self._ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def make_space(self) -> None:
        """Give back as much as was there."""
        self._ballast.unlink()

    def restart(self) -> None:
        """End the server, which is then started again."""
        os.kill(child_of(child_of(self._holder)), signal.SIGTERM)


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


@asynccontextmanager
async def small_disk(folder: Path) -> AsyncGenerator[SmallDisk]:
    store, configuration, port = folder / "disk", folder / "conf", free_port()
    store.mkdir()
    configuration.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{store}", max_file: 1GB }}\n'
    )
    script = [IN_A_SMALL_DISK, "sh", str(store), find_server(), str(configuration)]
    with (folder / "log").open("wb") as log:
        holder = await start_child([*OWN_DISK, "sh", "-c", *script], stdout=log, stderr=log)
        try:
            yield SmallDisk(holder.pid, store, f"nats://127.0.0.1:{port}")
        finally:
            await stop_child(holder, grace=0)


@pytest.mark.skipif(not may_mount(), reason="this system lets nobody mount a small disk")
async def test_a_full_disk_turns_the_doctor_red_and_nothing_is_lost(tmp_path: Path) -> None:
    """The server stores nothing more until it is restarted: that is what the doctor says."""
    async with small_disk(tmp_path) as disk:
        async with open_core(disk.url, OPERATOR, fleet=FLEET, settings=QUICK):
            pass
        async with part(WINDOW_MANAGER, disk.url), part(RECEIPT_KEEPER, disk.url):
            await wait_for(disk.url)
            async with Bus(disk.url, actor="source", fleet=FLEET) as bus:
                stored = await bus.send("nobody", "before")
                disk.fill()
                # What the file system has set aside still takes a few.
                for number in range(200):
                    with anyio.move_on_after(1) as patience:
                        await bus.send("nobody", f"{number} {'x' * 20_000}")
                    if patience.cancelled_caught:
                        break
                assert await failing(disk.url) == {"writes"}
                refused = await anyio.to_thread.run_sync(send_one, disk.url)
                assert refused.returncode == 1
                assert "did not say within 2 s" in refused.stderr
                disk.make_space()
                assert await failing(disk.url) == {"writes"}
                disk.restart()
                await wait_for(disk.url)
                assert (await stored.receipt()).state == "overdue"
                after = await bus.send("nobody", "after")
                assert (await after.receipt()).state == "overdue"


def send_one(url: str) -> "subprocess.CompletedProcess[str]":
    """`batonbus send`, for a server that stores nothing."""
    command = [*BATONBUS, "send", "--to", "nobody", "this", "--url", url, "--fleet", FLEET]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)
