"""Seed 003's bans in this process: `rules.secrets` with the values of its environment.

They cannot be switched off.
"""

import functools
import os
from typing import TypeVar

from msgspec import Struct

from batonbus.rules.secrets import find_bans, mask, masked, secret_values
from batonbus_schemas import Violation

S = TypeVar("S", bound=Struct)


@functools.cache
def _known() -> frozenset[str]:
    """The secrets of the environment as it was when they were first needed."""
    return secret_values(os.environ)


def hide(text: str) -> str:
    """The text with every secret masked, and without reasoning."""
    return mask(text, _known())


def hide_in(message: S) -> S:
    """The message with every secret masked, and without reasoning."""
    return masked(message, _known())


def find_in(message: object, path: str = "$") -> list[Violation]:
    """Every place of a message that holds a secret or reasoning, never with the value."""
    return find_bans(message, _known(), path)
