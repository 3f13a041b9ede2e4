"""A small work that a person begins with: valid as it is, and meant to be edited."""

from datetime import date

from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.folder import WorkFolder, WorksRoot
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

    Raises WorksFileError where the list of works cannot be read.
    """
    folder = root.new_work(title, day)
    entries = tuple(FileEntry(path=path, action="MODIFY") for path in files)
    folder.create_requirement(
        Requirement(
            work=folder.work,
            request=title,
            functional=(title,),
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
