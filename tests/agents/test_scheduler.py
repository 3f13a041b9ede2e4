"""Full mode as the scheduler runs it: what is asked of whom, with which context, how often."""

import re

import anyio
import pytest
from git_project import WORK, Project
from work_bench import (
    CHAIN,
    DIAMOND,
    Job,
    builder,
    bus_with,
    deliveries,
    fleet,
    open_workshop,
    run,
    stub,
    window,
    write_work,
)

from batonbus import Agent, Bounced, Context, Refuse
from batonbus_agents.dispatches import schedule_dispatch
from batonbus_agents.scheduler import make_scheduler
from batonbus_agents.workshop import Workshop
from batonbus_schemas import Delivery, Dispatch, TaskResult

FAIL = TaskResult.failed("It does not work.\nThe reason is known.")
STAGES = ("builder", "verifier", "committer")

pytestmark = pytest.mark.anyio


def find(found: list[Delivery], role: str, task: str, attempt: int = 1) -> Delivery:
    """The delivery of a task's stage."""
    return next(
        it
        for it in found
        if (it.envelope.to, it.envelope.task, it.envelope.attempt) == (role, task, attempt)
    )


def statuses(result: TaskResult) -> dict[str, str]:
    """What the scheduler reports of each task."""
    return {it.name: it.output.split(":")[0] for it in result.verification}


async def schedule(workshop: Workshop, *agents: Agent) -> tuple[TaskResult, list[Delivery]]:
    """Run a work with a real scheduler and these agents."""
    async with bus_with(make_scheduler(workshop), *agents) as bus:
        return await run(bus, workshop), await deliveries(bus)


async def test_a_chain_is_committed_in_order_and_its_windows_are_the_golden_dispatches(
    project: Project,
) -> None:
    write_work(project, CHAIN)
    workshop = await open_workshop(project, {"builder": builder(CHAIN)})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
        found = await deliveries(bus)
    assert result.status == "PASS"
    assert project.log() == ["first", *(f"{task}: Do {task}" for task in CHAIN)]
    assert [project.changed(f"HEAD~{it}") for it in (2, 1, 0)] == [
        ["one.txt"],
        ["two.txt"],
        ["three.txt"],
    ]
    # The three dispatches of seed 000.
    assert window(find(found, "verifier", "TASK-03")) == [("builder", "TASK-03", "FULL")]
    assert window(find(found, "committer", "TASK-03")) == [
        ("verifier", "TASK-03", "FULL"),
        ("builder", "TASK-03", "SUMMARY"),
    ]
    assert [it[1:] for it in window(find(found, "builder", "TASK-03"))] == [
        ("TASK-02", "FULL"),
        ("TASK-01", "SUMMARY"),
    ]
    assert window(find(found, "builder", "TASK-01")) == []
    # What stands in them is what the builders said.
    verifier, summary = find(found, "committer", "TASK-01").window
    assert summary.what == "Wrote one.txt in attempt 1."
    assert summary.why is summary.caution is summary.incomplete is None
    assert verifier.why is not None
    full, older = find(found, "builder", "TASK-03").window
    assert full.what == "Wrote two.txt in attempt 1."
    assert full.why == "TASK-02 asks for it."
    assert full.caution is not None
    assert "TASK-02 is new." in full.caution
    assert full.incomplete == "TASK-02 has no documentation."
    assert (older.what, older.why) == ("Wrote one.txt in attempt 1.", None)


async def test_the_last_task_of_a_diamond_sees_both_arms_whole_and_the_top_in_short(
    project: Project,
) -> None:
    write_work(project, DIAMOND)
    workshop = await open_workshop(project)
    result, found = await schedule(workshop, *map(stub, STAGES))
    assert result.status == "PASS"
    seen = {(task, level) for _, task, level in window(find(found, "builder", "TASK-04"))}
    assert seen == {("TASK-02", "FULL"), ("TASK-03", "FULL"), ("TASK-01", "SUMMARY")}


async def test_a_rebuild_sees_its_own_stages_and_the_tasks_before(project: Project) -> None:
    write_work(project, CHAIN)
    workshop = await open_workshop(project)
    verifier = stub("verifier", {("TASK-02", 1): FAIL})
    result, found = await schedule(workshop, stub("builder"), verifier, stub("committer"))
    assert result.status == "PASS"
    assert window(find(found, "builder", "TASK-02", attempt=2)) == [
        ("verifier", "TASK-02", "FULL"),
        ("builder", "TASK-02", "SUMMARY"),
        ("committer", "TASK-01", "FULL"),
    ]


@pytest.mark.parametrize("role", ["verifier", "committer"])
async def test_the_third_fail_of_a_stage_fails_the_task_blocks_its_dependants_and_halts(
    project: Project, role: str
) -> None:
    write_work(project, {**CHAIN, "TASK-04": Job(("four.txt",))})
    workshop = await open_workshop(project)
    fails = {("TASK-02", attempt): FAIL for attempt in (1, 2, 3)}
    agents = [stub(it, fails if it == role else None) for it in STAGES]
    result, found = await schedule(workshop, *agents)
    assert result.status == "FAIL"
    assert statuses(result)["TASK-02"] == "FAILED"
    checks = {it.name: it for it in result.verification}
    assert checks["TASK-02"].output == f"FAILED: {role}, attempt 3: {FAIL.summary}"
    assert checks["TASK-03"].output == "BLOCKED: TASK-02 is FAILED"
    assert [checks[it].status for it in CHAIN] == ["PASS", "FAIL", "N/A"]
    assert checks["TASK-04"].status == "PASS"
    assert "2 of 4 tasks of WORK-01 committed" in result.summary
    attempts = [it.envelope.attempt for it in found if it.envelope.task == "TASK-02"]
    assert max(attempts) == 3
    assert not any(it.envelope.task == "TASK-03" for it in found)


async def test_exceptions_and_fails_of_a_role_count_into_the_same_three(project: Project) -> None:
    write_work(project, {"TASK-01": Job(("a.txt",))})
    workshop = await open_workshop(project)
    verifier = stub(
        "verifier",
        {("TASK-01", 1): ValueError("no"), ("TASK-01", 2): FAIL, ("TASK-01", 3): FAIL},
    )
    result, found = await schedule(workshop, stub("builder"), verifier, stub("committer"))
    assert statuses(result) == {"TASK-01": "FAILED"}
    # The builder has an attempt left; the verifier has none, so nothing is built for it in vain.
    assert [it.envelope.to for it in found] == [
        "scheduler",
        "builder",
        "verifier",
        "builder",
        "verifier",
    ]
    assert "verifier, attempt 3" in result.verification[0].output


async def test_three_exceptions_of_a_role_fail_the_task_with_the_last_one(
    project: Project,
) -> None:
    write_work(project, CHAIN)
    workshop = await open_workshop(project)
    errors = {("TASK-01", it): ValueError(f"broken {it}") for it in (1, 2, 3)}
    agents = [stub("builder", errors), stub("verifier"), stub("committer")]
    result, _ = await schedule(workshop, *agents)
    assert statuses(result) == {"TASK-01": "FAILED", "TASK-02": "BLOCKED", "TASK-03": "BLOCKED"}
    assert "broken 3" in result.verification[0].output


async def test_a_refused_stage_fails_its_task_at_once(project: Project) -> None:
    write_work(project, {"TASK-01": Job(("a.txt",))})
    workshop = await open_workshop(project)
    refusing = stub("builder", {("TASK-01", 1): Refuse("not mine")})
    result, found = await schedule(workshop, refusing)
    assert "not mine" in result.verification[0].output
    assert [it.envelope.to for it in found] == ["scheduler", "builder"]


class Meeting:
    """Builders that meet: each waits until as many work at once as are expected."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.most = 0
        self._working = 0
        self._met = anyio.Event()

    def agent(self) -> Agent:
        agent = Agent("builder", slots=8)

        @agent.handles
        async def build(_: Dispatch, ctx: Context) -> TaskResult:
            self._working += 1
            self.most = max(self.most, self._working)
            if self._working == self.expected:
                self._met.set()
            with anyio.fail_after(20):
                await self._met.wait()
            self._working -= 1
            return TaskResult.passed(f"Built {ctx.envelope.task}.")

        return agent


@pytest.mark.parametrize(("file", "expected"), [("{}.txt", 3), ("same.txt", 1)])
async def test_ready_tasks_are_built_at_once_but_for_those_that_name_the_same_file(
    project: Project, file: str, expected: int
) -> None:
    write_work(project, {f"TASK-0{it}": Job((file.format(it),)) for it in (1, 2, 3)})
    meeting = Meeting(expected)
    workshop = await open_workshop(project)
    result, _ = await schedule(workshop, meeting.agent(), stub("verifier"), stub("committer"))
    assert result.status == "PASS"
    assert meeting.most == expected


async def test_tasks_that_name_the_same_file_only_in_their_own_files_are_kept_apart(
    project: Project,
) -> None:
    write_work(project, {f"TASK-0{it}": Job(("same.txt",)) for it in (1, 2)})
    plan = project.path / "works" / WORK / "PLAN.md"
    plan.write_text(re.sub(r"^- \*\*Files\*\*.*$", "", plan.read_text(), flags=re.MULTILINE))
    meeting = Meeting(1)
    workshop = await open_workshop(project)
    result, _ = await schedule(workshop, meeting.agent(), stub("verifier"), stub("committer"))
    assert result.status == "PASS"
    assert meeting.most == 1


async def test_files_that_only_the_tasks_own_files_declare_keep_tasks_apart_too(
    project: Project,
) -> None:
    folder = write_work(project, {f"TASK-0{it}": Job(("same.txt",)) for it in (1, 2)})
    plan = folder.path / "PLAN.md"
    plan.write_text(plan.read_text().replace("  - `same.txt` — CREATE\n", ""))
    meeting = Meeting(1)
    workshop = await open_workshop(project)
    result, _ = await schedule(workshop, meeting.agent(), stub("verifier"), stub("committer"))
    assert result.status == "PASS"
    assert meeting.most == 1


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (
            {"TASK-01": "TASK-03", "TASK-02": "TASK-01", "TASK-03": "TASK-02"},
            "a cycle: TASK-01 needs TASK-03 needs TASK-02 needs TASK-01",
        ),
        ({"TASK-01": "TASK-01"}, "TASK-01 needs itself"),
        ({"TASK-01": "TASK-99"}, "TASK-01 needs TASK-99, which is no task here"),
    ],
)
async def test_a_plan_that_cannot_run_is_refused_by_name_and_nothing_is_dispatched(
    project: Project, needs: dict[str, str], reason: str
) -> None:
    write_work(project, {task: Job((f"{task}.txt",), (need,)) for task, need in needs.items()})
    workshop = await open_workshop(project)
    async with bus_with(make_scheduler(workshop), *map(stub, STAGES)) as bus:
        with pytest.raises(Refuse, match="cannot be read") as refused:
            await run(bus, workshop)
        # Whoever asks the scheduler itself is told the same.
        sent = await bus.send("scheduler", schedule_dispatch(WORK, "Run it."), work=WORK)
        with pytest.raises(Bounced, match=reason) as bounced:
            await sent.result()
        assert [it.envelope.to for it in await deliveries(bus)] == ["scheduler"]
    assert reason in str(refused.value)
    assert "PLAN.md:" in str(bounced.value)


async def test_a_task_that_stands_twice_is_refused_by_name(project: Project) -> None:
    folder = write_work(project, CHAIN)
    plan = folder.path / "PLAN.md"
    plan.write_text(plan.read_text().replace("### TASK-02", "### TASK-03"))
    workshop = await open_workshop(project)
    async with bus_with(make_scheduler(workshop)) as bus:
        with pytest.raises(Refuse, match="TASK-03 is there twice"):
            await run(bus, workshop)
        assert await deliveries(bus) == []


async def test_what_an_earlier_run_committed_is_not_done_again_and_stands_in_the_windows(
    project: Project,
) -> None:
    write_work(project, CHAIN)
    workshop = await open_workshop(project)
    body = schedule_dispatch(WORK, "Go on.", {"TASK-01": "abc", "TASK-02": "def"})
    async with bus_with(make_scheduler(workshop), *map(stub, STAGES)) as bus:
        result = await (await bus.send("scheduler", body, work=WORK)).result()
        found = await deliveries(bus)
    assert result.status == "PASS"
    assert [(it.envelope.to, it.envelope.task) for it in found] == [
        ("scheduler", None),
        ("committer", "TASK-01"),
        ("committer", "TASK-02"),
        *((role, "TASK-03") for role in STAGES),
    ]
    assert [it[1:] for it in window(find(found, "builder", "TASK-03"))] == [
        ("TASK-02", "FULL"),
        ("TASK-01", "SUMMARY"),
    ]


async def test_the_report_of_very_many_tasks_fits_a_message(project: Project) -> None:
    jobs = {f"TASK-{it:02d}": Job((f"{it}.txt",)) for it in range(1, 41)}
    write_work(project, jobs)
    workshop = await open_workshop(project)
    refusals = {(task, 1): Refuse("x" * 2_000) for task in jobs}
    result, _ = await schedule(workshop, stub("builder", refusals))
    assert set(statuses(result)) == set(jobs)
    assert result.status == "FAIL"


async def test_a_fail_after_a_role_has_made_its_attempts_names_both(project: Project) -> None:
    write_work(project, {"TASK-01": Job(("a.txt",))})
    workshop = await open_workshop(project)
    errors = {("TASK-01", it): ValueError("broken") for it in (1, 2)}
    agents = [stub("builder", errors), stub("verifier", {("TASK-01", 1): FAIL})]
    result, _ = await schedule(workshop, *agents)
    output = result.verification[0].output
    assert output == f"FAILED: verifier, attempt 1: {FAIL.summary}; builder has made 3 attempts"
