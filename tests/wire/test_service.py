"""The bus as a service: asked by name, and not ended by any question."""

from typing import Any

import anyio
import pytest

from batonbus.rules.errors import BusUnavailableError, NoAnswerError
from batonbus.wire.service import ERROR_LIMIT, serve
from batonbus.wire.subjects import ask_subject

pytestmark = pytest.mark.anyio


async def echo(actor: str, data: bytes) -> bytes:
    return actor.encode() + b":" + data


async def fail(actor: str, data: bytes) -> bytes:
    raise ValueError(data.decode())


async def ask(wire: Any, verb: str, data: bytes = b"", *, actor: str = "builder") -> bytes:
    answer: bytes = await wire.connection.request(
        ask_subject(wire.fleet, verb, actor), data, timeout=2
    )
    return answer


async def test_a_question_is_answered_to_the_actor_that_its_subject_names(wire: Any) -> None:
    async with serve(wire.connection, wire.fleet, {"echo": echo}):
        assert await ask(wire, "echo", b"hello") == b"builder:hello"
        assert await ask(wire, "echo", b"hello", actor="tester") == b"tester:hello"


async def test_a_question_that_fails_is_answered_with_its_error_and_the_service_lives(
    wire: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(wire.connection, wire.fleet, {"echo": echo, "fail": fail}):
        with pytest.raises(BusUnavailableError, match="ValueError: no such thing"):
            await ask(wire, "fail", b"no such thing")
        assert "ask.failed" in caplog.text
        with pytest.raises(BusUnavailableError, match="ValueError"):
            await ask(wire, "fail", b"again")
        assert await ask(wire, "echo", b"on") == b"builder:on"


async def test_an_error_cannot_add_a_header_and_is_kept_to_its_limit(wire: Any) -> None:
    async with serve(wire.connection, wire.fleet, {"fail": fail}):
        with pytest.raises(BusUnavailableError) as caught:
            await ask(wire, "fail", b"x\r\nNats-Service-Error: forged\r\n" + b"y" * 9000)
    assert str(caught.value).startswith("ValueError: x\r\nNats-Service-Error: forged")
    assert len(str(caught.value)) == len("ValueError: ") + ERROR_LIMIT


async def test_an_answer_that_is_too_large_is_an_error_and_the_service_lives(wire: Any) -> None:
    async def large(actor: str, data: bytes) -> bytes:
        return b"x" * (wire.connection.client.max_payload + 1)

    async with serve(wire.connection, wire.fleet, {"large": large, "echo": echo}):
        with pytest.raises(BusUnavailableError, match="MaxPayloadError"):
            await ask(wire, "large")
        assert await ask(wire, "echo", b"on") == b"builder:on"
    assert wire.connection.session == 0


async def test_a_slow_question_does_not_hold_up_another_verb(wire: Any) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def slow(actor: str, data: bytes) -> bytes:
        begun.set()
        await go_on.wait()
        return b"done"

    async def ask_slow() -> None:
        answers.append(await ask(wire, "slow"))

    answers: list[bytes] = []
    async with (
        serve(wire.connection, wire.fleet, {"slow": slow, "echo": echo}),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(ask_slow)
        await begun.wait()
        assert await ask(wire, "echo", b"on") == b"builder:on"
        assert answers == []
        go_on.set()
    assert answers == [b"done"]


async def test_several_keepers_share_the_questions(server: Any, wire: Any, open_wire: Any) -> None:
    answered = {"one": 0, "two": 0}

    def counting(name: str) -> Any:
        async def answer(actor: str, data: bytes) -> bytes:
            answered[name] += 1
            return b"ok"

        return {"count": answer}

    async with (
        open_wire(server.url, "receipt-keeper") as other,
        serve(wire.connection, wire.fleet, counting("one")),
        serve(other.connection, wire.fleet, counting("two")),
    ):
        for _ in range(40):
            assert await ask(wire, "count") == b"ok"
    assert sum(answered.values()) == 40  # each question once
    assert min(answered.values()) > 0


async def test_after_its_end_nobody_answers_and_the_connection_goes_on(wire: Any) -> None:
    async with serve(wire.connection, wire.fleet, {"echo": echo}):
        await ask(wire, "echo")
    with anyio.fail_after(2), pytest.raises(NoAnswerError, match="nobody answers"):
        await ask(wire, "echo")
    await wire.connection.api("INFO")


async def test_a_service_that_is_cancelled_does_not_deafen_its_connection(wire: Any) -> None:
    for _ in range(5):
        with anyio.CancelScope() as scope:
            async with serve(wire.connection, wire.fleet, {"echo": echo}):
                scope.cancel()
                await anyio.sleep_forever()
    await wire.connection.api("INFO", timeout=2)
