"""The fleet's Checkpoints: compared with marks, log, phase and tree, and kept in the log."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from git_project import TASK, WORK, Project
from work_bench import (
    Job,
    Player,
    builder,
    fleet,
    open_workshop,
    raises,
    run,
    says,
    wait_until,
    write_work,
    writes,
)

from batonbus import Bus, TestBus
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_operator
from batonbus.work.runner import begin
from batonbus_agents import committer
from batonbus_agents.builder import Building
from batonbus_agents.committer import Committing
from batonbus_agents.fleet import make_agent
from batonbus_agents.runtimes import Assignment
from batonbus_agents.works.execution_log import LogEntry
from batonbus_agents.works.folder import WorkFolder
from batonbus_schemas import ResetJournal, TaskResult

ONE = {TASK: Job(("one.txt",))}
TWO = {TASK: Job(("one.txt",)), "TASK-02": Job(("two.txt",), (TASK,))}

pytestmark = pytest.mark.anyio


def folder(project: Project) -> WorkFolder:
    return WorkFolder(project.path / "works" / WORK)


async def closed(bus: TestBus, role: str) -> str:
    """Why the agent of a role is closed, once it is."""
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        with anyio.fail_after(20):
            while True:
                for it in await core.registry.list():
                    if it.card.role == role and "refused" in it.closed:
                        return it.closed
                await anyio.sleep(0.02)


async def journal(bus: TestBus, agent: str) -> ResetJournal | None:
    async with Bus(bus.server.url, actor="reader") as reader:
        return await reader.client.checkpoints.get(agent)


async def start(bus: TestBus, project: Project) -> None:
    """Hand the work over, and wait for nothing."""
    started = await begin(await open_workshop(project), WORK)
    await bus.send(started.to, started.body, work=WORK, task=started.task)


async def test_every_stage_ends_with_an_entry_of_what_was_done_and_what_is_next(
    project: Project,
) -> None:
    write_work(project, TWO)
    workshop = await open_workshop(project, {"builder": builder(TWO)})
    async with fleet(workshop) as bus:
        assert (await run(bus, workshop)).status == "PASS"
        await wait_until(lambda: len(folder(project).log()) == 7)
    log = folder(project).log()
    assert [(it.summary.rpartition("-")[0] or it.summary, it.phase, it.next) for it in log] == [
        *(
            (f"{task}{title}", phase, following.format(task))
            for task in TWO
            for title, phase, following in (
                (" left by builder", "implement", "Verify {}."),
                (" left by verifier", "implement", "Commit {}."),
                (" committed"[:0] or "", "close", committer.AFTER_COMMIT),
            )
        ),
        (f"{WORK} left by scheduler", "implement", "Review and push."),
    ]
