"""Where a work runs: one run at a time, on the bus that is up, or on one of its own."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from git_project import WORK, Project
from work_bench import CHAIN, open_workshop, write_work

from batonbus.run.discovery import address_file
from batonbus.testing import FAST
from batonbus.work.site import Site, WorkError, find_work, only_run, open_bus, running_bus
from batonbus_agents.git import RepositoryError

pytestmark = pytest.mark.anyio

HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(60)
"""


async def site(project: Project) -> Site:
    return Site(workshop=await open_workshop(project), fleet="default", settings=FAST)


async def test_a_work_is_found_by_its_folder(project: Project) -> None:
    folder = write_work(project, CHAIN)
    workshop, work = await find_work(folder.path)
    assert (workshop.repository.path, work) == (project.path, WORK)


@pytest.mark.parametrize("name", ["lib", "works", ".", "works/_COMPLETED/WORK-01"])
async def test_another_folder_is_no_work(project: Project, name: str) -> None:
    write_work(project, CHAIN)
    (project.path / name).mkdir(parents=True, exist_ok=True)
    with pytest.raises(WorkError, match="is no work: name a folder in"):
        await find_work(project.path / name)


async def test_a_folder_that_is_not_there_or_in_no_repository_is_said(
    project: Project, tmp_path: Path
) -> None:
    with pytest.raises(RepositoryError, match="is no folder"):
        await find_work(project.path / "works" / "WORK-09")
    with pytest.raises(RepositoryError, match="is in no git work tree"):
        await find_work(tmp_path)


async def test_only_one_run_at_a_time_is_let_in(project: Project) -> None:
    it = await site(project)
    with only_run(it), pytest.raises(WorkError, match="already: wait for it"), only_run(it):
        raise AssertionError
    with only_run(it):
        assert project.status() == ""


def test_who_is_killed_leaves_no_lock(project: Project) -> None:
    it = anyio.run(site, project)
    with only_run(it):
        pass
    lock = project.path / ".batonbus" / "work.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder.stdout as said:
        assert said.readline() == "held\n"
        with pytest.raises(WorkError), only_run(it):
            raise AssertionError
        os.kill(holder.pid, 9)
        holder.wait(30)
    with only_run(it):
        pass


async def test_the_bus_that_is_up_is_used_and_the_address_of_a_killed_one_is_not(
    project: Project,
) -> None:
    it = await site(project)
    assert running_bus(project.path) is None
    async with open_bus(it) as address:
        assert running_bus(project.path) == address
        async with open_bus(it) as same:
            assert same == address
    assert running_bus(project.path) is None
    # As kill -9 leaves it: an address, and nobody who holds the lock.
    address_file(project.path).write_text("nats://127.0.0.1:1")
    assert running_bus(project.path) is None


async def test_a_bus_that_is_named_is_taken_as_it_is(project: Project) -> None:
    named = Site(workshop=await open_workshop(project), fleet="x", url="nats://elsewhere:4222")
    async with open_bus(named) as address:
        assert address == "nats://elsewhere:4222"
