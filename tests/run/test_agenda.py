"""Each handoff is looked at once, at the newest moment that was said."""

from uuid import UUID, uuid4

from batonbus.run.agenda import SPARE, Agenda

ONE, TWO = UUID(int=1), UUID(int=2)


def test_what_is_due_is_taken_once_and_in_order() -> None:
    agenda = Agenda()
    agenda.put(ONE, 3.0)
    agenda.put(TWO, 2.0)
    assert agenda.take(1.9) == []
    assert agenda.take(3.0) == [TWO, ONE]
    assert agenda.take(9.0) == []


def test_a_later_word_replaces_the_earlier_one() -> None:
    agenda = Agenda()
    for moment in (1.0, 5.0, 2.0, 2.0):
        agenda.put(ONE, moment)
    agenda.put(TWO, 1.0)
    agenda.put(TWO, None)
    assert agenda.take(1.5) == []
    assert agenda.take(9.0) == [ONE]


def test_what_ended_long_before_its_moment_takes_no_room() -> None:
    """A handoff with a deadline in a year is done in a second."""
    agenda = Agenda()
    agenda.put(ONE, 7.0)
    for _ in range(3 * SPARE):
        ended = uuid4()
        agenda.put(ended, 1e9)
        agenda.put(ended, None)
    assert len(agenda) <= SPARE + 2
    assert agenda.take(8.0) == [ONE]
