"""What the bus makes on a cluster, and what a compare-and-set is worth there."""

from uuid import uuid4

import anyio
import msgspec
import pytest
from nodes import Cluster
from traffic import FLEET, STREAM

from batonbus.rules.settings import Settings
from batonbus.run.doctor import examine
from batonbus.wire import topology
from batonbus.wire.connection import connect
from batonbus.wire.ledger import Draft, Ledger
from batonbus.wire.publisher import LostRaceError, Publisher
from batonbus.wire.streams import role_consumer
from batonbus.wire.subjects import Subject
from batonbus.wire.topology import ensure_addressee, ensure_topology

pytestmark = [pytest.mark.faults, pytest.mark.cluster, pytest.mark.anyio]

STARTERS = 5
ROUNDS, WRITERS = 20, 10


async def test_starters_at_one_time_make_everything_with_three_replicas(cluster: Cluster) -> None:
    async def start(number: int) -> None:
        url = cluster.nodes[number % 3].url("operator")
        async with connect(url, f"starter-{number}") as connection:
            await ensure_topology(connection, FLEET, Settings())
            await ensure_addressee(connection, FLEET, "coder", Settings())

    async with anyio.create_task_group() as tasks:
        for number in range(STARTERS):
            tasks.start_soon(start, number)
    async with connect(cluster.url("operator"), "operator") as connection:
        assert connection.is_clustered
        found = [
            msgspec.json.decode(await connection.api(f"STREAM.INFO.{name}"))
            for name in (STREAM, f"KV_batonbus_{FLEET}_agents")
        ]
        assert [it["config"]["num_replicas"] for it in found] == [3, 3]
        for name in ("window-manager", role_consumer("coder")):
            info = msgspec.json.decode(await connection.api(f"CONSUMER.INFO.{STREAM}.{name}"))
            assert len(info["cluster"]["replicas"]) == 2, "beside its leader"


async def test_the_doctor_names_what_one_node_alone_keeps(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "CLUSTER_REPLICAS", 1)
    url = cluster.url("operator")
    async with connect(url, "operator") as connection:
        await ensure_topology(connection, FLEET)
    monkeypatch.undo()
    ledger = {it.name: it for it in await examine(url, FLEET)}["ledger"]
    assert ledger.status == "warn"
    assert f"nats stream edit {STREAM} --replicas 3" in ledger.advice


async def test_of_many_writers_one_wins_and_the_others_find_its_event(cluster: Cluster) -> None:
    """Also where the server says of a lost race only that it is lost."""
    won: list[int] = []

    async def write(ledger: Ledger, draft: Draft, start: anyio.Event) -> None:
        await start.wait()
        try:
            won.append(await ledger.append(draft, tail=0))
        except LostRaceError:
            assert await ledger.next_of_chain(draft.subject.handoff_id, after=0) is not None

    async with connect(cluster.url("operator"), "operator") as connection:
        await ensure_topology(connection, FLEET)
        async with Publisher(connection) as publisher:
            ledger = Ledger(connection, publisher, FLEET)
            for round_ in range(ROUNDS):
                start, handoff = anyio.Event(), uuid4()
                async with anyio.create_task_group() as tasks:
                    for number in range(WRITERS):
                        subject = Subject(FLEET, handoff, "sent", "adhoc", f"w-{number}", "coder")
                        draft = Draft(subject=subject, payload=b"{}")
                        tasks.start_soon(write, ledger, draft, start)
                    start.set()
                assert len(won) == round_ + 1
