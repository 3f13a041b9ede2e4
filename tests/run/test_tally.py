"""A work's handoffs are counted in the ledger, seldom, and each once."""

from collections.abc import AsyncGenerator
from uuid import UUID, uuid4

import anyio
import pytest

from batonbus import TestBus
from batonbus.rules.chain import WINDOW_MANAGER
from batonbus.run.core import open_operator
from batonbus.run.tally import Tally
from batonbus.wire.ledger import Draft, Ledger
from batonbus.wire.subjects import Subject
from batonbus_schemas.envelope import ADHOC

pytestmark = pytest.mark.anyio


class Deliveries:
    """A ledger in which handoffs are delivered, as far as a tally lets them in."""

    def __init__(self, ledger: Ledger, fleet: str) -> None:
        self.ledger = ledger
        self._fleet = fleet
        self.admitted = 0
        self.counts = 0

    def start(self, limit: int) -> Tally:
        """The tally of a window manager that starts."""
        return Tally(self, limit)  # type: ignore[arg-type]

    async def delivered_of(self, work: str) -> set[UUID]:
        self.counts += 1
        return await self.ledger.delivered_of(work)

    async def offer(self, tally: Tally, work: str = "big") -> bool:
        handoff_id = uuid4()
        if not await tally.admits(work, handoff_id):
            return False
        self.admitted += 1
        subject = Subject(self._fleet, handoff_id, "delivered", work, WINDOW_MANAGER, "nobody")
        await self.ledger.append(Draft(subject=subject, payload=b"{}"), tail=0)
        return True

    async def offer_at_once(self, number: int, *tallies: Tally) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                for tally in tallies:
                    tasks.start_soon(self.offer, tally)


@pytest.fixture
async def deliveries() -> AsyncGenerator[Deliveries]:
    with anyio.fail_after(20):
        async with TestBus() as bus, open_operator(bus.server.url, fleet="default") as core:
            yield Deliveries(core.ledger, core.fleet)


async def test_a_small_work_is_never_counted_in_the_ledger(deliveries: Deliveries) -> None:
    await deliveries.offer_at_once(125, deliveries.start(1_000))
    assert (deliveries.admitted, deliveries.counts) == (125, 0)


async def test_one_window_manager_lets_in_exactly_the_limit_however_many_come_at_once(
    deliveries: Deliveries,
) -> None:
    tally = deliveries.start(400)
    await deliveries.offer_at_once(600, tally)
    assert deliveries.admitted == 400
    counts = deliveries.counts
    assert counts < 50
    await deliveries.offer_at_once(50, tally)
    assert (deliveries.admitted, deliveries.counts) == (400, counts)


async def test_eight_side_by_side_stay_within_their_number_of_the_limit(
    deliveries: Deliveries,
) -> None:
    tallies = [deliveries.start(100) for _ in range(8)]
    for _ in range(20):
        for tally in tallies:
            await deliveries.offer(tally)
    assert 100 <= deliveries.admitted < 108


async def test_a_new_start_finds_what_was_delivered_before_and_adds_an_eighth_at_most(
    deliveries: Deliveries,
) -> None:
    await deliveries.offer_at_once(100, deliveries.start(80))
    assert deliveries.admitted == 80
    await deliveries.offer_at_once(100, deliveries.start(80))
    assert deliveries.admitted == 90


async def test_a_handoff_that_is_asked_for_again_counts_once(deliveries: Deliveries) -> None:
    tally, same = deliveries.start(3), uuid4()
    assert all([await tally.admits("big", same) for _ in range(10)])
    assert [await deliveries.offer(tally) for _ in range(3)] == [True, True, False]


async def test_what_belongs_to_no_work_has_no_limit_and_each_work_its_own(
    deliveries: Deliveries,
) -> None:
    tally = deliveries.start(2)
    assert all([await deliveries.offer(tally, ADHOC) for _ in range(20)])
    for work in ("one", "two"):
        assert [await deliveries.offer(tally, work) for _ in range(3)] == [True, True, False]
