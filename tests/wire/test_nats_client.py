"""What strangers write must not deafen those who read it."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from batonbus.wire.nats_client import parse_headers
from batonbus.wire.subjects import all_events

Rogue = Callable[..., Awaitable[None]]

START = b"NATS/1.0\r\n"


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        (START + b"A: 1\r\nB:2\r\n\r\n", {"A": "1", "B": "2"}),
        (START + b"A: x: y\r\n\r\n", {"A": "x: y"}),
        (START + "A: é\r\n\r\n".encode(), {"A": "é"}),
        (
            b"NATS/1.0 408 Request Timeout\r\nN: 3\r\n\r\n",
            {"Status": "408", "Description": "Request Timeout", "N": "3"},
        ),
        (b"NATS/1.0 503\r\n\r\n", {"Status": "503", "Description": ""}),
        (START + b"A: \xff\r\n\r\n", {"A": "\ufffd"}),
        # Cut short, or without the first line.
        (b"", {}),
        (b"NATS/1.0", {}),
        (b"\r\n", {}),
        (b"A: 1\r\n\r\n", {}),
        (START + b"A: 1", {"A": "1"}),
        (START + b"no colon\r\n\r\n", {}),
    ],
)
def test_headers_are_read_from_whatever_stands_there(raw: bytes, headers: dict[str, str]) -> None:
    assert parse_headers(raw) == headers


def test_a_repeated_name_gets_all_its_values_so_that_none_can_stand_in_for_another() -> None:
    assert parse_headers(START + b"Tail: 5\r\nTail: 0\r\n\r\n") == {"Tail": "5, 0"}


def test_a_name_with_a_blank_is_another_name() -> None:
    # The server does not see it as `Tail` either.
    assert "Tail" not in parse_headers(START + b"Tail : 0\r\n Tail: 1\r\n\r\n")


@given(st.binary() | st.lists(st.binary(max_size=8)).map(b"\r\n".join))
def test_reading_any_headers_raises_nothing(raw: bytes) -> None:
    parse_headers(raw)
    parse_headers(START + raw)


SUBJECTS = [
    b"\xff\xfe",  # no UTF-8
    b"a\x0bb",  # white space for a regular expression, none for the server
    b"a\x0c",
    b"a\xc2\xa0b",
    b"a\x00b",
]
HEADERS = [
    b"",
    b"\r\n",
    b"NATS/1.0",
    b"NATS/1.0 5\xff\xff\xff odd\r\n\r\n",
    "NATS/1.0 55é\r\n\r\n".encode(),
    b"NATS/1.0 503 \xff\r\n\r\n",
    START + b"\xff: \xff\r\n\r\n",
    START + b": nameless\r\n\r\n",
]


@pytest.mark.anyio
async def test_a_reader_still_hears_after_any_subject_and_any_headers(
    wire: Any, rogue: Rogue, until: Any
) -> None:
    heard: list[Msg] = []

    async def hear(message: Msg) -> None:
        heard.append(message)

    await wire.connection.subscribe(all_events(wire.fleet), hear)
    await wire.connection.api("INFO")  # the server has read the subscription
    session = wire.connection.session
    prefix = f"{wire.fleet}.handoff.".encode()
    for token in SUBJECTS:
        await rogue(prefix + token)
    for headers in HEADERS:
        await rogue(prefix + str(uuid4()).encode() + b".sent.a.b.c", headers=headers)
    last = wire.draft()
    await wire.ledger.append(last, tail=0)
    await until(lambda: str(last.subject) in {it.subject for it in heard})
    assert len(heard) == len(SUBJECTS) + len(HEADERS) + 1
    assert wire.connection.session == session


@pytest.mark.anyio
async def test_a_header_is_the_same_live_and_from_the_ledger(wire: Any, rogue: Rogue) -> None:
    heard: list[dict[str, str]] = []
    done = anyio.Event()

    async def hear(message: Msg) -> None:
        heard.append(message.headers or {})
        if len(heard) == len(odd):
            done.set()

    handoff_id = UUID(int=7)
    odd = [
        START + b"A: 1\r\nA: 2\r\nB : 3\r\n C: 4\r\nD:\t5 \r\n\r\n",
        START + b"A: \xc2\xa05\xc2\xa0\r\nB: \xff\r\n\x0bC: 6\r\n\r\n",
        START + b"A: 1\x0b\nB: 2\rC: 3\r\n\r\n",
        START + b"A: 1",
    ]
    await wire.connection.subscribe(all_events(wire.fleet), hear)
    await wire.connection.api("INFO")
    for headers in odd:
        await rogue(f"{wire.fleet}.handoff.{handoff_id}.sent.a.b.c".encode(), headers=headers)
    with anyio.fail_after(5):
        await done.wait()
    assert heard == [it.headers for it in await wire.ledger.read_chain(handoff_id)]
