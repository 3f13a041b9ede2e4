"""The checker itself: it accepts a sound history, and complains about each way to break one."""

from collections.abc import Callable
from uuid import UUID, uuid5

import pytest
from ledger_checker import OTHER, STALE, UNACCOUNTED, UNSENT, Complaint, Message, check

ROOT = UUID("6f1c3a52-9d5e-4a7b-8b3c-2f4d5e6a7b8c")
CHILD = uuid5(ROOT, "then")
ASKED = uuid5(ROOT, "send:question")
AGENTS = {"worker": {"worker-a", "worker-b"}}

History = list[Message]


def message(
    sequence: int, handoff: UUID, kind: str, actor: str, to: str, **marks: object
) -> Message:
    return Message(sequence, f"f.handoff.{handoff}.{kind}.adhoc.{actor}.{to}", marks)


def sound() -> History:
    """A handoff that is taken over, asks another one, and is handed on."""
    return [
        message(1, ROOT, "sent", "source", "worker", tail=0),
        message(2, ROOT, "delivered", "window-manager", "worker", tail=1),
        message(3, ROOT, "accepted", "worker-a", "source", tail=2, lease=1),
        message(4, ROOT, "accepted", "worker-b", "source", tail=3, lease=2),
        message(5, ASKED, "sent", "worker-b", "worker", tail=0, accepted=4),
        message(6, ASKED, "delivered", "window-manager", "worker", tail=5),
        message(7, ASKED, "refused", "worker-a", "worker-b", tail=6),
        message(8, ROOT, "settled", "worker-b", "source", tail=4, accepted=4, child_to="worker"),
        message(9, CHILD, "delivered", "window-manager", "worker", tail=0),
        message(10, CHILD, "overdue", "receipt-keeper", "source", tail=9),
        message(11, CHILD, "accepted", "worker-a", "source", tail=10, lease=1),
        message(12, CHILD, "settled", "worker-a", "source", tail=11, accepted=11),
    ]


def complaints(history: History, *, acknowledged: tuple[UUID, ...] = (ROOT,)) -> list[Complaint]:
    return check(
        history, acknowledged=acknowledged, planned=[ROOT], keys=["question"], agents=AGENTS
    )


def test_a_sound_history_gives_no_complaint() -> None:
    assert complaints(sound()) == []


def replaced(sequence: int, kind: str, actor: str, to: str, **marks: object) -> History:
    """The sound history with another message at that place."""
    return [
        message(sequence, it.handoff, kind, actor, to, **marks) if it.sequence == sequence else it
        for it in sound()
    ]


def with_more(*more: Message) -> History:
    return [*sound(), *more]


def settled_twice() -> History:
    return with_more(message(13, ROOT, "settled", "worker-b", "source", tail=8, accepted=4))


def settled_beside() -> History:
    return with_more(message(13, ROOT, "settled", "worker-a", "source", tail=3, accepted=3))


def settled_by_a_former_owner() -> History:
    return replaced(8, "settled", "worker-a", "source", tail=4, accepted=3, child_to="worker")


def settled_by_nobody() -> History:
    return [it for it in sound() if it.sequence != 11]


def never_ended() -> History:
    return sound()[:-1]


def went_on_after_its_end() -> History:
    return with_more(message(13, CHILD, "overdue", "receipt-keeper", "source", tail=12))


def the_next_one_is_missing() -> History:
    return sound()[:8]


def nobody_sent_it() -> History:
    foreign = UUID(int=7)
    return with_more(
        message(13, foreign, "sent", "source", "worker", tail=0),
        message(14, foreign, "refused", "window-manager", "source", tail=13),
    )


def sent_under_a_foreign_lease() -> History:
    return replaced(5, "sent", "worker-a", "worker", tail=0, accepted=4)


def delivered_twice() -> History:
    again = message(3, ROOT, "delivered", "window-manager", "worker", tail=2)
    return [again if it.sequence == 3 else it for it in sound()]


def accepted_by_a_stranger() -> History:
    return replaced(11, "accepted", "planner-a", "source", tail=10, lease=1)


def overdue_by_an_agent() -> History:
    return replaced(10, "overdue", "worker-a", "source", tail=9)


def a_lease_is_skipped() -> History:
    return replaced(4, "accepted", "worker-b", "source", tail=3, lease=3)


def a_stale_tail() -> History:
    return replaced(4, "accepted", "worker-b", "source", tail=2, lease=2)


@pytest.mark.parametrize(
    ("broken", "kind", "says"),
    [
        (settled_twice, UNACCOUNTED, "2 final events"),
        (settled_beside, OTHER, "saw the tail 3, not 8"),
        (settled_by_a_former_owner, STALE, "names the accepted event 3; the newest one is 4"),
        (settled_by_nobody, STALE, "the newest one is None"),
        (never_ended, UNACCOUNTED, "0 final events instead of 1: accepted"),
        (went_on_after_its_end, OTHER, "overdue after its end"),
        (the_next_one_is_missing, UNACCOUNTED, "it never began"),
        (nobody_sent_it, UNSENT, "nobody sent it"),
        (sent_under_a_foreign_lease, UNSENT, "nobody sent it"),
        (delivered_twice, OTHER, "2 times delivered"),
        (accepted_by_a_stranger, OTHER, "accepted by planner-a, who is not one of"),
        (overdue_by_an_agent, OTHER, "overdue by worker-a, who is not one of"),
        (a_lease_is_skipped, OTHER, "lease 3 follows lease 1"),
        (a_stale_tail, OTHER, "accepted saw the tail 2, not 3"),
    ],
)
def test_a_broken_history_is_complained_about(
    broken: Callable[[], History], kind: str, says: str
) -> None:
    assert any(it.kind == kind and says in it.text for it in complaints(broken()))


def test_an_acknowledged_handoff_that_is_not_there_is_lost() -> None:
    lost = UUID(int=9)
    assert complaints(sound(), acknowledged=(ROOT, lost)) == [
        Complaint(UNACCOUNTED, f"{lost}: acknowledged, but not in the ledger")
    ]
