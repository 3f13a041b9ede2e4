"""Whoever is stopped in the middle: another goes on, and what comes of it is the same."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from git_project import WORK, Project
from work_bench import (
    Job,
    Player,
    builder,
    bus_with,
    deliveries,
    open_workshop,
    says,
    write,
    write_work,
)

from batonbus.work.runner import begin
from batonbus_agents import committer
from batonbus_agents.callback import Done
from batonbus_agents.fleet import make_agent
from batonbus_agents.repository import Repository
from batonbus_agents.routes import STAGES, Role
from batonbus_agents.runtimes import Assignment
from batonbus_agents.works.folder import WorkFolder
from batonbus_agents.workshop import Workshop
from batonbus_schemas import TaskResult

TWO = {"TASK-01": Job(("one.txt",)), "TASK-02": Job(("two.txt",), ("TASK-01",))}
PASS = TaskResult.passed("Looks good.")

pytestmark = pytest.mark.anyio


class Trap:
    """A place where whoever comes first stays until it is stopped."""

    def __init__(self) -> None:
        self.sprung = anyio.Event()
        self.left = anyio.Event()
        """Another has started in the place of who was stopped."""

    async def enter(self) -> None:
        if not self.sprung.is_set():
            self.sprung.set()
            await anyio.sleep_forever()


async def run_with_successor(workshop: Workshop, role: Role, trap: Trap) -> TaskResult:
    """Run the work; the agent of this role is stopped in the trap, and started again."""
    others = [make_agent(it, workshop) for it in ("scheduler", *STAGES["full"]) if it != role]
    async with bus_with(*others) as bus, anyio.create_task_group() as tasks:

        async def serve(*, task_status: TaskStatus[anyio.CancelScope]) -> None:
            with anyio.CancelScope() as scope:
                task_status.started(scope)
                await bus.run(make_agent(role, workshop, id=f"{role}-1"))

        first = await tasks.start(serve)
        started = await begin(workshop, WORK)
        sent = await bus.send(started.to, started.body, work=WORK)
        with anyio.fail_after(30):
            await trap.sprung.wait()
            first.cancel()
            await tasks.start(serve)
            trap.left.set()
            result = await sent.result()
        # A stop spends no attempt, and nobody is asked twice.
        asked = [(it.envelope.to, it.envelope.task) for it in await deliveries(bus)]
        assert asked == [
            ("scheduler", None),
            *((stage, task) for task in TWO for stage in STAGES["full"]),
        ]
        tasks.cancel_scope.cancel()
    return result


def check(project: Project, result: TaskResult) -> None:
    """Each task is committed once, with the same files and documents as without a stop."""
    assert result.status == "PASS", result
    assert project.log() == ["first", "TASK-01: Do TASK-01", "TASK-02: Do TASK-02"]
    assert [project.changed(it) for it in ("HEAD~", "HEAD")] == [["one.txt"], ["two.txt"]]
    assert project.status() == "?? works/"
    folder = WorkFolder(project.path / "works" / WORK)
    for task in TWO:
        progress, kept = folder.progress(task).value, folder.result(task).value
        assert progress is not None
        assert progress.status == "COMPLETED"
        assert progress.attempts == {"builder_attempts": 1}
        assert kept is not None
        assert [it.role for it in kept.contexts] == ["builder", "verifier"]
    log = [it.summary for it in folder.log()]
    assert [it for it in log if it.endswith(" committed")] == [f"{it} committed" for it in TWO]
    assert len(log) == len(set(log))


async def test_a_builder_that_is_stopped_in_its_work_leaves_nothing_behind(
    project: Project,
) -> None:
    write_work(project, TWO)
    trap = Trap()

    async def half(assignment: Assignment) -> TaskResult:
        if not trap.sprung.is_set():
            write(assignment.cwd, {"two.txt": "half", "stray.txt": "half", "a.txt": "half"})
        await trap.enter()
        write(assignment.cwd, {"two.txt": "TASK-02\n"})
        return TaskResult.passed("Wrote two.txt.")

    player = builder(TWO, {("TASK-02", 1): half})
    workshop = await open_workshop(project, {"builder": player})
    check(project, await run_with_successor(workshop, "builder", trap))
    assert Counter(player.attempts) == {("TASK-01", 1): 1, ("TASK-02", 1): 2}


async def test_a_verifier_that_is_stopped_is_followed_by_one_that_verifies_again(
    project: Project,
) -> None:
    write_work(project, TWO)
    trap = Trap()

    async def think(_: Assignment) -> TaskResult:
        await trap.enter()
        return PASS

    verifier = Player(says(PASS), {("TASK-01", 1): think})
    workshop = await open_workshop(project, {"builder": builder(TWO), "verifier": verifier})
    check(project, await run_with_successor(workshop, "verifier", trap))
    assert Counter(verifier.attempts) == {("TASK-01", 1): 2, ("TASK-02", 1): 1}


@pytest.mark.parametrize("task", TWO)
async def test_a_scheduler_that_is_stopped_asks_nobody_again(project: Project, task: str) -> None:
    write_work(project, TWO)
    trap = Trap()

    async def slowly(assignment: Assignment) -> TaskResult:
        trap.sprung.set()
        await trap.left.wait()
        write(assignment.cwd, {TWO[task].files[0]: f"{task}\n"})
        return TaskResult.passed("Wrote it.")

    player = builder(TWO, {(task, 1): slowly})
    workshop = await open_workshop(project, {"builder": player})
    check(project, await run_with_successor(workshop, "scheduler", trap))
    assert player.attempts == [("TASK-01", 1), ("TASK-02", 1)]


def before(function: Callable[..., Any], trap: Trap) -> Callable[..., Any]:
    async def call(*arguments: Any) -> Any:
        await trap.enter()
        return await function(*arguments)

    return call


def after(function: Callable[..., Any], trap: Trap) -> Callable[..., Any]:
    async def call(*arguments: Any) -> Any:
        found = await function(*arguments)
        await trap.enter()
        return found

    return call


@pytest.mark.parametrize("where", [before, after])
async def test_a_committer_that_is_stopped_around_its_commit_makes_it_once(
    project: Project, monkeypatch: pytest.MonkeyPatch, where: Callable[..., Any]
) -> None:
    write_work(project, TWO)
    trap = Trap()
    monkeypatch.setattr(Repository, "commit_task", where(Repository.commit_task, trap))
    workshop = await open_workshop(project, {"builder": builder(TWO)})
    check(project, await run_with_successor(workshop, "committer", trap))


async def test_a_committer_that_is_stopped_while_it_tells_of_its_commit_tells_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_work(project, TWO)
    trap = Trap()
    told: list[tuple[str, str]] = []

    async def tell(_: str, done: Done) -> None:
        told.append((done.task_id, done.commit_hash))
        await trap.enter()

    monkeypatch.setattr(committer, "call_back", tell)
    workshop = await open_workshop(project, {"builder": builder(TWO)}, on_done="tell")
    check(project, await run_with_successor(workshop, "committer", trap))
    first, second = project.git("rev-parse", "HEAD~"), project.git("rev-parse", "HEAD")
    # The commit says which call is a repeated one.
    assert told == [("TASK-01", first), ("TASK-01", first), ("TASK-02", second)]
