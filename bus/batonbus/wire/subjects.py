"""The subject grammar: `<fleet>.handoff.<handoff_id>.<event>.<work>.<actor>.<to>`."""

import re
from functools import lru_cache
from typing import Literal, cast
from uuid import UUID

from msgspec import Struct

from batonbus.rules.chain import KINDS, WINDOW_MANAGER, Kind
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
    """A parsed event subject. `to` is `_` where the event is for nobody; `kind` is "unknown" where
    the subject is one of a chain, but does not follow the grammar."""

    fleet: str
    handoff_id: UUID
    kind: Kind | Literal["unknown"]
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
        """The parts of a subject, or None where it is none of a chain."""
        fleet, _, rest = text.partition(".handoff.")
        handoff_id, *tokens = rest.split(".")
        identity = _parse_id(handoff_id)
        if identity is None:
            return None
        if len(tokens) != 4 or tokens[0] not in KINDS or not all(map(is_token, tokens)):
            return cls(fleet, identity, "unknown", NOBODY, NOBODY)
        kind, work, actor, to = tokens
        return cls(fleet, identity, cast("Kind", kind), work, actor, to)


# Kept for a while: a chain's events come close together, and names come again and again.
@lru_cache(maxsize=4096)
def _parse_id(text: str) -> UUID | None:
    """The id, if the text is its one spelling: another spelling would be another chain."""
    try:
        identity = UUID(text)
    except ValueError:
        return None
    return identity if str(identity) == text else None


@lru_cache(maxsize=4096)
def is_token(text: str) -> bool:
    """Whether a text can stand in a subject."""
    return _TOKEN.match(text) is not None


def stream_name(fleet: str) -> str:
    """The ledger's stream."""
    return f"BATONBUS_{check_token('fleet', fleet)}"


def registry_bucket(fleet: str) -> str:
    """The key-value bucket of the live agents."""
    return f"batonbus_{check_token('fleet', fleet)}_agents"


def objects_bucket(fleet: str) -> str:
    """The key-value bucket of contents, by their hash."""
    return f"batonbus_{check_token('fleet', fleet)}_objects"


def checkpoint_bucket(fleet: str) -> str:
    """The key-value bucket of the agents' Checkpoints."""
    return f"batonbus_{check_token('fleet', fleet)}_checkpoints"


def checkpoint_key(fleet: str, agent: str) -> str:
    """The subject of an agent's own entry there."""
    return f"$KV.{checkpoint_bucket(fleet)}.{check_token('agent', agent)}"


def checkpoint_reading(fleet: str, agent: str) -> str:
    """Where that entry is asked for, and no other."""
    return f"$JS.API.DIRECT.GET.KV_{checkpoint_bucket(fleet)}.{checkpoint_key(fleet, agent)}"


def all_events(fleet: str) -> str:
    """Every event of a fleet."""
    return f"{_handoffs(fleet)}.>"


def chain_filter(fleet: str, handoff_id: UUID) -> str:
    """Every event of one handoff: a literal prefix, which is a constant-time look-up."""
    return f"{_handoffs(fleet)}.{handoff_id}.>"


def probe_subject(fleet: str) -> str:
    """A subject of the ledger that is none of a chain: whoever reads events passes it over."""
    return f"{_handoffs(fleet)}.probe"


def kind_filter(fleet: str, kind: Kind) -> str:
    """Every event of one kind."""
    return f"{_handoffs(fleet)}.*.{kind}.>"


def work_filter(fleet: str, work: str) -> str:
    """Every event of one work."""
    return f"{_handoffs(fleet)}.*.*.{check_token('work', work)}.>"


def deliveries_to(fleet: str, addressee: str) -> str:
    """What the window manager delivers to a role or an agent."""
    return f"{_handoffs(fleet)}.*.delivered.*.*.{check_token('addressee', addressee)}"


def deliveries_of(fleet: str, work: str) -> str:
    """What the window manager delivers of a work."""
    return f"{_handoffs(fleet)}.*.delivered.{check_token('work', work)}.{WINDOW_MANAGER}.>"


def answers_to(fleet: str, actor: str) -> str:
    """Every event that is for this actor."""
    return f"{_handoffs(fleet)}.*.*.*.*.{check_token('actor', actor)}"


def ask_subject(fleet: str, verb: str, actor: str) -> str:
    """A request to the bus, by an actor that the server's permissions pin."""
    return f"{check_token('fleet', fleet)}.ask.{verb}.{check_token('actor', actor)}"


def _handoffs(fleet: str) -> str:
    return f"{check_token('fleet', fleet)}.handoff"
