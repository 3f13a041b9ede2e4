"""The object store: a content is stored once under its hash, and nothing replaces it."""

import hashlib
from typing import Any

import msgspec
import pytest

from batonbus.rules.errors import InvalidTokenError, MessageTooLargeError
from batonbus.rules.references import OBJECT_LIMIT
from batonbus.wire.objects import Objects
from batonbus.wire.subjects import objects_bucket

pytestmark = pytest.mark.anyio

CONTENT = "A long text, é, 가.\n".encode() * 100
NAME = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def objects(wire: Any) -> Objects:
    return Objects(wire.connection, wire.publisher, wire.fleet)


async def count(wire: Any) -> int:
    info = await wire.connection.api(f"STREAM.INFO.KV_{objects_bucket(wire.fleet)}")
    messages: int = msgspec.json.decode(info)["state"]["messages"]
    return messages


async def test_a_content_comes_back_by_its_hash(objects: Objects) -> None:
    assert await objects.get(NAME) is None
    assert await objects.put(NAME, CONTENT)
    assert await objects.get(NAME) == CONTENT


async def test_a_second_put_changes_nothing(wire: Any, objects: Objects) -> None:
    assert await objects.put(NAME, CONTENT)
    assert not await objects.put(NAME, CONTENT)
    assert not await objects.put(NAME, b"another")
    assert await count(wire) == 1
    assert await objects.get(NAME) == CONTENT


@pytest.mark.parametrize(
    "headers",
    [{}, {"KV-Operation": "DEL"}, {"KV-Operation": "PURGE"}, {"Nats-Rollup": "sub"}],
    ids=str,
)
async def test_the_server_itself_refuses_to_replace_a_content(
    wire: Any, objects: Objects, headers: dict[str, str]
) -> None:
    await objects.put(NAME, CONTENT)
    subject = f"$KV.{objects_bucket(wire.fleet)}.{NAME}"
    answer = await wire.connection.client.request(subject, b"", headers=headers or None, timeout=5)
    assert "error" in msgspec.json.decode(answer.data)
    assert await objects.get(NAME) == CONTENT


async def test_the_largest_content_fits_and_what_the_server_does_not_take_is_told(
    wire: Any, objects: Objects
) -> None:
    largest = b"x" * OBJECT_LIMIT
    assert await objects.put("largest", largest)
    assert await objects.get("largest") == largest
    with pytest.raises(MessageTooLargeError, match=r"max_payload of 1,048,576"):
        await objects.put("more", b"x" * 1_048_576)


@pytest.mark.parametrize("name", ["*", ">", "a.b", "", "x" * 65])
async def test_a_name_that_could_be_another_subject_is_refused(objects: Objects, name: str) -> None:
    with pytest.raises(InvalidTokenError):
        await objects.get(name)
    with pytest.raises(InvalidTokenError):
        await objects.put(name, CONTENT)
