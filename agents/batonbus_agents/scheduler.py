"""The scheduler: one long handoff in plain code. Its memory is the ledger: run again after a crash,
its sends are the same handoffs, and their results come back at once."""

from datetime import datetime

import anyio
from msgspec.structs import replace

from batonbus import Agent, Bounced, ConflictError, Context, Refuse, Sent, copied_passages
from batonbus_agents.dispatches import recall_dispatch, stage_dispatch
from batonbus_agents.routes import ATTEMPTS, STAGES, Role
from batonbus_agents.schedule import Outcome, Slot, blocked_reason, make_schedule
from batonbus_agents.stages import fitted
from batonbus_agents.workshop import Task, Workshop, now
from batonbus_schemas import Check, Dispatch, TaskResult
from batonbus_schemas.counts import counted

ROLE: Role = "scheduler"


def make_scheduler(workshop: Workshop, *, id: str | None = None, slots: int = 4) -> Agent:
    """The scheduler's agent; each slot is one work."""
    agent = Agent(ROLE, id=id, slots=slots)

    @agent.handles
    async def schedule(body: Dispatch, ctx: Context) -> TaskResult:
        return await Scheduling(workshop, ctx, body).run()

    return agent


class Scheduling:
    """One work: its ready tasks in parallel, each through its stages."""

    def __init__(self, workshop: Workshop, ctx: Context, body: Dispatch) -> None:
        self._workshop = workshop
        # Named by whoever asks, not looked up: run again after a crash, it must decide the same.
        self._done_before = {it.task: it for it in body.previous_results if it.status == "SKIP"}
        self._ctx = ctx
        self._work = ctx.envelope.work
        self._outcomes: dict[str, Outcome] = {}
        self._finals: dict[str, Sent] = {}
        self._ended: dict[str, anyio.Event] = {}

    async def run(self) -> TaskResult:
        """Every task ends as PASS, FAILED or BLOCKED with its reason."""
        started = now()
        tasks = self._workshop.tasks(self._work)
        schedule = make_schedule([replace(it.planned, files=it.files) for it in tasks.values()])
        self._ended = {task: anyio.Event() for task in schedule}
        async with anyio.create_task_group() as group:
            for task, slot in schedule.items():
                group.start_soon(self._run_task, tasks[task], slot)
        return self._report(started)

    async def _run_task(self, task: Task, slot: Slot) -> None:
        for before in (*slot.needs, *slot.behind):
            await self._ended[before].wait()
        reason = blocked_reason(slot, self._outcomes)
        if reason is not None:
            outcome = Outcome(task=task.id, status="BLOCKED", reason=reason)
        else:
            try:
                outcome = await self._do(task, slot)
            except Bounced as error:
                outcome = Outcome(task=task.id, status="FAILED", reason=str(error))
        self._outcomes[task.id] = outcome
        self._ctx.log.info("task.ended", task=task.id, status=outcome.status, reason=outcome.reason)
        self._ended[task.id].set()

    async def _do(self, task: Task, slot: Slot) -> Outcome:
        """Build, verify, commit, and after a FAIL build again. Each role counts its attempts, and
        none makes a fourth."""
        before = [self._finals[need] for need in slot.needs]
        if task.id in self._done_before:
            return await self._recall(task, before)
        used: dict[Role, int] = {}
        reason = ""
        for number in range(1, ATTEMPTS + 1):
            role, sent, result = await self._round(task, number, before, used)
            if result.status == "PASS":
                return self._committed(task, sent, result)
            before, reason = [sent], _reason(role, result, used)
            # To build again would need each of these roles again.
            if ATTEMPTS in used.values():
                break
        return Outcome(task=task.id, status="FAILED", reason=reason)

    async def _round(
        self, task: Task, number: int, before: list[Sent], used: dict[Role, int]
    ) -> tuple[Role, Sent, TaskResult]:
        """Through the stages, or to the first FAIL; `used` is kept up with each role's attempts."""
        role, *others = STAGES["full"]
        sent, result = await self._stage(task, role, number, before, used)
        for following in others:
            if result.status == "FAIL":
                break
            role = following
            sent, result = await self._stage(task, role, number, [sent], used)
        return role, sent, result

    async def _stage(
        self, task: Task, role: Role, number: int, before: list[Sent], used: dict[Role, int]
    ) -> tuple[Sent, TaskResult]:
        body, key = stage_dispatch(task, role), f"{task.id}/{role}/{number}"
        sent = await self._send(role, body, key, task, before, used.get(role, 0) + 1)
        result = await sent.result()
        used[role] = sent.attempt
        return sent, result

    async def _recall(self, task: Task, before: list[Sent]) -> Outcome:
        body = recall_dispatch(task, self._done_before[task.id])
        sent = await self._send("committer", body, f"{task.id}/recall", task, before, 1)
        result = await sent.result()
        if result.status == "FAIL":
            return Outcome(task=task.id, status="FAILED", reason=result.summary)
        return self._committed(task, sent, result)

    def _committed(self, task: Task, sent: Sent, result: TaskResult) -> Outcome:
        self._finals[task.id] = sent
        return Outcome(task=task.id, status="PASS", commit=result.commit)

    async def _send(
        self, role: Role, body: Dispatch, key: str, task: Task, after: list[Sent], attempt: int
    ) -> Sent:
        copied = copied_passages(body, self._workshop.repository.path)
        if copied:
            raise Refuse("\n".join([f"the dispatch {key} is not sent:", *map(str, copied)]))
        try:
            return await self._ctx.send(
                role, body, key=key, task=task.id, after=after, attempt=attempt
            )
        except ConflictError as error:
            # Run again after a crash, it finds in the ledger what the plan said before.
            raise Refuse(
                f"the plan of {self._work} has changed since this run asked for {key}: "
                "run the work again, what is committed stays"
            ) from error

    def _report(self, started: datetime) -> TaskResult:
        outcomes = [self._outcomes[task] for task in sorted(self._outcomes)]
        failed = [it for it in outcomes if it.status != "PASS"]
        tasks = counted(len(outcomes), "task")
        what = f"{len(outcomes) - len(failed)} of {tasks} of {self._work} committed."
        lines = [what, *(f"{it.task} {it.status}: {it.reason}" for it in failed)]
        make = TaskResult.failed if failed else TaskResult.passed
        result = make("\n".join(lines), checks=tuple(_check(it) for it in outcomes))
        return fitted(replace(result, work=self._work, agent=ROLE, started=started, finished=now()))


def _reason(role: Role, result: TaskResult, used: dict[Role, int]) -> str:
    reason = f"{role}, attempt {used[role]}: {result.summary}"
    if used[role] == ATTEMPTS:
        return reason
    spent = [f"; {it} has made {ATTEMPTS} attempts" for it in used if used[it] == ATTEMPTS]
    return "".join([reason, *spent])


def _check(outcome: Outcome) -> Check:
    if outcome.status == "PASS":
        return Check(name=outcome.task, status="PASS", output=outcome.commit)
    output = f"{outcome.status}: {outcome.reason}"
    return Check(
        name=outcome.task, status="FAIL" if outcome.status == "FAILED" else "N/A", output=output
    )
