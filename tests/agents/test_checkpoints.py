"""The fleet's Checkpoints: compared with marks, log, phase and tree, and kept in the log."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from git_project import TASK, WORK, Project
from work_bench import (
    Job,
    Player,
    builder,
    bus_with,
    open_workshop,
    run,
    says,
    wait_until,
    write_work,
)

from batonbus import Bus, TestBus
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import open_operator
from batonbus.work.runner import begin
from batonbus_agents import committer
from batonbus_agents.builder import Building
from batonbus_agents.dispatches import stage_dispatch
from batonbus_agents.fleet import make_agent
from batonbus_agents.routes import STAGES, Role
from batonbus_agents.runtimes import Assignment
from batonbus_agents.works.folder import LOG, WorkFolder
from batonbus_agents.works.validation import validate_folder
from batonbus_agents.workshop import Workshop
from batonbus_schemas import ResetJournal, TaskResult

TWO = {TASK: Job(("one.txt",)), "TASK-02": Job(("two.txt",), (TASK,))}

pytestmark = pytest.mark.anyio


def folder(project: Project) -> WorkFolder:
    return WorkFolder(project.path / "works" / WORK)


def crew(workshop: Workshop, roles: tuple[Role, ...] = ("scheduler", *STAGES["full"])) -> TestBus:
    """A bus with the fleet's own agents, `builder-1` and so on."""
    return bus_with(*(make_agent(it, workshop, id=f"{it}-1") for it in roles))


async def journal(bus: TestBus, agent: str) -> ResetJournal | None:
    async with Bus(bus.server.url, actor="reader") as reader:
        return await reader.client.checkpoints.get(agent)


async def why_closed(bus: TestBus, agent: str) -> str:
    """Why an agent is closed, once it is for a Checkpoint."""
    async with open_operator(bus.server.url, fleet=DEFAULT_FLEET) as core:
        with anyio.fail_after(20):
            while True:
                for it in await core.registry.list():
                    if it.card.id == agent and it.closed.startswith("Checkpoint"):
                        return it.closed
                await anyio.sleep(0.02)


async def test_every_stage_ends_with_an_entry_of_what_was_done_and_what_is_next(
    project: Project,
) -> None:
    write_work(project, TWO)
    workshop = await open_workshop(project, {"builder": builder(TWO)})
    async with crew(workshop) as bus:
        assert (await run(bus, workshop)).status == "PASS"
        await wait_until(lambda: len(folder(project).log()) == 7)
        stored = await journal(bus, "builder-1")
    log = folder(project).log()
    expected: list[tuple[str, str, str]] = []
    for task in TWO:
        expected += [
            (f"{task} left by builder-1", "implement", f"Verify {task}."),
            (f"{task} left by verifier-1", "implement", f"Commit {task}."),
            (f"{task} committed", "close", committer.AFTER_COMMIT),
        ]
    expected.append((f"{WORK} left by scheduler-1", "implement", "Review and push."))
    assert [(it.summary, it.phase, it.next) for it in log] == expected
    assert log[3].did == "Wrote two.txt in attempt 1."
    assert log[3].checks == "no check was run; changed: two.txt"
    assert log[3].context == "clear: task boundary"
    assert log[6].checks == "TASK-01 PASS, TASK-02 PASS"
    assert stored is not None
    assert stored.checkpoint is not None
    assert (stored.step, stored.checkpoint.task) == ("done", "TASK-02")
    assert stored.checkpoint.next == "Verify TASK-02."
    assert not validate_folder(project.path / "works").refused


async def test_a_failed_stage_says_what_to_build_again_and_at_last_what_to_mend(
    project: Project,
) -> None:
    write_work(project, {TASK: Job(("one.txt",))})
    verifier = Player(lambda it: TaskResult.failed(f"It is red in attempt {it.attempt}."))
    workshop = await open_workshop(project, {"builder": builder(TWO), "verifier": verifier})
    async with crew(workshop) as bus:
        assert (await run(bus, workshop)).status == "FAIL"
        await wait_until(lambda: len(folder(project).log()) == 7)
    log = folder(project).log()
    assert [it.next for it in log[1::2]] == [
        "Build TASK-01 again: It is red in attempt 1.",
        "Build TASK-01 again: It is red in attempt 2.",
        "Mend TASK-01, it FAILED: It is red in attempt 3.",
    ]
    assert log[-1].next.startswith(f"Mend what failed, and run {WORK} again: 0 of 1 task")


def rewrite(project: Project, name: str, old: str, new: str) -> None:
    path = folder(project).path / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def after_building(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Assignment], None], player: Player
) -> None:
    """Something else changes what the builder has just left: a process that outlives its program,
    say."""
    build = Building.build

    async def build_and_change(self: Building, *arguments: Any) -> TaskResult:
        result = await build(self, *arguments)
        change(player.given[-1])
        return result

    monkeypatch.setattr(Building, "build", build_and_change)


def after_committing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """The callback is told of a commit whose entry is in the log."""

    async def tell(*_: Any) -> None:
        change()

    monkeypatch.setattr(committer, "call_back", tell)


async def refused(project: Project, workshop: Workshop, agent: str) -> tuple[str, str]:
    """Run the work until a Checkpoint of this agent is refused: why, and what the next task's
    handoff to it is told. Its session is not reset: its Checkpoint is not stored."""
    role: Role = "builder" if agent == "builder-1" else "committer"
    async with crew(workshop) as bus:
        started = await begin(workshop, WORK)
        await bus.send(started.to, started.body, work=WORK, task=started.task)
        why = await why_closed(bus, agent)
        sent = await bus.send(role, "x", work=WORK, task="TASK-02", key="probe")
        receipt = await sent.receipt()
        assert receipt.state == "held"
        stored = await journal(bus, agent)
        assert stored is None or (stored.step, stored.checkpoint) == ("handoff", None)
    return why, receipt.reason


async def test_marks_that_disagree_with_the_ledger_reset_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_work(project, TWO)
    player = builder(TWO)
    workshop = await open_workshop(project, {"builder": player})
    after_building(
        monkeypatch,
        lambda it: rewrite(project, f"{it.task}_progress.md", "COMPLETED", "IN_PROGRESS"),
        player,
    )
    why, told = await refused(project, workshop, "builder-1")
    assert why == (
        "Checkpoint refused: progress marks: they disagree with the ledger about TASK-01"
    )
    assert told == f"closed: {why}"
    assert not any("builder" in it.summary for it in folder(project).log())


async def test_a_tree_with_changes_that_are_not_listed_resets_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_work(project, TWO)
    player = builder(TWO)
    workshop = await open_workshop(project, {"builder": player})

    def litter(assignment: Assignment) -> None:
        (assignment.cwd / "stray.txt").write_text("late\n")
        (assignment.cwd / "a.txt").write_text("late\n")

    after_building(monkeypatch, litter, player)
    async with crew(workshop, ("builder",)) as bus:
        body = stage_dispatch(workshop.task(WORK, TASK), "builder")
        await (await bus.send("builder", body, work=WORK, task=TASK)).result()
        why = await why_closed(bus, "builder-1")
        assert not folder(project).log()
        # Somebody mends it, and the session ends.
        tree = project.path / ".batonbus/worktrees" / WORK / TASK
        (tree / "stray.txt").unlink()
        (tree / "a.txt").write_text("a\n")
        await wait_until(lambda: len(folder(project).log()) == 1)
    assert why == "Checkpoint refused: tree: changed and not listed: a.txt, stray.txt"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            f"- **Next**: {committer.AFTER_COMMIT}\n",
            "",
            "execution log: its entry says nothing as next",
        ),
        (
            f"- **Next**: {committer.AFTER_COMMIT}\n",
            "- **Next**: None\n",
            "execution log: its entry says nothing as next",
        ),
        (
            "- **Phase**: close\n",
            "- **Phase**: plan\n",
            "phase: its entry says plan, the ledger close",
        ),
    ],
)
async def test_an_entry_without_its_next_step_or_of_another_phase_resets_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    write_work(project, TWO)
    workshop = await open_workshop(project, {"builder": builder(TWO)}, on_done="tell")
    after_committing(monkeypatch, lambda: rewrite(project, LOG, old, new))
    said, told = await refused(project, workshop, "committer-1")
    assert said == f"Checkpoint refused: {why}"
    assert told == f"closed: {said}"


async def test_what_a_check_leaves_in_the_tree_is_nothing_to_list(project: Project) -> None:
    job = Job(("one.txt",), verify=("echo late > a.txt && echo late > stray.txt",))
    write_work(project, {TASK: job}, "direct")
    workshop = await open_workshop(project, {"builder": builder({TASK: job})})
    async with crew(workshop, ("builder", "committer")) as bus:
        assert (await run(bus, workshop)).status == "PASS"
        await wait_until(lambda: len(folder(project).log()) == 2)
    assert {it.summary: it.next for it in folder(project).log()} == {
        f"{TASK} left by builder-1": f"Commit {TASK}.",
        f"{TASK} committed": committer.AFTER_COMMIT,
    }


async def test_who_builds_again_after_an_interruption_starts_from_the_last_next_step(
    project: Project,
) -> None:
    write_work(project, {TASK: Job(("one.txt",))})
    caught = anyio.Event()

    async def stay(assignment: Assignment) -> TaskResult:
        if not caught.is_set():
            caught.set()
            await anyio.sleep_forever()
        (assignment.cwd / "one.txt").write_text("green\n")
        return TaskResult.passed("Made it green.")

    player = builder(TWO, {(TASK, 2): stay})
    red = says(TaskResult.failed("It is red."))
    verifier = Player(says(TaskResult.passed("It is green.")), {(TASK, 1): red})
    workshop = await open_workshop(project, {"builder": player, "verifier": verifier})
    others = crew(workshop, ("scheduler", "verifier", "committer"))
    async with others as bus, anyio.create_task_group() as tasks:

        async def serve(*, task_status: TaskStatus[anyio.CancelScope]) -> None:
            with anyio.CancelScope() as scope:
                task_status.started(scope)
                await bus.run(make_agent("builder", workshop, id="builder-1"))

        first = await tasks.start(serve)
        tasks.start_soon(run, bus, workshop)
        with anyio.fail_after(30):
            await caught.wait()
            first.cancel()
            await tasks.start(serve)
            await wait_until(lambda: any("commit" in it.summary for it in folder(project).log()))
        tasks.cancel_scope.cancel()
    told = "## Next step, by the last checkpoint of TASK-01\n\nBuild TASK-01 again: It is red.\n"
    assert [told in it.text for it in player.given] == [False, False, True]
