"""Moments in works files: written in UTC with the zone, never read without one."""

from datetime import UTC, date, datetime

from batonbus_agents.works.problems import Problems
from batonbus_agents.works.words import is_nothing


def stamp(moment: datetime) -> str:
    """`2026-07-24T10:15:30Z`; a moment without a zone raises ValueError."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no zone: give the moment in UTC")
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def parse_stamp(text: str) -> datetime:
    """The moment in UTC. Raises ValueError where the text is none, or has no zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write it as 2026-07-24T10:15:30Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone: add it, as in 2026-07-24T10:15:30Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} lies outside of the calendar") from None


def moment_of(name: str, text: str, line: int, problems: Problems) -> datetime | None:
    """A moment that is only shown: None and a warning where it cannot be known."""
    if is_nothing(text):
        return None
    try:
        return parse_stamp(text)
    except ValueError as error:
        problems.warn(line, f"{name} {error}")
        return None


def day_of(name: str, text: str, line: int, problems: Problems) -> date | None:
    """A calendar day (`YYYY-MM-DD`): None and a warning where it is none."""
    if is_nothing(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        problems.warn(line, f"{name} {text!r} is no day: write it as 2026-07-24")
        return None
