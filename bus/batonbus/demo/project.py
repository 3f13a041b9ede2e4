"""The second half of the demo: a real work item, from failing tests to commits."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from batonbus.demo.victims import Victim
from batonbus.run.bus import Bus
from batonbus.run.program import run_program
from batonbus.work.runner import Crew, begin, start_crew
from batonbus_agents.example.project import SLOW_TASK, WORK, make_project
from batonbus_agents.repository import Repository
from batonbus_agents.routes import STAGES
from batonbus_agents.workshop import Workshop
from batonbus_schemas import TaskResult

TEST_TIMEOUT = 30.0
BUILDERS = 2


class Project(Struct, frozen=True, kw_only=True):
    """The repository with its work, and the processes that work on it."""

    workshop: Workshop
    pids: dict[str, int]

    @property
    def folder(self) -> Path:
        """Where the repository is."""
        return self.workshop.repository.path

    @property
    def agents(self) -> int:
        """How many agents its crew has."""
        return len(STAGES["full"]) + BUILDERS

    def victim(self) -> Victim:
        """Whoever builds the slow task."""
        return Victim(role="builder", task=SLOW_TASK, pid=lambda actor: self.pids[actor])

    async def run(self, bus: Bus) -> TaskResult:
        """Bring the work to its end."""
        started = await begin(self.workshop, WORK)
        sent = await bus.send(started.to, started.body, work=WORK)
        return await sent.result()

    async def commits(self) -> int:
        """The work's commits on the branch."""
        return len(await self.workshop.repository.commits_of(WORK))

    async def tests_pass(self) -> bool:
        """Whether the repository's own tests pass now."""
        command = (sys.executable, "-m", "unittest", "discover", "-s", "tests")
        ended = await run_program(command, cwd=self.folder, time_limit=TEST_TIMEOUT, merged=True)
        return ended.code == 0


@asynccontextmanager
async def start_project(
    folder: Path, script: Path, url: str, fleet: str
) -> AsyncGenerator[Project]:
    """Make the repository in a new `folder`, and start its crew; `script` is what builders do."""
    repository = make_project(folder)
    crew = Crew(runtimes={"builder": f"script:{script}"}, builders=BUILDERS)
    roles = ("scheduler", *STAGES["full"])
    async with start_crew(repository, roles, crew, url, fleet) as pids:
        workshop = Workshop(repository=await Repository.open(repository))
        yield Project(workshop=workshop, pids=pids)
