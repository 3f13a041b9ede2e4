from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonbus_agents.works.stamps import parse_stamp, stamp


def test_a_moment_is_written_in_utc_with_the_zone() -> None:
    seoul = timezone(timedelta(hours=9))
    assert stamp(datetime(2026, 7, 24, 19, 15, 30, 999, tzinfo=seoul)) == "2026-07-24T10:15:30Z"


@pytest.mark.parametrize(
    "text", ["2026-07-20T12:00:00", "2026-07-20", "2026-07-20 12:00", "20260720", "soon", ""]
)
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"has no zone|is no time"):
        parse_stamp(text)


def test_a_moment_without_a_zone_is_not_written() -> None:
    with pytest.raises(ValueError, match="has no zone"):
        stamp(datetime(2026, 7, 24))


def test_a_moment_outside_of_the_calendar_is_refused() -> None:
    with pytest.raises(ValueError, match="outside of the calendar"):
        parse_stamp("0001-01-01T00:00:00+09:00")


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_is_read_as_it_was_written_to_the_second(moment: datetime) -> None:
    assert parse_stamp(stamp(moment)) == moment.replace(microsecond=0)
