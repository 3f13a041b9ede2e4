"""What the doctor says about what was seen of a bus."""

from typing import Any

import pytest

from batonbus.rules.diagnosis import (
    PAYLOAD_NEEDED,
    Facts,
    Finding,
    concerns,
    diagnose,
    payload_problem,
)
from batonbus.rules.storage import DAY, Room, Storage
from batonbus_schemas import AgentCard, Presence

CARD = AgentCard(id="reviewer-1", role="reviewer")
CLOSED = Presence(card=CARD, closed="no gain: 41 %")
COMPACTING = Presence(card=CARD, closed="compacting")
HEALTHY: dict[str, Any] = {
    "address": "nats://127.0.0.1:4222",
    "version": (2, 12, 7),
    "max_payload": 1_048_576,
    "fleet": "default",
    "parts": {"BATONBUS_default": (), "window-manager": ()},
    "pulls": 1,
    "agents": (Presence(card=CARD),),
    "sync": "always",
    "storage": Storage(bytes=1_000_000, events=2_000, age=DAY),
}


def look(**changed: Any) -> dict[str, Finding]:
    return {it.name: it for it in diagnose(Facts(**{**HEALTHY, **changed}))}


def test_a_healthy_bus_has_nothing_to_do() -> None:
    for agents in (HEALTHY["agents"], (COMPACTING,)):
        assert {(it.status, it.advice) for it in look(agents=agents).values()} == {("ok", "")}


@pytest.mark.parametrize(
    ("changed", "name", "status", "said"),
    [
        (
            {"max_payload": PAYLOAD_NEEDED - 1},
            "max_payload",
            "fail",
            "139,263 bytes, needed 139,264",
        ),
        ({"parts": {"BATONBUS_x": None}}, "ledger", "fail", "missing: BATONBUS_x"),
        (
            {"parts": {"to-x": ("ack_wait is 1, needed 2",)}},
            "ledger",
            "fail",
            "to-x: ack_wait is 1",
        ),
        ({"at_risk": ("BATONBUS_x",)}, "ledger", "warn", "fewer than three nodes"),
        ({"pulls": 0}, "window manager", "fail", "nothing is delivered"),
        ({"keeper": "nobody answers"}, "receipt keeper", "fail", "nobody answers"),
        ({"agents": ()}, "agents", "warn", "handoffs will be overdue"),
        ({"agents": (CLOSED,)}, "agents", "warn", "reviewer-1 is closed: no gain: 41 %"),
        ({"open_at": "0.0.0.0"}, "access", "warn", "lets anybody in at 0.0.0.0"),
        ({"unwritten": "no answer within 3 s"}, "writes", "fail", "no answer within 3 s"),
        ({"skew": 5.1}, "clock", "warn", "5.1 s ahead of ours"),
        ({"skew": -3600.0}, "clock", "warn", "3,600.0 s behind ours"),
        ({"sync": "120 s"}, "disk", "warn", "written every 120 s"),
        ({"sync": None, "sync_unknown": "no page"}, "disk", "warn", "no page"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(
    changed: dict[str, Any], name: str, status: str, said: str
) -> None:
    findings = look(**changed)
    assert findings[name].status == status
    assert said in findings[name].detail
    assert findings[name].advice
    assert {it.status for other, it in findings.items() if other != name} == {"ok"}


def stored(*, used: int = 10**9, limit: int | None = None, age: float = 10 * DAY) -> Storage:
    """A ledger that grew by 100 MB a day, unless it is said otherwise."""
    rooms = () if limit is None else (Room(by="the disk", used=used, limit=limit),)
    return Storage(bytes=used, events=2_000, age=age, rooms=rooms)


@pytest.mark.parametrize(
    ("storage", "status", "said"),
    [
        (stored(), "ok", "1.0 GB in 2,000 events, 100 MB more a day; no limit is known here"),
        (stored(limit=10**12), "ok", "the disk leaves 999 GB for 9,990 days"),
        (stored(limit=4 * 10**9), "ok", "for 30 days"),
        (stored(limit=4 * 10**9 - 10**8), "warn", "leaves 2.9 GB for 29 days"),
        (stored(limit=10**9 + 9 * 10**7), "fail", "92% is used"),
        (stored(limit=10**9 + 10**7, age=1e9), "fail", "99% is used"),
        (stored(used=10**4, limit=10**9, age=60.0), "ok", "growth not known yet (less than an"),
        (stored(used=0, limit=0, age=0.0), "fail", "leaves 0 bytes: 100% is used"),
        (
            Storage(bytes=5, events=1, age=DAY, rooms=(Room(by="the disk", used=5, limit=10),)),
            "warn",
            "5 bytes in 1 event, 5 bytes more a day; the disk leaves 5 bytes for 1 day",
        ),
        (None, "warn", "no ledger"),
    ],
)
def test_the_room_of_the_ledger_is_told_in_days(
    storage: Storage | None, status: str, said: str
) -> None:
    finding = look(storage=storage)["storage"]
    assert finding.status == status
    assert said in finding.detail
    assert bool(finding.advice) == (status != "ok")


def test_an_id_that_two_processes_share_is_named() -> None:
    finding = look(agents=(Presence(card=CARD, shared=True),))["agents"]
    assert finding.status == "warn"
    assert f"more than one process runs as {CARD.id}" in finding.detail
    assert "--id of its own" in finding.advice


def test_without_a_ledger_nothing_is_said_to_be_written() -> None:
    finding = look(storage=None)["writes"]
    assert (finding.status, finding.detail) == ("warn", "there is no ledger to write to")


def test_the_limit_that_is_reached_first_counts() -> None:
    far, near = Room(by="far", used=5, limit=100), Room(by="near", used=50, limit=60)
    storage = Storage(bytes=5, events=1, age=DAY, rooms=(far, near))
    assert (storage.tightest, storage.days_left) == (near, 2.0)


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ((2, 11, 15), "warn"),
        ((2, 11, 16), "ok"),
        ((2, 12, 6), "warn"),
        ((2, 12, 7), "ok"),
        ((2, 13, 99), "warn"),
        ((2, 14, 0), "ok"),
        ((2, 15, 1), "ok"),
        ((3, 0, 0), "ok"),
    ],
)
def test_versions_with_known_holes_are_a_warning(
    version: tuple[int, int, int], status: str
) -> None:
    assert look(version=version)["server"].status == status


def test_without_jetstream_nothing_else_can_be_said() -> None:
    findings = look(jetstream="not enabled for this account")
    assert list(findings) == ["server", "access", "max_payload", "jetstream"]
    assert findings["jetstream"].status == "fail"


def test_five_seconds_between_two_clocks_are_allowed() -> None:
    assert {look(skew=skew)["clock"].status for skew in (-5.0, 0.0, 5.0)} == {"ok"}


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({}, []),
        ({"sync": None}, []),
        ({"sync": "120 s"}, ["disk"]),
        ({"open_at": "::", "version": (2, 12, 6)}, ["server", "access"]),
        ({"pulls": 0, "agents": (), "skew": 60.0}, []),
    ],
)
def test_a_start_warns_of_what_its_owner_must_know_and_of_nothing_that_comes_later(
    changed: dict[str, Any], names: list[str]
) -> None:
    assert [it.name for it in concerns(Facts(**{**HEALTHY, **changed}))] == names


def test_a_server_that_cannot_carry_every_handoff_is_a_problem_with_its_numbers() -> None:
    assert payload_problem(PAYLOAD_NEEDED) is None
    problem = payload_problem(65_536) or ""
    assert "max_payload is 65,536 bytes" in problem
    assert "may need 139,264: set max_payload: 1MB" in problem
