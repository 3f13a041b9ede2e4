import anyio
from my_fleet import reviewer

from batonbus import TestBus


def test_the_reviewer_counts_the_words() -> None:
    async def check() -> None:
        async with TestBus(reviewer) as bus:
            sent = await bus.send("reviewer", "How long is this?")
            assert (await sent.receipt()).state == "accepted"
            assert (await sent.result()).summary == "Read 4 words: no findings."

    anyio.run(check)
