"""Documents that a runtime writes: checked before they become a work, asked for once more if wrong.

A runtime writes them into a folder of its own; only what is valid moves into `works/`.
"""

from collections.abc import Callable
from pathlib import Path

from batonbus import Context, Refuse
from batonbus_agents.routes import Role
from batonbus_agents.runtimes import PROTOCOL, Assignment
from batonbus_agents.workshop import Workshop
from batonbus_schemas import TaskResult

Find = Callable[[Path], list[str]]
"""Reads the drafts in a folder and returns every problem with them."""


async def draft(
    workshop: Workshop, role: Role, ctx: Context, wanted: str, find_problems: Find
) -> tuple[TaskResult, Path]:
    """Let a role's runtime write documents into a folder, and once more where they are not valid.

    Raises Refuse with all reasons where they are still not.
    """
    runtime = workshop.runtimes.get(role)
    if runtime is None:
        raise Refuse(f"the {role} has no runtime: give one with --runtime {role}='command:…'")
    work = ctx.envelope.work
    folder = workshop.repository.path / ".batonbus" / "drafts" / work
    folder.mkdir(parents=True, exist_ok=True)
    text = f"{ctx.text}\n## Write into the current folder\n\n{wanted}\n"
    problems: list[str] = []
    for _ in range(2):
        assignment = Assignment(
            role=role, work=work, task="", attempt=ctx.attempt, text=text + PROTOCOL, cwd=folder
        )
        result = await runtime(assignment)
        problems = find_problems(folder)
        if not problems:
            return result, folder
        text += "\n## What was not valid the last time\n\n" + "\n".join(
            f"- {it}" for it in problems
        )
    raise Refuse(f"the {role}'s documents are not valid:\n" + "\n".join(problems))


def adopt(folder: Path, target: Path, names: list[str]) -> None:
    """Move drafts into a work. What is there already stays, for a person may have written it; the
    same text again is no conflict. Raises Refuse."""
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        text = (folder / name).read_text(encoding="utf-8")
        try:
            with (target / name).open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            if (target / name).read_text(encoding="utf-8") != text:
                raise Refuse(
                    f"{target.name}/{name} is there already, and says another thing"
                ) from None
