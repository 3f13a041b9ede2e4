"""The verdict: a sound run is not complained about, and each way to break it is."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

import pytest
from ledger_checker import Message
from verdict import Evidence, Outage, judge

ROOT = UUID("6f1c3a52-9d5e-4a7b-8b3c-2f4d5e6a7b8c")
SECOND = uuid5(ROOT, "then")
THIRD = uuid5(SECOND, "then")
WHAT = "one\n\ntwo\nthree\nfour"
SAID = {"what": WHAT, "why": "because", "caution": "", "incomplete": "None"}


def message(
    sequence: int, handoff: UUID, kind: str, actor: str, to: str, payload: Any, **marks: object
) -> Message:
    subject = f"f.handoff.{handoff}.{kind}.adhoc.{actor}.{to}"
    return Message(sequence, subject, marks, payload, at=1000.0 + sequence)


def entry(handoff: UUID, distance: int, **fields: str) -> dict[str, object]:
    level = {1: "FULL", 2: "SUMMARY"}[distance]
    return {"handoff_id": str(handoff), "distance": distance, "level": level, **fields}


def hop(first: int, handoff: UUID, tail: int, window: list[object], *, ends: bool) -> list[Message]:
    """Delivered, accepted and settled."""
    child = {} if ends else {"child_to": "worker"}
    delivered = {"window": window} if window else {}
    settled = {"result": {"context_handoff": SAID}}
    return [
        message(first, handoff, "delivered", "window-manager", "worker", delivered, tail=tail),
        message(first + 1, handoff, "accepted", "worker-a", "source", {}, tail=first, lease=1),
        message(
            first + 2,
            handoff,
            "settled",
            "worker-a",
            "source",
            settled,
            tail=first + 1,
            accepted=first + 1,
            **child,
        ),
    ]


def sound() -> Evidence:
    """A line of three: the last one sees the second in full, and the first in three lines."""
    summary = entry(ROOT, 2, what="one\ntwo\nthree")
    return Evidence(
        messages=[
            message(1, ROOT, "sent", "source", "worker", {}, tail=0),
            *hop(2, ROOT, 1, [], ends=False),
            *hop(5, SECOND, 0, [entry(ROOT, 1, **SAID)], ends=False),
            *hop(8, THIRD, 0, [entry(SECOND, 1, **SAID), summary], ends=True),
        ],
        acknowledged={ROOT},
        planned={ROOT},
        effects=[(ROOT, 3), (SECOND, 6), (THIRD, 9)],
        keys=(),
        agents={"worker": {"worker-a"}},
        receipt_timeout=9.0,
    )


def with_window(*window: object) -> Evidence:
    """The third handoff sees something else."""
    messages = list(sound().messages)
    messages[7] = replace(messages[7], payload={"window": list(window)})
    return replace(sound(), messages=messages)


def accepted_at(moment: float) -> Evidence:
    messages = list(sound().messages)
    messages[2] = replace(messages[2], at=moment)
    return replace(sound(), messages=messages)


def test_a_sound_run_gives_no_complaint() -> None:
    verdict = judge(sound())
    assert verdict.complaints == []
    assert (verdict.acknowledged, verdict.handoffs, verdict.windows) == (1, 3, 2)
    assert verdict.ends == {"settled": 3}
    assert verdict.slowest_answer_s == 2.0


FULL = entry(SECOND, 1, **SAID)


@pytest.mark.parametrize(
    ("count", "evidence"),
    [
        ("unaccounted", replace(sound(), messages=sound().messages[:-1])),
        ("unaccounted", replace(sound(), acknowledged={ROOT, UUID(int=9)})),
        ("double_effects", replace(sound(), effects=[*sound().effects, (ROOT, 3)])),
        ("double_effects", replace(sound(), effects=[*sound().effects, (ROOT, 0)])),
        ("double_effects", replace(sound(), messages=[*sound().messages, sound().messages[3]])),
        ("other", replace(sound(), effects=sound().effects[1:])),
        ("unsent", replace(sound(), planned=set())),
        ("windows_wrong", with_window()),
        ("windows_wrong", with_window(FULL)),
        ("windows_wrong", with_window(FULL, entry(ROOT, 2, **SAID))),
        ("windows_wrong", with_window(FULL, entry(ROOT, 2, what=WHAT))),
        ("windows_wrong", with_window(entry(ROOT, 1, **SAID), entry(SECOND, 2, what="one"))),
        ("late_answers", accepted_at(1012.0)),
    ],
)
def test_each_way_to_break_it_is_counted(count: str, evidence: Evidence) -> None:
    verdict = judge(evidence)
    assert getattr(verdict, count) >= 1
    assert verdict.wrong


def test_a_result_under_an_older_lease_is_stale() -> None:
    first, delivered, accepted, settled, *others = sound().messages
    taken = message(11, ROOT, "accepted", "worker-a", "source", {}, tail=3, lease=2)
    evidence = replace(sound(), messages=[first, delivered, accepted, taken, settled, *others])
    assert judge(evidence).stale_applied == 1


def test_an_effect_that_is_repeated_under_another_lease_is_no_double_one() -> None:
    first, delivered, accepted, settled, *others = sound().messages
    taken = message(11, ROOT, "accepted", "worker-a", "source", {}, tail=3, lease=2)
    again = replace(settled, marks={**settled.marks, "tail": 11, "accepted": 11}, sequence=12)
    evidence = replace(
        sound(),
        messages=[first, delivered, accepted, taken, again, *others],
        effects=[*sound().effects, (ROOT, 11)],
    )
    verdict = judge(evidence)
    assert verdict.complaints == []
    assert verdict.repeated_effects == 1


@pytest.mark.parametrize(
    ("outages", "late"),
    [
        ([], 1),
        ([Outage(1002.0, 1004.0)], 0),  # too short to excuse, but it is taken off: 11 s are 9
        ([Outage(1002.0, 1002.5)], 1),
        ([Outage(900.0, 1000.0)], 1),
    ],
)
def test_while_the_server_is_away_nobody_can_answer(outages: list[Outage], late: int) -> None:
    evidence = replace(accepted_at(1012.0), outages=outages)
    assert judge(evidence).late_answers == late


def test_a_long_outage_excuses_whatever_comes_after_it() -> None:
    evidence = replace(accepted_at(1100.0), outages=[Outage(1002.0, 1005.5)])
    assert judge(evidence).late_answers == 0


def test_who_cancels_because_nobody_answers_has_waited_too_long() -> None:
    cancelled = replace(message(3, ROOT, "cancelled", "source", "_", {}, tail=2), at=1020.0)
    evidence = replace(sound(), messages=[*sound().messages[:2], cancelled], effects=[])
    assert judge(evidence).late_answers == 1
