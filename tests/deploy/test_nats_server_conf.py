"""What each user of the deployed server may do, tried on the real server."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from batonbus.rules.chain import KINDS
from batonbus.rules.settings import Settings
from batonbus.wire.connection import connect
from batonbus.wire.streams import role_consumer
from batonbus.wire.subjects import (
    answers_to,
    ask_subject,
    checkpoint_bucket,
    checkpoint_key,
    checkpoint_reading,
    objects_bucket,
    registry_bucket,
    stream_name,
)
from batonbus.wire.topology import ensure_addressee, ensure_topology

pytestmark = pytest.mark.anyio

FLEET = "default"
STREAM = stream_name(FLEET)
REGISTRY = registry_bucket(FLEET)
OBJECTS = objects_bucket(FLEET)

AGENT_EVENTS = ("sent", "accepted", "refused", "failed", "settled", "cancelled")
BUS_EVENTS = sorted(KINDS - set(AGENT_EVENTS))


def event(kind: str, actor: str, to: str = "_") -> str:
    return f"{FLEET}.handoff.{uuid4()}.{kind}.adhoc.{actor}.{to}"


def pull_from(agent: str) -> str:
    return f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{role_consumer(agent)}"


def entry_of(agent: str) -> str:
    return f"$KV.{REGISTRY}.{agent}"


class User:
    """A raw connection, and what the server refused it."""

    def __init__(self) -> None:
        self.client = Client()
        self.refused: list[str] = []

    async def note(self, error: Exception) -> None:
        self.refused.append(str(error))

    async def settle(self) -> None:
        """Until the server has judged everything sent so far. Twice: a flush may overtake."""
        await self.client.flush()
        await self.client.flush()

    async def publish(self, subject: str, reply: str = "", payload: bytes = b"{}") -> list[str]:
        await self.client.publish(subject, payload, reply=reply)
        await self.settle()
        return self.refused

    async def request(self, subject: str, payload: bytes = b"{}", **headers: str) -> Any:
        """The answer's JSON."""
        answer = await self.client.request(subject, payload, timeout=5, headers=headers or None)
        return msgspec.json.decode(answer.data)

    async def hear(self, subject: str) -> Callable[[], Any]:
        """Subscribe; each call of the answer waits for the next message."""
        subscription = await self.client.subscribe(subject)
        await self.settle()

        async def next_message() -> Msg:
            return await subscription.next_msg(timeout=5)

        return next_message


@asynccontextmanager
async def user(server: Any, name: str) -> AsyncIterator[User]:
    it = User()
    await it.client.connect(
        server.url(name), inbox_prefix=f"_INBOX_{name}", error_cb=it.note, allow_reconnect=False
    )
    try:
        yield it
    finally:
        await it.client.close()


@pytest.fixture(scope="module")
async def fleet(server: Any) -> Any:
    """The server with the topology that the bus itself makes."""
    async with connect(server.url("operator"), "operator") as connection:
        settings = await ensure_topology(connection, FLEET)
        for addressee in ("researcher", "worker-code", "coder"):
            await ensure_addressee(connection, FLEET, addressee, settings)
    return server


def test_an_acknowledged_event_is_on_disk(server: Any) -> None:
    assert server.look("varz")["jetstream"]["config"]["sync_always"] is True


def test_the_monitoring_page_is_for_this_machine_alone(server: Any) -> None:
    assert server.look("varz")["http_host"] == "127.0.0.1"


def test_the_server_is_healthy_as_compose_asks_it(server: Any) -> None:
    assert server.look("healthz") == {"status": "ok"}


def test_a_handoff_of_full_size_is_far_below_the_payload_limit(server: Any) -> None:
    assert server.look("varz")["max_payload"] == 1024 * 1024


def test_a_lost_client_is_noticed_within_the_time_for_a_receipt(server: Any) -> None:
    varz = server.look("varz")
    # It is cut off instead of being asked a third time.
    assert varz["ping_interval"] * (varz["ping_max"] + 1) <= Settings().receipt_timeout * 1e9


@pytest.mark.parametrize("login", ["", "researcher:wrong@", "researcher:worker-code-password@"])
async def test_nobody_connects_without_the_password(server: Any, login: str) -> None:
    async def ignore(error: Exception) -> None:
        pass

    with pytest.raises(nats.errors.Error, match="Authorization Violation"):
        await nats.connect(
            f"nats://{login}{server.address}", allow_reconnect=False, error_cb=ignore
        )


async def test_a_user_who_is_given_no_permissions_may_do_nothing(
    configuration: Any, start_server: Any
) -> None:
    configuration.add_user("{user: newcomer, password: newcomer-password}\n")
    with start_server(configuration) as server:
        async with user(server, "newcomer") as newcomer_:
            await newcomer_.publish(event("sent", "newcomer"))
            await newcomer_.hear(answers_to(FLEET, "newcomer"))
            assert len(newcomer_.refused) == 2


@pytest.mark.parametrize("kind", AGENT_EVENTS)
async def test_an_agent_writes_its_own_events(fleet: Any, kind: str) -> None:
    async with user(fleet, "researcher") as agent:
        answer = await agent.request(event(kind, "researcher", "operator"))
        assert answer["stream"] == STREAM
        assert agent.refused == []


async def test_an_agent_loses_a_compare_and_set_like_anyone(fleet: Any) -> None:
    subject = event("accepted", "researcher")
    chain = ".".join(subject.split(".")[:3])
    expected = {
        "Nats-Expected-Last-Subject-Sequence": "7",
        "Nats-Expected-Last-Subject-Sequence-Subject": f"{chain}.>",
    }
    async with user(fleet, "researcher") as agent:
        answer = await agent.request(subject, **expected)
        assert answer["error"]["err_code"] == 10071


@pytest.mark.parametrize("addressee", ["worker-code", "coder"])
async def test_an_agent_pulls_and_acknowledges_its_deliveries(fleet: Any, addressee: str) -> None:
    """To its id and to its role; one request is answered by many messages."""
    delivered = [event("delivered", "window-manager", addressee) for _ in range(3)]
    async with user(fleet, "operator") as bus, user(fleet, "worker-code") as agent:
        for subject in delivered:
            await bus.request(subject)
        inbox = agent.client.new_inbox()
        next_message = await agent.hear(inbox)
        await agent.publish(pull_from(addressee), reply=inbox, payload=b'{"batch": 3}')
        messages = [await next_message() for _ in delivered]
        assert [message.subject for message in messages] == delivered
        for message in messages:
            await agent.client.request(message.reply, b"", timeout=5)
        consumer = await bus.request(f"$JS.API.CONSUMER.INFO.{STREAM}.{role_consumer(addressee)}")
        assert consumer["num_ack_pending"] == 0
        assert consumer["ack_floor"]["consumer_seq"] == len(delivered)
        assert agent.refused == []


async def test_an_agent_says_that_it_is_there(fleet: Any) -> None:
    async with user(fleet, "researcher") as agent:
        answer = await agent.request(entry_of("researcher"))
        assert answer["stream"] == f"KV_{REGISTRY}"


async def test_an_agent_asks_the_bus(fleet: Any) -> None:
    async with user(fleet, "operator") as bus, user(fleet, "researcher") as agent:

        async def answer(message: Msg) -> None:
            await message.respond(b'{"subject": "%s"}' % message.subject.encode())

        await bus.client.subscribe(f"{FLEET}.ask.chain.*", cb=answer)
        await bus.settle()
        subject = ask_subject(FLEET, "chain", "researcher")
        assert await agent.request(subject) == {"subject": subject}


@pytest.mark.parametrize(
    ("writer", "kind"),
    [("operator", "held"), ("worker-code", "accepted"), ("worker-code", "settled")],
)
async def test_an_agent_hears_once_what_is_for_it(fleet: Any, writer: str, kind: str) -> None:
    foreign = event(kind, writer, "tester")
    mine, last = event(kind, writer, "researcher"), event(kind, writer, "researcher")
    async with user(fleet, writer) as other, user(fleet, "researcher") as agent:
        next_message = await agent.hear(answers_to(FLEET, "researcher"))
        for subject in (foreign, mine, last):
            await other.request(subject)
        assert [(await next_message()).subject for _ in range(2)] == [mine, last]


async def test_an_operator_hears_what_an_agent_answers(fleet: Any) -> None:
    accepted = event("accepted", "researcher", "operator")
    async with user(fleet, "operator") as bus, user(fleet, "researcher") as agent:
        next_message = await bus.hear(answers_to(FLEET, "operator"))
        await agent.request(accepted)
        assert (await next_message()).subject == accepted


async def test_an_operator_deletes_an_event(fleet: Any) -> None:
    async with user(fleet, "operator") as bus:
        stored = await bus.request(event("sent", "researcher", "operator"))
        body = msgspec.json.encode({"seq": stored["seq"], "no_erase": True})
        assert (await bus.request(f"$JS.API.STREAM.MSG.DELETE.{STREAM}", body))["success"]


async def test_an_agent_keeps_and_reads_its_own_checkpoint(fleet: Any) -> None:
    async with user(fleet, "researcher") as agent:
        stored = await agent.request(checkpoint_key(FLEET, "researcher"))
        assert stored["seq"] >= 1
        await agent.client.request(checkpoint_reading(FLEET, "researcher"), timeout=5)
        assert agent.refused == []


FOREIGN_PUBLISHES = {
    **{f"another's {kind}": event(kind, "worker-code", "researcher") for kind in AGENT_EVENTS},
    **{f"the bus's {kind}": event(kind, "researcher", "worker-code") for kind in BUS_EVENTS},
    "the window manager's delivery": event("delivered", "window-manager", "worker-code"),
    "the operator's retry": event("sent", "operator", "worker-code"),
    "another's presence": entry_of("worker-code"),
    "another's Checkpoint": checkpoint_key(FLEET, "worker-code"),
    "reading another's Checkpoint": checkpoint_reading(FLEET, "worker-code"),
    "reading all Checkpoints": f"$JS.API.DIRECT.GET.KV_{checkpoint_bucket(FLEET)}",
    "another's question": ask_subject(FLEET, "chain", "worker-code"),
    "another's deliveries": pull_from("worker-code"),
    "another's acknowledgement": f"$JS.ACK.{STREAM}.{role_consumer('worker-code')}.1.1.1.1.0",
    "another's inbox": "_INBOX_worker-code.x",
    "reading the ledger": f"$JS.API.STREAM.MSG.GET.{STREAM}",
    "reading the ledger directly": f"$JS.API.DIRECT.GET.{STREAM}",
    "the ledger's state": f"$JS.API.STREAM.INFO.{STREAM}",
    "the list of streams": "$JS.API.STREAM.NAMES",
    "the end of an event": f"$JS.API.STREAM.MSG.DELETE.{STREAM}",
    "a purge": f"$JS.API.STREAM.PURGE.{STREAM}",
    "the end of the ledger": f"$JS.API.STREAM.DELETE.{STREAM}",
    "another configuration": f"$JS.API.STREAM.UPDATE.{STREAM}",
    "a consumer of its own": f"$JS.API.CONSUMER.CREATE.{STREAM}.spy",
    "the end of a consumer": f"$JS.API.CONSUMER.DELETE.{STREAM}.{role_consumer('researcher')}",
    "reading the registry": f"$JS.API.DIRECT.GET.KV_{REGISTRY}",
    "a content under a name of its choice": f"$KV.{OBJECTS}.{'0' * 64}",
    "reading any content": f"$JS.API.STREAM.MSG.GET.KV_{OBJECTS}",
    "reading the newest content": f"$JS.API.DIRECT.GET.KV_{OBJECTS}.$KV.{OBJECTS}.*",
    "the end of all contents": f"$JS.API.STREAM.PURGE.KV_{OBJECTS}",
}


@pytest.mark.parametrize("what", FOREIGN_PUBLISHES)
async def test_an_agent_is_refused(fleet: Any, what: str) -> None:
    async with user(fleet, "researcher") as agent:
        refused = await agent.publish(FOREIGN_PUBLISHES[what])
        assert len(refused) == 1
        assert "permissions violation for publish" in refused[0]


FOREIGN_SUBSCRIPTIONS = {
    "everything": ">",
    "every event": f"{FLEET}.handoff.>",
    "what is for another": answers_to(FLEET, "worker-code"),
    "deliveries as they are written": f"{FLEET}.handoff.*.delivered.*.*.*",
    "every inbox": "_INBOX.>",
    "another's inbox": "_INBOX_worker-code.>",
    "questions to the bus": f"{FLEET}.ask.>",
    "the registry": f"$KV.{REGISTRY}.>",
    "the JetStream API": "$JS.>",
}


@pytest.mark.parametrize("what", FOREIGN_SUBSCRIPTIONS)
async def test_an_agent_does_not_hear(fleet: Any, what: str) -> None:
    async with user(fleet, "researcher") as agent:
        await agent.client.subscribe(FOREIGN_SUBSCRIPTIONS[what])
        await agent.settle()
        assert len(agent.refused) == 1
        assert "permissions violation for subscription" in agent.refused[0]


FORGED_REPLIES = {
    "deletes the ledger": f"$JS.API.STREAM.DELETE.{STREAM}",
    "purges the ledger": f"$JS.API.STREAM.PURGE.{STREAM}",
    "deletes a consumer": f"$JS.API.CONSUMER.DELETE.{STREAM}.{role_consumer('worker-code')}",
    "writes for another": event("settled", "worker-code", "tester"),
    "speaks for another": entry_of("worker-code"),
}


@pytest.mark.parametrize("what", FORGED_REPLIES)
@pytest.mark.parametrize(
    "request_", [pull_from("researcher"), ask_subject(FLEET, "forge", "researcher")]
)
async def test_no_answer_to_an_agent(fleet: Any, request_: str, what: str) -> None:
    """The bus publishes its answers itself, so an agent's permissions do not stop them."""
    async with user(fleet, "operator") as bus, user(fleet, "researcher") as agent:

        async def answer(message: Msg) -> None:
            await message.respond(b"{}")

        await bus.client.subscribe(f"{FLEET}.ask.forge.*", cb=answer)
        await bus.request(event("held", "operator"))
        before = await read_streams(bus)
        body = b'{"batch": 1, "no_wait": true}'
        await agent.client.publish(request_, body, reply=FORGED_REPLIES[what])
        # Answers come in the order of the requests: with this one, that one is out.
        await agent.client.request(request_, body, timeout=5)
        assert await read_streams(bus) == before


@pytest.mark.parametrize("what", FORGED_REPLIES)
async def test_no_acknowledgement_to_an_agent(fleet: Any, what: str) -> None:
    async with user(fleet, "operator") as bus, user(fleet, "researcher") as agent:
        await bus.request(event("held", "operator"))
        before = await read_streams(bus)
        await agent.client.publish(event("sent", "researcher"), b"{}", reply=FORGED_REPLIES[what])
        await agent.request(event("sent", "researcher"))
        after = await read_streams(bus)
        assert after[STREAM]["messages"] == before[STREAM]["messages"] + 2
        assert after[STREAM]["consumer_count"] == before[STREAM]["consumer_count"]
        assert after[f"KV_{REGISTRY}"] == before[f"KV_{REGISTRY}"]


async def read_streams(bus: User) -> dict[str, Any]:
    """The state of the ledger and of the registry, behind every change asked for before."""
    await bus.request(f"$JS.API.CONSUMER.DELETE.{STREAM}.nobody")
    streams = (STREAM, f"KV_{REGISTRY}")
    return {it: (await bus.request(f"$JS.API.STREAM.INFO.{it}"))["state"] for it in streams}


async def test_an_agent_cannot_set_when_an_event_is_forgotten(fleet: Any) -> None:
    async with user(fleet, "researcher") as agent:
        for header, value in (("Nats-TTL", "1s"), ("Nats-Rollup", "all")):
            answer = await agent.request(event("sent", "researcher"), **{header: value})
            assert "error" in answer, header


async def test_an_agent_cannot_wipe_the_registry(fleet: Any) -> None:
    async with user(fleet, "worker-code") as other, user(fleet, "researcher") as agent:
        await other.request(entry_of("worker-code"))
        answer = await agent.request(entry_of("researcher"), **{"Nats-Rollup": "all"})
        assert answer["error"]["description"] == "rollup not permitted"
