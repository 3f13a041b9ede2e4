"""The subject grammar: `<fleet>.handoff.<handoff_id>.<event>.<work>.<actor>.<to>`."""

import re
from functools import lru_cache
from typing import cast
from uuid import UUID

from msgspec import Struct

from batonbus.rules.chain import KINDS, Kind
from batonbus.rules.errors import InvalidTokenError
from batonbus_schemas.tokens import TOKEN_PATTERN

NOBODY = "_"

_TOKEN = re.compile(TOKEN_PATTERN)


@lru_cache(maxsize=4096)
def check_token(what: str, value: str) -> str:
    """The value itself, if it can stand in a subject. Raises InvalidTokenError."""
    if not _TOKEN.match(value):
        raise InvalidTokenError(what, value)
    return value


class Subject(Struct, frozen=True):
    """A parsed event subject. `to` is `_` where the event is for nobody."""

    fleet: str
    handoff_id: UUID
    kind: Kind
    work: str
    actor: str
    to: str = NOBODY

    def __str__(self) -> str:
        for what, value in (
            ("fleet", self.fleet),
            ("work", self.work),
            ("actor", self.actor),
            ("addressee", self.to),
        ):
            check_token(what, value)
        return (
            f"{self.fleet}.handoff.{self.handoff_id}.{self.kind}.{self.work}.{self.actor}.{self.to}"
        )

    @classmethod
    def parse(cls, text: str) -> "Subject | None":
        """The parts of a subject, or None where it is none of ours."""
        tokens = text.split(".")
        if len(tokens) != 7 or tokens[1] != "handoff" or tokens[3] not in KINDS:
            return None
        fleet, _, handoff_id, kind, work, actor, to = tokens
        try:
            identity = UUID(handoff_id)
        except ValueError:
            return None
        # Another spelling of an id would be another chain.
        if str(identity) != handoff_id:
            return None
        return cls(fleet, identity, cast("Kind", kind), work, actor, to)


def stream_name(fleet: str) -> str:
    """The ledger's stream."""
    return f"BATONBUS_{fleet}"


def registry_bucket(fleet: str) -> str:
    """The key-value bucket of the live agents."""
    return f"batonbus_{fleet}_agents"


def all_events(fleet: str) -> str:
    """Every event of a fleet."""
    return f"{fleet}.handoff.>"


def chain_filter(fleet: str, handoff_id: UUID) -> str:
    """Every event of one handoff: a literal prefix, which is a constant-time look-up."""
    return f"{fleet}.handoff.{handoff_id}.>"


def kind_filter(fleet: str, kind: Kind) -> str:
    """Every event of one kind."""
    return f"{fleet}.handoff.*.{kind}.>"


def deliveries_to(fleet: str, addressee: str) -> str:
    """What the window manager delivers to a role or an agent."""
    return f"{fleet}.handoff.*.delivered.*.*.{check_token('addressee', addressee)}"


def answers_to(fleet: str, actor: str) -> str:
    """Every event that is for this actor."""
    return f"{fleet}.handoff.*.*.*.*.{check_token('actor', actor)}"


def ask_subject(fleet: str, verb: str, actor: str) -> str:
    """A request to the bus, by an actor that the server's permissions pin."""
    return f"{fleet}.ask.{verb}.{check_token('actor', actor)}"
