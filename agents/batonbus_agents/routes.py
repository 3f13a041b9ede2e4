"""Who comes next: the routes of the three execution modes, as one table (seed 002, sections 3, 5).

In `full` every stage answers the scheduler, which asks the next one itself. In `direct` and
`pipeline` each stage hands on, and the last one answers whoever started the work.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Mode = Literal["direct", "pipeline", "full"]
Role = Literal["specifier", "planner", "scheduler", "builder", "verifier", "committer"]
Status = Literal["PASS", "FAIL"]
Next = Role | Literal["reply"]

ROLES: tuple[Role, ...] = (
    "specifier",
    "planner",
    "scheduler",
    "builder",
    "verifier",
    "committer",
)

ATTEMPTS = 3
"""Attempts of a task, the first one included (seed 000: at most two retries)."""

ROUTES: Mapping[tuple[Mode, Role, Status], Next] = {
    ("direct", "specifier", "PASS"): "builder",
    ("direct", "specifier", "FAIL"): "reply",
    ("direct", "builder", "PASS"): "committer",
    ("direct", "builder", "FAIL"): "builder",
    ("direct", "committer", "PASS"): "reply",
    ("direct", "committer", "FAIL"): "builder",
    ("pipeline", "specifier", "PASS"): "planner",
    ("pipeline", "specifier", "FAIL"): "reply",
    ("pipeline", "planner", "PASS"): "builder",
    ("pipeline", "planner", "FAIL"): "reply",
    ("pipeline", "builder", "PASS"): "verifier",
    ("pipeline", "builder", "FAIL"): "builder",
    ("pipeline", "verifier", "PASS"): "committer",
    ("pipeline", "verifier", "FAIL"): "builder",
    ("pipeline", "committer", "PASS"): "reply",
    ("pipeline", "committer", "FAIL"): "builder",
    ("full", "specifier", "PASS"): "planner",
    ("full", "specifier", "FAIL"): "reply",
    ("full", "planner", "PASS"): "scheduler",
    ("full", "planner", "FAIL"): "reply",
    ("full", "builder", "PASS"): "reply",
    ("full", "builder", "FAIL"): "reply",
    ("full", "verifier", "PASS"): "reply",
    ("full", "verifier", "FAIL"): "reply",
    ("full", "committer", "PASS"): "reply",
    ("full", "committer", "FAIL"): "reply",
    ("full", "scheduler", "PASS"): "reply",
    ("full", "scheduler", "FAIL"): "reply",
}

STAGES: Mapping[Mode, tuple[Role, ...]] = {
    "direct": ("builder", "committer"),
    "pipeline": ("builder", "verifier", "committer"),
    "full": ("builder", "verifier", "committer"),
}
"""The stages that each task goes through."""

STARTS: Mapping[Mode, Role] = {"direct": "builder", "pipeline": "builder", "full": "scheduler"}
"""Who takes a planned work."""


class Route(Struct, frozen=True):
    """Where a result goes, and which attempt its receiver makes."""

    to: Next
    attempt: int


def route(mode: Mode, role: Role, status: Status, attempt: int) -> Route:
    """Where the result of `role` goes. A FAIL goes back to the builder with the next attempt, and
    after the third one to whoever waits. Raises KeyError for a role that the mode does not invoke.
    """
    to = ROUTES[mode, role, status]
    if status == "PASS" or to == "reply":
        return Route(to, attempt)
    return Route(to, attempt + 1) if attempt < ATTEMPTS else Route("reply", attempt)
