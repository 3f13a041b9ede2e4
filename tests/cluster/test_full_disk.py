"""The disk is full under a fleet at work: what is acknowledged is stored, and with space and a new
start of the server all of it goes on."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from traffic import Traffic, running_traffic

from batonbus.wire import server as server_module
from batonbus.wire.server import EmbeddedServer, embedded_server

pytestmark = [pytest.mark.faults, pytest.mark.cluster, pytest.mark.anyio]

WATCHED = 1.0
"""Seconds for which nothing may be acknowledged."""

LIMIT = "max_file_store: 150KB"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB, where we may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system can be mounted by root alone")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the space that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while shutil.disk_usage(disk).free:
            file.write(bytes(4096))
    return ballast


async def watch_nothing_is_stored(traffic: Traffic) -> None:
    """Until every sender waits; from then on nothing is acknowledged and nothing ends."""
    await traffic.stalled(limit=20)
    before = len(traffic.acknowledged), len(traffic.ends)
    await anyio.sleep(WATCHED)
    assert (len(traffic.acknowledged), len(traffic.ends)) == before


async def start_again(server: EmbeddedServer, traffic: Traffic) -> None:
    """By kill -9; whatever was sent ends once, with a result."""
    os.kill(server.pid, signal.SIGKILL)
    await traffic.more_ended(10, limit=20)
    await traffic.finish()
    assert set(traffic.ends) == set(traffic.planned)
    assert set(traffic.ends.values()) == {"PASS"}
    assert await traffic.complaints(server.url) == []


async def test_a_disk_that_fills_loses_nothing(small_disk: Path) -> None:
    """The server does not answer; it writes again only after a new start, with space."""
    async with (
        embedded_server(small_disk / "store") as server,
        running_traffic(lambda _user: server.url) as traffic,
    ):
        ballast = fill(small_disk)
        await watch_nothing_is_stored(traffic)
        ballast.unlink()
        await start_again(server, traffic)


async def test_a_store_at_its_limit_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says that its resources are insufficient: it is asked again."""
    whole = server_module.CONFIGURATION
    limited = whole.replace("sync_interval", f"{LIMIT}\n  sync_interval")
    monkeypatch.setattr(server_module, "CONFIGURATION", limited)
    async with (
        embedded_server(tmp_path / "store") as server,
        running_traffic(lambda _user: server.url) as traffic,
    ):
        await watch_nothing_is_stored(traffic)
        monkeypatch.setattr(server_module, "CONFIGURATION", whole)
        await start_again(server, traffic)
