"""Retention: what is over is in a file, on the disk, before it leaves the ledger."""

import base64
import json
import stat
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from batonbus import BusUnavailableError, NoAnswerError
from batonbus.rules.chain import OPERATOR
from batonbus.run.archive import EXPORTS, ExportError, remove
from batonbus.run.asking import ask_confirm
from batonbus.run.confirmation import Word
from batonbus.run.contents import DRAFTS, has_contents, lay_out_contents
from batonbus.run.core import Core, open_core
from batonbus.run.retention import read_relatives, retain
from batonbus.run.room import measure
from batonbus.testing import run_receipt_keeper
from batonbus.wire.ledger import Draft
from batonbus.wire.server import embedded_server
from batonbus.wire.subjects import NOBODY, Subject
from batonbus_schemas import Delivery, Dispatch, Envelope, Parent, encode

pytestmark = pytest.mark.anyio


@pytest.fixture
async def core(tmp_path: Path) -> AsyncGenerator[Core]:
    with anyio.fail_after(20):
        async with (
            embedded_server(tmp_path / "store") as server,
            open_core(server.url, OPERATOR, fleet="default") as opened,
        ):
            yield opened


async def write(core: Core, handoff_id: UUID, kind: Any, tail: int, payload: bytes) -> int:
    actor = "window-manager" if kind == "delivered" else OPERATOR
    subject = Subject("default", handoff_id, kind, "adhoc", actor, NOBODY)
    return await core.ledger.append(Draft(subject=subject, payload=payload), tail=tail)


async def hand_over(core: Core, *, over: bool = True, **names: Any) -> UUID:
    """A handoff that was cancelled, or is still open, and names others in its envelope."""
    handoff_id = uuid4()
    sent = Envelope(
        id=handoff_id,
        sender=OPERATOR,
        to="builder",
        body=Dispatch(brief="x"),
        after=names.pop("after", None),
        within=names.pop("within", None),
        retry_of=names.pop("retry_of", None),
    )
    tail = await write(core, handoff_id, "sent", 0, encode(sent))
    if names:
        placed = Envelope(id=handoff_id, sender=OPERATOR, to="builder", body=sent.body, **names)
        delivery = encode(Delivery(envelope=placed, opener="builder"))
        tail = await write(core, handoff_id, "delivered", tail, delivery)
    if over:
        await write(core, handoff_id, "cancelled", tail, b"{}")
    return handoff_id


def read_lines(path: Path | None) -> list[dict[str, Any]]:
    assert path is not None
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_what_is_over_is_exported_and_purged_and_what_is_open_stays(
    core: Core, tmp_path: Path
) -> None:
    over, open_ = await hand_over(core), await hand_over(core, over=False)
    before = await core.ledger.read_messages(over)
    done = await retain(core, tmp_path / "out", older_than=0.0)
    assert (done.expired, done.kept, done.works) == (1, 1, {"adhoc": 1})
    assert await core.ledger.read_messages(over) == []
    assert [it.event.kind for it in await core.ledger.read_chain(open_)] == ["sent"]
    lines = read_lines(done.removed.file)
    assert [it["subject"] for it in lines] == [it.subject for it in before]
    assert [it["sequence"] for it in lines] == [1, 2]
    assert lines[0]["headers"]["Nats-Expected-Last-Subject-Sequence"] == "0"
    assert json.loads(lines[0]["payload"])["id"] == str(over)
    assert lines[0]["time"].startswith(f"{before[0].time:%Y-%m-%dT%H:%M:%S}")


async def test_what_agents_left_of_it_goes_with_it(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    over, open_ = await hand_over(core), await hand_over(core, over=False)
    unknown = uuid4()
    for it in (over, open_, unknown):
        lay_out_contents({"guide": "x"}, tmp_path, it)
        (tmp_path / DRAFTS / str(it)).mkdir(parents=True)
    looked = await retain(core, tmp_path / "out", older_than=0.0, dry_run=True)
    done = await retain(core, tmp_path / "out", older_than=0.0)
    assert (looked.leftovers, done.leftovers) == (0, 2)
    for it in (over, open_, unknown):
        assert has_contents(tmp_path, it) == (it != over)
        assert (tmp_path / DRAFTS / str(it)).exists() == (it != over)


async def test_what_is_young_stays(core: Core, tmp_path: Path) -> None:
    await hand_over(core)
    done = await retain(core, tmp_path / "out", older_than=60.0)
    assert (done.expired, done.kept, done.removed.file) == (0, 1, None)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["after", "within", "retry_of", "stage_parents", "task_parents"])
async def test_what_an_open_handoff_names_stays(core: Core, tmp_path: Path, name: str) -> None:
    named = await hand_over(core)
    single = name in {"within", "retry_of"}
    value = Parent(handoff_id=named, sequence=1) if name.endswith("parents") else named
    await hand_over(core, over=False, **{name: value if single else (value,)})
    assert (await retain(core, tmp_path, older_than=0.0)).expired == 0


async def test_a_dry_run_only_says_what_would_go(core: Core, tmp_path: Path) -> None:
    over = await hand_over(core)
    done = await retain(core, tmp_path / "out", older_than=0.0, dry_run=True)
    assert (done.expired, done.removed.handoffs) == (1, 0)
    assert len(await core.ledger.read_messages(over)) == 2
    assert not (tmp_path / "out").exists()


async def test_a_crash_between_export_and_purge_repeats_harmlessly(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = [await hand_over(core) for _ in range(3)]
    delete = core.ledger.delete

    async def die_in_the_second(sequence: int) -> None:
        if sequence > 3:
            raise NoAnswerError("killed")
        await delete(sequence)

    monkeypatch.setattr(core.ledger, "delete", die_in_the_second)
    with pytest.raises(NoAnswerError):
        await retain(core, tmp_path / "out", older_than=0.0)
    (first,) = (tmp_path / "out").iterdir()
    monkeypatch.undo()
    done = await retain(core, tmp_path / "out", older_than=0.0)
    assert (len(read_lines(first)), done.removed.handoffs, done.removed.events) == (6, 2, 3)
    assert [await core.ledger.read_messages(it) for it in over] == [[], [], []]
    assert await read_relatives(core.ledger) == {}


async def test_an_empty_ledger_is_as_good_as_a_new_one(core: Core, tmp_path: Path) -> None:
    """A keeper that starts on it has nothing to read, and answers at once."""
    await hand_over(core)
    await retain(core, tmp_path, older_than=0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            run_receipt_keeper, core.connection.client.connected_url.geturl(), "default"
        )
        word = Word(uuid4(), 0, "sent", "nobody")
        counts: tuple[bool, ...] | None = None
        while counts is None:
            with suppress(NoAnswerError, BusUnavailableError):
                counts = await ask_confirm(core.connection, "default", (word,))
        tasks.cancel_scope.cancel()
    assert counts == (False,)


async def test_nothing_is_purged_that_cannot_be_exported(core: Core, tmp_path: Path) -> None:
    over = await hand_over(core)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExportError, match="is still in the ledger"):
        await retain(core, tmp_path / "file", older_than=0.0)
    assert len(await core.ledger.read_messages(over)) == 2


async def test_what_strangers_wrote_is_exported_as_it_is_stored(core: Core, tmp_path: Path) -> None:
    handoff_id = uuid4()
    subject = f"default.handoff.{handoff_id}.no.event"
    await core.connection.request(subject, b"\xff\x00")
    done = await retain(core, tmp_path, older_than=0.0)
    (line,) = read_lines(done.removed.file)
    assert (line["subject"], line["payload_base64"]) == (
        subject,
        base64.b64encode(b"\xff\x00").decode(),
    )
    assert await core.ledger.read_messages(handoff_id) == []


async def test_an_export_is_for_its_owner_alone(core: Core, tmp_path: Path) -> None:
    done = await remove(core, [await hand_over(core)], tmp_path / EXPORTS)
    assert done.file is not None
    modes = [stat.S_IMODE(it.stat().st_mode) for it in (done.file, done.file.parent)]
    assert modes == [0o600, 0o700]


async def test_the_ledger_is_measured_with_the_disk_that_it_lies_on(
    core: Core, tmp_path: Path
) -> None:
    await hand_over(core)
    seen = await measure(core.connection, "default", tmp_path / "store")
    assert (seen.events, [it.by for it in seen.rooms]) == (2, ["the disk"])
    assert 0 < seen.bytes < 10_000
    assert seen.rooms[0].left > 0
    assert seen.growth is None  # less than an hour of data
    assert (await measure(core.connection, "default", None)).rooms == ()


async def test_the_limit_of_the_stream_is_measured(core: Core) -> None:
    info = json.loads(await core.connection.api("STREAM.INFO.BATONBUS_default"))
    config = info["config"] | {"max_bytes": 1_000_000}
    await core.connection.api("STREAM.UPDATE.BATONBUS_default", config)
    (room,) = (await measure(core.connection, "default", None)).rooms
    assert (room.by, room.limit) == ("the stream's max_bytes", 1_000_000)
