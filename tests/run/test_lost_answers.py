"""An event is stored and the server's answer to it is lost: it counts once, and agents and senders
find that out without a look into the ledger, for they may not read it."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from batonbus import Agent, Context, TryAgain
from batonbus.rules.errors import NoAnswerError
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
