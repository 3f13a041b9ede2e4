"""Real processes, killed with -9 at random while works run: each task is committed once, and the
files are those of a run that nobody disturbed."""

import random
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
import slow_builder
from fault_bus import FLEET, SERVER, FaultBus, fault_bus
from git_project import Project
from work_bench import Job, open_workshop, run_fleet, write_work

from batonbus import Bus
from batonbus.work.runner import RUNNER, Crew, agent_command, begin, run_key
from batonbus_agents.routes import Mode
from batonbus_agents.works.folder import WorkFolder, WorksRoot
from batonbus_agents.workshop import Workshop

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

TASKS: dict[str, tuple[str, ...]] = {
    "TASK-01": (),
    "TASK-02": ("TASK-01",),
    "TASK-03": ("TASK-01",),
    "TASK-04": ("TASK-02",),
}
AGENTS = ("scheduler-1", "builder-1", "builder-2", "verifier-1", "committer-1")
KILLS = 26
"""In each of two fleets; one program dies at most four times in a work, for a handoff that changes
hands more often is given up on."""


def mode_of(work: str) -> Mode:
    """One work after the other in each mode."""
    modes: tuple[Mode, ...] = ("full", "pipeline", "direct")
    return modes[(int(work[-2:]) - 1) % len(modes)]


def tasks_of(work: str) -> dict[str, tuple[str, ...]]:
    return TASKS if mode_of(work) == "full" else {"TASK-01": ()}


def write_next_work(project: Project) -> str:
    work = f"WORK-{len(list((project.path / 'works').glob('WORK-*/'))) + 1:02d}"
    jobs = {task: Job((f"{work}-{task}.txt",), needs) for task, needs in tasks_of(work).items()}
    assert write_work(project, jobs, mode_of(work)).work == work
    return work


async def undisturbed(folder: Path, works: int) -> dict[str, str]:
    """The files that the works make where nobody is killed."""
    project = Project(folder)
    workshop = await open_workshop(project, {"builder": slow_builder.build})
    for _ in range(works):
        assert (await run_fleet(workshop, write_next_work(project))).status == "PASS"
    return tree(project)


def tree(project: Project) -> dict[str, str]:
    names = project.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    return {name: project.show(name) for name in names}


def start_fleet(bus: FaultBus, project: Project) -> None:
    bus.start_parts()
    crew = Crew(runtimes={"builder": "function:slow_builder:build"})
    for name in AGENTS:
        role = name.rpartition("-")[0]
        _, _, *command = agent_command(project.path, role, name, crew)  # type: ignore[arg-type]
        bus.start(name, *command, PYTHONPATH=str(Path(__file__).parent))


class Killer:
    """Kills one program after the other while a work runs."""

    def __init__(self, bus: FaultBus, seed: int) -> None:
        self._bus = bus
        self._chance = random.Random(seed)
        self.kills: list[str] = []

    async def run(self) -> None:
        """Until cancelled, or nobody is left to be killed in this work."""
        names = [*self._bus.programs, SERVER] * 4
        self._chance.shuffle(names)
        for name in names:
            await anyio.sleep(self._chance.uniform(0.2, 0.6))
            if self._bus.kill(name):
                self.kills.append(name)


async def bring_to_its_end(sender: Bus, workshop: Workshop, work: str) -> None:
    started = await begin(workshop, work)
    key = run_key(work, 1)
    sent = await sender.send(started.to, started.body, key=key, work=work, task=started.task)
    with anyio.fail_after(60):
        result = await sent.result()
    assert result.status == "PASS", result


@pytest.mark.parametrize("seed", [1, 2])
async def test_whoever_is_killed_each_task_is_committed_once_and_the_files_are_the_same(
    project: Project, tmp_path: Path, seed: int
) -> None:
    workshop = await open_workshop(project)
    works: list[str] = []
    async with fault_bus(tmp_path) as bus:
        start_fleet(bus, project)
        killer = Killer(bus, seed)
        async with Bus(bus.server.url, actor=RUNNER, fleet=FLEET) as sender:
            while len(killer.kills) < KILLS:
                works.append(write_next_work(project))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(killer.run)
                    await bring_to_its_end(sender, workshop, works[-1])
                    tasks.cancel_scope.cancel()
    assert set(killer.kills) == {*bus.programs, SERVER}
    assert tree(project) == await undisturbed(tmp_path / "undisturbed", len(works))
    check_commits(project, works)
    check_documents(project, works)


def check_commits(project: Project, works: Sequence[str]) -> None:
    """Each task once, with its own file alone; nothing is left in the user's repository."""
    trailers = project.git("log", "--format=%(trailers:key=Batonbus-Task,valueonly)").split()
    assert sorted(trailers) == sorted(f"{work}/{task}" for work in works for task in tasks_of(work))
    for commit in project.git("rev-list", "HEAD~" + str(len(trailers)) + "..HEAD").split():
        label = project.git("log", "-1", "--format=%(trailers:key=Batonbus-Task,valueonly)", commit)
        assert project.changed(commit) == [f"{label.strip().replace('/', '-')}.txt"]
    assert project.status() == "?? works/"
    assert project.git("worktree", "list").count("\n") == 0
    assert list((project.path / ".git").rglob("*.lock")) in ([], [_writer_lock(project)])


def _writer_lock(project: Project) -> Path:
    return project.path / ".git" / "batonbus.lock"


def check_documents(project: Project, works: Sequence[str]) -> None:
    """Every work is DONE, every task has its result with its context, no log entry stands twice."""
    root = WorksRoot(project.path / "works")
    assert {it.work: it.status for it in root.read_list().whole().works} == dict.fromkeys(
        works, "DONE"
    )
    for work in works:
        found = WorkFolder(project.path / "works" / work).read().whole()
        tasks = tasks_of(work)
        assert len(set(found.log)) == len(found.log)
        committed = [it.summary for it in found.log if " left by " not in it.summary]
        assert sorted(committed) == [f"{task} committed" for task in tasks]
        for task in tasks:
            result = found.task(task).result
            assert result is not None
            roles = ["builder"] if mode_of(work) == "direct" else ["builder", "verifier"]
            assert [it.role for it in result.contexts] == roles
            assert result.commit in project.git("rev-list", "HEAD")
