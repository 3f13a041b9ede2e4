"""An agent that is a program with a session of its own: it says how full that is, and is reset."""

import anyio
from msgspec.structs import replace

from batonbus.logs import log
from batonbus.rules.compaction import Handled, ResetDone, ResetRequest, compose_handoff
from batonbus.run.agent import BODY_TYPES, Agent
from batonbus.run.command import describe, read_output
from batonbus.run.context import Context
from batonbus.run.program import CommandFailedError, ProgramError
from batonbus.run.session import Session
from batonbus_schemas import AgentCard, CompactionHandoff, ContextUsage, TaskResult, TextForm
from batonbus_schemas.compaction import HEADING, LABELS, read_compaction, write_compaction
from batonbus_schemas.envelope import ADHOC

FIELD_LIMIT = 2_000
"""Characters of each of the ten fields that are kept."""

LOST_TIMEOUT = 1.0
"""Seconds that the registry has to note that a session was lost; a heartbeat says it again."""

MEASURE = "Begin nothing yet. Say in one line what you will do next."
"""Asked after a compaction that does not say what is left: every answer says how full it is."""


def session_agent(
    role: str,
    session: Session,
    *,
    id: str | None = None,
    capabilities: tuple[str, ...] = (),
    text_form: TextForm = "markdown",
) -> Agent:
    """An agent that hands every handoff to one session of a program that knows its own, one after
    the other. Its answer is read as that of `command_agent`; an error is a failed attempt. What it
    says of its context is reported to the gate; it is asked for the ten fields before a reset."""
    agent = Agent(role, id=id, capabilities=capabilities, runtime=session.name, text_form=text_form)
    sitting = Sitting(session, agent.card)
    agent.set_handler(sitting.work, BODY_TYPES)
    agent.resets(sitting.reset)
    return agent


class Sitting:
    """What one agent does in its session."""

    def __init__(self, session: Session, card: AgentCard) -> None:
        self._session = session
        self._card = card
        self._last: Handled | None = None
        self._told: dict[str, str] = {}
        self._was_reset = False

    async def work(self, body: object, ctx: Context) -> TaskResult:
        """Ask the program. Raises CommandFailedError, ProgramError, ContextFullError."""
        ctx.check_command()
        self._last = Handled(envelope=ctx.envelope, attempt=ctx.attempt)
        try:
            answer = await self._session.run(self._prompt(ctx), extra=describe(ctx))
        except BaseException:
            # However it ended, the session is gone: the next one is not as full as it was.
            with anyio.move_on_after(LOST_TIMEOUT, shield=True):
                await ctx.usage(source="unknown")
            raise
        self._was_reset = False
        # Of a program that does not go on with it, nothing is left of what was in use.
        usage = answer.usage if self._session.id else ContextUsage()
        await ctx.usage(usage.percent, source=usage.source)
        result = read_output(answer.text, self._session.name)
        self._last = replace(self._last, result=result)
        return result

    def _prompt(self, ctx: Context) -> str:
        """Behind a reset, and where a session begins, after what the last Checkpoint says of the
        same work (seed 004: the next session starts from its next step)."""
        text, checkpoint = ctx.text_for_program(), ctx.checkpoint
        begins = self._was_reset or self._session.id is None
        if not begins or checkpoint is None or checkpoint.handoff is None:
            return text
        if checkpoint.work != ctx.envelope.work or checkpoint.work == ADHOC:
            return text
        return f"{write_compaction(checkpoint.handoff)}\n\n{text}"

    async def reset(self, request: ResetRequest) -> ResetDone:
        """Write the ten fields, or compact or clear the session."""
        if request.step == "handoff":
            result = self._last.result if self._last else None
            return ResetDone(
                handoff=await self._handoff(request),
                changed_files=tuple(it.path for it in result.files_changed) if result else (),
            )
        verb = await self._session.reset(request.verb)
        if verb == "compact" and self._session.usage.source == "unknown":
            try:
                await self._session.run(MEASURE)
            except (CommandFailedError, ProgramError) as error:
                log.warning("usage.not_measured", runtime=self._session.name, error=str(error))
                verb = "clear"
        self._was_reset = True
        return ResetDone(usage=self._session.usage, verb=verb)

    async def _handoff(self, request: ResetRequest) -> CompactionHandoff:
        """By the program itself. Where there is no session to ask, or it does not answer, and for
        what it leaves out twice: what the bus knows."""
        known = self._known(request)
        if self._session.id is None:
            return known
        if not request.missing:
            self._told = {}
        try:
            answer = await self._session.run(question(request))
        except (CommandFailedError, ProgramError) as error:
            log.warning("compaction.not_told", runtime=self._session.name, error=str(error))
            return known
        said = read_compaction(answer.text)
        self._told |= {field: text[:FIELD_LIMIT] for field, text in said.items()}
        left_out = [field for field in LABELS if field not in self._told]
        if left_out and request.missing:
            log.warning("compaction.left_out", runtime=self._session.name, fields=left_out)
            return replace(known, **self._told)
        return CompactionHandoff(**{field: self._told.get(field, "") for field in LABELS})

    def _known(self, request: ResetRequest) -> CompactionHandoff:
        last = self._last
        envelope, result = (last.envelope, last.result) if last else (None, None)
        return compose_handoff(self._card, envelope, result, request.checkpoint)


def question(request: ResetRequest) -> str:
    """How a program is asked for the ten fields, or for those that it left out."""
    fields = request.missing or tuple(LABELS)
    done = {"compact": "compacted", "clear": "cleared"}[request.verb]
    return "\n".join(
        [
            f"Your context is about to be {done} ({request.reason}). Do no work now: write down "
            "what whoever goes on must know, without secrets and without your reasoning.",
            f"Keep: {'; '.join(request.keep)}.",
            f"Leave out: {'; '.join(request.drop)}.",
            "Answer with these lines alone, each with its text; write None where there is nothing:",
            "",
            HEADING,
            "",
            *(f"{LABELS[field]}:" for field in fields),
        ]
    )
