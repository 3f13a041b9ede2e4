"""Looking for some chains among many: only theirs are read, and each is folded whole."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from msgspec.structs import replace

from batonbus.rules.chain import WINDOW_MANAGER, child_id
from batonbus.run import history as history_module
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.run.core import Core, open_core
from batonbus.run.dead_letters import list_dead, read_dead
from batonbus.run.history import find_chains, read_chains, read_work
from batonbus.wire.ledger import Draft, Ledger
from batonbus.wire.server import embedded_server
from batonbus.wire.subjects import NOBODY, Subject, kind_filter, work_filter
from batonbus.work.cancelling import cancel_work
from batonbus_schemas import Delivery, Dispatch, Envelope, Settlement, TaskResult, encode

pytestmark = pytest.mark.anyio


@pytest.fixture
async def core(tmp_path: Path) -> AsyncGenerator[Core]:
    with anyio.fail_after(20):
        async with (
            embedded_server(tmp_path) as server,
            open_core(server.url, WINDOW_MANAGER, fleet=DEFAULT_FLEET) as core,
        ):
            yield core


class Writer:
    """Writes the events of one handoff, each behind the last one."""

    def __init__(self, core: Core, handoff_id: UUID | None = None) -> None:
        self.ledger = core.ledger
        self.id = handoff_id or uuid4()
        self.tail = 0

    async def write(
        self,
        kind: Any,
        actor: str,
        payload: bytes = b"{}",
        *,
        to: str = NOBODY,
        work: str = "shop",
        **marks: Any,
    ) -> int:
        subject = Subject(DEFAULT_FLEET, self.id, kind, work, actor, to)
        draft = Draft(subject=subject, payload=payload, **marks)
        self.tail = await self.ledger.append(draft, tail=self.tail)
        return self.tail

    async def deliver(self, work: str = "shop", sent_in: str | None = None) -> None:
        envelope = Envelope(
            id=self.id, sender="asker", to="builder", body=Dispatch(brief="x"), work=work
        )
        names = {"waiter": "asker", "addressee": "builder"}
        await self.write(
            "sent", "asker", encode(envelope), to="builder", work=sent_in or work, **names
        )
        delivery = encode(Delivery(envelope=envelope, opener="builder"))
        await self.write("delivered", WINDOW_MANAGER, delivery, to="builder", work=work, **names)

    async def settle(self, work: str = "shop", **marks: Any) -> None:
        taken = await self.write("accepted", "builder-1", work=work, attempt=1, lease=1)
        settlement = encode(Settlement(result=TaskResult.passed(what="Built it.")))
        await self.write("settled", "builder-1", settlement, work=work, accepted=taken, **marks)


async def test_a_work_has_those_that_inherited_it_with_their_first_event(core: Core) -> None:
    """Their `sent` names no work: the window manager found out whose they are."""
    own, heir, other = Writer(core), Writer(core), Writer(core)
    await own.deliver()
    await own.settle()
    await heir.deliver(sent_in="adhoc")
    await heir.settle()
    await other.deliver(work="office")
    histories = await read_work(core.ledger, "shop")
    assert [it.chain.id for it in histories] == [own.id, heir.id]
    for history in histories:
        kinds = [it.stored.event.kind for it in history.steps if it.objection is None]
        assert kinds == ["sent", "delivered", "accepted", "settled"]
        assert history.settlement is not None


async def test_a_name_that_no_event_can_bear_has_no_handoffs(core: Core) -> None:
    await Writer(core).deliver()
    for name in ("*", ">", "shop.>", "a shop", ""):
        assert await read_work(core.ledger, name) == []


@pytest.mark.parametrize("singly", [0, 200])
async def test_what_is_found_is_folded_as_it_is_in_the_whole_ledger(
    core: Core, monkeypatch: pytest.MonkeyPatch, singly: int
) -> None:
    monkeypatch.setattr(history_module, "READ_SINGLY", singly)
    settled, disturbed, heir, other = (Writer(core) for _ in range(4))
    await settled.deliver()
    await settled.settle()
    await disturbed.deliver()
    # A stranger's event moves the tail, under whatever work it says.
    await disturbed.write("settled", "stranger", work="office", accepted=1)
    await disturbed.settle()
    await heir.deliver(sent_in="adhoc")
    await other.deliver(work="garden")
    everything = await read_chains(core.ledger)
    assert {it.stage for it in everything.values()} == {"settled", "delivered"}
    for subject, ids in (
        (work_filter(DEFAULT_FLEET, "shop"), [settled.id, disturbed.id, heir.id]),
        (kind_filter(DEFAULT_FLEET, "settled"), [settled.id, disturbed.id]),
        (kind_filter(DEFAULT_FLEET, "dead"), []),
    ):
        found = await find_chains(core.ledger, subject)
        assert list(found) == ids
        for handoff_id, chain in found.items():
            # A single read tells the moments to the microsecond, a feed more exactly.
            moments = {"began": chain.began, "changed": chain.changed}
            assert chain == replace(everything[handoff_id], **moments)


async def test_a_few_among_many_are_found_without_the_many(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read is told what it may hear: the whole ledger is nobody's question here."""
    dead = Writer(core)
    await dead.deliver()
    await dead.write("dead", "operator", b'{"reason": "nobody took it"}')
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(Writer(core).deliver, "garden")
    asked: list[str | None] = []
    read = history_module.read_to_head

    async def spy(ledger: Ledger, hear: Any, start: int = 1, **options: Any) -> None:
        asked.append(options.get("subject"))
        await read(ledger, hear, start, **options)

    monkeypatch.setattr(history_module, "read_to_head", spy)
    (letter,) = await list_dead(core)
    assert letter.history.chain.id == dead.id
    assert await cancel_work(core, "shop", "not wanted") == 0
    assert set(asked) == {
        kind_filter(DEFAULT_FLEET, "dead"),
        work_filter(DEFAULT_FLEET, "shop"),
    }


async def test_only_a_settled_event_that_counts_opened_a_dead_one(core: Core) -> None:
    parent, forged = Writer(core), Writer(core)
    await parent.deliver()
    await parent.settle(child_to="verifier")
    await forged.deliver()
    await forged.write("settled", "stranger", accepted=1, child_to="verifier")
    for opener, expected in ((parent, parent.id), (forged, None)):
        child = Writer(core, child_id(opener.id))
        await child.write("dead", "operator", b'{"reason": "nobody took it"}')
        assert (await read_dead(core, child.id)).handed_on_by == expected
    assert [it.handed_on_by for it in await list_dead(core)] == [None, parent.id]


async def test_a_work_is_cancelled_though_a_child_ended_under_another_name(core: Core) -> None:
    parent = Writer(core)
    await parent.deliver()
    await parent.settle(child_to="verifier")
    child = Writer(core, child_id(parent.id))
    await child.write("dead", "operator", b'{"reason": "nobody took it"}', work="office")
    assert await cancel_work(core, "shop", "not wanted") == 0
    waiting, handing_on = Writer(core), Writer(core)
    await waiting.deliver()
    await handing_on.deliver()
    await handing_on.settle(child_to="verifier", waiter="asker")
    assert await cancel_work(core, "shop", "not wanted") == 2
    chains = await read_chains(core.ledger)
    assert chains[waiting.id].stage == chains[child_id(handing_on.id)].stage == "cancelled"
