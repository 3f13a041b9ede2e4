"""Documents that a runtime writes: checked before they become a work, asked for once more if wrong.

A runtime writes them into a folder of its own; only what is valid moves into `works/`.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from batonbus import Context, Refuse
from batonbus_agents.git import state_folder
from batonbus_agents.routes import Role
from batonbus_agents.runtimes import PROTOCOL, Assignment, Runtime
from batonbus_agents.stages import fitted
from batonbus_agents.works.folder import write_whole
from batonbus_agents.workshop import DOCUMENTS, Workshop, now
from batonbus_schemas import TaskResult

Find = Callable[[Path], list[str]]
"""Reads the drafts in a folder and returns every problem with them."""

TRIES = 2
"""Times that a runtime is asked for valid documents."""

PROJECT = "../../../.."
"""The project, from the folder of the drafts."""

ASKED = """{text}

## Write into the current folder

{wanted}
- The project is in `{project}`: read it, and change nothing there.

{protocol}"""


async def draft(
    workshop: Workshop, role: Role, ctx: Context, wanted: str, find_problems: Find
) -> tuple[TaskResult, Path]:
    """Let a role's runtime write documents into a folder, and once more where they are not valid;
    a FAIL of the runtime is its last word. Who was killed after they were found valid finds them
    again, and asks nobody: another answer would contradict what is adopted already.

    Raises Refuse with all reasons where they are still not valid.
    """
    runtime = workshop.runtimes.get(role)
    if runtime is None:
        raise Refuse(f"the {role} has no runtime: give one with --runtime {role}='command:…'")
    work = ctx.envelope.work
    home = state_folder(workshop.repository.path) / "drafts" / str(ctx.envelope.id)
    folder, answer = home / work, home / "answer.json"
    if not answer.is_file():
        started = now()
        shutil.rmtree(home, ignore_errors=True)
        folder.mkdir(parents=True)
        _lay_out(workshop.folder(work).path, folder)
        ctx.lay_out(folder)
        text = ASKED.format(text=ctx.text, wanted=wanted, project=PROJECT, protocol=PROTOCOL)
        assignment = Assignment(
            role=role, work=work, task="", attempt=ctx.attempt, text=text, cwd=folder
        )
        said = await _ask(runtime, assignment, find_problems)
        result = replace(said, work=work, agent=role, started=started, finished=now())
        write_whole(answer, msgspec.json.encode(fitted(result)).decode())
    return msgspec.json.decode(answer.read_bytes(), type=TaskResult), folder


def _lay_out(source: Path, folder: Path) -> None:
    for name in DOCUMENTS:
        if (source / name).is_file():
            (folder / name).write_bytes((source / name).read_bytes())


async def _ask(runtime: Runtime, assignment: Assignment, find_problems: Find) -> TaskResult:
    text, problems = assignment.text, list[str]()
    for _ in range(TRIES):
        result = await runtime(replace(assignment, text=text))
        problems = find_problems(assignment.cwd) if result.status == "PASS" else []
        if not problems:
            return result
        listed = "\n".join(f"- {it}" for it in problems)
        text = f"{assignment.text}\n## What was not valid the last time\n\n{listed}\n"
    raise Refuse(f"the {assignment.role}'s documents are not valid:\n" + "\n".join(problems))


def adopt(folder: Path, target: Path, names: list[str]) -> None:
    """Move drafts into a work. What is there already stays, for a person may have written it; the
    same text again is no conflict. Raises Refuse."""
    for name in names:
        copy = target / f".{name}.draft"
        copy.write_bytes((folder / name).read_bytes())
        try:
            # A link, for it is refused where the name is taken; a rename would take its place.
            os.link(copy, target / name)
        except FileExistsError:
            if (target / name).read_bytes() != copy.read_bytes():
                raise Refuse(
                    f"{target.name}/{name} is there already, and says another thing"
                ) from None
        finally:
            copy.unlink()
