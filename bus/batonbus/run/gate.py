"""The agent's own side of the context gate: what is known of its session, and whether it is closed.

The bus looks at the registry before it delivers; the agent itself is strict: it pulls nothing while
it is closed, and looks again right before each `accepted`.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from batonbus.logs import log
from batonbus.rules.chain import Chain
from batonbus.rules.compaction import Verb
from batonbus.rules.errors import ContextFullError
from batonbus.rules.gate import Facts, Level, fired, level_of, was_interrupted, why_closed
from batonbus.rules.policy import Thresholds
from batonbus.run.changes import Changes
from batonbus.run.policies import Policies
from batonbus_schemas import AgentCard, Checkpoint, ContextUsage, Envelope, TaskResult

Publish = Callable[[], Awaitable[None]]
"""Stores the agent's presence; returns when it is stored."""


class Gate:
    """Open or closed. `changed` is told of each change, `publish` stores it in the registry."""

    def __init__(
        self, card: AgentCard, policies: Policies, changed: Changes, publish: Publish
    ) -> None:
        self._card = card
        self._policies = policies
        self._judged = policies.now, policies.now.limits_of(card).thresholds
        self.usage = card.context_usage
        self.last: Envelope | None = None
        """The handoff that the session worked on last; None for a fresh session."""
        self.checkpoint: Checkpoint | None = None
        self.fresh_since = float("-inf")
        """The server's moment of the last reset."""
        self._changed = changed
        self.publish = publish
        self.verb: Verb | None = None
        """The reset that was asked for, if that was said."""
        self._newest = float("-inf")
        self._required = ""
        self._stopped = ""
        self._compacting = False
        self._again = False
        self.may_be_mended = False
        """Whether what stopped a compaction is looked at again."""
        self._confused = False
        self._busy_for = 0.0
        self._accepting = 0
        self._accepted = Changes()

    @property
    def thresholds(self) -> Thresholds:
        """Those of the policy that is in force now."""
        policy, thresholds = self._judged
        if policy is not self._policies.now:
            policy = self._policies.now
            thresholds = policy.limits_of(self._card).thresholds
            self._judged = policy, thresholds
        return thresholds

    @property
    def closed(self) -> str:
        """Why nothing new is taken; empty where it is."""
        return why_closed(
            self.usage,
            self.thresholds,
            required=self._required,
            compacting=self._compacting,
            stopped=self._stopped,
        )

    @property
    def level(self) -> Level:
        """How full the context is."""
        return level_of(self.usage, self.thresholds)

    @property
    def wants_compaction(self) -> str:
        """Why the session must be compacted now; empty where it need not, or is being compacted, or
        could not be."""
        stopped = self._stopped and not self._again
        return "" if self._compacting or stopped else self.closed

    async def report(self, usage: ContextUsage) -> Level:
        """Note the usage; returns when the registry has it. By then nothing is accepted any more
        that was looked at before."""
        before = self.level
        self.usage = usage
        self._changed.tell()
        level = self.level
        if level != before:
            log.info("context.level_changed", level=level, percent=usage.percent, before=before)
        await self._settle()
        return level

    async def follow_policy(self) -> None:
        """Close or open as soon as another policy says so. Never returns."""
        changes = self._policies.changes
        count = changes.count
        while True:
            await changes.wait(since=count)
            count = changes.count
            self._changed.tell()
            await self._settle()

    async def require(self, reason: str, verb: Verb | None = None) -> None:
        """Close until the session is reset, whatever its usage is."""
        if not self._required:
            log.info("compaction.required", reason=reason)
            self._required, self.verb = reason, verb
            self._changed.tell()
            await self._settle()

    async def begin_compaction(self) -> None:
        """Closed from here on; returns when the registry says so."""
        self._compacting = True
        # Tried again, it is closed for the same problem until that is gone.
        self._stopped = self._stopped if self._again else ""
        await self._settle()

    def end_compaction(self, problem: str = "", *, may_be_mended: bool = False) -> None:
        """Over: open again, or closed because of a problem, for good or until that is mended."""
        self._compacting = self._again = False
        self.may_be_mended = may_be_mended
        self._stopped = problem
        self._changed.tell()

    def try_again(self) -> None:
        """What stopped the compaction may be mended by now."""
        self._again, self.may_be_mended = True, False
        self._changed.tell()

    def begin_afresh(self, usage: ContextUsage, checkpoint: Checkpoint | None, now: float) -> None:
        """The session was reset at the server's moment `now`: what happened in it before counts no
        more."""
        self.usage = usage
        self.checkpoint = checkpoint
        # Clocks may differ by a little: what was weighed already is in any case from before.
        self.fresh_since = max(now, self._newest)
        self.last = self.verb = None
        self._required = ""
        self._confused = False
        self._busy_for = 0.0

    async def _settle(self) -> None:
        """Wait for what is just being accepted, then tell the registry."""
        while self._accepting:
            await self._accepted.wait()
        await self.publish()

    @contextmanager
    def accepting(self) -> Generator[None]:
        """Around the writing of an `accepted`: a report waits for it."""
        self._accepting += 1
        try:
            yield
        finally:
            self._accepting -= 1
            self._accepted.tell()

    def weigh(self, envelope: Envelope, chain: Chain) -> str:
        """Which trigger a handoff that comes now fires; empty where the usage is known, or the
        session was reset since what would fire it."""
        if self.level != "unknown":
            return ""
        self._newest = max(self._newest, chain.changed)
        is_news = chain.changed > self.fresh_since
        facts = Facts(
            resumed=is_news and was_interrupted(chain),
            rounds=chain.next_attempt - 1 if is_news else 0,
            confused=self._confused,
            moves_on=self.last is not None and not same_task(self.last, envelope),
            busy_for=self._busy_for,
            checkpoint=self.checkpoint,
        )
        return fired(facts, self._policies.now) or ""

    def note_worked(self, envelope: Envelope, seconds: float, result: TaskResult | None) -> None:
        """The session worked on this for so long, and ended it with this result."""
        if self.last is None or not same_task(self.last, envelope):
            self._busy_for = 0.0
        self.last = envelope
        self._busy_for += seconds
        self._confused = self._confused or (
            result is not None
            and (
                (result.work or envelope.work) != envelope.work
                or (result.task or envelope.task) != envelope.task
            )
        )

    def check_send(self) -> None:
        """Raises ContextFullError at or above hard: nothing new is begun."""
        if self.level in {"hard", "emergency"}:
            raise ContextFullError(
                "nothing is sent", self.usage.percent or 0.0, self.thresholds.hard
            )

    def check_command(self) -> None:
        """Raises ContextFullError at or above emergency: no command starts."""
        if self.level == "emergency":
            raise ContextFullError(
                "no command is started", self.usage.percent or 0.0, self.thresholds.emergency
            )


def same_task(one: Envelope, other: Envelope) -> bool:
    """Whether two handoffs are of the same task of the same work."""
    return (one.work, one.task) == (other.work, other.task)
