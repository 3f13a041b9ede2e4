"""What a fleet's own policy calls a secret is found and masked, beside what is one everywhere."""

import time

import pytest

from batonbus.rules.fleet_secrets import SCANNED, FleetSecrets, Secrets, problems
from batonbus_schemas import MESSAGE_LIMIT, Dispatch, TaskResult

TABLE = Secrets(patterns=("acme-[0-9a-f]{32}", "(?i)zz[0-9]{4,9}"), names=("acme_pin",))
OURS = FleetSecrets(TABLE)
KEY = "acme-" + "0a1b" * 8
MASK = "[masked: secret of the fleet]"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"use {KEY}, then go", f"use {MASK}, then go"),
        (f"{KEY}{KEY} ZZ12345", f"{MASK}{MASK} {MASK}"),
        ("ACME_PIN=4711", f"ACME_PIN={MASK}"),
        ('MY_ACME-PIN: "47-11", x', f'MY_ACME-PIN: "{MASK}", x'),
        ("the acme_pin is hunter2.", f"the acme_pin is {MASK}."),
        ("the acme_pin is required", "the acme_pin is required"),
        ("the acme_pin is required. Go on.", "the acme_pin is required. Go on."),
        ("acme_pin=", "acme_pin="),
        (r"{\"acme_pin\": \"47-11\"}", rf"{{\"acme_pin\": \"{MASK}\"}}"),
        ("**acme_pin:** `47-11`", f"**acme_pin:** `{MASK}`"),
        ("acme_pin：47-11", f"acme_pin：{MASK}"),
        (f"acme_pin={MASK}", f"acme_pin={MASK}"),
        ("acme-0a1b is no key, acmepins: none", "acme-0a1b is no key, acmepins: none"),
    ],
)
def test_a_secret_is_masked_wherever_it_stands(text: str, clean: str) -> None:
    assert OURS.mask(text) == clean
    assert OURS.mask(clean) == clean


@pytest.mark.parametrize("piece", ["acme_pin", "acme_pin=", "acme-pin is x", "acme-0a1b", "a"])
def test_the_longest_message_is_looked_through_in_a_moment(piece: str) -> None:
    text = piece * (MESSAGE_LIMIT // len(piece))
    began = time.process_time()
    OURS.find(text)
    assert time.process_time() - began < 1


def test_every_place_of_a_message_is_named_and_never_the_value() -> None:
    tree = {"a": [KEY, "x"], "acme-pin": "letters", "b": {"ACME_PIN": "<PIN>"}, "c": 4711}
    found = OURS.find_bans(tree)
    assert [it.path for it in found] == ["$.a[0]", '$["acme-pin"]']
    assert all(KEY not in it.problem and "letters" not in it.problem for it in found)


def test_a_message_is_masked_and_one_without_secrets_stays_as_it_is() -> None:
    result = TaskResult.passed(what=f"Found {KEY}.", caution="acme_pin: 47-11")
    clean = OURS.masked(result).context_handoff
    assert clean is not None
    assert (clean.what, clean.caution) == (f"Found {MASK}.", f"acme_pin: {MASK}")
    harmless = Dispatch(brief="Read it.")
    assert OURS.masked(harmless) is harmless


def test_what_is_longer_than_anything_that_travels_is_not_said_unseen() -> None:
    said = OURS.mask("x" * SCANNED + KEY)
    assert KEY not in said
    assert said.endswith("[37 characters that nobody looked through]")


def test_what_is_wrong_is_named_with_its_key() -> None:
    wrong = Secrets(patterns=("(a+)+b", "acme-[0-9]{8}"), names=("ok_name", "a|b", "x" * 65))
    assert [it.path for it in problems(wrong)] == [
        "secrets.patterns[0]",
        "secrets.names[1]",
        "secrets.names[2]",
    ]
    many = Secrets(names=tuple(f"name{number}" for number in range(21)))
    assert [str(it) for it in problems(many)] == ["secrets.names: has 21 entries, limit 20"]
