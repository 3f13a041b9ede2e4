"""Whose questions nobody needs any more."""

from itertools import count
from uuid import UUID, uuid4

import pytest

from batonbus.rules.chain import (
    OPERATOR,
    RECEIPT_KEEPER,
    WINDOW_MANAGER,
    Chain,
    Event,
    Kind,
    child_id,
    fold,
)
from batonbus.rules.orphans import Families

WRITERS: dict[Kind, str] = {
    "sent": "asker",
    "delivered": WINDOW_MANAGER,
    "dead": RECEIPT_KEEPER,
    "cancelled": OPERATOR,
}


class Ledger:
    """Events of several handoffs in one order, read by one keeper."""

    def __init__(self) -> None:
        self.families = Families()
        self._sequences = count(1)
        self._chains: dict[UUID, Chain] = {}

    def write(
        self,
        handoff_id: UUID,
        kind: Kind,
        *,
        under: int | None = None,
        child_to: str | None = None,
        tail: int | None = None,
    ) -> int:
        """Store an honest event (or, with a `tail`, one that saw another) and let it be read."""
        chain = self._chains.get(handoff_id, Chain(id=handoff_id))
        owned = kind in {"failed", "settled", "refused"} and chain.stage == "accepted"
        event = Event(
            sequence=next(self._sequences),
            kind=kind,
            actor=WRITERS.get(kind, "worker"),
            tail=chain.tail if tail is None else tail,
            accepted=chain.owner_sequence if owned else under,
            attempt=chain.next_attempt if kind == "accepted" else None,
            lease=chain.lease + 1 if kind == "accepted" else None,
            waiter="waiter",
            work="WORK-01",
            child_to=child_to,
        )
        self._chains[handoff_id] = chain = fold(chain, [event])
        self.families.note(chain, event.sequence)
        return event.sequence

    def accept(self, *, under: int | None = None) -> tuple[UUID, int]:
        """A handoff that somebody works on, and its accepted event."""
        handoff_id = uuid4()
        self.write(handoff_id, "sent", under=under)
        self.write(handoff_id, "delivered")
        return handoff_id, self.write(handoff_id, "accepted")

    @property
    def orphans(self) -> dict[UUID, str]:
        return {it: orphan.reason for it, orphan in self.families.orphans.items()}


@pytest.mark.parametrize(("end", "how"), [("cancelled", "was cancelled"), ("dead", "is dead")])
def test_what_was_asked_for_inside_a_handoff_that_ended_without_an_answer_is_an_orphan(
    end: Kind, how: str
) -> None:
    ledger = Ledger()
    asker, accepted = ledger.accept()
    asked = [ledger.accept(under=accepted)[0] for _ in range(2)]
    ledger.accept()
    assert ledger.orphans == {}
    ledger.write(asker, end)
    reason = f"handoff {asker}, which asked for it, {how}"
    assert ledger.orphans == dict.fromkeys(asked, reason)


@pytest.mark.parametrize("end", ["settled", "refused"])
def test_who_answers_has_decided_what_becomes_of_the_rest(end: Kind) -> None:
    ledger = Ledger()
    asker, accepted = ledger.accept()
    asked, _ = ledger.accept(under=accepted)
    ledger.write(asker, end)
    assert ledger.orphans == {}
    ledger.write(asked, "settled", child_to="next")
    assert ledger.orphans == {}


def test_a_retry_and_a_takeover_keep_their_questions_and_the_end_finds_all_of_them() -> None:
    ledger = Ledger()
    asker, accepted = ledger.accept()
    asked = [ledger.accept(under=accepted)[0]]
    ledger.write(asker, "failed")
    for _ in range(2):
        accepted = ledger.write(asker, "accepted")
        asked.append(ledger.accept(under=accepted)[0])
        assert ledger.orphans == {}
    ledger.write(asker, "cancelled")
    assert list(ledger.orphans) == asked


def test_what_has_ended_is_no_orphan() -> None:
    ledger = Ledger()
    asker, accepted = ledger.accept()
    done, _ = ledger.accept(under=accepted)
    left, _ = ledger.accept(under=accepted)
    ledger.write(done, "settled")
    ledger.write(asker, "cancelled")
    assert list(ledger.orphans) == [left]
    ledger.write(left, "cancelled")
    assert ledger.orphans == {}


def test_it_goes_on_from_level_to_level() -> None:
    ledger = Ledger()
    first, accepted = ledger.accept()
    second, accepted = ledger.accept(under=accepted)
    third, _ = ledger.accept(under=accepted)
    ledger.write(first, "cancelled")
    assert list(ledger.orphans) == [second]
    ledger.write(second, "cancelled")
    assert ledger.orphans == {third: f"handoff {second}, which asked for it, was cancelled"}


@pytest.mark.parametrize("before", [True, False])
def test_what_an_asked_one_handed_on_to_takes_its_place(before: bool) -> None:
    """Also where it is not in the ledger yet."""
    ledger = Ledger()
    asker, accepted = ledger.accept()
    asked, _ = ledger.accept(under=accepted)
    for handoff_id, end in ((asked, "settled"), (asker, "cancelled"))[:: 1 if before else -1]:
        ledger.write(handoff_id, end, child_to="next" if end == "settled" else None)  # type: ignore[arg-type]
    ((handoff_id, orphan),) = ledger.families.orphans.items()
    assert handoff_id == orphan.chain.id == child_id(asked)
    assert (orphan.chain.work, orphan.chain.waiter) == ("WORK-01", "waiter")
    assert str(asker) in orphan.reason


def test_a_send_whose_asker_had_ended_already_is_the_window_managers_to_refuse() -> None:
    ledger = Ledger()
    asker, accepted = ledger.accept()
    ledger.write(asker, "cancelled")
    ledger.accept(under=accepted)
    assert ledger.orphans == {}


def test_a_void_event_ends_nothing() -> None:
    ledger = Ledger()
    asker, accepted = ledger.accept()
    ledger.accept(under=accepted)
    ledger.write(asker, "cancelled", tail=0)
    assert ledger.orphans == {}
    ledger.write(asker, "cancelled")
    assert len(ledger.orphans) == 1


def test_nothing_is_kept_of_what_has_ended() -> None:
    ledger = Ledger()
    asker, accepted = ledger.accept()
    asked, _ = ledger.accept(under=accepted)
    ledger.write(asked, "settled", child_to="next")
    ledger.write(asker, "cancelled")
    ledger.write(child_id(asked), "cancelled")
    assert not any(vars(ledger.families).values())
