"""The numbers that a fleet agrees on."""

import msgspec
import pytest

from batonbus.rules.settings import Settings


def test_the_defaults_are_the_designs() -> None:
    assert msgspec.to_builtins(Settings()) == {
        "receipt_timeout": 30.0,
        "ack_wait": 30.0,
        "heartbeat": 5.0,
        "missed_beats": 3,
        "give_up_after": 600.0,
        "retry_delay": 2.0,
        "stop_grace": 30.0,
        "hop_limit": 32,
        "work_limit": 1_000,
    }


def test_an_agent_is_gone_after_three_missed_heartbeats() -> None:
    assert Settings().presence_timeout == 15.0
    assert Settings(heartbeat=0.5, missed_beats=4).presence_timeout == 2.0


def test_nobody_is_declared_gone_before_two_unbroken_presence_timeouts() -> None:
    assert Settings().trust_after == 30.0


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (b'{"receipt_timeout": 0}', r"> 0.*receipt_timeout"),
        (b'{"heartbeat": -1}', r"> 0.*heartbeat"),
        (b'{"missed_beats": 0}', r">= 1.*missed_beats"),
        (b'{"recipt_timeout": 5}', "recipt_timeout"),
    ],
)
def test_a_wrong_number_or_name_is_refused_by_name(stored: bytes, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.json.decode(stored, type=Settings)


def test_settings_go_through_the_ledger_unchanged() -> None:
    quick = Settings(receipt_timeout=0.7, retry_delay=0.02)
    assert msgspec.json.decode(msgspec.json.encode(quick), type=Settings) == quick
