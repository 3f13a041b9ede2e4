"""An event is stored and the server's answer to it is lost: it counts once, and agents and senders
find that out without a look into the ledger, for they may not read it."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from batonbus import Agent, Context, TryAgain
from batonbus.rules.errors import NoAnswerError
from batonbus.run import client
from batonbus.wire.ledger import Ledger
from batonbus.wire.publisher import Publisher
from batonbus_schemas import Dispatch, TaskResult

pytestmark = pytest.mark.anyio

LoseAnswers = Callable[[str], Counter[str]]


@pytest.fixture
def lose_answers(monkeypatch: pytest.MonkeyPatch) -> LoseAnswers:
    """The first answer to each event of this kind is lost; returns the subjects."""

    def lose(kind: str) -> Counter[str]:
        lost: Counter[str] = Counter()
        publish = Publisher.publish

        async def lossy(
            self: Publisher, subject: str, payload: bytes, headers: Mapping[str, str]
        ) -> int:
            sequence = await publish(self, subject, payload, headers)
            if f".{kind}." in subject and subject not in lost:
                lost[subject] += 1
                raise NoAnswerError("lost")
            return sequence

        monkeypatch.setattr(Publisher, "publish", lossy)
        return lost

    return lose


@pytest.fixture(autouse=True)
def only_the_bus_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the deployed server has it."""
    get = Ledger._get

    async def guarded(self: Ledger, body: Mapping[str, object]) -> Any:
        assert self.connection.actor in {"window-manager", "receipt-keeper", "operator"}
        return await get(self, body)

    monkeypatch.setattr(Ledger, "_get", guarded)


@pytest.mark.parametrize("kind", ["sent", "delivered", "accepted", "failed", "settled"])
async def test_a_step_whose_answer_is_lost_is_made_once(
    open_bus: Any, read_kinds: Any, lose_answers: LoseAnswers, kind: str
) -> None:
    worker, attempts = Agent("worker"), []

    @worker.handles
    async def work(task: Dispatch, ctx: Context) -> TaskResult:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise TryAgain("once more")
        return TaskResult.passed(what="Worked.")

    async with open_bus(worker) as bus:
        lost = lose_answers(kind)
        sent = await bus.send("worker", "x")
        assert (await sent.result()).status == "PASS"
        kinds = await read_kinds(bus, sent)
    assert kinds == ["sent", "delivered", "accepted", "failed", "accepted", "settled"]
    assert attempts == [1, 2]
    assert lost


async def test_a_cancellation_whose_answer_is_lost_is_known_to_be_ours(
    open_bus: Any, read_kinds: Any, lose_answers: LoseAnswers
) -> None:
    async with open_bus() as bus:
        lost = lose_answers("cancelled")
        sent = await bus.send("nobody", "x")
        assert await sent.cancel("no longer needed")
        assert (await read_kinds(bus, sent))[-1] == "cancelled"
    assert lost


async def test_what_no_keeper_confirms_is_not_kept(
    open_bus: Any, echo: Any, read_events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that takes questions and answers none costs two seconds each, and meanwhile more is
    heard: what was heard is not asked about one batch after the other. It is in the ledger."""
    asked: list[int] = []

    async def answer_nothing(_connection: Any, _fleet: str, words: tuple[Any, ...]) -> None:
        asked.append(len(words))
        raise NoAnswerError("no answer")

    monkeypatch.setattr(client, "ask_confirm", answer_nothing)
    async with open_bus(echo()) as bus:
        sent = await bus.send("echo", "x")
        assert (await sent.result()).text == "x"
        open_one = await bus.send("nobody", "x")
        settled = (await read_events(bus, sent.handoff_id))[-1]
        asked.clear()
        for _ in range(3 * client.CONFIRM_BATCH):
            bus.client.hear(settled)
        assert (await open_one.receipt()).state == "overdue"
    assert asked[0] == client.CONFIRM_BATCH
    assert sum(asked) < 2 * client.CONFIRM_BATCH
