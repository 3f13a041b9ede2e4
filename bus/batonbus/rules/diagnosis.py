"""Whether a bus can do its work, judged from what was seen of it."""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from batonbus.rules.gate import stays_closed, way_out
from batonbus.rules.storage import Storage, amount
from batonbus_schemas import MESSAGE_LIMIT, Presence
from batonbus_schemas.counts import counted

HEADERS_LIMIT = 8_192
"""Bytes that are kept free for the headers of an event."""

PAYLOAD_NEEDED = 2 * MESSAGE_LIMIT + HEADERS_LIMIT
"""Bytes that a delivered handoff with its window may have; the server refuses what is larger than
its `max_payload`."""

SECURE_VERSIONS = {(2, 11): 16, (2, 12): 7, (2, 14): 0}
"""The first patch of each line without known holes; a newer line is secure from its start."""

FULL = 0.95
"""The part of a limit above which the ledger is called full."""

DAYS_TO_ACT = 30
"""Days of room below which it is time to do something."""


SKEW_ALLOWED = 5.0
"""Seconds that our clock and the server's may differ."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was checked: how it is, and what to do about it if something is."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    advice: str = ""


class Facts(Struct, frozen=True, kw_only=True):
    """What was seen of a bus.

    `parts` are its streams and consumers by name: the settings that differ, or None where it is
    missing. `at_risk` are those that too few nodes of a cluster keep. `pulls` are the window
    managers' requests that wait, `sync` is how often the server writes to its disk (`always`, or
    seconds), None where `sync_unknown` says why that is not known. `jetstream` and `keeper` are why
    there is none, if so, `unwritten` is why the ledger stores nothing. `open_at` is the address at
    which anybody may come in without credentials, `skew` is how many seconds the server's clock is
    ahead of ours, `storage` is None without a ledger.
    """

    address: str
    version: tuple[int, int, int]
    max_payload: int
    fleet: str
    jetstream: str | None = None
    parts: Mapping[str, tuple[str, ...] | None] = {}
    at_risk: tuple[str, ...] = ()
    pulls: int = 0
    keeper: str | None = None
    agents: tuple[Presence, ...] = ()
    sync: str | None = None
    sync_unknown: str = ""
    open_at: str | None = None
    skew: float = 0.0
    unwritten: str | None = None
    storage: Storage | None = None


def diagnose(facts: Facts) -> list[Finding]:
    """What to say of each thing, in an order in which a failed one explains those behind it."""
    if facts.jetstream is not None:
        return [_server(facts), _access(facts), _payload(facts), _jetstream(facts)]
    return [check(facts) for check in _CHECKS]


def concerns(facts: Facts) -> list[Finding]:
    """What is no reason not to start, and must be said when a process of the bus does."""
    checks = [_server, _access] + ([_sync] if facts.sync is not None else [])
    return [it for it in (check(facts) for check in checks) if it.status != "ok"]


def payload_problem(limit: int) -> str | None:
    """Why a server with this `max_payload` cannot carry every handoff; None where it can."""
    if limit >= PAYLOAD_NEEDED:
        return None
    return (
        f"the server's max_payload is {limit:,} bytes, and a handoff with its window may need "
        f"{PAYLOAD_NEEDED:,}: set max_payload: 1MB in its configuration"
    )


def _ok(name: str, detail: str) -> Finding:
    return Finding(name=name, status="ok", detail=detail)


def _fail(name: str, detail: str, advice: str) -> Finding:
    return Finding(name=name, status="fail", detail=detail, advice=advice)


def _warn(name: str, detail: str, advice: str) -> Finding:
    return Finding(name=name, status="warn", detail=detail, advice=advice)


def _server(facts: Facts) -> Finding:
    major, minor, patch = facts.version
    detail = f"nats-server {major}.{minor}.{patch} at {facts.address}"
    secure = (major, minor) > max(SECURE_VERSIONS) or patch >= SECURE_VERSIONS.get(
        (major, minor), patch + 1
    )
    if secure:
        return _ok("server", detail)
    return _warn(
        "server",
        f"{detail} has known security holes",
        "use 2.11.16, 2.12.7, 2.14.0 or newer",
    )


def _access(facts: Facts) -> Finding:
    if facts.open_at is None:
        return _ok("access", "only with credentials, or from its own machine")
    return _warn(
        "access",
        f"the server lets anybody in at {facts.open_at}, without credentials: who reaches it "
        "reads and writes everything",
        "give it users (see deploy/nats-server.conf), or let it listen on 127.0.0.1",
    )


def _payload(facts: Facts) -> Finding:
    detail = f"{facts.max_payload:,} bytes, needed {PAYLOAD_NEEDED:,}"
    if facts.max_payload >= PAYLOAD_NEEDED:
        return _ok("max_payload", detail)
    return _fail("max_payload", detail, "set max_payload: 1MB in the server's configuration")


def _jetstream(facts: Facts) -> Finding:
    if facts.jetstream is None:
        return _ok("jetstream", "enabled")
    return _fail("jetstream", facts.jetstream, "enable JetStream for this account on the server")


def _topology(facts: Facts) -> Finding:
    missing = [name for name, differing in facts.parts.items() if differing is None]
    wrong = [f"{name}: {'; '.join(it)}" for name, it in facts.parts.items() if it]
    if missing:
        return _fail(
            "ledger",
            f"missing: {', '.join(missing)}",
            "start the bus, which makes what is missing: `batonbus up`",
        )
    if wrong:
        return _fail(
            "ledger",
            " | ".join(wrong),
            "change it on the server, or give this bus a fleet name of its own",
        )
    if facts.at_risk:
        return _warn(
            "ledger",
            f"on fewer than three nodes of the cluster: {', '.join(facts.at_risk)}",
            f"`nats stream edit {facts.at_risk[0]} --replicas 3`: "
            "till then the loss of one node can stop the bus",
        )
    return _ok("ledger", f"{len(facts.parts)} streams and consumers are as needed")


def _writes(facts: Facts) -> Finding:
    if facts.storage is None:
        return _warn("writes", "there is no ledger to write to", "start the bus: `batonbus up`")
    if facts.unwritten is None:
        return _ok("writes", "the ledger stores what is written to it")
    return _fail(
        "writes",
        f"the ledger stores nothing: {facts.unwritten}",
        "see the server's log; where its disk is full, make space, then restart it: it stores "
        "nothing more before",
    )


def _clock(facts: Facts) -> Finding:
    if abs(facts.skew) <= SKEW_ALLOWED:
        return _ok("clock", f"within {SKEW_ALLOWED:g} s of the server's")
    way = "ahead of" if facts.skew > 0 else "behind"
    return _warn(
        "clock",
        f"the server's clock is {abs(facts.skew):,.1f} s {way} ours: nothing of the bus goes by "
        "ours, but a deadline that is set by it is that far off",
        "synchronize both clocks (NTP)",
    )


def _window_manager(facts: Facts) -> Finding:
    if facts.pulls:
        return _ok("window manager", f"listening ({counted(facts.pulls, 'pull')} waiting)")
    return _fail(
        "window manager",
        "no pull waits: none is running, so nothing is delivered",
        "start one: `batonbus up`, or `batonbus run window-manager`",
    )


def _keeper(facts: Facts) -> Finding:
    if facts.keeper is None:
        return _ok("receipt keeper", "answers")
    return _fail(
        "receipt keeper",
        facts.keeper,
        "start one: `batonbus up`, or `batonbus run receipt-keeper`",
    )


SHARED_ADVICE = "start each process with an --id of its own, or without --id"


def tell_shared(*agents: str) -> str:
    """What it means that several processes run under each of these ids."""
    return f"more than one process runs as {', '.join(agents)}, and they take each other's work"


def _agents(facts: Facts) -> Finding:
    roles = sorted({it.card.role for it in facts.agents})
    detail = f"{len(facts.agents)} alive: {', '.join(roles)}"
    if shared := [it.card.id for it in facts.agents if it.shared]:
        return _warn("agents", f"{detail}; {tell_shared(*shared)}", SHARED_ADVICE)
    if stuck := [it for it in facts.agents if stays_closed(it.closed)]:
        reasons = "; ".join(f"{it.card.id} is closed: {it.closed}" for it in stuck)
        ways = "; ".join(dict.fromkeys(way_out(it.closed) for it in stuck))
        return _warn("agents", f"{detail}; {reasons}", ways)
    if roles:
        return _ok("agents", detail)
    return _warn(
        "agents",
        f"none of the fleet {facts.fleet!r} is alive: handoffs will be overdue",
        "start one: `batonbus agent --role reviewer --command 'wc -w'`",
    )


def _sync(facts: Facts) -> Finding:
    if facts.sync is None:
        return _warn(
            "disk",
            f"unknown whether an event survives a power loss: {facts.sync_unknown}",
            "name its monitoring address: --monitoring http://127.0.0.1:8222",
        )
    if facts.sync == "always":
        return _ok("disk", "every event is on disk before it counts (sync_interval: always)")
    return _warn(
        "disk",
        f"written every {facts.sync}: a power loss may lose that much, a crash loses nothing",
        "set sync_interval: always, at about a tenth of the throughput",
    )


def _storage(facts: Facts) -> Finding:
    storage = facts.storage
    if storage is None:
        return _warn("storage", "there is no ledger to measure", "start the bus: `batonbus up`")
    room, growth, days = storage.tightest, storage.growth, storage.days_left
    detail = f"{amount(storage.bytes)} in {counted(storage.events, 'event')}, "
    if growth is None:
        detail += "growth not known yet (less than an hour of data)"
    else:
        detail += f"{amount(growth)} more a day"
    if room is None:
        return _ok("storage", f"{detail}; no limit is known here")
    detail += f"; {room.by} leaves {amount(room.left)}"
    detail += f" for {counted(round(days), 'day')}" if days is not None else ""
    advice = "let go of what is over: `batonbus retention run`, or give the server more room"
    if room.filled > FULL or (days is not None and days < 1):
        return _fail("storage", f"{detail}: {room.filled:.0%} is used", advice)
    if days is not None and days < DAYS_TO_ACT:
        return _warn("storage", detail, advice)
    return _ok("storage", detail)


_CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    _server,
    _access,
    _payload,
    _jetstream,
    _topology,
    _writes,
    _window_manager,
    _keeper,
    _agents,
    _sync,
    _clock,
    _storage,
)
