"""A work under test: its files, and how each role thinks, as the test says."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import date
from pathlib import Path

import anyio
from git_project import WORK, Project
from msgspec import Struct
from msgspec.structs import replace

from batonbus import Agent, Context, TestBus
from batonbus.testing import FAST
from batonbus.wire.ledger import Stored
from batonbus.wire.reader import read_to_head
from batonbus.work.runner import begin
from batonbus_agents.fleet import make_agent
from batonbus_agents.repository import Repository
from batonbus_agents.routes import ROLES, Mode, Role
from batonbus_agents.runtimes import Assignment, Runtime
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.folder import WorkFolder, WorksRoot
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.requirement import Requirement
from batonbus_agents.works.task import TaskSpec
from batonbus_agents.workshop import Workshop
from batonbus_schemas import Delivery, Dispatch, TaskResult, decode

DAY = date(2026, 7, 24)
Step = Callable[[Assignment], TaskResult | Awaitable[TaskResult]]


class Job(Struct, frozen=True):
    """A task to be written down: the files that it may change, what it needs, how it is checked."""

    files: tuple[str, ...]
    needs: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()
    title: str = ""


CHAIN = {
    "TASK-01": Job(("one.txt",)),
    "TASK-02": Job(("two.txt",), ("TASK-01",)),
    "TASK-03": Job(("three.txt",), ("TASK-02",)),
}
DIAMOND = {
    "TASK-01": Job(("top.txt",)),
    "TASK-02": Job(("left.txt",), ("TASK-01",)),
    "TASK-03": Job(("right.txt",), ("TASK-01",)),
    "TASK-04": Job(("bottom.txt",), ("TASK-02", "TASK-03")),
}


def write_work(
    project: Project,
    jobs: Mapping[str, Job],
    mode: Mode = "full",
    *,
    title: str = "Work under test",
    language: str = "en",
) -> WorkFolder:
    """A work with its requirement, its plan, its tasks, and its row in the list."""
    root = WorksRoot(project.path / "works")
    folder = root.new_work(title, DAY)
    folder.create_requirement(Requirement(work=folder.work, request=title), language)
    tasks = tuple(
        PlanTask(id=task, title=job.title or f"Do {task}", depends_on=job.needs, files=_files(job))
        for task, job in jobs.items()
    )
    folder.create_plan(
        Plan(work=folder.work, title=title, mode=mode, language=language, created=DAY, tasks=tasks)
    )
    for task, job in jobs.items():
        folder.create_task(
            TaskSpec(
                id=task,
                title=job.title or f"Do {task}",
                work=folder.work,
                depends_on=job.needs,
                files=_files(job),
                verify=job.verify,
            ),
            language,
        )
    return folder


def _files(job: Job) -> tuple[FileEntry, ...]:
    return tuple(FileEntry(path, "CREATE") for path in job.files)


class Player:
    """A runtime that plays a step for each (task, attempt), or the usual one, and keeps what it was
    given."""

    def __init__(self, usual: Step, steps: Mapping[tuple[str, int], Step] | None = None) -> None:
        self._usual = usual
        self._steps = steps or {}
        self.given: list[Assignment] = []

    async def __call__(self, assignment: Assignment, /) -> TaskResult:
        self.given.append(assignment)
        step = self._steps.get((assignment.task, assignment.attempt), self._usual)
        said = step(assignment)
        return await said if inspect.isawaitable(said) else said

    @property
    def attempts(self) -> list[tuple[str, int]]:
        """The (task, attempt) of each call."""
        return [(it.task, it.attempt) for it in self.given]

    def texts(self, task: str) -> list[str]:
        """What it was given for a task."""
        return [it.text for it in self.given if it.task == task]


def writes(files: Mapping[str, str], result: TaskResult | None = None) -> Step:
    """A builder's step: write these files, and say so."""

    def step(assignment: Assignment) -> TaskResult:
        write(assignment.cwd, files)
        return result or TaskResult.passed(
            f"Wrote {', '.join(files)} in attempt {assignment.attempt}.",
            why=f"{assignment.task} asks for it.",
            caution=f"{assignment.task} is new.",
            incomplete=f"{assignment.task} has no documentation.",
        )

    return step


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def says(result: TaskResult) -> Step:
    """A step that changes nothing."""
    return lambda _: result


def raises(error: Exception) -> Step:
    """A step that fails."""

    def step(_: Assignment) -> TaskResult:
        raise error

    return step


def builder(jobs: Mapping[str, Job], steps: Mapping[tuple[str, int], Step] | None = None) -> Player:
    """A builder that writes each task's declared files: the task's id, a line each."""

    def usual(assignment: Assignment) -> TaskResult:
        files = jobs[assignment.task].files
        return _said(writes(dict.fromkeys(files, f"{assignment.task}\n"))(assignment))

    return Player(usual, steps)


def _said(result: TaskResult | Awaitable[TaskResult]) -> TaskResult:
    assert isinstance(result, TaskResult)
    return result


async def open_workshop(
    project: Project, runtimes: Mapping[Role, Runtime] | None = None, on_done: str = ""
) -> Workshop:
    """The project as the fleet's workshop."""
    repository = await Repository.open(project.path)
    return Workshop(repository=repository, runtimes=runtimes or {}, on_done=on_done)


def bus_with(*agents: Agent) -> TestBus:
    """A bus that gives nothing up because the machine is busy."""
    return TestBus(*agents, settings=replace(FAST, give_up_after=60.0))


def fleet(workshop: Workshop, roles: Iterable[Role] = ROLES) -> TestBus:
    """A bus with an agent of each role."""
    return bus_with(*(make_agent(role, workshop) for role in roles))


async def run(bus: TestBus, workshop: Workshop, work: str = WORK) -> TaskResult:
    """Bring a work to its end."""
    started = await begin(workshop, work)
    sent = await bus.send(started.to, started.body, work=work, task=started.task)
    return await sent.result()


async def run_fleet(workshop: Workshop, work: str = WORK) -> TaskResult:
    """The same with a bus for it alone."""
    async with fleet(workshop) as bus:
        return await run(bus, workshop, work)


async def wait_until(fact: Callable[[], bool], limit: float = 20.0) -> None:
    """Wait for a fact, at most `limit` seconds."""
    with anyio.fail_after(limit):
        while not fact():  # noqa: ASYNC110 - of a file, or of another process
            await anyio.sleep(0.01)


async def deliveries(bus: TestBus) -> list[Delivery]:
    """All that was delivered, in the ledger's order."""
    found: list[Delivery] = []

    def hear(stored: Stored) -> None:
        if stored.event.kind == "delivered":
            found.append(decode(stored.payload, Delivery))

    await read_to_head(bus.client.ledger, hear, headers_only=False)
    return found


def window(delivery: Delivery) -> list[tuple[str, str | None, str]]:
    """What stands in a window: from whom, of which task, how much."""
    return [(it.from_, it.task, it.level.value) for it in delivery.window]


def stub(
    role: Role, steps: Mapping[tuple[str, int], TaskResult | Exception] | None = None
) -> Agent:
    """An agent that answers for a role without doing anything: PASS, or as told for a (task,
    attempt)."""
    agent = Agent(role, slots=4)

    @agent.handles
    async def answer(_: Dispatch, ctx: Context) -> TaskResult:
        task = ctx.envelope.task or ""
        said = (steps or {}).get((task, ctx.attempt))
        if isinstance(said, Exception):
            raise said
        return said or TaskResult.passed(f"{role} has done {task} in attempt {ctx.attempt}.")

    return agent
