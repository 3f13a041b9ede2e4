"""One work as its folder tells it, and where its files contradict each other."""

from collections.abc import Iterator

from msgspec import Struct

from batonbus_agents.works.execution_log import LogEntry
from batonbus_agents.works.names import FileKind, task_file_name
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.problems import Problem
from batonbus_agents.works.progress import Progress
from batonbus_agents.works.requirement import Requirement
from batonbus_agents.works.result import Result
from batonbus_agents.works.task import TaskSpec


class TaskFiles(Struct, frozen=True, kw_only=True):
    """What the folder holds of one task, and the name of the file that each part came from."""

    id: str
    spec: TaskSpec | None = None
    progress: Progress | None = None
    result: Result | None = None
    names: dict[FileKind, str] = {}

    @property
    def status(self) -> str:
        """The result's, or how far the builder is; PENDING where neither is there."""
        if self.result is not None:
            return self.result.status
        return self.progress.status if self.progress else "PENDING"


class Work(Struct, frozen=True, kw_only=True):
    """Everything that the folder of one work holds. `tasks` come in the order of their ids."""

    id: str
    requirement: Requirement | None = None
    plan: Plan | None = None
    tasks: tuple[TaskFiles, ...] = ()
    log: tuple[LogEntry, ...] = ()

    def task(self, task: str) -> TaskFiles:
        """One task's files; a task without any is PENDING."""
        return next((it for it in self.tasks if it.id == task), TaskFiles(id=task))


def contradictions(work: Work) -> list[Problem]:
    """Where the files of a work say different things of the same work or task."""
    found = [*_of_work(work), *_of_titles(work), *_of_plan(work)]
    for task in work.tasks:
        found += _of_task(work, task)
    return found


def _of_work(work: Work) -> Iterator[Problem]:
    """A file that says it is of another work: its id was given twice, or it was copied."""
    said = [("Requirement.md", work.requirement.work if work.requirement else "")]
    said += [("PLAN.md", work.plan.work if work.plan else ""), *_named(work)]
    for name, text in said:
        other = text.split(":")[0].split("—")[0].strip()
        if other.startswith("WORK-") and other != work.id:
            yield Problem(f"{work.id}/{name}", 1, f"is of {other} and stands in {work.id}")


def _of_titles(work: Work) -> Iterator[Problem]:
    """One id with two titles may be two works in one folder."""
    titles = {work.plan.title: "PLAN.md"} if work.plan and work.plan.title else {}
    for name, text in _named(work):
        if _title(text):
            titles.setdefault(_title(text), name)
    first, *others = titles or {"": ""}
    for title in others:
        if not (title.startswith(first) or first.startswith(title)):
            told = f"calls the work {title!r}, and {titles[first]} calls it {first!r}"
            yield Problem(f"{work.id}/{titles[title]}", 1, told, warning=True)


def _named(work: Work) -> Iterator[tuple[str, str]]:
    """How each task's files name the work, by the file."""
    for task in work.tasks:
        if task.spec:
            yield task.names["spec"], task.spec.work
        if task.result:
            yield task.names["result"], task.result.work


def _title(text: str) -> str:
    _, found, title = text.split("\n")[0].replace(": ", " — ", 1).partition(" — ")
    return title.strip() if found else ""


def _of_plan(work: Work) -> Iterator[Problem]:
    if work.plan is None:
        return
    planned = {task.id for task in work.plan.tasks}
    for task in work.tasks:
        if task.id not in planned:
            name = next(iter(task.names.values()))
            yield Problem(f"{work.id}/{name}", 1, f"PLAN.md names no {task.id}")
    for name in sorted(planned):
        if work.task(name).spec is None:
            told = f"names {name}, and there is no {task_file_name(name, 'spec')}"
            yield Problem(f"{work.id}/PLAN.md", 1, told, warning=True)


def _of_task(work: Work, task: TaskFiles) -> Iterator[Problem]:
    said: tuple[tuple[FileKind, str], ...] = (
        ("spec", task.spec.id if task.spec else ""),
        ("progress", task.progress.task if task.progress else ""),
        ("result", task.result.task if task.result else ""),
    )
    for kind, other in said:
        if other and other != task.id:
            told = f"says that it is of {other}: name and heading must agree"
            yield Problem(f"{work.id}/{task.names[kind]}", 1, told)
    planned = [it.depends_on for it in work.plan.tasks if it.id == task.id] if work.plan else []
    needs = task.spec.depends_on if task.spec else None
    if needs is not None and planned and set(needs) != set(planned[0]):
        told = f"needs {_listed(needs)}, and by PLAN.md {_listed(planned[0])}: make them agree"
        yield Problem(f"{work.id}/{task.names['spec']}", 1, told)


def _listed(needs: tuple[str, ...]) -> str:
    return ", ".join(needs) or "nothing"
