"""Secrets and raw reasoning in messages: named by place and kind, or masked."""

import pytest

from batonbus.rules.bans import find_bans, masked
from batonbus_schemas import Dispatch, TaskResult

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"


def test_places_are_named_and_values_are_not() -> None:
    tree = {
        "notes": ["fine", "API_KEY=qv7Zr0xT1mNq8Lw2"],
        "settings": {"api_key": "justletters", "apiKeyName": "main"},
        "items": [{"type": "reasoning", "summary": ["hm"]}, {"type": "text", "text": "fine"}],
        "reasoning_content": "hm",
        "why": "<think>hm</think>",
        "token": "${TOKEN_FROM_VAULT}",
    }
    found = {it.path: it.problem for it in find_bans(tree)}
    assert set(found) == {
        "$.notes[1]",
        "$.settings.api_key",
        "$.items[0]",
        "$.reasoning_content",
        "$.why",
    }
    assert "qv7Zr0xT1mNq8Lw2" not in str(found)


def test_a_secret_that_two_texts_make_together_is_none() -> None:
    assert find_bans({"a": "the password", "b": "is hunter2-Prod!"}) == []
    assert find_bans({"type": ["reasoning"], "b": [{"type": 3}]}) == []


def test_a_masked_message_is_a_message() -> None:
    result = TaskResult.passed(what="Set API_KEY=qv7Zr0xT1mNq8Lw2.<think>hm</think>")
    clean = masked(result)
    assert clean.context_handoff is not None
    assert clean.context_handoff.what == "Set API_KEY=[masked: named secret]."
    assert "qv7Zr0" not in clean.summary
    harmless = Dispatch(brief="Mend it.")
    assert masked(harmless) is harmless


def test_a_secret_as_the_name_of_a_member_is_found_and_masked() -> None:
    name = "ghp_" + "a1B2" * 9
    body = Dispatch(brief="x", ref_cache={name: "fine"})
    (found,) = find_bans(body)
    assert str(found).startswith("$.ref_cache in the name of a member")
    assert name not in str(found)
    assert list(masked(body).ref_cache) == ["[masked: GitHub Token]"]


@pytest.mark.parametrize(
    "name", [PEM, "<think>I weigh both</think>", "[THINK]I weigh both[/THINK]"]
)
def test_what_holds_no_digit_is_found_in_the_name_of_a_member_too(name: str) -> None:
    body = Dispatch(brief="x", ref_cache={name: "fine"})
    assert len(find_bans(body)) == 1
    assert name not in masked(body).ref_cache
