"""An assignment is inside its budget by the estimate, and by the agent's own count of tokens."""

from typing import Any
from uuid import uuid4

import pytest

from batonbus import Agent, Context, Refuse
from batonbus.rules.budget import reference_tokens
from batonbus.rules.policy import Budget, Policy
from batonbus.run.assignment import make_assignment
from batonbus_schemas import AgentCard, Delivery, Dispatch, Envelope, TaskResult, TextSize, render

CARD = AgentCard(id="reviewer-1", role="reviewer")
ROW = "reviewer"
AMPLE = 1_000_000


def delivery(boundary: str) -> Delivery:
    """One that nothing can be taken out of, and that the bus found to be whole."""
    body = Dispatch(brief="Go.", permission_boundary=boundary)
    envelope = Envelope(id=uuid4(), sender="s", to="reviewer", body=body)
    size = TextSize(
        row=ROW, form="markdown", max_characters=1, max_tokens=1, characters=1, tokens=1
    )
    return Delivery(envelope=envelope, opener="reviewer", size=size)


def by_bytes(text: str) -> int:
    """A tokenizer that knows no letters but ASCII."""
    return len(text.encode()) // 2


def by_words(text: str) -> int:
    """A tokenizer that knows every word."""
    return len(text.split())


@pytest.mark.parametrize("filling", ["a", "가", "🎉"])
@pytest.mark.parametrize("count", [by_bytes, by_words])
def test_it_fits_at_the_stricter_of_both_counts_and_not_one_below(filling: str, count: Any) -> None:
    given = delivery(filling * 400)
    text = render(given.envelope, given.window)
    needed = max(count(text), reference_tokens(text))
    for tokens in (needed, needed - 1):
        policy = Policy(budgets={ROW: Budget(characters=AMPLE, tokens=tokens)})
        if tokens == needed:
            assert make_assignment(given, CARD, policy, count).text == text
        else:
            with pytest.raises(Refuse, match=f"limit {AMPLE:,} \\({tokens:,}\\)"):
                make_assignment(given, CARD, policy, count)


@pytest.mark.anyio
async def test_an_agent_with_a_tokenizer_of_its_own_is_given_less(open_bus: Any) -> None:
    texts = dict[str, str]()

    def agent_of(role: str, **options: Any) -> Agent:
        agent = Agent(role, **options)

        @agent.handles
        async def read(task: Dispatch, ctx: Context) -> TaskResult:
            texts[role] = ctx.text
            return TaskResult.passed(what="Read it.")

        return agent

    counting = agent_of("counting", count_tokens=by_bytes)
    async with open_bus(counting, agent_of("estimating")) as bus:
        for role in ("counting", "estimating"):
            await (await bus.send(role, "가" * 400)).result()
    assert "가" * 400 in texts["estimating"]
    assert by_bytes(texts["counting"]) <= 550
    assert "All of it: .batonbus/references/" in texts["counting"]
