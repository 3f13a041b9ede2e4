"""Any program as a runtime: the assignment on its stdin, the result on its stdout."""

import os
from dataclasses import dataclass

from batonbus import run_program
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
        answer = await self._ask(assignment, assignment.text)
        read = read_answer(answer, assignment)
        if isinstance(read, Unreadable):
            answer = await self._ask(assignment, reformat_request(answer, read))
            read = read_answer(answer, assignment)
        if isinstance(read, Unreadable):
            raise self._error(assignment, *read.reasons)
        return read

    async def _ask(self, assignment: Assignment, text: str) -> str:
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
            raise self._error(
                assignment, f"{self.command[0]} ended with exit code {ended.code}", said[-1]
            )
        return ended.stdout

    def _error(self, assignment: Assignment, *reasons: str) -> RuntimeAnswerError:
        """Bounded, and without the values that only the program was to see: the error is stored."""
        return RuntimeAnswerError(assignment.role, [self._masked(it) for it in reasons])

    def _masked(self, text: str) -> str:
        for name in self.variables:
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
