"""A small work that a person begins with: valid as it is, and meant to be edited."""

from datetime import date

from batonbus_agents.works.files import FileEntry, declared_path_problem
from batonbus_agents.works.folder import WorkFolder, WorksRoot
from batonbus_agents.works.markdown import one_line
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.requirement import Requirement
from batonbus_agents.works.task import TaskSpec

TASK = "TASK-01"


def new_work(
    root: WorksRoot,
    title: str,
    *,
    files: tuple[str, ...],
    verify: tuple[str, ...],
    language: str,
    day: date,
) -> WorkFolder:
    """Write a requirement, a plan in direct mode and one task under the next free id.

    Raises ValueError where the title is blank or a file cannot be declared, and WorksFileError
    where the list of works cannot be read; nothing is written then.
    """
    title = one_line(title)
    if not title:
        raise ValueError("the title is blank: say in a line what is to be done")
    if problems := [found for path in files if (found := declared_path_problem(path))]:
        raise ValueError("; ".join(problems))
    folder = root.new_work(title, day)
    entries = tuple(FileEntry(path=path, action="MODIFY") for path in files)
    folder.create_requirement(
        Requirement(
            work=folder.work,
            request=title,
            functional=(f"FR-01: {title}",),
            acceptance_criteria=(title,),
        ),
        language,
    )
    folder.create_plan(
        Plan(
            work=folder.work,
            title=title,
            goal=title,
            mode="direct",
            language=language,
            created=day,
            tasks=(PlanTask(id=TASK, title=title, scope=title, files=entries),),
        )
    )
    folder.create_task(
        TaskSpec(
            id=TASK,
            title=title,
            work=folder.work,
            depends_on=(),
            scope=title,
            files=entries,
            acceptance_criteria=(title,),
            verify=verify,
        ),
        language,
    )
    return folder
