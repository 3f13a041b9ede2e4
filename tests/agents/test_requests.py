"""A request in plain text: the specifier and the planner make a work of it, and it runs."""

from collections.abc import Mapping

import pytest
from git_project import WORK, Project
from work_bench import (
    DAY,
    Job,
    Player,
    Step,
    builder,
    bus_with,
    deliveries,
    fleet,
    open_workshop,
    wait_until,
    write,
)

from batonbus import Bounced
from batonbus_agents.planner import make_planner
from batonbus_agents.routes import Mode, Role
from batonbus_agents.runtimes import Assignment, Runtime
from batonbus_agents.specifier import make_specifier
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.folder import WorksRoot
from batonbus_agents.works.plan import Plan, render_plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.requirement import Requirement, render_requirement
from batonbus_agents.works.task import TaskSpec, render_task
from batonbus_agents.works.validation import validate_folder
from batonbus_agents.workshop import Workshop
from batonbus_schemas import Dispatch, TaskResult

REQUEST = Dispatch(brief="Greet the world.\nIn two languages.", action="route", title="Greet")
SMALL = Requirement(
    work=WORK, request=REQUEST.brief, functional=("FR-01: greet",), acceptance_criteria=("greets",)
)
LARGE = Requirement(
    work=WORK,
    request=REQUEST.brief,
    functional=tuple(f"FR-0{it}: greet {it}" for it in (1, 2, 3)),
    acceptance_criteria=("greets",),
)
ONE = {"TASK-01": Job(("hello.txt",))}
BIG = {"TASK-01": Job(("a1.txt", "a2.txt", "a3.txt", "a4.txt"))}
TWO = {"TASK-01": Job(("hello.txt",)), "TASK-02": Job(("hallo.txt",), ("TASK-01",))}

SAID = TaskResult.passed("Wrote the documents.", why="As asked.")

pytestmark = pytest.mark.anyio


def documents(jobs: Mapping[str, Job], mode: Mode) -> dict[str, str]:
    """A plan and its tasks, as a planner writes them."""
    files = {task: tuple(FileEntry(it, "CREATE") for it in job.files) for task, job in jobs.items()}
    tasks = tuple(
        PlanTask(id=task, title=f"Do {task}", depends_on=job.needs, files=files[task])
        for task, job in jobs.items()
    )
    plan = Plan(work=WORK, title="Greet", goal="Greet.", mode=mode, created=DAY, tasks=tasks)
    specs = {
        f"{task}.md": render_task(
            TaskSpec(id=task, title=f"Do {task}", depends_on=job.needs, files=files[task])
        )
        for task, job in jobs.items()
    }
    return {"PLAN.md": render_plan(plan), **specs}


def drafts(files: Mapping[str, str], result: TaskResult = SAID) -> Step:
    """A step that writes documents into the current folder."""

    def step(assignment: Assignment) -> TaskResult:
        write(assignment.cwd, files)
        return result

    return step


def specifies(requirement: Requirement, **more: str) -> Player:
    """A specifier that writes this requirement, and further files."""
    return Player(drafts({"Requirement.md": render_requirement(requirement), **more}))


async def request(workshop: Workshop) -> TaskResult:
    """What comes of the request, in a work of its own."""
    workshop.works.new_work(REQUEST.title, DAY)
    async with fleet(workshop) as bus:
        return await (await bus.send("specifier", REQUEST, work=WORK)).result()


@pytest.mark.parametrize(
    ("mode", "requirement", "jobs"),
    [("direct", SMALL, ONE), ("pipeline", LARGE, BIG), ("full", LARGE, TWO)],
)
async def test_a_request_becomes_a_work_in_the_mode_that_it_needs_and_is_done(
    project: Project, mode: Mode, requirement: Requirement, jobs: dict[str, Job]
) -> None:
    plan = documents(jobs, mode)
    asked = specifies(requirement, **(plan if mode == "direct" else {}))
    planner, built = Player(drafts(plan)), builder(jobs)
    runtimes: dict[Role, Runtime] = {"specifier": asked, "planner": planner, "builder": built}
    workshop = await open_workshop(project, runtimes)
    workshop.works.new_work(REQUEST.title, DAY)
    async with fleet(workshop) as bus:
        result = await (await bus.send("specifier", REQUEST, work=WORK)).result()
        asked_roles = [it.envelope.to for it in await deliveries(bus)]
    assert result.status == "PASS", result
    # Seed 002, section 5: who is invoked, and who writes what.
    stages = ["builder", *([] if mode == "direct" else ["verifier"]), "committer"]
    before = {"direct": [], "pipeline": ["planner"], "full": ["planner", "scheduler"]}[mode]
    assert asked_roles == ["specifier", *before, *stages * len(jobs)]
    assert len(planner.given) == (0 if mode == "direct" else 1)
    names = {it.name for it in (project.path / "works" / WORK).iterdir()}
    assert names == {
        "Requirement.md",
        "PLAN.md",
        "execution-log.md",
        *(f"{task}{kind}.md" for task in jobs for kind in ("", "_progress", "_result")),
    }
    report = validate_folder(project.path / "works")
    assert [it for it in report.problems if not it.warning] == []
    row = workshop.works.read_list().value.find(WORK)
    assert row is not None
    assert row.status == "DONE"
    assert project.log() == ["first", *(f"{task}: Do {task}" for task in jobs)]
    kept = workshop.folder(WORK).result("TASK-01").value
    assert kept is not None
    assert kept.mode == ("direct" if mode == "direct" else "")


async def test_each_is_told_what_to_write_and_where_the_project_is(project: Project) -> None:
    seen: list[bool] = []

    def look(assignment: Assignment) -> TaskResult:
        seen.append((assignment.cwd / "../../../../run.sh").is_file())
        seen.append("Requirement.md" in {it.name for it in assignment.cwd.iterdir()})
        write(assignment.cwd, documents(BIG, "pipeline"))
        return SAID

    asked, planner = specifies(LARGE), Player(look)
    runtimes: dict[Role, Runtime] = {
        "specifier": asked,
        "planner": planner,
        "builder": builder(BIG),
    }
    await request(await open_workshop(project, runtimes))
    assert REQUEST.brief.splitlines()[1] in asked.given[0].text
    assert "`# Requirement — WORK-01`" in asked.given[0].text
    assert "../../../.." in planner.given[0].text
    assert "`# WORK-01: title`" in planner.given[0].text
    assert seen == [True, True]


async def test_a_long_request_lies_whole_where_the_specifier_works(project: Project) -> None:
    long = Dispatch(brief="Greet the world, and each of its parts. " * 200, title="Greet")
    found: list[str] = []

    def look(assignment: Assignment) -> TaskResult:
        path = assignment.text.partition("All of it: ")[2].split()[0]
        found.append((assignment.cwd / path).read_text())
        return TaskResult.failed("Too long.")

    workshop = await open_workshop(project, {"specifier": Player(look)})
    workshop.works.new_work("Greet", DAY)
    async with fleet(workshop) as bus:
        await (await bus.send("specifier", long, work=WORK)).result()
    assert found == [long.brief]


async def test_documents_that_are_not_valid_are_asked_for_once_more_with_the_reasons(
    project: Project,
) -> None:
    wrong = documents(ONE, "direct")["PLAN.md"].replace("(none)", "TASK-09")
    good = {"Requirement.md": render_requirement(SMALL), **documents(ONE, "direct")}
    tried: list[str] = []

    def step(assignment: Assignment) -> TaskResult:
        tried.append(assignment.text)
        write(assignment.cwd, good if len(tried) > 1 else {**good, "PLAN.md": wrong})
        return SAID

    runtimes: dict[Role, Runtime] = {"specifier": Player(step), "builder": builder(ONE)}
    result = await request(await open_workshop(project, runtimes))
    assert result.status == "PASS"
    assert len(tried) == 2
    assert "TASK-01 needs TASK-09, which is no task here" in tried[1]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "Requirement.md is not there"),
        ({"Requirement.md": "# Requirement — WORK-01\n\n## Original Request\n\n> x\n"}, "names no"),
        ({"Requirement.md": render_requirement(SMALL)}, "PLAN.md"),
        (
            {
                "Requirement.md": render_requirement(SMALL),
                "PLAN.md": documents(ONE, "direct")["PLAN.md"],
            },
            "TASK-01.md is not there",
        ),
        (
            {"Requirement.md": render_requirement(SMALL), **documents(TWO, "full")},
            "one task in execution mode direct, and this is 2 in full",
        ),
    ],
)
async def test_what_is_still_not_valid_is_refused_with_its_reasons_and_nothing_is_written(
    project: Project, files: dict[str, str], reason: str
) -> None:
    player = Player(drafts(files))
    workshop = await open_workshop(project, {"specifier": player})
    folder = workshop.works.new_work(REQUEST.title, DAY)
    async with bus_with(make_specifier(workshop)) as bus:
        with pytest.raises(Bounced, match="the specifier's documents are not valid") as bounced:
            await (await bus.send("specifier", REQUEST, work=WORK)).result()
    assert reason in str(bounced.value)
    assert len(player.given) == 2
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize(
    ("jobs", "mode", "reason"),
    [
        (TWO, "pipeline", "runs one task, this plan has 2"),
        (ONE, "full", "its tasks ask for execution mode direct, it says full"),
    ],
)
async def test_a_plan_in_another_mode_than_its_tasks_ask_for_is_refused(
    project: Project, jobs: dict[str, Job], mode: Mode, reason: str
) -> None:
    workshop = await open_workshop(project, {"planner": Player(drafts(documents(jobs, mode)))})
    workshop.works.new_work(REQUEST.title, DAY)
    async with bus_with(make_planner(workshop)) as bus:
        with pytest.raises(Bounced, match=reason):
            await (await bus.send("planner", REQUEST, work=WORK)).result()


async def test_a_fail_of_the_runtime_is_the_answer_and_nothing_goes_on(project: Project) -> None:
    player = Player(drafts({}, TaskResult.failed("The request says two things.")))
    result = await request(await open_workshop(project, {"specifier": player}))
    assert (result.status, result.summary) == ("FAIL", "The request says two things.")
    assert len(player.given) == 1


@pytest.mark.parametrize("name", ["Requirement.md", "PLAN.md", "TASK-01.md"])
async def test_what_a_person_wrote_is_never_overwritten(project: Project, name: str) -> None:
    workshop = await open_workshop(
        project, {"specifier": specifies(SMALL, **documents(ONE, "direct"))}
    )
    folder = workshop.works.new_work(REQUEST.title, DAY)
    (folder.path / name).write_text("Mine.\n")
    async with bus_with(make_specifier(workshop)) as bus:
        with pytest.raises(Bounced, match=f"{WORK}/{name} is there already"):
            await (await bus.send("specifier", REQUEST, work=WORK)).result()
    assert (folder.path / name).read_text() == "Mine.\n"


async def test_a_role_without_a_runtime_says_how_to_give_it_one(project: Project) -> None:
    workshop = await open_workshop(project)
    async with bus_with(make_specifier(workshop)) as bus:
        with pytest.raises(Bounced, match="--runtime specifier='command:…'"):
            await (await bus.send("specifier", REQUEST, work=WORK)).result()


async def test_a_planner_that_is_stopped_after_it_has_written_does_not_think_again(
    project: Project,
) -> None:
    # Models do not say the same thing twice: a second plan would contradict the first one.
    works = WorksRoot(project.path / "works")
    plans = [documents(TWO, "full"), documents(BIG, "pipeline")]
    player = Player(drafts(plans[1]), {("", 1): drafts(plans[0])})
    workshop = await open_workshop(project, {"planner": player, "builder": builder(TWO)})
    works.new_work(REQUEST.title, DAY)
    # A folder in the place of a file: adopting stops half-way, and is tried again.
    blocker, plan = works.path / WORK / "TASK-02.md", works.path / WORK / "PLAN.md"
    blocker.mkdir()
    async with fleet(workshop) as bus:
        sent = await bus.send("planner", REQUEST, work=WORK)
        await wait_until(plan.exists)
        blocker.rmdir()
        result = await sent.result()
    assert result.status == "PASS"
    assert len(player.given) == 1
    assert project.log() == ["first", "TASK-01: Do TASK-01", "TASK-02: Do TASK-02"]
