"""How long the texts become that agents are given, against pasting all that was said before.

Works of scripted agents go through a real bus: for each task a builder, a verifier and a committer,
sent by one handler with `after=…`, as the reference fleet's scheduler does. Each step says about
3 KB in the four fields of its context handoff.
"""

import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from uuid import UUID

import anyio
from msgspec import Struct
from msgspec.structs import asdict

from batonbus.rules.budget import references_of
from batonbus.run.agent import Agent
from batonbus.run.bus import DEFAULT_FLEET, Bus
from batonbus.run.context import Context
from batonbus.run.core import Core, open_operator
from batonbus.run.history import read_line
from batonbus.run.sent import Sent
from batonbus.run.supervisor import local_bus
from batonbus_schemas import ContextHandoff, Dispatch, TaskResult

WORKS = (3, 10, 100)
"""Tasks of the works that are measured."""

STAGES = ("builder", "verifier", "committer")

LINES = {"what": (5, 100), "why": (10, 140), "caution": (3, 90), "incomplete": (8, 100)}
"""Lines of each field, and the characters of a line: about 3 KB, and two fields that are longer
than what a window shows of them."""

FILLER = " the reader names the line that it cannot read, and goes on with the next one;" * 2


class DispatchReport(Struct, frozen=True, kw_only=True):
    """One work. `received_chars` is the largest text that any of its agents was given;
    `history_chars` the most that the four fields of all earlier steps came to at any of its hops.

    `last_step_kept`: each text held all four fields, complete, of each step that it came directly
    after, or a reference to what it did not hold. Two count, where the text names them: a file that
    the runtime wrote, and the handoff in which "more lines" are, as `batonbus show` prints it.
    """

    tasks: int
    received_chars: int
    history_chars: int
    last_step_kept: bool

    @property
    def percent(self) -> float:
        """What was received, of what pasting the history would have been."""
        return 100 * self.received_chars / self.history_chars


class Hop(Struct, frozen=True):
    """What one agent was given: its text, what lay beside it by the path that the text names, and
    the steps that it came directly after."""

    text: str
    files: dict[str, str]
    last_steps: tuple[UUID, ...]
    history_chars: int


class ScriptedWork:
    """A work of so many tasks: its agents, what each step says, and what each agent was given."""

    def __init__(self, tasks: int) -> None:
        self.name = f"WORK-{tasks:02}"
        self.tasks = tasks
        self.said: dict[UUID, ContextHandoff] = {}
        self.hops: list[Hop] = []
        self.agents = (self._make_scheduler(), *map(self._make_stage, STAGES))

    def _make_scheduler(self) -> Agent:
        agent = Agent("scheduler")

        @agent.handles
        async def schedule(body: Dispatch, ctx: Context) -> TaskResult:
            self._note(ctx)
            finals: dict[int, Sent] = {}
            for number in range(1, self.tasks + 1):
                before = [finals[it] for it in needs(number)]
                for role in STAGES:
                    before = [await _ask(ctx, role, task_id(number), before)]
                [finals[number]] = before
            return TaskResult.passed(what=f"{self.tasks} tasks are done.")

        return agent

    def _make_stage(self, role: str) -> Agent:
        agent = Agent(role)

        @agent.handles
        async def work(body: Dispatch, ctx: Context) -> TaskResult:
            self._note(ctx)
            said = self.said[ctx.envelope.id] = make_context(role, ctx.envelope.task or "")
            return TaskResult(status="PASS", summary="done", context_handoff=said)

        return agent

    def _note(self, ctx: Context) -> None:
        fields = [text for said in self.said.values() for text in asdict(said).values()]
        files = _beside(ctx.envelope.id)
        self.hops.append(Hop(ctx.text, files, ctx.envelope.after or (), sum(map(len, fields))))


def _beside(handoff_id: UUID) -> dict[str, str]:
    """What its runtime wrote for a handoff, which goes when the handoff has ended."""
    found = Path(references_of(handoff_id)).glob("*.md")
    return {str(it): it.read_text(encoding="utf-8") for it in found}


async def _ask(ctx: Context, role: str, task: str, after: list[Sent]) -> Sent:
    brief = f"Do what a {role} does for {task}."
    sent = await ctx.send(role, brief, key=f"{task}/{role}", task=task, after=after)
    await sent.result()
    return sent


def task_id(number: int) -> str:
    """`TASK-NN`."""
    return f"TASK-{number:02}"


def needs(number: int) -> list[int]:
    """The tasks that a task comes after: the one before it, and every fifth also the one before
    that."""
    before = (number - 2, number - 1) if number % 5 == 0 else (number - 1,)
    return [it for it in before if it > 0]


def make_context(role: str, task: str) -> ContextHandoff:
    """What a step says. No two steps say the same, and all of it is equally long."""
    fields = {
        field: "\n".join(_line(f"{task} {role}, {field} {it}:", width) for it in range(lines))
        for field, (lines, width) in LINES.items()
    }
    return ContextHandoff(**fields)


def _line(start: str, width: int) -> str:
    return (start + FILLER)[: width - 1] + "."


async def run_dispatch_bench(works: Sequence[int]) -> list[DispatchReport]:
    """Run a work of each of these numbers of tasks, one after the other, over a bus in a temporary
    folder. Raises BusUnavailableError where it does not start, Bounced where a handoff is refused.
    """
    with tempfile.TemporaryDirectory(prefix="batonbus-bench-") as name:
        folder = Path(name)
        async with (
            local_bus(folder, fleet=DEFAULT_FLEET, log_level="WARNING") as url,
            open_operator(url, fleet=DEFAULT_FLEET) as core,
            Bus(url) as bus,
        ):
            with chdir(folder):  # where the runtime writes what it takes out of a text
                return [await _measure(ScriptedWork(it), bus, core) for it in works]


async def _measure(work: ScriptedWork, bus: Bus, core: Core) -> DispatchReport:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for agent in work.agents:
            tasks.start_soon(lambda agent: bus.run(agent, stop=stop), agent)
        await (await bus.send("scheduler", f"Do {work.name}.", work=work.name)).result()
        stop.set()
    printed = {it: await _print(core, it) for it in work.said}
    return DispatchReport(
        tasks=work.tasks,
        received_chars=max(len(it.text) for it in work.hops),
        history_chars=max(it.history_chars for it in work.hops),
        last_step_kept=all(
            is_reachable(step, work.said[step], hop.text, hop.files, printed[step])
            for hop in work.hops
            for step in hop.last_steps
        ),
    )


async def _print(core: Core, step: UUID) -> ContextHandoff | None:
    """What `batonbus show` prints of a step."""
    line = await read_line(core.ledger, step)
    settlement = line[0].settlement if line else None
    return settlement.result.context_handoff if settlement else None


def is_reachable(
    step: UUID,
    said: ContextHandoff,
    text: str,
    files: Mapping[str, str],
    printed: ContextHandoff | None,
) -> bool:
    """Whether all that a step said stands in a text, or where the text says that it is: in one of
    the `files` (by the paths that a text names), or in the handoff, as it is `printed`."""
    return all(
        _is_quoted(field, text)
        or any(path in text and field == content for path, content in files.items())
        or (_names_handoff(name, step, text) and field == getattr(printed, name, None))
        for name, field in asdict(said).items()
    )


def _is_quoted(field: str, text: str) -> bool:
    quotes = {f"> {line}" for line in field.splitlines()}
    return quotes <= set(text.splitlines())


def _names_handoff(field_name: str, step: UUID, text: str) -> bool:
    heading = rf"^\*\*{field_name.capitalize()}\*\* \([\d,]+ more lines? in handoff {step}\)$"
    return re.search(heading, text, re.MULTILINE) is not None
