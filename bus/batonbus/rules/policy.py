"""The context policy: how full an agent may be, how long its assignment, when its session is reset.

Every number is a default of seed 001 (thresholds, budgets, compaction, triggers) or seed 004
(`context_management`). An overlay, whether a role's or an agent's, may only be stricter.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

from batonbus.rules.fleet_secrets import Secrets, problems
from batonbus_schemas import AgentCard, Violation
from batonbus_schemas.tokens import Token

PolicyRole = Literal["coordinator", "implementer", "reviewer", "prototype", "researcher", "other"]
POLICY_ROLES: tuple[PolicyRole, ...] = get_args(PolicyRole)
Trigger = Literal[
    "user_interruption_resume",
    "wrong_project_or_tool_target_confusion",
    "two_fix_review_rounds",
    "before_new_roadmap_task_after_long_task",
    "cannot_state_project_task_phase_next",
]
TRIGGERS: tuple[Trigger, ...] = get_args(Trigger)

Percent = Annotated[float, Meta(ge=1, le=100)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class _Table(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the policy file: closed."""


class Thresholds(_Table, frozen=True):
    """Percent of a model's context in use. At `soft`: finish the current small operation, prepare
    to compact. At `hard`: nothing new is begun or dispatched. At `emergency`: no command, no
    verdict, until the context is compacted and the state is read again."""

    soft: Percent
    hard: Percent
    emergency: Percent


class Budget(_Table, frozen=True):
    """What an assignment's text may have: Unicode characters, and reference tokens."""

    characters: Count
    tokens: Count


class Overlay(_Table, frozen=True):
    """Stricter limits of one role or agent; what is left out stays as it is."""

    soft: Percent | None = None
    hard: Percent | None = None
    emergency: Percent | None = None
    characters: Count | None = None
    tokens: Count | None = None


class Compaction(_Table, frozen=True):
    """Percent in use that a compaction must end in: above it there was no gain, below it more was
    dropped than need be, which is only said."""

    target_min: Percent = 15
    target_max: Percent = 25


class Checkpoints(_Table, frozen=True):
    """When a Checkpoint is written, beside those that a reset demands: a week apart at most."""

    interval_minutes: Annotated[float, Meta(ge=1, le=10_080)] = 45
    after_phase: bool = True
    after_fix_review_rounds: Count = 2


class Fallback(_Table, frozen=True):
    """What forces a compaction where the usage is not known: at least one of them, for unknown is
    never taken for empty."""

    triggers: Annotated[tuple[Trigger, ...], Meta(min_length=1)] = TRIGGERS


class ContextManagement(_Table, frozen=True):
    """Which reset an agent's session gets at which boundary. In the middle of a task a session is
    never cleared."""

    phase_boundary: Literal["clear", "compact", "off"] = "clear"
    task_boundary: Literal["compact", "clear", "off"] = "compact"
    mid_task: Literal["compact", "off"] = "compact"


_THRESHOLDS: Mapping[PolicyRole, Thresholds] = {
    "coordinator": Thresholds(soft=50, hard=60, emergency=80),
    "implementer": Thresholds(soft=55, hard=65, emergency=80),
    "reviewer": Thresholds(soft=60, hard=70, emergency=80),
    "prototype": Thresholds(soft=60, hard=70, emergency=80),
    "researcher": Thresholds(soft=60, hard=70, emergency=80),
    "other": Thresholds(soft=60, hard=70, emergency=80),
}
_BUDGETS: Mapping[PolicyRole, Budget] = {
    "coordinator": Budget(characters=3000, tokens=750),
    "implementer": Budget(characters=2800, tokens=700),
    "reviewer": Budget(characters=2400, tokens=600),
    "prototype": Budget(characters=2400, tokens=600),
    "researcher": Budget(characters=2400, tokens=600),
    "other": Budget(characters=2200, tokens=550),
}
_OTHER: PolicyRole = "other"
_ROLES: Mapping[Token, PolicyRole] = {
    "specifier": "coordinator",
    "planner": "coordinator",
    "scheduler": "coordinator",
    "builder": "implementer",
    "verifier": "reviewer",
}


class Limits(Struct, frozen=True, kw_only=True):
    """What applies to one agent, or to a role of which no agent is known."""

    thresholds: Thresholds
    budget: Budget


class Policy(_Table, frozen=True):
    """The whole policy of a fleet. `policy_roles` says by which row a role is judged (a role that
    is named nowhere: `other`); `roles` and `agents` are overlays by name. Rows that are left out
    keep their defaults."""

    policy_roles: Mapping[Token, PolicyRole] = {}
    thresholds: Mapping[PolicyRole, Thresholds] = {}
    budgets: Mapping[PolicyRole, Budget] = {}
    compaction: Compaction = Compaction()
    checkpoints: Checkpoints = Checkpoints()
    fallback: Fallback = Fallback()
    context_management: ContextManagement = ContextManagement()
    secrets: Secrets = Secrets()
    roles: Mapping[Token, Overlay] = {}
    agents: Mapping[Token, Overlay] = {}

    def completed(self) -> "Policy":
        """The same policy with every row written out."""
        return replace(
            self,
            policy_roles={**_ROLES, **self.policy_roles},
            thresholds={**_THRESHOLDS, **self.thresholds},
            budgets={**_BUDGETS, **self.budgets},
        )

    def thresholds_of(self, row: PolicyRole) -> Thresholds:
        """The thresholds of a row."""
        return self.thresholds.get(row, _THRESHOLDS[row])

    def budget_of(self, row: PolicyRole) -> Budget:
        """The budget of a row."""
        return self.budgets.get(row, _BUDGETS[row])

    def row_of(self, role: str) -> PolicyRole:
        """The row by which a role is judged."""
        rows: Mapping[str, PolicyRole] = {**_ROLES, **self.policy_roles}
        return rows.get(role) or _as_row(role)

    def limits_of_role(self, role: str) -> Limits:
        """What applies to every agent of a role."""
        return self._strictest([self.row_of(role)], [self.roles.get(role)])

    def limits_of(self, card: AgentCard) -> Limits:
        """What applies to one agent: the strictest of its role's row, the policy role that its card
        names, and the overlays of its role and its id."""
        rows: list[PolicyRole] = [self.row_of(card.role)]
        if card.policy_role is not None:
            rows.append(_as_row(card.policy_role))
        return self._strictest(rows, [self.roles.get(card.role), self.agents.get(card.id)])

    def _strictest(self, rows: list[PolicyRole], overlays: Iterable[Overlay | None]) -> Limits:
        given = [it for it in overlays if it is not None]
        thresholds = [self.thresholds_of(row) for row in rows]
        budgets = [self.budget_of(row) for row in rows]
        return Limits(
            thresholds=Thresholds(
                soft=_least((it.soft for it in thresholds), (it.soft for it in given)),
                hard=_least((it.hard for it in thresholds), (it.hard for it in given)),
                emergency=_least(
                    (it.emergency for it in thresholds), (it.emergency for it in given)
                ),
            ),
            budget=Budget(
                characters=int(
                    _least((it.characters for it in budgets), (it.characters for it in given))
                ),
                tokens=int(_least((it.tokens for it in budgets), (it.tokens for it in given))),
            ),
        )


def _as_row(name: str) -> PolicyRole:
    return name if name in POLICY_ROLES else _OTHER


def _least(rows: Iterable[float], overlays: Iterable[float | None]) -> float:
    return min([*rows, *(it for it in overlays if it is not None)])


def contradictions(policy: Policy) -> Iterator[Violation]:
    """Where the policy's numbers contradict one another, each with the key that is wrong."""
    for row in policy.thresholds:
        yield from _order(policy.thresholds[row], f"thresholds.{row}")
    compaction = policy.compaction
    if compaction.target_min > compaction.target_max:
        problem = f"is {compaction.target_min:g}, above target_max {compaction.target_max:g}"
        yield Violation(path="compaction.target_min", problem=problem)
    lowest = min(policy.thresholds_of(row).hard for row in POLICY_ROLES)
    if compaction.target_max >= lowest:
        problem = f"is {compaction.target_max:g}, not below the lowest hard threshold {lowest:g}"
        yield Violation(path="compaction.target_max", problem=problem)
    for role, overlay in policy.roles.items():
        row = policy.row_of(role)
        yield from _looser(overlay, _row(policy, row), f"roles.{role}", row)
    for agent, overlay in policy.agents.items():
        # Its role is not known before it joins; then the stricter one of both counts.
        yield from _looser(overlay, _loosest(policy), f"agents.{agent}", "loosest row")
    for path, overlay in _overlays(policy):
        yield from _order(overlay, path)
        if overlay.hard is not None and compaction.target_max >= overlay.hard:
            problem = f"is {overlay.hard:g}, not above target_max {compaction.target_max:g}: "
            yield Violation(path=f"{path}.hard", problem=f"{problem}no compaction would open it")
    yield from problems(policy.secrets)


def _overlays(policy: Policy) -> Iterator[tuple[str, Overlay]]:
    yield from ((f"roles.{name}", it) for name, it in policy.roles.items())
    yield from ((f"agents.{name}", it) for name, it in policy.agents.items())


def _order(thresholds: Thresholds | Overlay, path: str) -> Iterator[Violation]:
    pairs = (("soft", "hard"), ("hard", "emergency"))
    for lower, upper in pairs:
        low, high = getattr(thresholds, lower), getattr(thresholds, upper)
        if low is not None and high is not None and low >= high:
            problem = f"is {low:g}, and must be below {upper} ({high:g})"
            yield Violation(path=f"{path}.{lower}", problem=problem)


def _row(policy: Policy, row: PolicyRole) -> Overlay:
    thresholds, budget = policy.thresholds_of(row), policy.budget_of(row)
    return Overlay(
        soft=thresholds.soft,
        hard=thresholds.hard,
        emergency=thresholds.emergency,
        characters=budget.characters,
        tokens=budget.tokens,
    )


def _loosest(policy: Policy) -> Overlay:
    rows = [_row(policy, row) for row in POLICY_ROLES]
    return Overlay(
        **{name: max(getattr(row, name) for row in rows) for name in Overlay.__struct_fields__}
    )


def _looser(overlay: Overlay, base: Overlay, path: str, row: str) -> Iterator[Violation]:
    for name in Overlay.__struct_fields__:
        wanted, limit = getattr(overlay, name), getattr(base, name)
        if wanted is not None and wanted > limit:
            problem = f"is {wanted:g}, above {limit:g} of {row}: an overlay may only be stricter"
            yield Violation(path=f"{path}.{name}", problem=problem)
