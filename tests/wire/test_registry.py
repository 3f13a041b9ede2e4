"""The registry: who is there by its own word, and only as long as it goes on saying so."""

from typing import Any

import anyio
import pytest

from batonbus.rules.errors import InvalidTokenError, NoAnswerError
from batonbus.rules.settings import Settings
from batonbus.wire import registry as registry_module
from batonbus.wire.registry import Registry
from batonbus.wire.subjects import registry_bucket
from batonbus.wire.topology import ensure_topology
from batonbus_schemas import AgentCard, Presence

pytestmark = pytest.mark.anyio


def presence(agent: str, *working: int) -> Presence:
    return Presence(card=AgentCard(id=agent, role="builder"), working=working)


def key(wire: Any, agent: str) -> str:
    return f"$KV.{registry_bucket(wire.fleet)}.{agent}"


async def test_an_empty_registry_lists_nobody(wire: Any) -> None:
    assert await wire.registry.list() == []


async def test_agents_are_listed_by_their_ids_each_with_its_last_word(wire: Any) -> None:
    for agent, working in (("c", 1), ("a", 2), ("b", 3), ("a", 4)):
        await wire.registry.put(presence(agent, working))
    assert await wire.registry.list() == [presence("a", 4), presence("b", 3), presence("c", 1)]


async def test_who_says_it_again_is_told_whether_somebody_else_has_spoken_for_it(
    server: Any, wire: Any, open_wire: Any
) -> None:
    async with open_wire(server.url) as other:
        namesake = Registry(other.connection, other.publisher, wire.fleet)
        assert not await wire.registry.put(presence("a", 1))
        assert not await wire.registry.put(presence("a", 2))
        assert not await namesake.put(presence("a", 3))  # as after a restart
        assert not await namesake.put(presence("a", 4))
        assert await wire.registry.put(presence("a", 5))
        assert not await wire.registry.put(presence("a", 6))
        assert await namesake.put(presence("a", 7))
    assert await wire.registry.list() == [presence("a", 7)]


async def test_an_agent_that_says_it_is_gone_is_gone(wire: Any) -> None:
    await wire.registry.put(presence("a"))
    await wire.registry.put(presence("b"))
    await wire.registry.remove("a")
    assert [it.card.id for it in await wire.registry.list()] == ["b"]


async def test_an_agent_whose_heartbeats_stop_is_gone_and_the_others_are_not(
    server: Any, open_wire: Any
) -> None:
    quick = Settings(heartbeat=0.1, missed_beats=3)
    async with open_wire(server.url) as wire:
        await ensure_topology(wire.connection, wire.fleet, quick)
        await wire.registry.put(presence("silent"))
        with anyio.fail_after(5):
            while True:
                await wire.registry.put(presence("alive"))
                found = [it.card.id for it in await wire.registry.list()]
                assert "alive" in found
                if found == ["alive"]:
                    return


@pytest.mark.parametrize("agent", ["", "a.b", "*", "code reviewer"])
async def test_a_name_that_cannot_be_a_key_is_refused(wire: Any, agent: str) -> None:
    with pytest.raises(InvalidTokenError):
        await wire.registry.put(presence(agent))
    with pytest.raises(InvalidTokenError):
        await wire.registry.remove(agent)


async def test_more_agents_than_one_answer_holds_are_all_listed(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "BATCH", 4)
    names = [f"agent-{number:02}" for number in range(12)]
    for agent in names:
        await wire.registry.put(presence(agent))
        assert [it.card.id for it in await wire.registry.list()] == names[: names.index(agent) + 1]


@pytest.mark.parametrize(
    "data",
    [b"not json", b"{}", b"null", b'{"card":{"id":"bad","role":"r"},"working":"x"}', b"[" * 9999],
)
async def test_an_entry_that_cannot_be_read_is_passed_over_with_a_warning(
    wire: Any, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await wire.registry.put(presence("good"))
    await wire.publisher.publish(key(wire, "bad"), data, {})
    assert await wire.registry.list() == [presence("good")]
    assert "registry.unreadable" in caplog.text


async def test_no_agent_can_speak_for_another(
    wire: Any, rogue: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await wire.registry.put(presence("victim", 7))
    forged = b'{"card":{"id":"victim","role":"builder"},"working":[1,2,3]}'
    await wire.publisher.publish(key(wire, "rogue"), forged, {"Nats-Subject": key(wire, "victim")})
    assert await wire.registry.list() == [presence("victim", 7)]
    assert "security.foreign_presence" in caplog.text


async def test_no_entry_can_end_the_list_before_the_others(wire: Any, rogue: Any) -> None:
    await rogue(key(wire, "rogue").encode(), headers=b"NATS/1.0 204 EOB\r\n\r\n")
    await wire.registry.put(presence("behind"))
    assert await wire.registry.list() == [presence("behind")]


async def test_a_registry_that_is_not_there_answers_nothing_at_once(wire: Any) -> None:
    await wire.connection.api(f"STREAM.DELETE.KV_{registry_bucket(wire.fleet)}")
    with (
        anyio.fail_after(2),
        pytest.raises(NoAnswerError, match="stream not found"),
    ):
        await wire.registry.list()
    with anyio.fail_after(2), pytest.raises(NoAnswerError):
        await wire.registry.put(presence("a"))


async def test_a_registry_that_does_not_answer_in_time_is_an_error_and_never_an_empty_list(
    wire: Any, proxy: Any, open_wire: Any
) -> None:
    await wire.registry.put(presence("a"))
    async with open_wire(proxy.url, "receipt-keeper") as weak:
        proxy.lose_answers = True
        with pytest.raises(NoAnswerError, match=r"did not answer within 0\.1 s"):
            await weak.registry.list(timeout=0.1)


async def test_a_listing_is_given_up_at_once_when_the_connection_is_lost(
    wire: Any, proxy: Any, open_wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that waits for it would answer nobody meanwhile."""
    async with open_wire(proxy.url, "asker") as weak, anyio.create_task_group() as tasks:
        registry = Registry(weak.connection, weak.publisher, wire.fleet)
        publish, asked = weak.connection.publish, anyio.Event()

        async def publish_to_nobody(*arguments: Any, **options: Any) -> None:
            proxy.lose_answers = True
            await publish(*arguments, **options)
            asked.set()

        async def cut() -> None:
            await asked.wait()
            await proxy.cut()

        monkeypatch.setattr(weak.connection, "publish", publish_to_nobody)
        tasks.start_soon(cut)
        with anyio.fail_after(5), pytest.raises(NoAnswerError, match="connection was lost before"):
            await registry.list(timeout=60)
        monkeypatch.undo()
        assert await registry.list() == []
