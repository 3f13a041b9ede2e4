"""Resets of an agent's session, each step of them journaled.

handoff → Checkpoint → reset → open: a crash at any step leaves no reset without its Checkpoint, and
a restart goes on behind the last step that was stored. An agent without `@agent.resets` has a
session for each handoff alone: what the ledger says of it is written down, and it begins afresh.
Where its fleet keeps records (`@agent.checkpoints`), that is so at the end of each handoff.
"""

from datetime import UTC, datetime
from functools import partial

import anyio
from msgspec import Struct
from msgspec.structs import replace

from batonbus.logs import log
from batonbus.rules.chain import Chain
from batonbus.rules.compaction import (
    Due,
    Evidence,
    Handled,
    Progress,
    ResetDone,
    ResetRequest,
    Verb,
    compose_handoff,
    due,
    due_at_end,
    missing_fields,
    no_gain,
    phase_of,
    stated_phase,
    too_far,
    verb_in_task,
)
from batonbus.rules.errors import BatonbusError, CheckpointRefusedError, CompactionError
from batonbus.run.agent import Agent
from batonbus.run.asking import until_answered
from batonbus.run.bookkeeping import Books
from batonbus.run.client import Client
from batonbus.run.gate import Gate
from batonbus.run.hooks import ask_hook
from batonbus_schemas import (
    Checkpoint,
    ContextUsage,
    Envelope,
    InvalidMessageError,
    ResetJournal,
)
from batonbus_schemas.envelope import ADHOC


class Ending(Struct, frozen=True, kw_only=True):
    """A handoff that ends, and its session with it: the Checkpoint as it will be stored and what it
    was compared with, or the `problem` with it."""

    why: str
    handled: Handled
    journal: ResetJournal
    evidence: Evidence = Evidence()
    problem: str = ""


class Compactor:
    """Resets the session of one agent."""

    def __init__(self, agent: Agent, client: Client, gate: Gate) -> None:
        self._agent = agent
        self._client = client
        self.gate = gate
        self._one_at_a_time = anyio.Lock()
        self._books = Books(agent)
        self._journal: ResetJournal | None = None
        self._last: Handled | None = None
        """What the session worked on last; what belongs to no work does not take a work's place."""
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

    def note_worked(self, handled: Handled, seconds: float) -> None:
        """The session worked on this for so long."""
        envelope, last = handled.envelope, self._last
        if last is None or envelope.work != ADHOC or last.envelope.work == ADHOC:
            self._last = handled
        self.gate.note_worked(envelope, seconds, handled.result)

    def note_lost(self, handled: Handled) -> None:
        """The ledger has not taken the result of this."""
        if self._last is handled:
            self._last = replace(handled, result=None)

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
        """An agent without a session of its own is at a boundary with each handoff: here it gets
        its Checkpoints at intervals alone."""
        if self._last is None:
            return None
        last, phase = self._last.envelope, phase_of(self._agent.card.role)
        progress = Progress(
            last=(last.work, last.task, phase) if self._agent.reset else None,
            next=(envelope.work, envelope.task, phase),
            minutes=(self._client.connection.server_time() - self._checked_at) / 60,
            rounds=chain.next_attempt - 1 if chain.changed > self._checked_at else 0,
        )
        return due(progress, self._client.policy)

    async def look_at_end(self, handled: Handled) -> Ending | None:
        """At the end of a handoff whose session ends with it, before its answer is stored: nobody
        else works on its task yet. None where no Checkpoint is due."""
        if self._agent.keep is None or self._agent.reset is not None or handled.result is None:
            return None
        about = handled.envelope
        coming = due_at_end(about.work, about.task, self._client.policy)
        if coming is None:
            return None
        journal = self._composed(self._begun("clear", coming.why, about), handled)
        try:
            checkpoint, evidence = await self._books.compare(self._draft(journal), handled)
        except CompactionError as error:
            return Ending(why=coming.why, handled=handled, journal=journal, problem=str(error))
        journal = replace(_with_next(journal, checkpoint), checkpoint=checkpoint)
        return Ending(why=coming.why, handled=handled, journal=journal, evidence=evidence)

    async def end(self, ending: Ending) -> None:
        """Write the Checkpoint of a handoff whose answer is stored; the session is over. Where it
        is refused the gate closes for it."""
        async with self._one_at_a_time:
            if self._is_pending():
                log.warning("checkpoint.not_written", why="another is refused or being written")
                return
            try:
                if ending.problem:
                    raise CompactionError(ending.problem)
                checkpoint = await self._record(ending.journal, ending.handled, ending.evidence)
            except CompactionError as error:
                log.error("checkpoint.refused", agent=ending.journal.agent, problem=str(error))
                self._last = ending.handled
                await self.gate.require(ending.why, "clear")
            else:
                now = self._now().timestamp()
                self.gate.begin_afresh(self.gate.usage, checkpoint, now)
                self._checked_at, self._last = now, None

    async def _record(
        self, journal: ResetJournal, handled: Handled | None, evidence: Evidence
    ) -> Checkpoint:
        """Write a Checkpoint that was compared, without a reset. Raises CompactionError."""
        checkpoint = journal.checkpoint
        assert checkpoint is not None
        if self._agent.keep is not None:
            # Who dies from here on goes on with it, and finds what was written.
            await self._store(replace(journal, checkpoint=self.gate.checkpoint))
        await self._books.write(checkpoint, handled, evidence)
        await self._store(replace(journal, step="done"))
        return checkpoint

    async def _give_up(self, journal: ResetJournal) -> None:
        """A Checkpoint that no reset waits for is not tried again."""
        try:
            await self._store(replace(journal, step="done", checkpoint=self.gate.checkpoint))
        except CompactionError as error:
            log.warning("checkpoint.not_stored", error=str(error))

    def _is_pending(self) -> bool:
        return self._journal is not None and self._journal.step not in {"done", "no_gain"}

    async def compact_in_task(self, envelope: Envelope, attempt: int) -> None:
        """In the middle of the work on this. Raises CompactionError."""
        verb = verb_in_task(self._client.policy)
        if verb is None:
            raise CompactionError("compacting in the middle of a task is off in the fleet's policy")
        async with self._one_at_a_time:
            reason = self.gate.wants_compaction or "asked for by the handler"
            await self._reset(verb, reason, Handled(envelope=envelope, attempt=attempt))

    async def compact(self) -> None:
        """Where the gate wants it, and nothing runs: reset the session, and open. Raises
        CompactionError; then the gate stays closed."""
        async with self._one_at_a_time:
            if reason := self.gate.wants_compaction:
                # What is not ours to compact begins afresh.
                verb = (self.gate.verb or "compact") if self._agent.reset else "clear"
                await self._reset(verb, reason, self._last)

    async def _write_checkpoint(self, why: str) -> None:
        """Without a reset. Where it cannot be stored nothing is lost but the Checkpoint."""
        async with self._one_at_a_time:
            self._checked_at = self._client.connection.server_time()
            last = self._last
            about = last.envelope if last else None
            journal = self._composed(self._begun("compact", why, about), last)
            try:
                checkpoint, evidence = await self._books.compare(self._draft(journal), last)
                journal = replace(journal, checkpoint=checkpoint)
                self.gate.checkpoint = await self._record(journal, last, evidence)
            except CompactionError as error:
                log.warning("checkpoint.not_stored", error=str(error))
                if self._is_pending():
                    await self._give_up(journal)

    async def _reset(self, verb: Verb, reason: str, last: Handled | None) -> None:
        begun = self._begun(verb, reason, last.envelope if last else None)
        before = self.gate.closed
        await self.gate.begin_compaction()
        problem, may_be_mended = "", False
        try:
            await self._go_on(begun, last)
        except CompactionError as error:
            problem, may_be_mended = str(error), isinstance(error, CheckpointRefusedError)
            if problem != before:
                log.error("compaction.failed", agent=begun.agent, problem=problem)
            raise
        finally:
            self.gate.end_compaction(problem, may_be_mended=may_be_mended)
            await self.gate.publish()

    async def _go_on(self, begun: ResetJournal, last: Handled | None) -> None:
        """From the last step that was stored to the end."""
        journal = self._journal or begun
        # In the middle of a task nothing is cleared, whatever was begun before it.
        is_other = begun.verb == "compact" and journal.verb == "clear" and last is not None
        if not self._is_pending() or is_other:
            journal = await self._store(begun)
        if journal.step == "began":
            journal = await self._store(await self._with_handoff(journal, last))
        if journal.step == "handoff":
            checkpoint, evidence = await self._books.compare(self._draft(journal), last)
            if (amended := _with_next(journal, checkpoint)) != journal:
                journal = await self._store(amended)
            await self._books.write(checkpoint, last, evidence)
            journal = await self._store(replace(journal, step="checkpoint", checkpoint=checkpoint))
        if journal.step == "checkpoint":
            journal = await self._store(await self._with_reset(journal))
        await self._open(journal)

    def _begun(self, verb: Verb, reason: str, about: Envelope | None) -> ResetJournal:
        # After a restart a session is where its last Checkpoint left it.
        at = about or (self.gate.checkpoint if self._agent.reset else None)
        return ResetJournal(
            agent=self._agent.card.id,
            step="began",
            verb=verb,
            reason=reason,
            began=self._now(),
            usage=self.gate.usage,
            work=at.work if at else ADHOC,
            task=at.task if at else None,
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
        if lost := too_far(journal.verb, journal.usage_after, self._client.policy.compaction):
            log.warning("compaction.too_far", agent=journal.agent, problem=lost)
        now = self._now()
        await self._store(replace(journal, step="done", began=now))
        self.gate.begin_afresh(journal.usage_after, journal.checkpoint, now.timestamp())
        self._checked_at, self._last = now.timestamp(), None
        log.info(
            "session.reset",
            verb=journal.verb,
            reason=journal.reason,
            percent=journal.usage_after.percent,
            before=journal.usage.percent,
        )

    def _composed(self, journal: ResetJournal, last: Handled | None) -> ResetJournal:
        """With the ten fields, and the files that were changed, as the ledger knows them."""
        about, result = (last.envelope, last.result) if last else (None, None)
        return replace(
            journal,
            step="handoff",
            handoff=compose_handoff(self._agent.card, about, result, _before(journal)),
            changed_files=tuple(it.path for it in result.files_changed) if result else (),
        )

    async def _with_handoff(self, journal: ResetJournal, last: Handled | None) -> ResetJournal:
        """With the ten fields, which are asked for twice at most."""
        if self._agent.reset is None:
            return self._composed(journal, last)
        missing: tuple[str, ...] = ()
        for _ in range(2):
            done = await self._ask("handoff", journal, missing)
            missing = missing_fields(done.handoff)
            if done.handoff is not None and not missing:
                return replace(
                    journal,
                    step="handoff",
                    handoff=done.handoff,
                    changed_files=tuple(done.changed_files),
                )
            log.warning("compaction.handoff_incomplete", missing=missing)
        raise CompactionError(f"compaction handoff incomplete: no {', '.join(missing)}")

    def _draft(self, journal: ResetJournal) -> Checkpoint:
        """The same at each try: by its moment it is found again where it was written."""
        handoff = journal.handoff
        if handoff is None:
            raise CompactionError("a Checkpoint needs the ten fields of a compaction handoff")
        return Checkpoint(
            agent=self._agent.card.id,
            work=journal.work,
            task=journal.task,
            phase=stated_phase(handoff, self._agent.card.role),
            did=handoff.completed,
            checks=handoff.evidence_paths,
            next=handoff.next_safe_action,
            context=f"{journal.verb}: {journal.reason}",
            written=journal.began,
            changed_files=journal.changed_files,
            handoff=handoff,
        )

    async def _with_reset(self, journal: ResetJournal) -> ResetJournal:
        """With the reset done, and the usage after it."""
        if self._agent.reset is None:
            return replace(journal, step="reset", usage_after=ContextUsage())
        done = await self._ask("reset", journal)
        if done.capabilities is not None:
            self._agent.card = replace(self._agent.card, capabilities=done.capabilities)
        verb = done.verb or journal.verb
        return replace(journal, step="reset", usage_after=done.usage, verb=verb)

    async def _ask(
        self, step: str, journal: ResetJournal, missing: tuple[str, ...] = ()
    ) -> ResetDone:
        request = ResetRequest(
            step="handoff" if step == "handoff" else "reset",
            verb=journal.verb,
            reason=journal.reason,
            missing=missing,
            checkpoint=journal.checkpoint if step == "reset" else _before(journal),
        )
        assert self._agent.reset is not None
        is_draft = _is_incomplete if step == "handoff" else None
        return await ask_hook(
            self._agent.reset, request, ResetDone, f"the {step}", is_draft=is_draft
        )

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


def _is_incomplete(done: ResetDone) -> bool:
    return done.handoff is not None and bool(missing_fields(done.handoff))


def _with_next(journal: ResetJournal, checkpoint: Checkpoint) -> ResetJournal:
    """With the Checkpoint's next step, so that whoever goes on drafts the same one."""
    assert journal.handoff is not None
    return replace(journal, handoff=replace(journal.handoff, next_safe_action=checkpoint.next))


def _before(journal: ResetJournal) -> Checkpoint | None:
    """The last Checkpoint before this one, of the same work."""
    before = journal.checkpoint
    return before if before and before.work == journal.work else None
