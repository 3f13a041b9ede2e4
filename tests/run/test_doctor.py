"""What a process of the bus says of its server when it starts."""

from typing import Any

import pytest

from batonbus.run.doctor import warn_at_start
from batonbus.wire.connection import Connection, connect

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("configuration", "warned"), [("", True), ("authorization: {token: x}", False)]
)
async def test_a_start_warns_of_a_server_that_lets_anybody_in(
    server_with: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    configuration: str,
    warned: bool,
) -> None:
    with server_with(configuration) as address:
        async with connect(f"nats://x@{address}", "window-manager") as connection:
            await warn_at_start(connection, "default")
            assert not caplog.records  # it listens on loopback alone
            listen_everywhere(connection, monkeypatch)
            await warn_at_start(connection, "default")
    said = "lets anybody in at 0.0.0.0, without credentials" in caplog.text
    assert ("access.unsafe" in caplog.text, said) == (warned, warned)


def listen_everywhere(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the server says; here none does."""
    monkeypatch.setitem(connection.client._server_info, "host", "0.0.0.0")
