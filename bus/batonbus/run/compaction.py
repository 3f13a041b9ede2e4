"""Resets of an agent's session, each step of them journaled.

handoff → Checkpoint → reset → open: a crash at any step leaves no reset without its Checkpoint, and
a restart goes on behind the last step that was stored. An agent without `@agent.resets` has a
session for each handoff alone: what the ledger says of it is written down, and it begins afresh.
"""

from datetime import UTC, datetime
from functools import partial

import anyio
from msgspec.structs import replace

from batonbus.logs import log
from batonbus.rules.chain import Chain
from batonbus.rules.compaction import (
    Due,
    Evidence,
    Progress,
    ResetDone,
    ResetRequest,
    Verb,
    compose_handoff,
    due,
    missing_fields,
    no_gain,
    phase_of,
    refusals,
    verb_in_task,
)
from batonbus.rules.errors import BatonbusError, CompactionError
from batonbus.run.agent import Agent
from batonbus.run.asking import until_answered
from batonbus.run.client import Client
from batonbus.run.gate import Gate
from batonbus.secrecy import hide_in
from batonbus_schemas import (
    Checkpoint,
    ContextUsage,
    Envelope,
    InvalidMessageError,
    ResetJournal,
    TaskResult,
)
from batonbus_schemas.envelope import ADHOC


class Compactor:
    """Resets the session of one agent."""

    def __init__(self, agent: Agent, client: Client, gate: Gate) -> None:
        self._agent = agent
        self._client = client
        self.gate = gate
        self._one_at_a_time = anyio.Lock()
        self._journal: ResetJournal | None = None
        self._result: TaskResult | None = None
        self._checked_at = client.connection.server_time()

    async def load(self) -> None:
        """Read how far the last reset came; one that is not done closes the gate."""
        try:
            self._journal = await self._client.checkpoints.get(self._agent.card.id)
        except BatonbusError as error:
            log.warning("checkpoint.unread", error=str(error))
        journal = self._journal
        if journal is None:
            return
        self.gate.checkpoint = journal.checkpoint
        if journal.step == "done":
            self.gate.fresh_since = journal.began.timestamp()
        else:
            await self.gate.require(f"the last reset stopped at its {journal.step}")

    def note_worked(self, envelope: Envelope, seconds: float, result: TaskResult | None) -> None:
        """The session worked on this for so long, and ended it with this result."""
        self._result = result
        self.gate.note_worked(envelope, seconds, result)

    async def admits(self, envelope: Envelope, chain: Chain) -> bool:
        """Whether this handoff may be accepted now. Where something must come before it, the gate
        closes for that."""
        if trigger := self.gate.weigh(envelope, chain):
            await self.gate.require(trigger)
        elif coming := self._due_before(envelope, chain):
            if coming.verb is not None:
                await self.gate.require(coming.why, coming.verb)
            else:
                await self._write_checkpoint(coming.why)
        return not self.gate.closed

    def _due_before(self, envelope: Envelope, chain: Chain) -> Due | None:
        """An agent without a session of its own is at a boundary with each handoff: it gets its
        Checkpoints at intervals alone."""
        last = self.gate.last
        if last is None:
            return None
        phase = phase_of(self._agent.card.role)
        progress = Progress(
            last=(last.work, last.task, phase) if self._agent.reset else None,
            next=(envelope.work, envelope.task, phase),
            minutes=(self._client.connection.server_time() - self._checked_at) / 60,
            rounds=chain.next_attempt - 1 if chain.changed > self._checked_at else 0,
        )
        return due(progress, self._client.policy)

    async def compact_in_task(self, envelope: Envelope) -> None:
        """In the middle of the work on this. Raises CompactionError."""
        verb = verb_in_task(self._client.policy)
        if verb is None:
            raise CompactionError("compacting in the middle of a task is off in the fleet's policy")
        async with self._one_at_a_time:
            reason = self.gate.wants_compaction or "asked for by the handler"
            await self._reset(verb, reason, envelope, None)

    async def compact(self) -> None:
        """Where the gate wants it, and nothing runs: reset the session, and open. Raises
        CompactionError; then the gate stays closed."""
        async with self._one_at_a_time:
            if reason := self.gate.wants_compaction:
                # What is not ours to compact begins afresh.
                verb = (self.gate.verb or "compact") if self._agent.reset else "clear"
                await self._reset(verb, reason, self.gate.last, self._result)

    async def _write_checkpoint(self, why: str) -> None:
        """Without a reset. Where it cannot be stored nothing is lost but the Checkpoint."""
        async with self._one_at_a_time:
            self._checked_at = self._client.connection.server_time()
            last = self.gate.last
            handoff = compose_handoff(self._agent.card, last, self._result)
            try:
                begun = replace(self._begun("compact", why, last), handoff=handoff)
                checkpoint = self._checkpoint(begun)
                await self._store(replace(begun, step="done", checkpoint=checkpoint))
                self.gate.checkpoint = checkpoint
            except CompactionError as error:
                log.warning("checkpoint.not_stored", error=str(error))

    async def _reset(
        self, verb: Verb, reason: str, about: Envelope | None, result: TaskResult | None
    ) -> None:
        begun = self._begun(verb, reason, about)
        await self.gate.begin_compaction()
        problem = ""
        try:
            await self._go_on(begun, about, result)
        except CompactionError as error:
            problem = str(error)
            log.error("compaction.failed", agent=begun.agent, problem=problem)
            raise
        finally:
            self.gate.end_compaction(problem)
            await self.gate.publish()

    async def _go_on(
        self, begun: ResetJournal, about: Envelope | None, result: TaskResult | None
    ) -> None:
        """From the last step that was stored to the end."""
        journal = self._journal or begun
        # In the middle of a task nothing is cleared, whatever was begun before it.
        is_other = begun.verb == "compact" and journal.verb == "clear" and about is not None
        if journal is begun or journal.step in {"done", "no_gain"} or is_other:
            journal = await self._store(begun)
        if journal.step == "began":
            journal = await self._store(await self._with_handoff(journal, about, result))
        if journal.step == "handoff":
            checkpoint = self._checkpoint(journal)
            journal = await self._store(replace(journal, step="checkpoint", checkpoint=checkpoint))
        if journal.step == "checkpoint":
            usage = await self._ask_reset(journal)
            journal = await self._store(replace(journal, step="reset", usage_after=usage))
        await self._open(journal)

    def _begun(self, verb: Verb, reason: str, about: Envelope | None) -> ResetJournal:
        return ResetJournal(
            agent=self._agent.card.id,
            step="began",
            verb=verb,
            reason=reason,
            began=self._now(),
            usage=self.gate.usage,
            work=about.work if about else ADHOC,
            task=about.task if about else None,
            checkpoint=self.gate.checkpoint,
        )

    async def _open(self, journal: ResetJournal) -> None:
        problem = ""
        if self._agent.reset is not None:
            before, after = journal.usage, journal.usage_after
            problem = no_gain(journal.verb, before, after, self._client.policy.compaction)
        if problem:
            await self._store(replace(journal, step="no_gain"))
            self.gate.usage = journal.usage_after
            raise CompactionError(problem)
        now = self._now()
        await self._store(replace(journal, step="done", began=now))
        self.gate.begin_afresh(journal.usage_after, journal.checkpoint, now.timestamp())
        self._checked_at, self._result = now.timestamp(), None
        log.info(
            "session.reset",
            verb=journal.verb,
            reason=journal.reason,
            percent=journal.usage_after.percent,
            before=journal.usage.percent,
        )

    async def _with_handoff(
        self, journal: ResetJournal, about: Envelope | None, result: TaskResult | None
    ) -> ResetJournal:
        """With the ten fields, which are asked for twice at most."""
        if self._agent.reset is None:
            handoff = compose_handoff(self._agent.card, about, result)
            return replace(journal, step="handoff", handoff=handoff)
        missing: tuple[str, ...] = ()
        for _ in range(2):
            done = await self._ask("handoff", journal, missing)
            missing = missing_fields(done.handoff)
            if done.handoff is not None and not missing:
                return replace(
                    journal,
                    step="handoff",
                    handoff=hide_in(done.handoff),
                    changed_files=tuple(done.changed_files),
                )
            log.warning("compaction.handoff_incomplete", missing=missing)
        raise CompactionError(f"compaction handoff incomplete: no {', '.join(missing)}")

    def _checkpoint(self, journal: ResetJournal) -> Checkpoint:
        """Raises CompactionError where it does not meet the four conditions."""
        handoff = journal.handoff
        if handoff is None:
            raise CompactionError("a Checkpoint needs the ten fields of a compaction handoff")
        phase = phase_of(self._agent.card.role)
        checkpoint = Checkpoint(
            agent=self._agent.card.id,
            work=journal.work,
            task=journal.task,
            phase=phase,
            did=handoff.completed,
            checks=handoff.evidence_paths,
            next=handoff.next_safe_action,
            context=f"{journal.verb}: {journal.reason}",
            written=self._now(),
            changed_files=journal.changed_files,
            handoff=handoff,
        )
        if refused := refusals(checkpoint, Evidence(phase=phase)):
            raise CompactionError(f"Checkpoint refused: {'; '.join(refused)}")
        return checkpoint

    async def _ask_reset(self, journal: ResetJournal) -> ContextUsage:
        if self._agent.reset is None:
            return ContextUsage()
        done = await self._ask("reset", journal)
        if done.capabilities is not None:
            self._agent.card = replace(self._agent.card, capabilities=done.capabilities)
        return done.usage

    async def _ask(
        self, step: str, journal: ResetJournal, missing: tuple[str, ...] = ()
    ) -> ResetDone:
        request = ResetRequest(
            step="handoff" if step == "handoff" else "reset",
            verb=journal.verb,
            reason=journal.reason,
            missing=missing,
            checkpoint=journal.checkpoint if step == "reset" else None,
        )
        assert self._agent.reset is not None
        try:
            done = await self._agent.reset(request)
        except Exception as error:
            # The function is not ours: whatever it raises, nothing was reset.
            raise CompactionError(f"the {step} failed: {type(error).__name__}: {error}") from error
        if not isinstance(done, ResetDone):  # pyright: ignore[reportUnnecessaryIsInstance] - theirs
            raise CompactionError(f"the {step} returned {type(done).__name__}, not ResetDone")
        percent = done.usage.percent
        if percent is not None and not 0 <= percent <= 100:
            raise CompactionError(f"the {step} says {percent!r} percent: it must be 0 to 100")
        return done

    async def _store(self, journal: ResetJournal) -> ResetJournal:
        """Returns when it is stored. Raises CompactionError where it cannot be."""
        put = partial(self._client.checkpoints.put, journal)
        try:
            await until_answered(put, "checkpoint", step=journal.step)
        except (BatonbusError, InvalidMessageError) as error:
            raise CompactionError(f"the {journal.step} cannot be stored: {error}") from error
        self._journal = journal
        return journal

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._client.connection.server_time(), UTC)
