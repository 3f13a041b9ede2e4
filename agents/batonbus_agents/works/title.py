"""The first heading of a task's file, which says of which task it is."""

import re

from msgspec import Struct

from batonbus_agents.works.markdown import Document
from batonbus_agents.works.names import split_task, task_names
from batonbus_agents.works.problems import Problems

_TITLE = re.compile(r"(?P<name>\S+?)(?:\s*(?:[:\uff1a]|\s[—–-])\s*(?P<rest>.*)|\s+(?P<word>.*))?")

_MEANT = re.compile(r"(?:WORK-\w+-)?TASK[\s_]*[0-9]", re.IGNORECASE)


class Title(Struct, frozen=True):
    """The task, its work where the older spelling names it, and the rest of the heading."""

    task: str = ""
    work: str | None = None
    rest: str = ""


def split_title(title: str) -> tuple[str, str] | None:
    """The name and the rest of a heading that begins with something that means a task."""
    found = _TITLE.fullmatch(title)
    if found is None or not task_names(found["name"]):
        return None
    return found["name"], (found["rest"] or found["word"] or "").strip()


def misspelt_title(title: str) -> bool:
    """Whether a heading means a task and is not understood: `TASK 1: …`, `Task_01`."""
    return split_title(title) is None and _MEANT.match(title) is not None


def read_title(document: Document, problems: Problems) -> Title:
    """The title of a task's file; a heading without an id leaves the file's name to speak."""
    head = document.find(lambda _: True)
    named = split_title(head.title) if head and head.level == 1 else None
    if head is None or named is None:
        return Title(task=_from_file(problems), rest=head.title if head else "")
    try:
        work, task = split_task(named[0])
    except ValueError as error:
        problems.refuse(head.line, error)
        return Title(rest=named[1])
    return Title(task, work, named[1])


def _from_file(problems: Problems) -> str:
    names = task_names(problems.file.rsplit("/", 1)[-1].split(".", 1)[0].split("_", 1)[0])
    try:
        if names:
            return split_task(names[0][0])[1]
        problems.refuse(1, "neither the first heading nor the file's name says which task this is")
    except ValueError as error:
        problems.refuse(1, error)
    return ""
