"""`PLAN.md`: what a work is for, how it runs, and its tasks with what each needs."""

import re
from datetime import date
from typing import Literal

from msgspec import Struct

from batonbus_agents.works.dag import dag_problems
from batonbus_agents.works.dependencies import NONE
from batonbus_agents.works.files import render_file_entry
from batonbus_agents.works.markdown import (
    Document,
    field_line,
    heading_line,
    prose,
)
from batonbus_agents.works.meta import Meta, render_meta
from batonbus_agents.works.names import work_id
from batonbus_agents.works.plan_tasks import PlanTask, read_tasks
from batonbus_agents.works.problems import Problems, Reading
from batonbus_agents.works.stamps import day_of
from batonbus_agents.works.words import PLAN_META, heading, is_heading

Mode = Literal["direct", "pipeline", "full"]
_MODES: dict[str, Mode] = {"direct": "direct", "pipeline": "pipeline", "full": "full"}

DEFAULT_MODE: Mode = "full"
"""The mode of a plan that names none (seed 002, section 1)."""

_TITLE = re.compile(r"(?P<id>\S+?)\s*(?:(?:[:\uff1a]|\s[—–-]\s)\s*(?P<title>.*))?")


class Plan(Struct, frozen=True, kw_only=True):
    """A work's plan. `language` decides the headings of the files that are written for it."""

    work: str
    title: str = ""
    goal: str = ""
    mode: Mode = DEFAULT_MODE
    project: str = ""
    tech_stack: str = ""
    requirement: str = ""
    language: str = "en"
    status: str = "PLANNED"
    created: date | None = None
    tasks: tuple[PlanTask, ...] = ()


def read_plan(text: str, file: str = "PLAN.md") -> Reading[Plan]:
    """Reads a plan as far as it goes, with everything that is wrong with it."""
    document, problems = Document(text), Problems(file)
    work, title = _title(document, problems)
    meta = Meta(document, PLAN_META, problems)
    goal = document.find(lambda it: is_heading(it, "goal"))
    tasks = read_tasks(document, work, problems)
    for found in dag_problems([(task.id, task.depends_on) for task, _ in tasks]):
        problems.refuse(tasks[found.place][1], found.reason)
    plan = Plan(
        work=work,
        title=title,
        goal=document.text(goal) if goal else "",
        mode=_mode(meta, problems),
        project=meta.value("project"),
        tech_stack=meta.value("tech_stack"),
        requirement=meta.value("requirement"),
        language=meta.value("language") or "en",
        status=meta.value("status") or "PLANNED",
        created=day_of("Created", meta.value("created"), meta.line("created"), problems),
        tasks=tuple(task for task, _ in tasks),
    )
    return problems.reading(plan)


def parse_plan(text: str, file: str = "PLAN.md") -> Plan:
    """The plan. Raises `WorksFileError` with everything that is wrong with it."""
    return read_plan(text, file).whole()


def render_plan(plan: Plan) -> str:
    """The plan's file, in its language. Raises ValueError for a path that is not safe."""
    meta = (
        ("Created", plan.created.isoformat() if plan.created else ""),
        ("Requirement", plan.requirement),
        ("Execution-Mode", plan.mode),
        ("Project", plan.project),
        ("Tech Stack", plan.tech_stack),
        ("Language", plan.language),
        ("Status", plan.status),
    )
    parts = [
        heading_line(1, f"{plan.work}: {plan.title}"),
        render_meta(meta),
        heading_line(2, heading("goal", plan.language)),
        prose(plan.goal),
        heading_line(2, heading("graph", plan.language)),
        "\n".join(["```", *_graph(plan.tasks), "```"]),
        heading_line(2, heading("tasks", plan.language)),
        *(_task(task) for task in plan.tasks),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _mode(meta: Meta, problems: Problems) -> Mode:
    text = meta.value("mode")
    if text and text.casefold() not in _MODES:
        problems.refuse(
            meta.line("mode"), f"Execution-Mode {text!r} is none of {', '.join(_MODES)}"
        )
    return _MODES.get(text.casefold(), DEFAULT_MODE)


def _title(document: Document, problems: Problems) -> tuple[str, str]:
    head = document.find(lambda _: True)
    found = _TITLE.fullmatch(head.title) if head and head.level == 1 else None
    if head is None or found is None:
        problems.refuse(head.line if head else 1, "the first heading is not '# WORK-NN: title'")
        return "", ""
    try:
        return work_id(found["id"]), (found["title"] or "").strip()
    except ValueError as error:
        problems.refuse(head.line, f"the first heading is not '# WORK-NN: title': {error}")
        return "", ""


def _graph(tasks: tuple[PlanTask, ...]) -> list[str]:
    """Each task on a line, behind all that it needs."""
    return [
        f"{', '.join(task.depends_on)} → {task.id}" if task.depends_on else task.id
        for task in tasks
    ]


def _task(task: PlanTask) -> str:
    lines = [
        heading_line(3, f"{task.id}: {task.title}"),
        field_line("Depends on", ", ".join(task.depends_on) or NONE),
        field_line("Scope", task.scope),
        "- **Files**:",
        *(f"  - {render_file_entry(file)}" for file in task.files),
    ]
    return "\n".join(lines)
