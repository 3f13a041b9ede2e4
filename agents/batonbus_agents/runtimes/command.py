"""Any program as a runtime: the assignment on its stdin, the result on its stdout."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from batonbus import CommandFailedError, CommandLine, Session, run_program
from batonbus_agents.runtimes.answer import (
    RuntimeAnswerError,
    Unreadable,
    read_answer,
    reformat_request,
)
from batonbus_agents.runtimes.assignment import Assignment
from batonbus_schemas import TaskResult


@dataclass(frozen=True, slots=True)
class CommandRuntime:
    """Runs a program, at most `time_limit` seconds long, in the assignment's folder.

    It sees a scrubbed environment, those of our variables that `variables` names, and what the
    assignment is: BATONBUS_ROLE, BATONBUS_WORK, BATONBUS_TASK, BATONBUS_ATTEMPT. An answer that
    cannot be read is asked for once more; then, and where the program does not end with exit code
    0, RuntimeAnswerError is raised. ProgramError where it cannot be run to its end.
    """

    command: tuple[str, ...]
    time_limit: float = 3600.0
    variables: tuple[str, ...] = ()

    async def __call__(self, assignment: Assignment, /) -> TaskResult:
        async def ask(text: str) -> str:
            ended = await run_program(
                self.command,
                text=text,
                cwd=assignment.cwd,
                time_limit=self.time_limit,
                variables=self.variables,
                extra=_told(assignment),
            )
            if ended.code != 0:
                said = ended.stderr.strip().splitlines() or ["it said nothing on stderr"]
                reason = f"{self.command[0]} ended with exit code {ended.code}"
                raise _error(assignment, self.variables, reason, said[-1])
            return ended.stdout

        return await _read(assignment, self.variables, ask)


@dataclass(frozen=True, slots=True)
class SessionRuntime:
    """As CommandRuntime, with a program that knows its session: each assignment is a session of its
    own, in which an answer that cannot be read is asked for once more."""

    line: CommandLine
    time_limit: float = 3600.0
    variables: tuple[str, ...] = ()

    async def __call__(self, assignment: Assignment, /) -> TaskResult:
        session = Session(self.line, time_limit=self.time_limit, variables=self.variables)

        async def ask(text: str) -> str:
            try:
                answer = await session.run(text, cwd=assignment.cwd, extra=_told(assignment))
            except CommandFailedError as error:
                raise _error(assignment, self.variables, str(error)) from None
            return answer.text

        return await _read(assignment, self.variables, ask)


async def _read(
    assignment: Assignment, variables: Sequence[str], ask: Callable[[str], Awaitable[str]]
) -> TaskResult:
    """The result that a program gives, when it is asked at most twice."""
    answer = await ask(assignment.text)
    read = read_answer(answer, assignment)
    if isinstance(read, Unreadable):
        answer = await ask(reformat_request(answer, read))
        read = read_answer(answer, assignment)
    if isinstance(read, Unreadable):
        raise _error(assignment, variables, *read.reasons)
    return read


def _error(assignment: Assignment, variables: Sequence[str], *reasons: str) -> RuntimeAnswerError:
    """Bounded, and without the values that only the program was to see: the error is stored."""
    return RuntimeAnswerError(assignment.role, [_masked(it, variables) for it in reasons])


def _masked(text: str, variables: Sequence[str]) -> str:
    for name in variables:
        if value := os.environ.get(name):
            text = text.replace(value, f"${name}")
    return text


def _told(assignment: Assignment) -> dict[str, str]:
    return {
        "BATONBUS_ROLE": assignment.role,
        "BATONBUS_WORK": assignment.work,
        "BATONBUS_TASK": assignment.task,
        "BATONBUS_ATTEMPT": str(assignment.attempt),
        **assignment.extra,
    }
