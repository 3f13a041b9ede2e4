"""What the ledger says of a run: each handoff's hop, and the sum of them."""

import statistics
from collections.abc import Iterable, Mapping
from uuid import UUID

from msgspec import Struct

from batonbus.rules.chain import Chain
from batonbus.run.history import make_history
from batonbus.wire.ledger import Stored
from batonbus_schemas import Delivery, DetailLevel, Envelope


class Hop(Struct, frozen=True, kw_only=True):
    """One handoff as it went: who handed to whom, what the receiver saw of the steps before it.

    `bytes_before` counts the contexts of all steps before it, `bytes_after` what its window shows.
    """

    handoff_id: UUID
    from_: str
    to: str
    work: str
    task: str | None
    full: tuple[str, ...]
    summary: tuple[str, ...]
    dropped: tuple[str, ...]
    bytes_before: int
    bytes_after: int
    receipt_ms: float | None
    attempt: int
    lease: int
    stage: str
    rebuild: bool


class Receipts(Struct, frozen=True, kw_only=True):
    """Milliseconds, by the server's clock, from `sent` to the first answer."""

    p50: float
    max: float


class WindowRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One hop's window, for scripts."""

    to: str
    full: tuple[str, ...]
    summary: tuple[str, ...]
    dropped: tuple[str, ...]
    bytes_before: int
    bytes_after: int
    task: str | None = None


class WorkReport(Struct, frozen=True, kw_only=True):
    """How the work item ended: its tasks (and those that were not committed), its commits, where
    its repository is, and whether the repository's own tests pass."""

    tasks: int
    failed: tuple[str, ...]
    commits: int
    repository: str
    tests_pass: bool


class Report(Struct, frozen=True, kw_only=True):
    """The sum of a run. `lost` handoffs are in no final state."""

    handoffs: int
    settled: int
    lost: int
    takeovers: int
    receipt_ms: Receipts
    window: tuple[WindowRow, ...]
    tasks: int
    failed: tuple[str, ...]
    commits: int
    rebuilds: int
    repository: str
    tests_pass: bool
    seconds: float

    @property
    def good(self) -> bool:
        """Whether everything ended as it should."""
        whole = self.settled == self.handoffs and self.commits == self.tasks
        return whole and not self.failed and self.tests_pass


class Ancestor(Struct, frozen=True):
    """A step before another one: who it was, and the bytes of its context."""

    name: str
    bytes: int


class Run:
    """All events of a run, by handoff."""

    def __init__(self, events: Iterable[Stored]) -> None:
        by_handoff: dict[UUID, list[Stored]] = {}
        for stored in events:
            by_handoff.setdefault(stored.subject.handoff_id, []).append(stored)
        self._histories = {key: make_history(key, chain) for key, chain in by_handoff.items()}
        # A child is under way from the event on that settled its parent.
        opened = {it.chain.child: it.chain.changed for it in self._histories.values()}
        self._begun = {key: opened.get(key, it.chain.began) for key, it in self._histories.items()}

    def hops(self) -> list[Hop]:
        """Every delivered handoff, in the order of its beginning."""
        ordered = sorted(self._histories, key=lambda key: self._begun[key])
        found = [(key, self._histories[key]) for key in ordered]
        return [self._hop(key, it.chain, it.delivery) for key, it in found if it.delivery]

    def _hop(self, handoff_id: UUID, chain: Chain, delivery: Delivery) -> Hop:
        answered = self._answered_at(handoff_id)
        ancestors = self._ancestors(handoff_id, delivery.envelope.task)
        shown = {entry.handoff_id for entry in delivery.window}
        return Hop(
            handoff_id=handoff_id,
            from_=delivery.envelope.sender,
            to=delivery.envelope.to,
            work=delivery.envelope.work,
            task=delivery.envelope.task,
            full=_names(delivery, DetailLevel.FULL),
            summary=_names(delivery, DetailLevel.SUMMARY),
            dropped=tuple(it.name for key, it in ancestors.items() if key not in shown),
            bytes_before=sum(it.bytes for it in ancestors.values()),
            bytes_after=sum(cut.bytes_after for cut in delivery.cuts),
            receipt_ms=answered and round((answered - self._begun[handoff_id]) * 1000, 1),
            attempt=chain.attempt,
            lease=chain.lease,
            stage=chain.stage,
            rebuild=delivery.envelope.attempt > 1,
        )

    def _answered_at(self, handoff_id: UUID) -> float | None:
        events = [step.stored.event for step in self._histories[handoff_id].steps]
        return next((it.at for it in events if it.kind not in {"sent", "delivered"}), None)

    def _ancestors(self, handoff_id: UUID, task: str | None) -> Mapping[UUID, Ancestor]:
        """Every step before a handoff of `task`, the nearest first. The bus itself never walks this
        far."""
        found: dict[UUID, Ancestor] = {}
        layer = [handoff_id]
        while layer:
            envelopes = [it for key in layer if (it := self._delivered(key)) is not None]
            parents = [it for env in envelopes for it in (*env.stage_parents, *env.task_parents)]
            layer = [it.handoff_id for it in parents if it.handoff_id not in found]
            for parent in parents:
                before = self._delivered(parent.handoff_id)
                name = _name(before.to, before.task, task) if before else str(parent.handoff_id)
                found.setdefault(parent.handoff_id, Ancestor(name, parent.bytes))
        return found

    def _delivered(self, handoff_id: UUID) -> Envelope | None:
        history = self._histories.get(handoff_id)
        return history.delivery.envelope if history and history.delivery else None

    def report(self, hops: list[Hop], work: WorkReport, seconds: float) -> Report:
        """The sum of a run that took `seconds`."""
        chains = [it.chain for it in self._histories.values()]
        receipts = [hop.receipt_ms for hop in hops if hop.receipt_ms is not None]
        return Report(
            handoffs=len(chains),
            settled=sum(chain.stage == "settled" for chain in chains),
            lost=sum(not chain.final for chain in chains),
            takeovers=sum(chain.takeovers for chain in chains),
            receipt_ms=Receipts(
                p50=round(statistics.median(receipts), 1) if receipts else 0.0,
                max=max(receipts, default=0.0),
            ),
            window=tuple(_row(hop) for hop in hops),
            tasks=work.tasks,
            failed=work.failed,
            commits=work.commits,
            rebuilds=sum(hop.to == "builder" and hop.rebuild for hop in hops),
            repository=work.repository,
            tests_pass=work.tests_pass,
            seconds=round(seconds, 1),
        )


def _names(delivery: Delivery, level: DetailLevel) -> tuple[str, ...]:
    task = delivery.envelope.task
    shown = [entry for entry in delivery.window if entry.level is level]
    return tuple(_name(entry.from_, entry.task, task) for entry in shown)


def _name(role: str, task: str | None, own_task: str | None) -> str:
    """Who a step was, as a handoff of `own_task` sees it."""
    return role if task in {None, own_task} else f"{task} {role}"


def _row(hop: Hop) -> WindowRow:
    return WindowRow(
        to=hop.to,
        full=hop.full,
        summary=hop.summary,
        dropped=hop.dropped,
        bytes_before=hop.bytes_before,
        bytes_after=hop.bytes_after,
        task=hop.task,
    )
