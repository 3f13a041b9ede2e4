"""Children that do not outlive us, and end in order where they can."""

import os
import signal
import sys
import time
from subprocess import PIPE
from typing import Any

import anyio
import pytest

from batonbus.wire.processes import start_child, stop_child

pytestmark = pytest.mark.anyio

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""

PARENT = """
import asyncio, sys
from batonbus.wire.processes import start_child

async def main():
    child = await start_child([sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


async def test_a_child_is_asked_to_end_and_does() -> None:
    child = await start_child(["sleep", "60"])
    began = time.monotonic()
    await stop_child(child, grace=10)
    assert child.returncode == -signal.SIGTERM
    assert time.monotonic() - began < 5


async def test_a_child_that_does_not_listen_is_killed_after_its_grace() -> None:
    child = await start_child([sys.executable, "-c", STUBBORN], stdout=PIPE)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    await stop_child(child, grace=0.1)
    assert child.returncode == -signal.SIGKILL


async def test_a_child_that_has_ended_already_is_no_error() -> None:
    child = await start_child(["true"])
    await child.wait()
    await stop_child(child, grace=1)
    assert child.returncode == 0


async def test_a_child_is_stopped_even_under_cancellation() -> None:
    child = await start_child(["sleep", "60"])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await stop_child(child, grace=5)
    assert child.returncode == -signal.SIGTERM


async def test_a_child_leads_a_session_of_its_own_so_that_ctrl_c_reaches_us_alone() -> None:
    child = await start_child(["sleep", "60"])
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    await stop_child(child, grace=5)


async def test_a_child_gets_the_environment_and_the_folder_that_it_is_given(tmp_path: Any) -> None:
    script = "import os; print(os.environ.get('A'), 'HOME' in os.environ, os.getcwd())"
    child = await start_child(
        [sys.executable, "-c", script], env={"A": "1"}, cwd=tmp_path, stdout=PIPE
    )
    output, _ = await child.communicate()
    assert output.decode().split() == ["1", "False", str(tmp_path)]


async def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await start_child(["/no/such/program"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child")
async def test_a_child_dies_when_its_parent_is_killed(until: Any) -> None:
    parent = await start_child([sys.executable, "-c", PARENT], stdout=PIPE)
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert lives(child)
    parent.kill()
    await parent.wait()
    await until(lambda: not lives(child))
