"""Seed 003's bans in this process: `rules.bans` with the values of its environment, and what its
fleet calls a secret beside them.

They cannot be switched off, only extended.
"""

import functools
import os
from typing import TypeVar

from msgspec import Struct

from batonbus.rules.bans import find_bans, masked
from batonbus.rules.fleet_secrets import FleetSecrets, Secrets
from batonbus.rules.secrets import SHORTEST, mask, secret_values
from batonbus_schemas import Violation

S = TypeVar("S", bound=Struct)

_fleets: dict[str, FleetSecrets] = {}
"""What each fleet adds that this process belongs to."""


def extend(fleet: str, secrets: Secrets) -> None:
    """From now on all that this process says and sends is also without what this fleet calls a
    secret; it replaces what the fleet added before."""
    if secrets == Secrets():
        _fleets.pop(fleet, None)
    else:
        _fleets[fleet] = FleetSecrets(secrets)
    _known.cache_clear()


@functools.cache
def _known() -> frozenset[str]:
    """The secrets of the environment as it was when they were first needed."""
    named = {
        value
        for name, value in os.environ.items()
        if len(value) >= SHORTEST and any(it.is_secret_key(name) for it in _fleets.values())
    }
    return secret_values(os.environ) | named


def hide(text: str) -> str:
    """The text with every secret masked, and without reasoning."""
    text = mask(text, _known())
    for it in tuple(_fleets.values()):
        text = it.mask(text)
    return text


def hide_in(message: S) -> S:
    """The message with every secret masked, and without reasoning."""
    message = masked(message, _known())
    for it in tuple(_fleets.values()):
        message = it.masked(message)
    return message


def find_in(message: object, path: str = "$") -> list[Violation]:
    """Every place of a message that holds a secret or reasoning, never with the value."""
    found = find_bans(message, _known(), path)
    for it in tuple(_fleets.values()):
        found += it.find_bans(message, path)
    return found
