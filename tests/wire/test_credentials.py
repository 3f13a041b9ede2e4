"""Every way to log in: a user and password or a token in the address, or a .creds file."""

import base64
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nkeys
import pytest

from batonbus.rules.errors import BusUnavailableError
from batonbus.wire import connection as connection_module
from batonbus.wire.connection import CREDENTIALS_VARIABLE, connect
from batonbus.wire.topology import ensure_topology

pytestmark = pytest.mark.anyio


def make_key(prefix: int, number: int) -> Any:
    """A key pair for a test alone."""
    return nkeys.from_seed(nkeys.encode_seed(bytes([number]) * 32, prefix))


OPERATOR = make_key(nkeys.PREFIX_BYTE_OPERATOR, 1)
ACCOUNT = make_key(nkeys.PREFIX_BYTE_ACCOUNT, 2)
USER = make_key(nkeys.PREFIX_BYTE_USER, 3)
SYSTEM = make_key(nkeys.PREFIX_BYTE_ACCOUNT, 4)
LIMITS = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
LIMITS |= {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1}


def sign(issuer: Any, subject: Any, kind: str, **claims: object) -> str:
    """A JWT as NATS reads it."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    body = {
        "jti": "test",
        "iat": 1_700_000_000,
        "iss": issuer.public_key.decode(),
        "sub": subject.public_key.decode(),
        "name": kind,
        "nats": {"type": kind, "version": 2, **claims},
    }
    text = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(body)}"
    return f"{text}.{base64.urlsafe_b64encode(issuer.sign(text.encode())).rstrip(b'=').decode()}"


@pytest.fixture
def creds(tmp_path: Path) -> Path:
    """The file of a user of `CONFIGURATION`'s account."""
    file = tmp_path / "bus.creds"
    token = sign(ACCOUNT, USER, "user", subs=-1, data=-1, payload=-1)
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token}\n"
        "------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{USER.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return file


CONFIGURATION = f"""
jetstream {{ store_dir: "STORE" }}
operator: {sign(OPERATOR, OPERATOR, "operator")}
system_account: {SYSTEM.public_key.decode()}
resolver: MEMORY
resolver_preload: {{
  {ACCOUNT.public_key.decode()}: {sign(OPERATOR, ACCOUNT, "account", limits=LIMITS)}
  {SYSTEM.public_key.decode()}: {sign(OPERATOR, SYSTEM, "account")}
}}
"""


async def test_a_creds_file_opens_a_server_that_wants_a_jwt(
    server_with: Any, creds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server_with(CONFIGURATION) as address:
        with pytest.raises(BusUnavailableError, match="its address names no user"):
            async with connect(f"nats://{address}", "asker", connect_timeout=0.3):
                pass
        monkeypatch.setenv(CREDENTIALS_VARIABLE, str(creds))
        async with connect(f"nats://{address}", "asker") as connection:
            await ensure_topology(connection, "default")


async def test_a_creds_file_that_the_server_does_not_take_is_named(
    server_with: Any, creds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CREDENTIALS_VARIABLE, str(creds))
    with (
        server_with("authorization { user: boss, password: s3cret }") as address,
        pytest.raises(BusUnavailableError) as caught,
    ):
        async with connect(f"nats://{address}", "asker", connect_timeout=0.3):
            pass
    assert f"does not let the user of {creds} in" in str(caught.value)


async def test_a_creds_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CREDENTIALS_VARIABLE, "/nowhere/bus.creds")
    with pytest.raises(BusUnavailableError, match=r"BATONBUS_CREDS names /nowhere/bus\.creds"):
        async with connect("nats://127.0.0.1:9", "asker"):
            pass


async def test_without_the_package_that_signs_it_is_named(
    creds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CREDENTIALS_VARIABLE, str(creds))
    monkeypatch.setattr(
        connection_module, "find_spec", lambda name: None if name == "nkeys" else find_spec(name)
    )
    with pytest.raises(BusUnavailableError, match=r"pip install 'batonbus\[creds\]'"):
        async with connect("nats://127.0.0.1:9", "asker"):
            pass


@pytest.mark.parametrize(
    ("authorization", "login"),
    [("token: s3cret", "s3cret@"), ("user: boss, password: s3cret", "boss:s3cret@")],
)
async def test_a_token_or_a_password_stands_in_the_address(
    server_with: Any, authorization: str, login: str
) -> None:
    with server_with(f"authorization {{ {authorization} }}") as address:
        async with connect(f"nats://{login}{address}", "asker") as connection:
            assert connection.client.is_connected
            assert "s3cret" not in connection.address
        with pytest.raises(BusUnavailableError, match="its address names no user"):
            async with connect(f"nats://{address}", "asker", connect_timeout=0.3):
                pass
