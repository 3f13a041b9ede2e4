"""Names that can stand in a subject, and subjects there and back."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus.rules.chain import KINDS, Kind
from batonbus.rules.errors import InvalidTokenError
from batonbus.wire.connection import connect
from batonbus.wire.streams import role_consumer
from batonbus.wire.subjects import (
    Subject,
    all_events,
    answers_to,
    ask_subject,
    chain_filter,
    check_token,
    deliveries_to,
    kind_filter,
    objects_bucket,
    registry_bucket,
    stream_name,
)

ID = UUID("6d9c9b52-8a0d-4f6c-9d7e-0f6f3b1f2a11")

IMPOSSIBLE = [
    "",
    ".",
    "a.b",
    "*",
    "a*",
    ">",
    "code reviewer",
    " a",
    "a\t",
    "a\n",
    "a\r\nPUB x 2\r\nhi",
    "a\x00b",
    "\x7f",
    "аdmin",  # a Cyrillic letter
    "ａ",  # a wide one
    "é",
    "１",
    "x" * 65,
    "$JS",
    "a/b",
    "a:b",
]

PLACES: dict[str, Callable[[str], object]] = {
    "stream": stream_name,
    "registry": registry_bucket,
    "objects": objects_bucket,
    "all events": all_events,
    "chain": lambda name: chain_filter(name, ID),
    "kind": lambda name: kind_filter(name, "sent"),
    "deliveries, fleet": lambda name: deliveries_to(name, "builder"),
    "deliveries, addressee": lambda name: deliveries_to("fleet", name),
    "answers, fleet": lambda name: answers_to(name, "builder"),
    "answers, actor": lambda name: answers_to("fleet", name),
    "ask, fleet": lambda name: ask_subject(name, "chain", "builder"),
    "ask, actor": lambda name: ask_subject("fleet", "chain", name),
    "consumer": role_consumer,
    "event, fleet": lambda name: str(Subject(name, ID, "sent", "adhoc", "asker", "builder")),
    "event, work": lambda name: str(Subject("fleet", ID, "sent", name, "asker", "builder")),
    "event, actor": lambda name: str(Subject("fleet", ID, "sent", "adhoc", name, "builder")),
    "event, addressee": lambda name: str(Subject("fleet", ID, "sent", "adhoc", "asker", name)),
}

TOKENS = st.text("abzAZ019_-", min_size=1, max_size=64)


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("place", PLACES)
def test_a_name_outside_of_the_allow_list_is_refused_wherever_it_would_stand(
    place: str, name: str
) -> None:
    with pytest.raises(InvalidTokenError):
        PLACES[place](name)


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.anyio
async def test_nobody_connects_under_such_a_name(name: str) -> None:
    with pytest.raises(InvalidTokenError, match="actor"):
        async with connect("nats://127.0.0.1:1", name):
            pass


@pytest.mark.parametrize("name", ["a", "Z9", "code-reviewer", "to_me", "_", "-", "x" * 64])
def test_letters_digits_dashes_and_underscores_up_to_64_are_names(name: str) -> None:
    assert check_token("actor", name) == name


@given(
    fleet=TOKENS, id_=st.uuids(), kind=st.sampled_from(sorted(KINDS)), rest=st.tuples(*[TOKENS] * 3)
)
def test_a_subject_that_was_written_is_read_back(
    fleet: str, id_: UUID, kind: Kind, rest: tuple[str, str, str]
) -> None:
    subject = Subject(fleet, id_, kind, *rest)
    assert str(subject).split(".") == [fleet, "handoff", str(id_), kind, *rest]
    assert Subject.parse(str(subject)) == subject


@given(st.text() | st.lists(st.text(), max_size=9).map(".".join))
def test_reading_any_subject_raises_nothing(text: str) -> None:
    Subject.parse(text)


@pytest.mark.parametrize(
    "spelling",
    [
        str(ID).upper(),
        f"{{{ID}}}",
        f"urn:uuid:{ID}",
        ID.hex,
        str(ID).replace("6", "６"),
        "",
        "x",
    ],
)
def test_an_id_in_another_spelling_is_no_chain(spelling: str) -> None:
    assert Subject.parse(f"fleet.handoff.{spelling}.sent.adhoc.asker.builder") is None


@pytest.mark.parametrize("text", ["", "fleet", f"fleet.other.{ID}.sent.a.b.c", "$KV.bucket.key"])
def test_a_subject_of_something_else_is_no_chain(text: str) -> None:
    assert Subject.parse(text) is None


@pytest.mark.parametrize(
    "rest",
    [
        "sent",
        "sent.adhoc.asker",
        "sent.adhoc.asker.builder.more",
        "done.adhoc.asker.builder",
        "sent.*.asker.builder",
        "sent.adhoc.аsker.builder",
        "sent.adhoc.asker.a\x00b",
        "sent.adhoc..builder",
        "sent.adhoc.asker.builder\n",
        "sent.adhoc.asker." + "x" * 65,
        "sent.adhoc.\ufffd.builder",
    ],
)
def test_what_stands_in_a_chain_and_is_no_event_still_belongs_to_it(rest: str) -> None:
    found = Subject.parse(f"fleet.handoff.{ID}.{rest}")
    assert found == Subject("fleet", ID, "unknown", "_", "_")
