"""What an error says: what happened, with numbers, and then what to do."""

from uuid import UUID

import pytest

from batonbus.rules import errors
from batonbus.rules.errors import (
    BatonbusError,
    Bounced,
    ConflictError,
    InvalidTokenError,
    MessageTooLargeError,
    Refuse,
    TryAgain,
)
from batonbus_schemas import Receipt, Violation

ID = UUID("6d9c9b52-8a0d-4f6c-9d7e-0f6f3b1f2a11")


def test_every_error_is_a_batonbus_error_and_has_a_sentence_of_help() -> None:
    own = [
        it
        for it in vars(errors).values()
        if isinstance(it, type) and it.__module__ == errors.__name__
    ]
    assert len(own) > 5
    for error in own:
        assert issubclass(error, BatonbusError)
        assert (error.__doc__ or "").rstrip().endswith(".")


def test_a_name_that_cannot_stand_in_a_subject_is_shown_with_what_can() -> None:
    error = InvalidTokenError("actor", "code reviewer")
    assert isinstance(error, ValueError)
    assert str(error) == (
        "actor 'code reviewer' cannot stand in a subject: "
        "use 1 to 64 letters, digits, dashes and underscores"
    )


def test_a_message_that_is_too_large_says_both_numbers() -> None:
    error = MessageTooLargeError(1_048_577, 1_048_576)
    assert (error.size, error.limit) == (1_048_577, 1_048_576)
    assert "1,048,577 bytes" in str(error)
    assert "max_payload of 1,048,576: refer to files" in str(error)


def test_a_conflict_names_what_differs() -> None:
    error = ConflictError(ID, ("body", "to"))
    assert error.differing == ("body", "to")
    assert f"handoff {ID} is already stored with another body, to" in str(error)


def test_a_bounced_line_says_how_it_ended_why_and_every_violation() -> None:
    violations = (
        Violation(path="$.to", problem="is missing"),
        Violation(path="$.body", problem="is empty"),
    )
    receipt = Receipt(
        handoff_id=ID,
        state="refused",
        by="window-manager",
        reason="not valid",
        violations=violations,
    )
    assert Bounced(receipt).receipt is receipt
    assert str(Bounced(receipt)) == (
        f"handoff {ID} was refused by window-manager: not valid\n"
        "  $.to: is missing\n"
        "  $.body: is empty"
    )


def test_a_bounced_line_without_a_reason_says_so() -> None:
    receipt = Receipt(handoff_id=ID, state="cancelled", by="asker")
    assert str(Bounced(receipt)) == f"handoff {ID} was cancelled by asker: no reason given"


@pytest.mark.parametrize(
    ("error", "reason", "after", "text"),
    [
        (TryAgain(), "", None, "the handler asked for another attempt"),
        (TryAgain("quota", after=60.0), "quota", 60.0, "quota"),
    ],
)
def test_trying_again_keeps_its_reason_and_its_delay(
    error: TryAgain, reason: str, after: float | None, text: str
) -> None:
    assert (error.reason, error.after, str(error)) == (reason, after, text)


def test_refusing_keeps_its_reason() -> None:
    assert (Refuse("no such branch").reason, str(Refuse("no such branch"))) == (
        "no such branch",
        "no such branch",
    )
