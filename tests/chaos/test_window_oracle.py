"""The oracle: what a fan out of a handler and back should see."""

from typing import Any
from uuid import UUID, uuid5

from ledger_checker import Message, by_handoff
from window_oracle import Oracle

PLAN = UUID("6f1c3a52-9d5e-4a7b-8b3c-2f4d5e6a7b8c")
FIRST, LEFT, RIGHT, JOIN = (uuid5(PLAN, f"send:{it}") for it in ("first", "left", "right", "join"))
END = uuid5(RIGHT, "then")


def message(sequence: int, handoff: UUID, kind: str, payload: Any, **marks: object) -> Message:
    return Message(sequence, f"f.handoff.{handoff}.{kind}.adhoc.a.b", marks, payload)


def settled(sequence: int, handoff: UUID, **marks: object) -> Message:
    said = {"what": f"{handoff}\nb\nc\nd", "why": "e"}
    return message(sequence, handoff, "settled", {"result": {"context_handoff": said}}, **marks)


def test_a_fan_sees_what_was_before_it_and_its_end_sees_both_ways() -> None:
    after_first = {"after": [str(FIRST)]}
    after_both = {"after": [str(LEFT), str(END)]}
    oracle = Oracle(
        by_handoff(
            [
                message(1, PLAN, "sent", {}),
                message(2, PLAN, "accepted", {}),
                message(3, FIRST, "sent", {}, accepted=2),
                settled(4, FIRST),
                message(5, LEFT, "sent", after_first, accepted=2),
                message(6, RIGHT, "sent", after_first, accepted=2),
                settled(7, LEFT),
                settled(8, RIGHT, child_to="worker"),
                settled(9, END),
                message(10, JOIN, "sent", after_both, accepted=2),
            ]
        )
    )
    assert oracle.window(PLAN) == oracle.window(FIRST) == {}
    assert {it: entry["level"] for it, entry in oracle.window(JOIN).items()} == {
        LEFT: "FULL",
        END: "FULL",
        FIRST: "SUMMARY",
        RIGHT: "SUMMARY",
    }
    assert oracle.window(END) == {
        RIGHT: {
            "distance": 1,
            "level": "FULL",
            "what": f"{RIGHT}\nb\nc\nd",
            "why": "e",
            "caution": "",
            "incomplete": "None",
        },
        FIRST: {"distance": 2, "level": "SUMMARY", "what": f"{FIRST}\nb\nc"},
    }


def test_a_send_without_after_stands_where_its_handler_stands() -> None:
    root = UUID(int=1)
    handled = uuid5(root, "then")
    asked = uuid5(handled, "send:question")
    oracle = Oracle(
        by_handoff(
            [
                settled(1, root, child_to="planner"),
                message(2, handled, "accepted", {}),
                message(3, asked, "sent", {}, accepted=2),
            ]
        )
    )
    assert oracle.window(asked) == oracle.window(handled)
    assert set(oracle.window(asked)) == {root}
