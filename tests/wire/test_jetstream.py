"""The JetStream API: asked again while the server cannot answer yet, and never for ever."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from batonbus.rules.errors import NoAnswerError, NobodyAnswersError
from batonbus.rules.settings import Settings
from batonbus.wire import jetstream
from batonbus.wire import server as server_module
from batonbus.wire.connection import Connection, connect
from batonbus.wire.server import embedded_server
from batonbus.wire.topology import ensure_topology, inspect_topology

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream, "ASK_TIMEOUT", 0.1)


QUICK = Settings(ack_wait=1.0, heartbeat=0.2)


async def test_a_start_waits_for_a_server_that_does_not_answer_yet(
    proxy: Any,
    fleet: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    until: Any,
) -> None:
    agreed: list[Settings] = []

    async def start() -> None:
        agreed.append(await ensure_topology(connection, fleet, QUICK))

    async with connect(proxy.url, "window-manager") as connection:
        proxy.lose_answers = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await until(lambda: caplog.text.count("server.not_ready") >= 2)
            proxy.lose_answers = False
    assert agreed == [QUICK]


async def test_a_start_gives_up_on_a_server_that_never_answers(
    proxy: Any, fleet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "READY_TIMEOUT", 0.2)
    async with connect(proxy.url, "window-manager") as connection:
        proxy.lose_answers = True
        with anyio.fail_after(5), pytest.raises(NoAnswerError, match=r"STREAM.INFO.* within 0.1 s"):
            await ensure_topology(connection, fleet)


async def test_what_is_made_is_made_once_however_many_answers_are_lost(
    proxy: Any,
    fleet: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    until: Any,
) -> None:
    made: list[str] = []
    ask = Connection.api

    async def api(self: Connection, verb: str, *args: Any, **more: Any) -> bytes:
        if "CREATE" in verb and verb not in made:
            made.append(verb)
            proxy.lose_answers = True
            tasks.start_soon(answer_again, len(made))
        return await ask(self, verb, *args, **more)

    async def answer_again(count: int) -> None:
        await until(lambda: caplog.text.count("server.not_ready") >= count)
        proxy.lose_answers = False

    monkeypatch.setattr(Connection, "api", api)
    async with connect(proxy.url, "window-manager") as connection:
        async with anyio.create_task_group() as tasks:
            assert await ensure_topology(connection, fleet, QUICK) == QUICK
        assert len(made) == 5
        parts = await inspect_topology(connection, fleet)
        assert [it and it.differing for it in parts.values()] == [()] * 5


async def test_a_server_without_jetstream_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = server_module.CONFIGURATION.partition("jetstream {{")[0]
    monkeypatch.setattr(server_module, "CONFIGURATION", plain)
    async with embedded_server(tmp_path) as server, connect(server.url, "operator") as connection:
        with anyio.fail_after(10), pytest.raises(NobodyAnswersError, match="nobody answers"):
            await ensure_topology(connection, "default")
