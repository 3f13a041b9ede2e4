"""The runtime of one agent: its slots, its presence, its lease on what it works on."""

from pathlib import Path
from uuid import UUID

import anyio
import anyio.to_thread
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct
from msgspec.structs import replace

from batonbus.logs import bind, log
from batonbus.rules.compaction import Handled
from batonbus.rules.errors import (
    BatonbusError,
    BusUnavailableError,
    CompactionError,
    NoAnswerError,
)
from batonbus.run.agent import Agent
from batonbus.run.changes import Changes
from batonbus.run.client import Client
from batonbus.run.compaction import Compactor, Ending
from batonbus.run.contents import has_contents, remove_contents
from batonbus.run.gate import Gate
from batonbus.run.handling import ELSEWHERE_DELAY, Handling, Lease, is_last_attempt
from batonbus.run.namesake import Namesake
from batonbus.wire.feed import Feed, Received, open_feed
from batonbus.wire.streams import role_consumer
from batonbus_schemas import Presence

NAMESAKE_BEATS = 4
"""Heartbeats within which a process that lives under our id has overwritten our entry twice."""

LEAVE_TIMEOUT = 2.0
"""Seconds that telling the registry and the server of our end may take."""


class Running(Struct):
    """A handoff whose handler runs, and the way to stop it."""

    lease: Lease
    scope: anyio.CancelScope
    is_over: bool = False


class Worker:
    """Runs one agent on a connected client."""

    def __init__(self, agent: Agent, client: Client) -> None:
        self._agent = agent
        self._client = client
        self._settings = client.settings
        self._handling = Handling(agent, client)
        self._free = agent.card.slots
        self._running: dict[int, Running] = {}
        """What we own, by its accepted event."""
        self._in_hand: set[Received] = set()
        self._changed = Changes()
        self._stopping = False
        self._putting = anyio.Lock()
        self._namesake = Namesake(NAMESAKE_BEATS * client.settings.heartbeat)
        self._gate = Gate(agent.card, client.policies, self._changed, self._store_presence)
        self._session = Compactor(agent, client, self._gate)

    async def run(self, stop: anyio.Event) -> None:
        """Work until `stop` is set; then let what runs finish inside the grace time, and hand the
        rest back."""
        connection, stream = self._client.connection, self._client.ledger.stream
        card = self._agent.card
        try:
            async with anyio.create_task_group() as tasks:
                self._client.on_cancel = lambda it: tasks.start_soon(self._check_cancelled, it)
                await self._session.load()
                await tasks.start(self._stay_present)
                tasks.start_soon(self._keep_leases)
                tasks.start_soon(self._check_leases)
                role_feed, own_feed = (
                    open_feed(connection, stream, role_consumer(name), window=card.slots)
                    for name in (card.role, card.id)
                )
                async with (
                    role_feed as role,
                    own_feed as own,
                    anyio.create_task_group() as handlers,
                ):
                    handlers.start_soon(self._mind_gate, role, own)
                    handlers.start_soon(self._gate.follow_policy)
                    handlers.start_soon(self._reset_when_due)
                    handlers.start_soon(self._receive, role, True, handlers)
                    handlers.start_soon(self._receive, own, False, handlers)
                    log.info("agent.started", agent=card.id, role=card.role)
                    await stop.wait()
                    self._stopping = True
                    await role.stop()
                    await own.stop()
                    await self._finish()
                    handlers.cancel_scope.cancel()
                tasks.cancel_scope.cancel()
        finally:
            await self._leave()

    async def _finish(self) -> None:
        self._changed.tell()
        with anyio.move_on_after(self._settings.stop_grace):
            while self._free < self._agent.card.slots:
                await self._changed.wait()

    async def _leave(self) -> None:
        with anyio.move_on_after(LEAVE_TIMEOUT, shield=True):
            try:
                await self._client.registry.remove(self._client.actor)
            except (NoAnswerError, BusUnavailableError) as error:
                # What ended the connection is told by whoever waits for that.
                log.warning("presence.not_removed", error=str(error))
        log.info("agent.stopped", agent=self._client.actor)

    async def _stay_present(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        count = self._changed.count
        await self._put_presence()
        task_status.started()
        while True:
            with anyio.move_on_after(self._settings.heartbeat):
                await self._changed.wait(since=count)
                # Many changes at once are one entry.
                await anyio.sleep(self._settings.heartbeat / 20)
            # Taken before the entry is made: a change while it is on its way is the next one's.
            count = self._changed.count
            await self._put_presence()

    async def _put_presence(self) -> None:
        try:
            await self._put_once()
        except NoAnswerError as error:
            log.warning("presence.not_put", error=str(error))

    async def _put_once(self) -> None:
        # One after the other: a report that is stored is not overwritten by what was so before.
        async with self._putting:
            if await self._client.registry.put(self._presence()):
                self._namesake.note_overwritten(anyio.current_time())

    def _presence(self) -> Presence:
        return Presence(
            card=replace(self._agent.card, context_usage=self._gate.usage),
            working=tuple(self._running),
            stopping=self._stopping,
            closed=self._gate.closed,
            shared=self._namesake.is_there(anyio.current_time()),
        )

    async def _store_presence(self) -> None:
        """Returns when the registry has it, however long that takes."""
        while True:
            try:
                await self._put_once()
            except NoAnswerError as error:
                log.warning("presence.not_put", error=str(error))
                await anyio.sleep(self._settings.heartbeat / 20)
            else:
                return

    async def _mind_gate(self, *feeds: Feed) -> None:
        """Pull nothing while the gate is closed. Never returns."""
        pulling = True
        while True:
            count = self._changed.count
            if pulling == bool(self._gate.closed):
                pulling = not pulling
                log.info("gate.opened" if pulling else "gate.closed", why=self._gate.closed)
                for feed in feeds:
                    await (feed.resume() if pulling else feed.pause())
            else:
                await self._changed.wait(since=count)

    async def _reset_when_due(self) -> None:
        """Reset the session where the gate wants it and no handler would notice. Never returns."""
        while True:
            count = self._changed.count
            if self._gate.wants_compaction and self._may_reset():
                before = self._gate.closed
                try:
                    await self._session.compact()
                except CompactionError as error:
                    if (problem := str(error)) != before:
                        log.warning("agent.closed", problem=problem)
            elif self._gate.may_be_mended:
                # What a Checkpoint must agree with is not ours alone: somebody may mend it.
                await anyio.sleep(self._settings.heartbeat)
                self._gate.try_again()
            else:
                await self._changed.wait(since=count)

    def _may_reset(self) -> bool:
        """Nothing runs; or what runs has a session each, of which nobody knows how full it is."""
        each_has_its_own = self._agent.reset is None and self._gate.level == "unknown"
        return not self._stopping and (self._free == self._agent.card.slots or each_has_its_own)

    async def _check_cancelled(self, handoff_id: UUID) -> None:
        """Somebody says that a handoff is over: where the ledger says so too, stop the work."""
        for running in list(self._running.values()):
            if running.lease.envelope.id == handoff_id:
                await self._check_lease(running)

    async def _check_lease(self, running: Running) -> None:
        """Stop working on what the ledger says is not ours (any more)."""
        try:
            is_ours, running.is_over = await self._handling.look_up(running.lease)
            if not is_ours:
                running.scope.cancel()
        except BatonbusError as error:
            handoff = str(running.lease.envelope.id)
            log.warning("lease.not_checked", handoff=handoff, error=str(error))

    async def _receive(self, feed: Feed, shared: bool, handlers: TaskGroup) -> None:
        """`shared`: other agents read this feed too, and may have a slot where we have none."""
        while True:
            try:
                received = await feed.receive()
            except anyio.EndOfStream:
                return
            # Each in a task, and so in a context of its own: what a handler sets there is not seen
            # by the next.
            if shared and self._free == 0:
                handlers.start_soon(self._leave_to_others, feed, received)
            else:
                handlers.start_soon(self._take, feed, received)

    async def _leave_to_others(self, feed: Feed, received: Received) -> None:
        """Our other feed took the last slot. The place in this feed stays taken until we have a
        slot again: or we would ask and hand back, ask and hand back."""
        await received.nak(ELSEWHERE_DELAY)
        await self._wait_for_slot()
        await feed.release()

    async def _take(self, feed: Feed, received: Received) -> None:
        self._in_hand.add(received)
        try:
            await self._wait_for_slot()
            if self._free > 0 and not self._gate.closed:
                await self._handle(received)
            else:
                await received.nak(0)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(LEAVE_TIMEOUT, shield=True):
                # Whoever gets it next asks the registry whether we still hold it.
                await self._put_presence()
                await received.nak(0)
            raise
        finally:
            self._in_hand.remove(received)
        # Whoever is cancelled asks for nothing more.
        await feed.release()

    async def _wait_for_slot(self) -> None:
        """Until a slot is free, or none will be any more, or none may be used."""
        while self._free == 0 and not self._stopping and not self._gate.closed:
            await self._changed.wait()

    async def _handle(self, received: Received) -> None:
        self._free -= 1
        try:
            lease = await self._handling.accept(received, self._session)
            if lease is not None and lease.accepted in self._running:
                # It was handed out again while an answer to our first try was lost.
                await received.nak(ELSEWHERE_DELAY)
            elif lease is not None:
                envelope = lease.envelope
                with bind(handoff=str(envelope.id), work=envelope.work, task=envelope.task):
                    ending = await self._hold(lease, received)
                    if ending is not None:
                        await self._session.end(ending)
        except BusUnavailableError as error:
            # Right after an outage a keeper may not know yet that we are of the addressed role.
            log.warning("handoff.not_taken", subject=received.subject, error=str(error))
            await received.nak(ELSEWHERE_DELAY)
        except Exception as error:  # noqa: BLE001 - The top of the loop: the next message must find a runtime that still works.
            log.exception("handoff.not_handled", subject=received.subject, error=repr(error))
            await received.nak(ELSEWHERE_DELAY)
        finally:
            self._free += 1
            self._changed.tell()

    async def _hold(self, lease: Lease, received: Received) -> Ending | None:
        """Own the handoff until it is answered, or over without us. Returns the Checkpoint that is
        due then."""
        scope, ending = anyio.CancelScope(), None
        running = self._running[lease.accepted] = Running(lease, scope)
        self._changed.tell()
        try:
            with scope:
                ending = await self._answer(lease, received)
        except anyio.get_cancelled_exc_class():
            if self._stopping:
                with anyio.move_on_after(LEAVE_TIMEOUT, shield=True):
                    await self._handling.hand_back(lease)
            raise
        finally:
            del self._running[lease.accepted]
        if scope.cancelled_caught:
            log.warning("lease.lost", handoff=str(lease.envelope.id), is_over=running.is_over)
            if running.is_over:
                # Otherwise somebody else has it now, and the message is theirs to ack.
                await _end(lease, received)
        return ending

    async def _answer(self, lease: Lease, received: Received) -> Ending | None:
        began = anyio.current_time()
        answer, trace = await self._handling.work(lease, self._session)
        answer = await self._handling.revalidated(lease, answer, self._session)
        handled = Handled(envelope=lease.envelope, attempt=lease.attempt, result=answer.result)
        ending = await self._session.look_at_end(handled)
        self._session.note_worked(handled, anyio.current_time() - began)
        stored = await self._handling.answer(lease, answer, trace)
        if stored != "settled":
            self._session.note_lost(handled)
            ending = None
        if stored is None:
            # Somebody else has it now: the message is theirs to ack.
            return None
        comes_again = answer.interrupted or not is_last_attempt(lease)
        if answer.retry_after is not None and comes_again:
            await received.nak(answer.retry_after)
        else:
            await _end(lease, received)
        return ending

    async def _keep_leases(self) -> None:
        while True:
            await anyio.sleep(self._settings.ack_wait / 3)
            for received in list(self._in_hand):
                await received.in_progress()

    async def _check_leases(self) -> None:
        """Beside keeping them, for a keeper may be away for long."""
        while True:
            await anyio.sleep(self._settings.ack_wait / 3)
            for running in list(self._running.values()):
                # What told us may have been lost: a cancellation, a takeover while we stood still.
                await self._check_lease(running)


async def run_agent(agent: Agent, client: Client, stop: anyio.Event) -> None:
    """Run an agent until `stop` is set."""
    await Worker(agent, client).run(stop)


async def _end(lease: Lease, received: Received) -> None:
    """Nothing follows for this handoff, and nobody reads what lies beside it any more."""
    await received.ack()
    here, handoff_id = Path.cwd(), lease.envelope.id
    if has_contents(here, handoff_id):
        await anyio.to_thread.run_sync(remove_contents, here, handoff_id)
