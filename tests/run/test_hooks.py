"""A function that an agent's program has registered may do anything; nothing of it spreads."""

from typing import Any

import pytest

from batonbus.rules.compaction import Evidence
from batonbus.rules.errors import CompactionError
from batonbus.run.hooks import ask_hook

pytestmark = pytest.mark.anyio

SECRET = "ghp_" + "cAn4" * 9


async def ask(answer: Any) -> Evidence:
    async def hook(_request: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return await ask_hook(hook, "request", Evidence, "the look")


async def test_what_it_says_is_without_secrets() -> None:
    said = await ask(Evidence(next=f"use {SECRET}"))
    assert said.next.startswith("use ")
    assert SECRET not in said.next


async def test_whatever_it_raises_is_one_error_without_secrets() -> None:
    with pytest.raises(CompactionError, match=r"^the look failed: KeyError: ") as caught:
        await ask(KeyError(SECRET))
    assert SECRET not in str(caught.value)


async def test_another_answer_is_named_by_its_type() -> None:
    with pytest.raises(CompactionError, match=r"^the look returned dict, not Evidence$"):
        await ask({})
