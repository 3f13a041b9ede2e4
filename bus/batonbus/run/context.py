"""What a handler is given beside the body: its text, its window, and the way to ask others."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import get_args

from batonbus.logs import Log, log
from batonbus.rules.chain import keyed_id
from batonbus.rules.gate import Level
from batonbus.run.assignment import Assignment
from batonbus.run.client import Client
from batonbus.run.contents import lay_out_contents
from batonbus.run.gate import Gate
from batonbus.run.sent import Sent
from batonbus_schemas import (
    Body,
    Checkpoint,
    ContextUsage,
    Delivery,
    Dispatch,
    Envelope,
    Question,
    TaskResult,
    WindowEntry,
)
from batonbus_schemas.bodies import as_body
from batonbus_schemas.receipts import UsageSource

Compact = Callable[[], Awaitable[None]]
"""Compacts the session of the agent in the middle of a task."""


class Context:
    """One handoff as its handler sees it."""

    def __init__(
        self,
        client: Client,
        delivery: Delivery,
        *,
        assignment: Assignment,
        accepted: int,
        attempt: int,
        trace: Mapping[str, str],
        gate: Gate,
        compact: Compact,
    ) -> None:
        self._client = client
        self._assignment = assignment
        self._gate = gate
        self._compact = compact
        self._accepted = accepted
        self._trace = trace
        self.envelope: Envelope = delivery.envelope
        self.window: tuple[WindowEntry, ...] = delivery.window
        self.attempt = attempt
        self.log: Log = log.bind(handoff=str(delivery.envelope.id))

    @property
    def text(self) -> str:
        """The assignment with its window within the agent's budget, in the form that it reads: what
        a command is given. What had to be taken out lies at the paths that it names, below the
        folder in which the agent was started."""
        return self._assignment.text

    def lay_out(self, folder: Path) -> None:
        """Write what was taken out of the text below another folder, for a program that is started
        there. Raises ReferencesNotWrittenError."""
        self._assignment.lay_out(folder)

    def text_for_program(self) -> str:
        """`text` for a program, which has no body to look into: with the paths of its ref-cache's
        contents, written below the folder in which the agent was started. XML holds the contents
        itself. Raises OSError."""
        body = self.envelope.body
        if self._assignment.form == "xml" or not isinstance(body, Dispatch | TaskResult):
            return self.text
        told = lay_out_contents(body.ref_cache, Path.cwd(), self.envelope.id)
        return f"{self.text}\n{told}" if told else self.text

    @property
    def deadline(self) -> datetime | None:
        """The moment after which nobody waits for this any more."""
        return self.envelope.deadline

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The last Checkpoint of this agent; None where it has none. A session that begins afresh
        goes on from its next step (seed 004)."""
        return self._gate.checkpoint

    async def usage(
        self,
        percent: float | None = None,
        *,
        source: UsageSource = "measured",
        compression_required: bool = False,
    ) -> Level:
        """How full this agent's context is: report the percent of the model's tokens in use (0 to
        100), or only ask. Returns "open"; "soft": finish the current small step; "hard": nothing
        new is dispatched to this agent, nor sent by it, until `compact`; "emergency": no command
        starts either, and the result waits for a compaction; "unknown": nobody has said it.

        `compression_required` says that the session must be compacted whatever the percent is: this
        agent is given nothing new until it was, by `compact` or when nothing runs.

        `source` "unknown" says that nobody knows it any more, as of a session that began afresh.
        A report is in the registry when this returns. Raises ValueError for another percent
        or source.
        """
        if percent is not None and not 0 <= percent <= 100:
            raise ValueError(f"context usage is 0 to 100 percent, not {percent!r}")
        if source not in get_args(UsageSource):
            known = ", ".join(get_args(UsageSource))
            raise ValueError(f"the source of a context usage is one of {known}, not {source!r}")
        if compression_required:
            await self._gate.require("marked by its handler")
        if source == "unknown":
            return await self._gate.report(ContextUsage())
        if percent is None:
            return self._gate.level
        return await self._gate.report(ContextUsage(source=source, percent=float(percent)))

    async def compact(self) -> ContextUsage:
        """Compact this agent's session now, in the middle of the task, through `@agent.resets`.
        Returns the usage after it. Raises CompactionError where there was no gain, or the policy
        has it off; ReroutedError where this agent cannot go on with the handoff: let it pass, the
        handoff goes to another and spends no attempt."""
        await self._compact()
        return self._gate.usage

    def check_command(self) -> None:
        """Raises ContextFullError where no command may start: usage at or above emergency."""
        self._gate.check_command()

    async def send(
        self,
        to: str,
        body: Body | str,
        *,
        key: str | None = None,
        task: str | None = None,
        after: Sequence[Sent] | None = None,
        attempt: int = 1,
        deadline: datetime | None = None,
    ) -> Sent:
        """Ask a role or an agent, and go on. `await sent.result()` gives its answer.

        `key` names this send (default: `to`): after a crash the handler runs again from its start,
        and the same key with the same content is the same handoff, answered at once. `after` names
        the handoffs whose context the receiver shall see; without it, it sees what this handler
        does. Raises ConflictError for the same key with other content, ContextFullError where the
        reported usage is at or above the policy's hard threshold.
        """
        self._gate.check_send()
        envelope = Envelope(
            id=keyed_id(self.envelope.id, key or to),
            sender=self._client.actor,
            to=to,
            body=as_body(body),
            work=self.envelope.work,
            task=task or self.envelope.task,
            reply_to=self._client.actor,
            within=self.envelope.id,
            after=None if after is None else tuple(it.settled_id for it in after),
            attempt=attempt,
            deadline=deadline,
        )
        line = await self._client.send(envelope, accepted=self._accepted, carried=self._trace)
        return Sent(self._client, line)

    async def ask(
        self,
        role: str,
        question: str,
        options: Sequence[str] = (),
        key: str | None = None,
        deadline: datetime | None = None,
    ) -> str:
        """Ask a role, which may be a person, and wait for the answer's text, for days if need be.

        A person sees it by `batonbus inbox ROLE`, and answers by `batonbus answer`; an agent that
        takes `Question` answers by itself. Meanwhile this handler keeps its slot and its lease, and
        spends no attempt. When it runs again after a crash, the same question is the same handoff:
        it is not asked twice, and an answer that is there comes at once. Without `key`, role, text
        and options are the key; who asks the same twice names each by a key of its own.

        The text is that of the result, a FAIL's too: who must know which sends a Question. After
        `deadline` nobody may answer any more. Raises Bounced where it was refused, cancelled or
        given up, ConflictError for the same key with another question, InvalidMessageError.
        """
        body = Question(text=question, options=tuple(options))
        named = "\n".join(("ask", role, question, *options)) if key is None else key
        sent = await self.send(role, body, key=named, deadline=deadline)
        return (await sent.result()).text
