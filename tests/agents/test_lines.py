"""Direct and pipeline mode: each stage hands on, and the last one answers whoever began."""

import pytest
from git_project import TASK, WORK, Project
from work_bench import (
    Job,
    Player,
    builder,
    bus_with,
    deliveries,
    fleet,
    open_workshop,
    raises,
    run,
    says,
    window,
    write_work,
    writes,
)

from batonbus import Bounced
from batonbus_agents.fleet import make_agent
from batonbus_agents.routes import STAGES, Mode
from batonbus_agents.works.folder import WorksRoot
from batonbus_schemas import TaskResult

ONE = {TASK: Job(("new.txt",))}
FAIL = TaskResult.failed("Not good enough.")

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["direct", "pipeline"])
async def test_a_line_goes_through_its_stages_alone_and_commits_once(
    project: Project, mode: Mode
) -> None:
    write_work(project, ONE, mode)
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
        found = await deliveries(bus)
    assert (result.status, result.agent) == ("PASS", "committer")
    assert result.commit == project.git("rev-parse", "HEAD")
    assert [it.envelope.to for it in found] == list(STAGES[mode])
    assert window(found[-1]) == [
        *([("verifier", TASK, "FULL")] if mode == "pipeline" else []),
        ("builder", TASK, "SUMMARY" if mode == "pipeline" else "FULL"),
    ]
    row = WorksRoot(project.path / "works").read_list().value.find(WORK)
    assert row is not None
    assert row.status == "DONE"


async def test_a_fail_in_a_line_goes_to_the_builder_with_the_next_attempt(
    project: Project,
) -> None:
    write_work(project, ONE, "pipeline")
    verifier = Player(says(TaskResult.passed("Good.")), {(TASK, 1): says(FAIL)})
    player = builder(ONE)
    workshop = await open_workshop(project, {"builder": player, "verifier": verifier})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
        found = await deliveries(bus)
    assert result.status == "PASS"
    assert [(it.envelope.to, it.envelope.attempt) for it in found] == [
        ("builder", 1),
        ("verifier", 1),
        ("builder", 2),
        ("verifier", 2),
        ("committer", 2),
    ]
    assert window(found[2]) == [("verifier", TASK, "FULL"), ("builder", TASK, "SUMMARY")]
    assert "Not good enough." in player.given[1].text


async def test_a_builder_that_says_fail_three_times_ends_the_line(project: Project) -> None:
    write_work(project, ONE, "direct")
    player = Player(writes({"new.txt": "x\n"}, FAIL))
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop) as bus:
        result = await run(bus, workshop)
    assert (result.status, result.summary) == ("FAIL", "Not good enough.")
    assert player.attempts == [(TASK, 1), (TASK, 2), (TASK, 3)]


async def test_exceptions_count_into_the_same_three_in_a_line(project: Project) -> None:
    write_work(project, ONE, "direct")
    player = Player(writes({"new.txt": "x\n"}, FAIL), {(TASK, 3): raises(ValueError("broken"))})
    workshop = await open_workshop(project, {"builder": player})
    async with fleet(workshop) as bus:
        with pytest.raises(Bounced, match="broken"):
            await run(bus, workshop)
    assert player.attempts == [(TASK, 1), (TASK, 2), (TASK, 3)]


async def test_builders_beside_each_other_in_one_repository_do_not_disturb_each_other(
    project: Project,
) -> None:
    jobs = {f"TASK-{it:02d}": Job((f"{it}.txt",)) for it in range(1, 5)}
    write_work(project, jobs)
    workshop = await open_workshop(project, {"builder": builder(jobs)})
    agents = [make_agent(it, workshop) for it in ("scheduler", "verifier", "committer")]
    async with bus_with(*agents, *(make_agent("builder", workshop) for _ in jobs)) as bus:
        result = await run(bus, workshop)
    assert result.status == "PASS", result
    assert sorted(project.log()[1:]) == [f"{task}: Do {task}" for task in jobs]
    commits = project.git("rev-list", "--reverse", "HEAD~4..HEAD").split()
    for commit, subject in zip(commits, project.log()[1:], strict=True):
        assert project.changed(commit) == list(jobs[subject[:7]].files)


@pytest.mark.parametrize("language", ["ko", "ja"])
async def test_a_plan_in_another_language_runs_as_any(project: Project, language: str) -> None:
    jobs = {**ONE, "TASK-02": Job(("other.txt",), (TASK,))}
    write_work(project, jobs, language=language, title="한글 言語")
    workshop = await open_workshop(project, {"builder": builder(jobs)})
    async with fleet(workshop) as bus:
        assert (await run(bus, workshop)).status == "PASS"
    text = (project.path / "works" / WORK / "TASK-02_result.md").read_text()
    assert {"ko": "## 컨텍스트 핸드오프", "ja": "## コンテキスト引き継ぎ"}[language] in text
    assert workshop.read(WORK)[0].task("TASK-02").result is not None


async def test_works_files_that_are_committed_stay_as_they_are_in_every_commit(
    project: Project,
) -> None:
    write_work(project, ONE)
    project.commit("the work")
    workshop = await open_workshop(project, {"builder": builder(ONE)})
    async with fleet(workshop) as bus:
        assert (await run(bus, workshop)).status == "PASS"
    assert project.log() == ["first", "the work", "TASK-01: Do TASK-01"]
    assert project.changed() == ["new.txt"]
    # What the run wrote there is the user's to commit.
    assert "works/WORK-LIST.md" in project.status()
